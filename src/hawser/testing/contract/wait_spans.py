"""How long waits of handlers lasted: from when to when."""

from __future__ import annotations

import pytest

from hawser.store import Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.gathered import gathering
from hawser.testing.contract.making import a_job, done, now, running, take_one, write
from hawser.testing.contract.waits import WEEK, arrive, held


@pytest.mark.parametrize("later", [5, 50])
async def test_a_wait_that_is_over_says_how_long_it_lasted(store: Store, clock: ManualClock, later: int) -> None:
    """
    It has the start of the wait and its end: when the event came, when the time was over, or when a run went on with what the
    jobs came to; not before the start.
    """
    run = await held(store, timeout=100)
    began = now(clock)
    clock.advance(30)
    await store.emit("packed", b"1", WEEK)
    came = now(clock)
    clock.advance(later)
    step = await arrive(store, await take_one(store))
    assert (step.kind, step.at, step.until, step.left) == ("event", began, came, 0.0)
    assert await store.steps(run.id) == [step]


async def test_a_wait_that_has_timed_out_lasted_for_its_time(store: Store, clock: ManualClock) -> None:
    """
    It has the start of the wait and its end: when the event came, when the time was over, or when a run went on with what the
    jobs came to; not before the start.
    """
    run = await held(store, timeout=100)
    began, over = now(clock), now(clock, 100)
    clock.advance(130)
    await store.reclaim(10)
    clock.advance(5)
    step = await arrive(store, await take_one(store))
    assert (step.kind, step.at, step.until) == ("timeout", began, over)
    assert await store.steps(run.id) == [step]


@pytest.mark.parametrize("first", [False, True])
async def test_a_wait_for_what_has_come_takes_no_time(store: Store, clock: ManualClock, first: bool) -> None:
    """
    It has the start of the wait and its end: when the event came, when the time was over, or when a run went on with what the
    jobs came to; not before the start.
    """
    await store.emit("packed", b"1", WEEK)
    clock.advance(10)
    run = await (held(store) if first else running(store))
    began = now(clock)
    if first:
        clock.advance(7)
        run = await take_one(store)
    step = await arrive(store, run)
    assert (step.kind, step.at, step.until) == ("event", began, began)


async def test_a_wait_for_jobs_says_how_long_it_lasted(store: Store, clock: ManualClock) -> None:
    """
    It has the start of the wait and its end: when the event came, when the time was over, or when a run went on with what the
    jobs came to; not before the start.
    """
    child = a_job(queue="parts")
    run = await gathering(store, child)
    began = now(clock)
    clock.advance(30)
    await write(store, done(await take_one(store, queue="parts")))
    clock.advance(5)
    step = await arrive(store, await take_one(store), "parts", b"[null]")
    assert (step.kind, step.at, step.until) == ("gather", began, now(clock))
    assert await store.steps(run.id) == [step]
