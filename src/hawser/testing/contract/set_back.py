"""The store's clock is set back: what was due stays due, what was not waits."""

from __future__ import annotations

import pytest

from hawser.store import Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    Opener,
    add,
    add_many,
    dead,
    failed,
    ids,
    lose,
    released,
    running,
    seen,
    snoozed,
    take,
    take_one,
    write,
)

HOUR = 3600.0


async def worker_looks(store: Store) -> None:
    """What every worker does every two seconds: the store learns the time by it."""
    await store.reclaim(0)


@pytest.mark.parametrize("back", [2.0, HOUR, 10 * 86_400.0])
async def test_a_backlog_goes_on_in_its_order(store: Store, clock: ManualClock, back: float) -> None:
    """A job that was due stays due when the store's clock is set back; one that was not waits for its time."""
    backlog = [await add(store) for _ in range(3)]
    clock.advance(1)
    backlog += await add_many(store, 5)
    assert ids(await take(store, 2)) == backlog[:2]
    clock.advance(-back)
    await worker_looks(store)
    later = await add(store)
    assert ids(await take(store)) == [*backlog[2:], later]


async def test_every_way_to_wait_that_was_over_is_over(store: Store, clock: ManualClock) -> None:
    """A job that was due stays due when the store's clock is set back; one that was not waits for its time."""
    delayed = await add(store, delay=30)
    retried, back, put_off, lost, requeued = [await running(store, lease_for=5) for _ in range(5)]
    await write(store, failed(retried, after=20), released(back), snoozed(put_off, after=40), dead(requeued))
    await store.requeue([requeued.id], SIGN)
    await lose(store, clock, 5)
    clock.advance(60)
    await worker_looks(store)
    clock.advance(-HOUR)
    due = {delayed, retried.id, back.id, put_off.id, lost.id, requeued.id}
    assert set(ids(await take(store))) == due


async def test_a_job_that_was_not_due_waits_for_its_time(store: Store, clock: ManualClock) -> None:
    """A job that was due stays due when the store's clock is set back; one that was not waits for its time."""
    delayed = await add(store, delay=90)
    claimed = await running(store)
    await write(store, failed(claimed, after=100))
    clock.advance(60)
    await worker_looks(store)
    clock.advance(-HOUR)
    assert await take(store) == []
    clock.advance(HOUR + 29)
    assert await take(store) == []
    clock.advance(2)
    assert ids(await take(store)) == [delayed]
    clock.advance(10)
    assert ids(await take(store)) == [claimed.id]


async def test_what_is_delayed_afterwards_waits_for_its_time(store: Store, clock: ManualClock, second: Opener) -> None:
    """A job that was due stays due when the store's clock is set back; one that was not waits for its time."""
    other = await second()
    due = await add_many(store, 3, delay=10)
    clock.advance(60)
    await worker_looks(store)
    await worker_looks(other)
    clock.advance(-HOUR)
    claimed = await take_one(store)
    assert claimed.id == due[0]
    delayed = await add(store, delay=30)
    await write(store, failed(claimed, after=20))
    assert ids(await take(other)) == due[1:]
    await worker_looks(other)
    await worker_looks(store)
    assert await take(other) == await take(store) == []
    clock.advance(21)
    assert ids(await take(other)) == [claimed.id]
    clock.advance(10)
    assert ids(await take(store)) == [delayed]


async def test_a_process_that_starts_afterwards_finds_it_due(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """A job that was due stays due when the store's clock is set back; one that was not waits for its time."""
    fresh, timed = await add(store), await add(store, delay=10)
    clock.advance(60)
    await worker_looks(store)
    clock.advance(-HOUR)
    store = await reopen()
    assert set(ids(await take(store))) == {fresh, timed}


async def test_a_clock_that_is_set_back_again_and_again_holds_nothing_up(store: Store, clock: ManualClock) -> None:
    """A job that was due stays due when the store's clock is set back; one that was not waits for its time."""
    jobs = await add_many(store, 6)
    for n in range(6):
        assert ids(await take(store, 1)) == [jobs[n]]
        clock.advance(-HOUR)


async def test_a_job_that_is_due_after_all_says_since_when(store: Store, clock: ManualClock) -> None:
    """A job that was due stays due when the store's clock is set back; one that was not waits for its time."""
    await add_many(store, 2)
    await take_one(store)
    clock.advance(-HOUR)
    claimed = await take_one(store)
    job = await seen(store, claimed.id)
    assert job.run_at == job.started_at
