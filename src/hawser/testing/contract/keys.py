"""Keys: what holds them, for how long, and what frees them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec import structs

from hawser.job import FOREVER, Claimed, State
from hawser.store import Acted, Enqueued, Retention, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    Opener,
    a_job,
    add,
    ask_to_stop,
    cancelled,
    dead,
    done,
    failed,
    ids,
    in_state,
    released,
    running,
    seen,
    snoozed,
    take,
    take_one,
    write,
)

End = Callable[[Store, Claimed], Awaitable[None]]


async def _done(store: Store, claimed: Claimed) -> None:
    await write(store, done(claimed))


async def _dead(store: Store, claimed: Claimed) -> None:
    await write(store, dead(claimed))


async def _cancelled(store: Store, claimed: Claimed) -> None:
    await write(store, cancelled(claimed))


async def _out_of_attempts(store: Store, claimed: Claimed) -> None:
    await write(store, failed(claimed))


async def _asked_to_stop(store: Store, claimed: Claimed) -> None:
    await ask_to_stop(store, claimed)
    await write(store, released(claimed))


async def _cancelled_in_waiting(store: Store, claimed: Claimed) -> None:
    await write(store, released(claimed))
    assert await store.cancel([claimed.id], SIGN) == [Acted.DONE]


WAYS_TO_END = (_done, _dead, _cancelled, _out_of_attempts, _asked_to_stop, _cancelled_in_waiting)
every_end = pytest.mark.parametrize("end", WAYS_TO_END, ids=lambda end: end.__name__.removeprefix("_"))


async def holder_of(store: Store, key: str = "k", queue: str = "default", task: str = "work") -> str | None:
    """Who holds the key; when no job does, the job that asked is gone again afterwards."""
    job = a_job(queue=queue, task=task, key=key, delay=1_000_000)
    [answer] = await store.enqueue([job])
    if not answer.created:
        assert await store.get(job.id) is None
        return answer.id
    assert answer.id == job.id
    assert await store.cancel([job.id], SIGN) == [Acted.DONE]
    return None


async def test_a_held_key_answers_with_its_holder(store: Store) -> None:
    """A key belongs to its queue and task: a job whose key is held there is not added, and the answer has the holder's id."""
    first = await add(store, key="k", body=b"1")
    late = a_job(key="k", body=b"2", priority=9)
    assert await store.enqueue([late]) == [Enqueued(first, False)]
    assert await store.get(late.id) is None
    assert [claimed.body for claimed in await take(store)] == [b"1"]


async def test_a_key_is_held_in_its_own_queue_only(store: Store) -> None:
    """A key belongs to its queue and task: a job whose key is held there is not added, and the answer has the holder's id."""
    here, there = await add(store, key="k"), await add(store, key="k", queue="other")
    assert here != there
    assert await holder_of(store) == here
    assert await holder_of(store, queue="other") == there


async def test_a_key_is_held_by_its_own_task_only(store: Store) -> None:
    """A key belongs to its queue and task: a job whose key is held there is not added, and the answer has the holder's id."""
    mine, theirs = await add(store, key="k"), await add(store, key="k", task="other")
    assert mine != theirs
    assert [await holder_of(store), await holder_of(store, task="other")] == [mine, theirs]
    jobs = [a_job(key="l", task=task) for task in ("work", "other", "work")]
    assert [answer.created for answer in await store.enqueue(jobs)] == [True, True, False]


@every_end
async def test_the_end_of_a_job_frees_no_key_of_another_task(store: Store, end: End) -> None:
    """A key belongs to its queue and task: a job whose key is held there is not added, and the answer has the holder's id."""
    claimed = await running(store, key="k", max_attempts=1)
    theirs = await add(store, key="k", task="other", delay=1_000)
    await end(store, claimed)
    assert [await holder_of(store), await holder_of(store, task="other")] == [None, theirs]


async def test_a_window_that_is_swept_takes_no_key_of_another_task_along(store: Store, clock: ManualClock) -> None:
    """A key belongs to its queue and task: a job whose key is held there is not added, and the answer has the holder's id."""
    await write(store, done(await running(store, key="k", key_ttl=60)))
    theirs = await add(store, key="k", task="other", delay=1_000)
    clock.advance(61)
    assert await store.prune(Retention(), {}, 10) == 0
    assert [await holder_of(store), await holder_of(store, task="other")] == [None, theirs]


@pytest.mark.parametrize("other", ["K", "k ", " k", "\uff4b", "k\u0301", "%", "_", "k'", "1"])
async def test_keys_are_compared_exactly(store: Store, other: str) -> None:
    """A key belongs to its queue and task: a job whose key is held there is not added, and the answer has the holder's id."""
    first = await add(store, key="k")
    second = await add(store, key=other)
    assert [await holder_of(store), await holder_of(store, other)] == [first, second]


async def test_jobs_without_a_key_never_meet(store: Store) -> None:
    """A key belongs to its queue and task: a job whose key is held there is not added, and the answer has the holder's id."""
    assert len({await add(store), await add(store), await add(store)}) == 3


async def test_two_jobs_of_one_call_with_one_key_become_one(store: Store) -> None:
    """Two jobs of one call with the same key become one."""
    jobs = [a_job(key="k"), a_job(key="k"), a_job(key="k", queue="other"), a_job(key="k", key_ttl=60)]
    assert await store.enqueue(jobs) == [
        Enqueued(jobs[0].id, True),
        Enqueued(jobs[0].id, False),
        Enqueued(jobs[2].id, True),
        Enqueued(jobs[0].id, False),
    ]
    assert ids(await take(store)) == [jobs[0].id]


async def test_each_job_of_a_call_finds_what_became_of_those_before(store: Store) -> None:
    """A key belongs to its queue and task: a job whose key is held there is not added, and the answer has the holder's id."""
    holder, refused = a_job(key="k"), a_job(key="k")
    free = structs.replace(refused, queue="other")
    assert await store.enqueue([holder, refused, free]) == [
        Enqueued(holder.id, True),
        Enqueued(holder.id, False),
        Enqueued(free.id, True),
    ]


async def test_fifty_producers_with_one_key_make_one_job(store: Store, second: Opener) -> None:
    """A key belongs to its queue and task: a job whose key is held there is not added, and the answer has the holder's id."""
    handles = [store, await second(), await second(), await second()]
    answers = await asyncio.gather(*(handles[i % 4].enqueue([a_job(key="k")]) for i in range(50)))
    assert sum(answer.created for [answer] in answers) == 1
    assert len({answer.id for [answer] in answers}) == 1
    assert len(await take(store)) == 1


async def test_many_producers_with_many_keys_make_one_job_each(store: Store, second: Opener) -> None:
    """A key belongs to its queue and task: a job whose key is held there is not added, and the answer has the holder's id."""
    handles = [store, await second()]
    batches = [[a_job(key=str((i + j) % 7)) for j in range(7)] for i in range(20)]
    await asyncio.gather(*(handles[i % 2].enqueue(batch) for i, batch in enumerate(batches)))
    assert sorted(claimed.key or "" for claimed in await take(store)) == list("0123456")


async def test_a_live_job_holds_its_key_through_every_step(store: Store, clock: ManualClock) -> None:
    """A key is held while its job is live and at least for `key_ttl` seconds after enqueue, or for as long as the job is kept."""
    id = await add(store, key="k", delay=10)
    assert await holder_of(store) == id
    clock.advance(1_000)
    for back in (failed, snoozed, released):
        claimed = await take_one(store)
        assert await holder_of(store) == id
        await write(store, back(claimed))
        assert await holder_of(store) == id
    await take_one(store, lease_for=5)
    clock.advance(6)
    assert await holder_of(store) == id
    await store.reclaim(10)
    assert await holder_of(store) == id


@every_end
async def test_the_end_of_a_live_job_frees_its_key(store: Store, end: End) -> None:
    """When that ends the key is free."""
    claimed = await running(store, key="k", max_attempts=1)
    await end(store, claimed)
    assert await holder_of(store) is None


async def test_a_lost_run_without_attempts_left_frees_its_key(store: Store, clock: ManualClock) -> None:
    """When that ends the key is free."""
    await running(store, key="k", max_attempts=1, lease_for=5)
    clock.advance(6)
    assert len(await store.reclaim(10)) == 1
    assert await holder_of(store) is None


async def test_a_removed_job_frees_its_key(store: Store) -> None:
    """When that ends the key is free."""
    for ttl in (0, FOREVER):
        claimed = await running(store, key="k", key_ttl=ttl)
        await write(store, done(claimed, keep=False))
        assert await holder_of(store) is None


@every_end
async def test_a_key_for_ever_is_held_as_long_as_the_job_is_kept(store: Store, clock: ManualClock, end: End) -> None:
    """
    A key is held while its job is live and at least for `key_ttl` seconds after enqueue, or for as long as the job is kept.
    When that ends the key is free.
    """
    claimed = await running(store, key="k", key_ttl=FOREVER, max_attempts=1)
    await end(store, claimed)
    clock.advance(86_400)
    assert await holder_of(store) == claimed.id
    clock.advance(31 * 86_400)
    assert await store.prune(Retention(), {}, 10) == 1
    assert await holder_of(store) is None


async def test_the_holder_decides_for_how_long(store: Store) -> None:
    """A key is held while its job is live and at least for `key_ttl` seconds after enqueue, or for as long as the job is kept."""
    claimed = await running(store, key="k")
    assert await store.enqueue([a_job(key="k", key_ttl=FOREVER)]) == [Enqueued(claimed.id, False)]
    await write(store, done(claimed))
    assert await holder_of(store) is None


async def test_an_old_holder_does_not_free_the_key_of_a_new_one(store: Store, clock: ManualClock) -> None:
    """A key is held while its job is live and at least for `key_ttl` seconds after enqueue, or for as long as the job is kept."""
    await write(store, done(await running(store, key="k", key_ttl=10)))
    clock.advance(11)
    new = await add(store, key="k", delay=1_000_000)
    assert await holder_of(store) == new
    clock.advance(8 * 86_400)
    assert await store.prune(Retention(), {}, 10) == 1
    assert await holder_of(store) == new


@pytest.mark.parametrize("ttl", [0, 10])
async def test_a_dead_job_that_goes_does_not_free_the_key_of_a_new_one(store: Store, clock: ManualClock, ttl: float) -> None:
    """A key is held while its job is live and at least for `key_ttl` seconds after enqueue, or for as long as the job is kept."""
    old = await in_state(store, State.DEAD, key="k", key_ttl=ttl)
    clock.advance(11)
    new = await add(store, key="k", delay=10_000_000)
    assert await store.discard([old], SIGN) == [Acted.DONE]
    assert await holder_of(store) == new
    clock.advance(31 * 86_400)
    assert await store.prune(Retention(), {}, 10) == 1
    assert await holder_of(store) == new


async def test_a_job_shows_its_key_after_its_end(store: Store) -> None:
    claimed = await running(store, key="k")
    await write(store, done(claimed))
    assert (await seen(store, claimed.id)).key == "k"


async def test_a_repeat_that_names_no_key_leaves_the_key_of_the_first_alone(store: Store) -> None:
    """A key is held while its job is live and at least for `key_ttl` seconds after enqueue, or for as long as the job is kept."""
    old = await in_state(store, State.DONE, key="k", key_ttl=FOREVER)
    assert await store.enqueue([a_job(id=old)]) == [Enqueued(old, False)]
    assert await store.enqueue([a_job(key="k")]) == [Enqueued(old, False)]
