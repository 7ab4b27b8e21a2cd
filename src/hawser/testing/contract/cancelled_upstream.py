"""Jobs that wait for others, when one of those is cancelled."""

from __future__ import annotations

from collections.abc import Sequence

from hawser.job import State
from hawser.store import Acted, Change, Retention, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.dependencies import due, put, waiting
from hawser.testing.contract.making import SIGN, a_job, add, cancelled, done, in_state, running, seen, write


async def chained(store: Store, upstream: str, *others: str) -> list[str]:
    """Three jobs, each waits for the one before, the first for the upstream and others."""
    first = waiting(upstream, *others)
    second = waiting(first)
    return await put(store, first, second, waiting(second))


async def assert_cancelled(store: Store, upstream: str, chain: Sequence[str]) -> None:
    jobs = [await seen(store, id) for id in chain]
    assert [job.state for job in jobs] == [State.CANCELLED] * len(chain)
    assert [job.reason for job in jobs] == [f"it waited for job {id}, which is cancelled" for id in (upstream, *chain[:-1])]
    assert not any(job.held for job in jobs)
    stats = await store.stats("later")
    assert (stats.held, stats.scheduled, stats.ready, stats.cancelled) == (0, 0, 0, len(chain))
    assert await due(store) == []


async def test_a_cancelled_outcome_cancels_what_waits(store: Store) -> None:
    """When one ends as cancelled, what waits for it is cancelled, and so on down."""
    upstream = await running(store)
    chain = await chained(store, upstream.id, await add(store, queue="idle"))
    await write(store, cancelled(upstream))
    await assert_cancelled(store, upstream.id, chain)


async def test_cancelling_a_job_cancels_what_waits(store: Store) -> None:
    """When one ends as cancelled, what waits for it is cancelled, and so on down."""
    upstream = await add(store)
    chain = await chained(store, upstream)
    assert await store.cancel([upstream], SIGN) == [Acted.DONE]
    await assert_cancelled(store, upstream, chain)


async def test_discarding_a_job_cancels_what_waits(store: Store) -> None:
    """When one ends as cancelled, what waits for it is cancelled, and so on down."""
    upstream = await in_state(store, State.DEAD)
    chain = await chained(store, upstream)
    assert await store.discard([upstream], SIGN) == [Acted.DONE]
    await assert_cancelled(store, upstream, chain)


async def test_what_waits_for_a_cancelled_job_is_cancelled(store: Store) -> None:
    """When one ends as cancelled, what waits for it is cancelled, and so on down."""
    upstream = await in_state(store, State.CANCELLED)
    chain = await chained(store, upstream)
    await assert_cancelled(store, upstream, chain)


async def test_a_dead_job_that_is_pruned_cancels_what_waits(store: Store, clock: ManualClock) -> None:
    upstream = await in_state(store, State.DEAD)
    [waiter] = await put(store, waiting(upstream))
    clock.advance(100)
    assert await store.prune(Retention(dead=50), {}, 100) == 1
    job = await seen(store, waiter)
    assert (job.state, job.reason) == (State.CANCELLED, f"it waited for job {upstream}, which was removed while it was dead")


async def test_a_long_chain_is_cancelled_whole(store: Store) -> None:
    """When one ends as cancelled, what waits for it is cancelled, and so on down."""
    jobs = [a_job(queue="later")]
    for _ in range(1_050):
        jobs.append(waiting(jobs[-1]))
    await put(store, *jobs)
    await store.cancel([jobs[0].id], SIGN)
    for _ in range(50):
        await store.reclaim(10)
        if (await store.stats("later")).cancelled == len(jobs):
            break
    assert (await store.stats("later")).cancelled == len(jobs)


async def test_a_held_job_is_not_changed(store: Store) -> None:
    """Running and finished jobs are in the wrong state, and so are those that wait for other jobs."""
    upstream = await running(store)
    [waiter] = await put(store, waiting(upstream.id))
    before = await seen(store, waiter)
    for change in (Change(delay=0), Change(priority=9), Change(queue="other")):
        assert await store.change([waiter], change, SIGN) == [Acted.WRONG_STATE]
    assert await store.dead_letter([waiter], SIGN) == [Acted.WRONG_STATE]
    assert await seen(store, waiter) == before
    await write(store, done(upstream))
    assert await due(store) == [waiter]


async def test_a_job_that_a_person_ends_as_dead_has_ended(store: Store) -> None:
    """A job that takes any end waits until all have ended."""
    upstream = await add(store)
    [any_end, waiter] = await put(store, waiting(upstream, on="ended"), waiting(upstream))
    assert await store.dead_letter([upstream], SIGN) == [Acted.DONE]
    await store.reclaim(10)
    assert await due(store) == [any_end]
    assert (await seen(store, waiter)).held
