"""The order of claims: priority, then due for longest, and the half that overdue jobs are offered."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from hawser.clock import to_us
from hawser.job import MAX_PRIORITY
from hawser.store import OVERDUE, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    a_job,
    add,
    add_many,
    done,
    failed,
    ids,
    lose,
    now,
    running,
    snoozed,
    take,
    take_one,
    write,
)


async def test_higher_priorities_go_first(store: Store, clock: ManualClock) -> None:
    """Higher priority goes first."""
    order = {}
    for priority in (5, 0, 9, 3, 8, 1, 7, 2, 6, 4):
        order[priority] = await add(store, priority=priority)
        clock.advance(1)
    expected = [order[priority] for priority in range(MAX_PRIORITY, -1, -1)]
    assert ids(await take(store, 4)) + ids(await take(store, 1)) + ids(await take(store)) == expected


async def test_a_late_job_of_higher_priority_passes_a_backlog(store: Store, clock: ManualClock) -> None:
    """Higher priority goes first."""
    await add_many(store, 50, priority=4)
    clock.advance(3600)
    urgent = await add(store, priority=5)
    assert ids(await take(store, 1)) == [urgent]


async def test_a_retry_keeps_its_priority(store: Store) -> None:
    """Higher priority goes first."""
    claimed = await running(store, priority=9)
    await write(store, failed(claimed))
    await add(store, priority=8)
    assert ids(await take(store, 1)) == [claimed.id]


async def test_the_longest_due_goes_first(store: Store, clock: ManualClock) -> None:
    """Within a priority and group the job that has been due for longest goes first."""
    third = await add(store, delay=0.3)
    first = await add(store, delay=0.1)
    second = await add(store, delay=0.2)
    clock.advance(0.35)
    last = await add(store)
    assert ids(await take(store)) == [first, second, third, last]


async def test_jobs_due_at_the_same_time_go_in_the_order_they_came(store: Store) -> None:
    """Within a priority and group the job that has been due for longest goes first."""
    batches = [[a_job() for _ in range(4)] for _ in range(3)]
    for batch in batches:
        await store.enqueue(list(reversed(batch)))
    expected = [job.id for batch in batches for job in reversed(batch)]
    assert [(await take_one(store)).id for _ in range(5)] + ids(await take(store)) == expected


async def test_the_order_outlives_many_jobs_that_were_cancelled(store: Store, clock: ManualClock) -> None:
    """Within a priority and group the job that has been due for longest goes first."""
    dice = random.Random(0)  # noqa: S311  # as below
    jobs = [a_job(run_at=now(clock, -second)) for second in range(400)]
    await store.enqueue(dice.sample(jobs, 400))
    gone = set(dice.sample(ids(jobs), 350))
    for id in gone:
        await store.cancel([id], SIGN)
    left = [job.id for job in reversed(jobs) if job.id not in gone]
    assert ids(await take(store, 20)) + ids(await take(store, 100)) == left


async def test_an_instant_long_past_goes_before_an_old_backlog(store: Store, clock: ManualClock) -> None:
    """Within a priority and group the job that has been due for longest goes first."""
    await add_many(store, 3)
    clock.advance(10)
    older = await add(store, run_at=now(clock, -3600))
    assert ids(await take(store, 1)) == [older]


Make = Callable[[Store, ManualClock], Awaitable[str]]


class WaitingOrder(NamedTuple):
    """A waiting job, for the oracle."""

    id: str
    priority: int
    run_at: int
    order: int
    fresh: bool


def chosen(waiting: list[WaitingOrder], limit: int, turn: int, now: int) -> list[str]:
    """Which jobs of one queue the turn-th claim of a handle takes, counted from 0."""
    taken: list[WaitingOrder] = []
    for priority in range(MAX_PRIORITY, -1, -1):
        places = limit - len(taken)
        due = sorted(
            (job for job in waiting if job.priority == priority and job.run_at <= now),
            key=lambda job: (job.run_at, job.order),
        )
        overtaken = [job for job in due if not job.fresh and job.run_at <= now - to_us(OVERDUE)]
        first = overtaken[: (places + turn % 2) // 2]
        rest = [job for job in due if job not in first][: places - len(first)]
        taken += [job for job in due if job in first or job in rest]
    return [job.id for job in taken]


async def test_half_of_the_places_go_to_overdue_jobs(store: Store, clock: ManualClock) -> None:
    """
    Half of the places, the odd one every second time, are first offered to jobs that had to wait for their time and are
    overdue, so an old backlog of the same priority does not hold them up.
    """
    backlog = await add_many(store, 20)
    timed = await add_many(store, 5, delay=10)
    clock.advance(10 + OVERDUE)
    assert ids(await take(store, 4)) == backlog[:2] + timed[:2]
    assert ids(await take(store, 2)) == backlog[2:3] + timed[2:3]


async def test_the_odd_place_goes_to_an_overdue_job_every_second_time(store: Store, clock: ManualClock) -> None:
    """
    Half of the places, the odd one every second time, are first offered to jobs that had to wait for their time and are
    overdue, so an old backlog of the same priority does not hold them up.
    """
    backlog = await add_many(store, 20)
    timed = await add_many(store, 20, delay=10)
    clock.advance(60)
    assert ids(await take(store, 1)) == backlog[:1]
    assert ids(await take(store, 1)) == timed[:1]
    assert ids(await take(store, 3)) == backlog[1:3] + timed[1:2]
    assert ids(await take(store, 3)) == backlog[3:4] + timed[2:4]


async def test_a_job_that_is_not_yet_overdue_takes_its_turn(store: Store, clock: ManualClock) -> None:
    """
    Half of the places, the odd one every second time, are first offered to jobs that had to wait for their time and are
    overdue, so an old backlog of the same priority does not hold them up.
    """
    backlog = await add_many(store, 4)
    timed = await add(store, delay=10)
    clock.advance(10 + OVERDUE - 0.001)
    assert ids(await take(store, 4)) == backlog
    assert ids(await take(store, 4)) == [timed]


async def test_places_that_no_overdue_job_wants_go_to_the_backlog(store: Store, clock: ManualClock) -> None:
    """
    Half of the places, the odd one every second time, are first offered to jobs that had to wait for their time and are
    overdue, so an old backlog of the same priority does not hold them up.
    """
    backlog = await add_many(store, 20)
    timed = await add(store, delay=10)
    clock.advance(60)
    assert ids(await take(store, 10)) == [*backlog[:9], timed]
    assert ids(await take(store, 10)) == backlog[9:19]


async def test_overdue_jobs_take_the_places_that_the_backlog_leaves(store: Store, clock: ManualClock) -> None:
    """
    Half of the places, the odd one every second time, are first offered to jobs that had to wait for their time and are
    overdue, so an old backlog of the same priority does not hold them up.
    """
    backlog = await add_many(store, 2)
    timed = await add_many(store, 20, delay=10)
    clock.advance(60)
    assert ids(await take(store, 10)) == backlog + timed[:8]


async def _retried(store: Store, _: ManualClock) -> str:
    claimed = await running(store)
    await write(store, failed(claimed, after=1))
    return claimed.id


async def _snoozed(store: Store, _: ManualClock) -> str:
    claimed = await running(store)
    await write(store, snoozed(claimed, after=1))
    return claimed.id


async def _lost(store: Store, clock: ManualClock) -> str:
    claimed = await running(store, lease_for=1)
    await lose(store, clock, 1)
    return claimed.id


async def _timed(store: Store, clock: ManualClock) -> str:
    return await add(store, run_at=now(clock, 1))


@pytest.mark.parametrize("make", [_retried, _snoozed, _lost, _timed], ids=lambda make: make.__name__[1:])
async def test_all_that_had_to_wait_have_their_half(store: Store, clock: ManualClock, make: Make) -> None:
    """
    Half of the places, the odd one every second time, are first offered to jobs that had to wait for their time and are
    overdue, so an old backlog of the same priority does not hold them up.
    """
    overtaken = await make(store, clock)
    older = [await add(store, run_at=now(clock, -1000)) for _ in range(10)]
    clock.advance(60)
    assert ids(await take(store, 2)) == [older[0], overtaken]


async def test_overdue_jobs_do_not_pass_a_higher_priority(store: Store, clock: ManualClock) -> None:
    """
    Half of the places, the odd one every second time, are first offered to jobs that had to wait for their time and are
    overdue, so an old backlog of the same priority does not hold them up.
    """
    timed = await add_many(store, 3, priority=4, delay=10)
    clock.advance(60)
    urgent = await add_many(store, 5, priority=5)
    assert ids(await take(store, 4)) == urgent[:4]
    assert ids(await take(store, 3)) == urgent[4:] + timed[:2]


@pytest.mark.parametrize("seed", range(8))
async def test_a_random_history_is_claimed_in_the_order_of_the_rule(store: Store, clock: ManualClock, seed: int) -> None:
    """
    Half of the places, the odd one every second time, are first offered to jobs that had to wait for their time and are
    overdue, so an old backlog of the same priority does not hold them up.
    Higher priority goes first. Within a priority and group the job that has been due for longest goes first.
    """
    dice = random.Random(seed)  # noqa: S311  # no secret: a history that can be repeated
    waiting: dict[str, WaitingOrder] = {}
    order = 0
    for turn in range(40):
        jobs = [
            a_job(priority=dice.choice([4, 5, 5, 5]), delay=dice.choice([0, 0, 0, round(dice.uniform(0, 4), 6)]))
            for _ in range(dice.randint(0, 6))
        ]
        await store.enqueue(jobs)
        for job in jobs:
            order += 1
            due = clock.now() + to_us(job.delay)
            waiting[job.id] = WaitingOrder(job.id, job.priority, due, order, fresh=not job.delay)
        clock.advance(round(dice.uniform(0, 1.5), 6))
        limit = dice.randint(1, 5)
        expected = chosen(list(waiting.values()), limit, turn, clock.now())
        claims = await take(store, limit)
        assert ids(claims) == expected
        for claimed in claims:
            old = waiting.pop(claimed.id)
            if dice.random() < 0.7:
                await write(store, done(claimed))
            else:
                after = round(dice.uniform(0.01, 3), 6)
                await write(store, failed(claimed, after))
                waiting[old.id] = old._replace(run_at=clock.now() + to_us(after), fresh=False)
