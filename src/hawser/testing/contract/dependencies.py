"""Jobs that wait for others."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Literal

import pytest

from hawser.errors import InvalidJob
from hawser.job import NewJob, State, Waiting
from hawser.store import WAITS_TOLD, Acted, Actor, Filter, Store, Upstream, Waits
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
    in_state,
    lose,
    now,
    running,
    seen,
    take,
    take_one,
    write,
)
from hawser.value.ids import new_id


def waiting(*upstream: NewJob | str, on: Literal["done", "ended"] = "done", **fields: object) -> NewJob:
    """A job in a queue of its own that waits for these."""
    return a_job(queue="later", **fields).after(*upstream, on=on)


async def put(store: Store, *jobs: NewJob) -> list[str]:
    assert all(answer.created for answer in await store.enqueue(jobs))
    return ids(jobs)


async def due(store: Store) -> list[str]:
    """The jobs of that queue that can be claimed, claimed."""
    return ids(await take(store, queue="later"))


@pytest.mark.parametrize("count", [1, 2, 30])
async def test_a_job_waits_until_all_others_are_done(store: Store, count: int) -> None:
    """A job that waits for others is not given out before all of them are done; its delay counts from then.
    When the last job that another waits for is done, that one is ready when settle answers."""
    upstream = [a_job() for _ in range(count)]
    [*_, waiter] = await put(store, *upstream, waiting(*upstream))
    for claimed in await take(store):
        assert await due(store) == []
        await write(store, done(claimed))
    assert await due(store) == [waiter]


async def test_the_delay_of_a_held_job_counts_from_its_release(store: Store, clock: ManualClock) -> None:
    """A job that waits for others is not given out before all of them are done; its delay counts from then."""
    upstream = await running(store)
    [delayed] = await put(store, waiting(upstream.id, delay=60))
    [timed] = await put(store, waiting(upstream.id, run_at=now(clock, 100)))
    clock.advance(90)
    await write(store, done(upstream))
    job = await seen(store, delayed)
    assert (job.run_at, job.held) == (now(clock, 60), False)
    assert (await seen(store, timed)).run_at == now(clock, 10)
    assert await due(store) == []
    clock.advance(10)
    assert await due(store) == [timed]
    clock.advance(50)
    assert await due(store) == [delayed]


async def test_a_time_that_is_over_at_the_release_is_now(store: Store, clock: ManualClock) -> None:
    upstream = await running(store)
    [timed] = await put(store, waiting(upstream.id, run_at=now(clock) - timedelta(hours=1)))
    assert await due(store) == []
    await write(store, done(upstream))
    assert (await seen(store, timed)).run_at == now(clock)
    assert await due(store) == [timed]


async def test_what_is_done_already_is_not_waited_for(store: Store) -> None:
    """Those that are done already are not waited for."""
    over = await in_state(store, State.DONE)
    [free] = await put(store, waiting(over))
    assert not (await seen(store, free)).held
    assert await due(store) == [free]
    upstream = await running(store)
    [held] = await put(store, waiting(over, upstream.id))
    assert (await seen(store, held)).held
    await write(store, done(upstream))
    assert await due(store) == [held]


async def test_an_unknown_job_cannot_be_waited_for(store: Store) -> None:
    """One that the store does not have is refused with `InvalidJob`, and nothing is written."""
    known, unknown, other = await add(store), new_id(), a_job()
    with pytest.raises(InvalidJob, match=f"after: this store does not have {unknown}"):
        await store.enqueue([other, waiting(known, unknown, other)])
    assert await store.get(other.id) is None
    removed = await running(store, queue="brief")
    await write(store, done(removed, keep=False))
    with pytest.raises(InvalidJob, match=removed.id):
        await store.enqueue([waiting(removed.id)])
    assert (await store.stats()).held == 0


async def test_the_holder_of_a_key_is_waited_for(store: Store) -> None:
    """Where a key is held, the holder is waited for in its place."""
    holder = await running(store, key="k")
    second = a_job(key="k")
    waiter = waiting(second)
    answers = await store.enqueue([second, waiter])
    assert [(answer.id, answer.created) for answer in answers] == [(holder.id, False), (waiter.id, True)]
    assert await due(store) == []
    await write(store, done(holder))
    assert await due(store) == [waiter.id]


async def test_a_job_may_take_any_end(store: Store) -> None:
    """A job that takes any end waits until all have ended."""
    good, bad, unwanted = a_job(), a_job(), a_job(queue="idle")
    [*_, waiter] = await put(store, good, bad, unwanted, waiting(good, bad, unwanted, on="ended"))
    first, second = await take(store)
    await write(store, done(first), dead(second))
    assert await due(store) == []
    assert await store.cancel([unwanted.id], SIGN) == [Acted.DONE]
    assert await due(store) == [waiter]
    [after_all] = await put(store, waiting(unwanted, bad, on="ended"))
    assert await due(store) == [after_all], "all have ended already"


async def test_no_circle_can_be_written(store: Store) -> None:
    """What is waited for stands before what waits in a call; else `InvalidJob` is raised, and nothing is written."""
    one, other = a_job(), a_job()
    for jobs in ([one.after(other), other], [one.after(other), other.after(one)]):
        with pytest.raises(InvalidJob, match=r"after: job .* stands behind this one in the same call"):
            await store.enqueue(jobs)
    assert await store.get(one.id) is None
    await put(store, other, one.after(other))


async def test_a_dead_job_keeps_those_waiting_that_wait_for_it(store: Store) -> None:
    """When one is dead, what waits for it waits on, and a requeue goes on with it."""
    upstream = await running(store)
    [waiter] = await put(store, waiting(upstream.id))
    await write(store, dead(upstream))
    [late] = await put(store, waiting(upstream.id))
    assert await due(store) == []
    assert (await seen(store, waiter)).held
    assert await store.requeue([upstream.id], SIGN) == [Acted.DONE]
    assert await due(store) == []
    await write(store, done(await take_one(store)))
    assert set(await due(store)) == {waiter, late}


async def test_a_lost_run_keeps_those_waiting_that_wait_for_its_job(store: Store, clock: ManualClock) -> None:
    upstream = await running(store, max_attempts=1)
    [waiter] = await put(store, waiting(upstream.id))
    await lose(store, clock)
    assert (await seen(store, upstream.id)).state is State.DEAD
    assert await due(store) == []
    assert (await seen(store, waiter)).held


async def test_a_failed_attempt_releases_nothing(store: Store) -> None:
    upstream = await running(store, max_attempts=2)
    [waiter] = await put(store, waiting(upstream.id, on="ended"))
    await write(store, failed(upstream))
    assert await due(store) == []
    await write(store, done(await take_one(store)))
    assert await due(store) == [waiter]


async def test_a_replay_with_another_payload_takes_over_those_that_wait(store: Store) -> None:
    """When one is dead, what waits for it waits on, and a requeue goes on with it."""
    upstream = await running(store)
    [waiter] = await put(store, waiting(upstream.id))
    await write(store, dead(upstream))
    assert await store.replace(upstream.id, a_job(body=b'{"n":1}'), SIGN) is Acted.DONE
    assert (await seen(store, waiter)).held
    await write(store, done(await take_one(store)))
    assert await due(store) == [waiter]


async def test_a_held_job_can_be_cancelled_and_run_without_the_others(store: Store) -> None:
    upstream = await running(store)
    [waiter] = await put(store, waiting(upstream.id, key="k"))
    assert await store.cancel([waiter], Actor(by="ann", reason="not wanted")) == [Acted.DONE]
    assert (await store.stats("later")).held == 0
    await write(store, done(upstream))
    assert await due(store) == []
    assert await store.requeue([waiter], SIGN) == [Acted.DONE]
    assert await due(store) == [waiter]


async def test_held_jobs_are_counted_and_found(store: Store, clock: ManualClock) -> None:
    """For how many jobs a held job waits, and some of them with their states; None for a job that waits for no other."""
    upstream = await running(store)
    later = await add(store, queue="later", delay=60)
    [waiter] = await put(store, waiting(upstream.id, delay=5))
    stats = await store.stats("later")
    assert (stats.held, stats.scheduled, stats.ready, stats.due, stats.retrying) == (1, 1, 0, 0, 0)
    assert (await store.queues())["later"].held == 1
    job = await seen(store, waiter)
    assert (job.state, job.held) == (State.READY, True)
    for kind, found in ((Waiting.HELD, [waiter]), (Waiting.SCHEDULED, [later])):
        assert ids((await store.find(Filter(state=State.READY, waiting=kind, queue="later"))).jobs) == found
        assert ids((await store.find(Filter(waiting=kind))).jobs) == found
    await write(store, done(upstream))
    stats = await store.stats("later")
    assert (stats.held, stats.scheduled) == (0, 2)
    clock.advance(5)
    assert (await store.stats("later")).due == 1


async def test_what_a_job_waits_for_is_told(store: Store) -> None:
    """For how many jobs a held job waits, and some of them with their states; None for a job that waits for no other."""
    stopped = await in_state(store, State.DEAD)
    upstream = [a_job() for _ in range(WAITS_TOLD + 2)]
    [*_, waiter] = await put(store, *upstream, waiting(stopped, *upstream))
    claimed = await take_one(store)
    told = await store.waits(waiter)
    assert told is not None
    assert (told.total, told.left, len(told.upstream)) == (WAITS_TOLD + 3, WAITS_TOLD + 3, WAITS_TOLD)
    assert {Upstream(stopped, State.DEAD), Upstream(claimed.id, State.RUNNING)} <= set(told.upstream)
    await write(store, done(claimed))
    told = await store.waits(waiter)
    assert told is not None
    assert (told.total, told.left) == (WAITS_TOLD + 3, WAITS_TOLD + 2)
    for other in await take(store):
        await write(store, done(other))
    assert await store.waits(waiter) == Waits(WAITS_TOLD + 3, 1, (Upstream(stopped, State.DEAD),))
    assert await store.waits(stopped) is None
    assert await store.waits(new_id()) is None


async def test_jobs_that_follow_from_another_may_wait(store: Store) -> None:
    """A job that waits for others is not given out before all of them are done; its delay counts from then."""
    parent, beside = await running(store), await running(store, queue="beside")
    child = a_job()
    waiter = waiting(child, beside.id)
    await write(store, done(parent, child, waiter))
    assert (await seen(store, waiter.id)).parent_id == parent.id
    await write(store, done(beside))
    assert await due(store) == []
    await write(store, done(await take_one(store)))
    assert await due(store) == [waiter.id]


async def test_a_job_that_follows_and_waits_for_an_unknown_one_is_cancelled(store: Store) -> None:
    parent, unknown = await running(store), new_id()
    waiter = waiting(unknown)
    await write(store, done(parent, waiter))
    job = await seen(store, waiter.id)
    assert (job.state, job.reason) == (State.CANCELLED, f"it waited for job {unknown}, which this store does not have")


async def test_a_repeated_enqueue_holds_nothing_a_second_time(store: Store) -> None:
    upstream = a_job()
    waiter = waiting(upstream)
    await put(store, upstream, waiter)
    again = await store.enqueue([upstream, waiter])
    assert [answer.created for answer in again] == [False, False]
    assert (await store.stats()).held == 1
    await write(store, done(await take_one(store)))
    assert await due(store) == [waiter.id]
    await store.enqueue([upstream, waiter])
    assert (await store.stats()).held == 0


async def test_a_diamond_runs_in_order(store: Store) -> None:
    top = a_job(queue="later")
    left, right = waiting(top), waiting(top)
    await put(store, top, left, right, waiting(left, right))
    seen_: list[int] = []
    while claimed := await take(store, queue="later"):
        seen_.append(len(claimed))
        await write(store, *(done(job) for job in claimed))
    assert seen_ == [1, 2, 1]


async def test_a_chain_runs_one_after_the_other(store: Store) -> None:
    jobs = [a_job(queue="later")]
    for _ in range(20):
        jobs.append(waiting(jobs[-1]))
    await put(store, *jobs)
    for job in jobs:
        claimed = await take(store, queue="later")
        assert ids(claimed) == [job.id]
        await write(store, done(claimed[0]))


async def test_many_settlers_release_a_job_once(store: Store, second: Opener) -> None:
    """When the last job that another waits for is done, that one is ready when settle answers."""
    other = await second()
    for _ in range(5):
        upstream = [a_job() for _ in range(8)]
        [*_, waiter] = await put(store, *upstream, waiting(*upstream))
        claimed = await take(store)
        await asyncio.gather(*(write(store if n % 2 else other, done(job)) for n, job in enumerate(claimed)))
        assert await due(store) == [waiter]
        assert (await store.stats("later")).held == 0


async def test_jobs_that_come_while_the_other_ends_are_released(store: Store, second: Opener) -> None:
    """When the last job that another waits for is done, that one is ready when settle answers."""
    other, waiters = await second(), []
    for _ in range(15):
        upstream, waiter = await running(store), waiting()
        waiter = waiter.after(upstream.id)
        waiters.append(waiter.id)
        await asyncio.gather(write(other, done(upstream)), put(store, waiter))
    await store.reclaim(10)
    assert sorted(await due(store)) == sorted(waiters)


async def test_held_jobs_count_for_the_depth_of_a_queue_and_stay_over_a_restart(store: Store, reopen: Opener) -> None:
    upstream = await running(store)
    [waiter] = await put(store, waiting(upstream.id))
    store = await reopen()
    assert (await store.stats("later")).held == 1
    await write(store, done(upstream))
    assert await due(store) == [waiter]
