"""Keys that are held until their job has started."""

from __future__ import annotations

import asyncio

from hawser.job import UNTIL_START, State
from hawser.store import Acted, Enqueued, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    Opener,
    a_job,
    add,
    dead,
    done,
    failed,
    ids,
    released,
    running,
    seen,
    take,
    take_one,
    write,
)


async def test_a_key_until_the_start_is_held_while_its_job_waits(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """
    A key is held while its job is live and at least for `key_ttl` seconds after enqueue, or for as long as the job is kept.
    """
    id = await add(store, key="k", key_ttl="start", delay=30)
    assert (await seen(store, id)).key_ttl == UNTIL_START
    store = await reopen()
    clock.advance(29)
    for ttl in (UNTIL_START, 0.0, 60.0):
        assert await store.enqueue([a_job(key="k", key_ttl=ttl)]) == [Enqueued(id, False)]
    assert (await store.stats()).keys == 1


async def test_a_key_until_the_start_is_free_once_its_job_has_started(store: Store) -> None:
    """A key that is held until the start is free while its job runs or waits for another attempt."""
    first = await running(store, key="k", key_ttl="start")
    second = await add(store, key="k", key_ttl="start")
    assert await store.enqueue([a_job(key="k", key_ttl="start")]) == [Enqueued(second, False)]
    await write(store, done(first))
    assert await store.enqueue([a_job(key="k")]) == [Enqueued(second, False)]
    claimed = await take_one(store)
    assert claimed.id == second
    await write(store, failed(claimed, 30))
    third = await add(store, key="k")
    assert await store.enqueue([a_job(key="k", key_ttl="start")]) == [Enqueued(third, False)]
    assert (await store.stats()).keys == 1
    await write(store, done(await take_one(store)))
    assert (await store.stats()).keys == 0


async def test_a_job_that_is_handed_back_before_its_start_holds_its_key_again(store: Store) -> None:
    """A key that is held until the start is free while its job runs or waits for another attempt."""
    claimed = await running(store, key="k", key_ttl="start")
    await write(store, released(claimed))
    assert await store.enqueue([a_job(key="k")]) == [Enqueued(claimed.id, False)]


async def test_a_requeue_takes_a_key_until_the_start_again_if_it_is_free(store: Store) -> None:
    """
    A job that held a key takes it again; when another job holds it now, nothing changes.
    """
    claimed = await running(store, key="k", key_ttl="start")
    await write(store, dead(claimed))
    holder = await add(store, key="k")
    assert await store.requeue([claimed.id], SIGN) == [Acted.KEY_TAKEN]
    await store.cancel([holder], SIGN)
    other = await running(store, key="k", key_ttl="start")
    assert await store.requeue([claimed.id], SIGN) == [Acted.DONE]
    assert await store.enqueue([a_job(key="k")]) == [Enqueued(claimed.id, False)]
    await write(store, done(other))
    assert await store.enqueue([a_job(key="k")]) == [Enqueued(claimed.id, False)]
    assert (await seen(store, claimed.id)).state is State.READY


async def test_of_many_who_want_a_key_whose_job_has_started_one_gets_it(store: Store, second: Opener) -> None:
    """A key that is held until the start is free while its job runs or waits for another attempt."""
    stores = (store, await second())
    for round_ in range(5):
        first = await running(store, key=f"k{round_}", key_ttl="start")
        jobs = [a_job(key=f"k{round_}", key_ttl="start") for _ in range(8)]
        answers = await asyncio.gather(*(stores[n % 2].enqueue([job]) for n, job in enumerate(jobs)))
        assert [answer.created for [answer] in answers].count(True) == 1
        assert len({answer.id for [answer] in answers}) == 1
        rest = await take(store)
        assert ids(rest) == [answers[0][0].id]
        await write(store, done(first), *(done(job) for job in rest))
