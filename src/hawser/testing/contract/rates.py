"""Limits on starts in a period, and limits beside each other."""

from __future__ import annotations

import asyncio
import random

import pytest

from hawser.clock import from_datetime, to_us
from hawser.store import Store, Target
from hawser.testing.clock import ManualClock
from hawser.testing.contract.limits import QUEUE, WORK, limit, taken
from hawser.testing.contract.making import (
    WOKEN_WITHIN,
    add,
    add_many,
    done,
    failed,
    ids,
    looks,
    now,
    released,
    snoozed,
    take,
    write,
)


@pytest.mark.parametrize("target", [WORK, QUEUE], ids=["task", "queue"])
async def test_no_more_start_in_any_span_than_the_rate_says(store: Store, clock: ManualClock, target: Target) -> None:
    """No more are started in any span of its period than it says; a start counts however its run ends."""
    most, period = 10, 60_000_000
    await add_many(store, 120)
    await limit(store, target, rate=f"{most}/m")
    dice, starts = random.Random(7), list[int]()  # noqa: S311  # a fixed history
    for _ in range(60):
        claimed = await take(store, dice.choice((1, 3, 20)))
        starts += [clock.now()] * len(claimed)
        await write(store, *(done(job) for job in claimed))
        clock.advance(dice.choice((0.1, 1.0, 3.0, 9.0, 31.0)))
    for first in starts:
        assert sum(first <= start < first + period for start in starts) <= most
    # At most a sixteenth of what the rate allows is given away, and what is free is used.
    assert len(starts) >= 0.8 * most * (starts[-1] - starts[0]) / period
    assert (await store.limits())[0].started <= most


async def test_a_rate_opens_when_the_oldest_starts_are_a_period_old(store: Store, clock: ManualClock) -> None:
    """No more are started in any span of its period than it says; a start counts however its run ends."""
    await add_many(store, 9)
    await limit(store, rate="4/m")
    assert len(await take(store, 3)) == 3
    clock.advance(30)
    assert len(await take(store, 3)) == 1
    [use] = await store.limits()
    assert use.shut
    assert use.opens_at is not None
    assert now(clock, 30) <= use.opens_at <= now(clock, 34)
    clock.advance(29.9)
    assert await take(store) == []
    clock.set(from_datetime(use.opens_at))
    assert len(await take(store)) == 3
    assert await take(store) == []


async def test_a_shut_rate_wakes_those_who_wait_when_it_opens_and_not_before(store: Store, clock: ManualClock) -> None:
    """Jobs that a limit keeps back cost the others nothing."""
    await add_many(store, 9)
    await limit(store, rate="4/m")
    assert len(await take(store)) == 4
    assert await take(store) == []
    assert await looks(store, 1.0) <= 40
    [use] = await store.limits()
    assert use.opens_at is not None
    clock.set(from_datetime(use.opens_at) - to_us(0.1))
    assert await take(store) == []
    async with asyncio.timeout(WOKEN_WITHIN):
        await store.wait(["default"], 10 * WOKEN_WITHIN)
    clock.advance(0.1)
    assert len(await take(store)) == 4


async def test_retries_and_snoozed_runs_take_a_start_again(store: Store, clock: ManualClock) -> None:
    """No more are started in any span of its period than it says; a start counts however its run ends."""
    await add(store)
    await limit(store, rate="3/m")
    for ending in (failed, snoozed, released):
        [job] = await take(store)
        await write(store, ending(job))
        clock.advance(1)
    assert await take(store) == []
    clock.advance(70)
    assert len(await take(store)) == 1


async def test_a_clock_that_is_set_back_lets_no_more_start(store: Store, clock: ManualClock) -> None:
    """No more are started in any span of its period than it says; a start counts however its run ends."""
    await add_many(store, 9)
    await limit(store, rate="4/m")
    assert len(await take(store)) == 4
    clock.advance(-20)
    assert await take(store) == []
    clock.advance(70)
    assert await take(store) == []
    # Starts that lie in the future of the clock are dropped: else none could start for an hour.
    clock.advance(-3600)
    assert len(await take(store)) == 4
    assert await take(store) == []


async def test_limits_take_nothing_from_each_other(store: Store) -> None:
    """A job that one limit keeps back uses up nothing of another."""
    await add_many(store, 5)
    await add_many(store, 5, task="free")
    await limit(store, QUEUE, running=4, rate="6/m")
    await limit(store, running=1, rate="2/m")
    assert await taken(store) == {"work": 1, "free": 3}
    uses = {use.target: use for use in await store.limits()}
    assert (uses[WORK].running, uses[WORK].started) == (1, 1)
    assert (uses[QUEUE].running, uses[QUEUE].started) == (4, 4)
    assert uses[WORK].shut
    assert uses[QUEUE].shut


async def test_the_best_are_given_out_when_a_limit_leaves_little(store: Store, clock: ManualClock) -> None:
    """A job that one limit keeps back uses up nothing of another."""
    low = await add_many(store, 3, priority=1)
    high = []
    for task in ("a", "b", "a", "b"):
        high.append(await add(store, priority=9, task=task))
        clock.advance(1)
    await limit(store, QUEUE, running=5)
    await limit(store, Target("task", "b"), running=1)
    assert ids(await take(store)) == [high[0], high[1], high[2], *low[:2]]


async def test_starts_under_another_period_are_forgotten_and_under_the_same_are_not(store: Store) -> None:
    """Say how many jobs of a queue or task may wait, run and start, in place of what an operator said before."""
    await add_many(store, 20)
    await limit(store, rate="3/m")
    assert len(await take(store)) == 3
    await limit(store, rate="5/m")
    assert len(await take(store)) == 2
    await limit(store, rate="4/s")
    assert len(await take(store)) == 4
