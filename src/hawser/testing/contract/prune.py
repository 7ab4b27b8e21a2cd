"""Prune: finished jobs past their retention."""

from __future__ import annotations

import pytest

from hawser.job import FOREVER, State
from hawser.store import Enqueued, Filter, Retention, Settled, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    Opener,
    a_job,
    add,
    add_many,
    done,
    failed,
    in_state,
    running,
    said,
    seen,
    take,
    write,
)

SHORT = Retention(done=10, dead=20, cancelled=30)
KEEP = Retention(done=1_000_000, dead=1_000_000, cancelled=1_000_000)


async def prune(store: Store, retention: Retention = SHORT, limit: int = 100, **by_task: Retention) -> int:
    return await store.prune(retention, by_task, limit)


async def left(store: Store) -> int:
    return len((await store.find(Filter(), limit=1000)).jobs)


async def test_jobs_are_kept_for_as_long_as_their_end_says(store: Store, clock: ManualClock) -> None:
    """
    Remove up to `limit` finished jobs that are past their retention, and say how many; keys that have run out go too.
    """
    done_, dead_, cancelled_ = [await in_state(store, state) for state in (State.DONE, State.DEAD, State.CANCELLED)]
    clock.advance(9.9)
    assert await prune(store) == 0
    for gone, kept in ((done_, dead_), (dead_, cancelled_)):
        clock.advance(0.2)
        assert await prune(store) == 1
        assert await store.get(gone) is None
        await seen(store, kept)
        clock.advance(9.8)
    clock.advance(0.2)
    assert await prune(store) == 1
    assert await left(store) == 0


async def test_retention_counts_from_the_end(store: Store, clock: ManualClock) -> None:
    """
    Remove up to `limit` finished jobs that are past their retention, and say how many; keys that have run out go too.
    """
    await add(store)
    clock.advance(1_000)
    [claimed] = await take(store)
    clock.advance(50)
    await write(store, done(claimed))
    clock.advance(9.9)
    assert await prune(store) == 0
    clock.advance(0.2)
    assert await prune(store) == 1


async def test_live_jobs_are_never_pruned(store: Store, clock: ManualClock) -> None:
    """
    Remove up to `limit` finished jobs that are past their retention, and say how many; keys that have run out go too.
    """
    await running(store)
    await write(store, failed(await running(store), after=60))
    await add(store)
    await add(store, delay=1)
    clock.advance(1_000_000)
    assert await prune(store, Retention(done=0, dead=0, cancelled=0)) == 0
    assert await left(store) == 4


@pytest.mark.parametrize("state", [state for state in State if state.finished])
async def test_a_task_may_have_its_own_retention(store: Store, clock: ManualClock, state: State) -> None:
    """
    Remove up to `limit` finished jobs that are past their retention, and say how many; keys that have run out go too.
    """
    usual = await in_state(store, state)
    brief = await in_state(store, state, task="brief")
    long = await in_state(store, state, task="long")
    clock.advance(100)
    assert await prune(store, KEEP, brief=SHORT) == 1
    assert await store.get(brief) is None
    assert await prune(store, SHORT, long=KEEP, other=SHORT) == 1
    assert await store.get(usual) is None
    await seen(store, long)


async def test_a_prune_removes_no_more_than_its_limit(store: Store, clock: ManualClock) -> None:
    """
    Remove up to `limit` finished jobs that are past their retention, and say how many; keys that have run out go too.
    """
    await add_many(store, 5)
    await add_many(store, 2, task="brief")
    await write(store, *(done(claimed) for claimed in await take(store)))
    clock.advance(100)
    removed = [await prune(store, limit=3, brief=SHORT) for _ in range(4)]
    assert removed == [3, 3, 1, 0]


async def test_a_pruned_job_is_gone_with_its_attempts(store: Store, clock: ManualClock) -> None:
    """
    Remove up to `limit` finished jobs that are past their retention, and say how many; keys that have run out go too.
    """
    job = a_job(max_attempts=2, tags=["x"])
    await store.enqueue([job])
    for _ in range(2):
        [claimed] = await take(store)
        await write(store, failed(claimed))
    clock.advance(100)
    assert await prune(store) == 1
    assert await store.get(job.id) is None
    assert (await store.find(Filter(tag="x"))).jobs == []
    assert said(await store.settle([failed(claimed)])) == [Settled.LOST]
    assert await store.requeue([job.id], SIGN) == ["not_found"]
    assert await store.enqueue([job]) == [Enqueued(job.id, True)]
    assert (await seen(store, job.id)).attempts == ()


async def test_a_key_for_ever_goes_with_its_job(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """
    Remove up to `limit` finished jobs that are past their retention, and say how many; keys that have run out go too.
    """
    old = await in_state(store, State.DONE, key="k", key_ttl=FOREVER)
    clock.advance(9)
    assert await prune(store) == 0
    assert await store.enqueue([a_job(key="k")]) == [Enqueued(old, False)]
    clock.advance(2)
    assert await prune(store) == 1
    store = await reopen()
    await add(store, key="k")


async def test_a_window_outlives_a_pruned_job(store: Store, clock: ManualClock) -> None:
    """
    Remove up to `limit` finished jobs that are past their retention, and say how many; keys that have run out go too.
    """
    old = await in_state(store, State.DONE, key="k", key_ttl=60)
    clock.advance(50)
    assert await prune(store) == 1
    assert await store.enqueue([a_job(key="k")]) == [Enqueued(old, False)]
    clock.advance(11)
    assert await prune(store) == 0
    await add(store, key="k")


async def test_a_prune_of_keys_takes_none_that_is_held(store: Store, clock: ManualClock) -> None:
    """
    Remove up to `limit` finished jobs that are past their retention, and say how many; keys that have run out go too.
    """
    await in_state(store, State.DONE, key="over", key_ttl=10)
    held = [await add(store, key="live"), await add(store, key="ever", key_ttl=FOREVER)]
    held += [await add(store, key="window", key_ttl=1_000), await add(store, key="outlived", key_ttl=10)]
    clock.advance(100)
    assert await prune(store) == 1
    answers = await store.enqueue([a_job(key=key) for key in ("live", "ever", "window", "outlived", "over")])
    assert [(answer.id, answer.created) for answer in answers[:4]] == [(id, False) for id in held]
    assert answers[4].created


async def test_a_requeued_job_is_not_pruned(store: Store, clock: ManualClock) -> None:
    """
    Remove up to `limit` finished jobs that are past their retention, and say how many; keys that have run out go too.
    """
    id = await in_state(store, State.DEAD)
    clock.advance(100)
    await store.requeue([id], SIGN)
    assert await prune(store) == 0
    assert (await seen(store, id)).state is State.READY


async def test_an_empty_store_has_nothing_to_prune(store: Store) -> None:
    """
    Remove up to `limit` finished jobs that are past their retention, and say how many; keys that have run out go too.
    """
    assert await prune(store) == 0
