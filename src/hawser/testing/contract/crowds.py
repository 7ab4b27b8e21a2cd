"""Crowds of jobs that wait in the middle of their handlers: all of them go on, however few one transaction or script wakes."""

from __future__ import annotations

from typing import Final

from hawser.outcome import Held
from hawser.store import Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import Opener, a_job, settle, take, take_one, write
from hawser.testing.contract.waits import WEEK, arrive

HELD_CROWD: Final = 2_050
"""Jobs: twice as many as one transaction or script wakes, and some."""


async def crowd_held(store: Store, event: str = "packed", timeout: float | None = None) -> None:
    """A crowd that waits for one event."""
    for start in range(0, HELD_CROWD, 500):
        some = min(500, HELD_CROWD - start)
        await store.enqueue([a_job() for _ in range(some)])
        runs = await take(store, some)
        await write(store, *(settle(run, Held(event, event=event, timeout=timeout)) for run in runs))
    assert (await store.stats()).held == HELD_CROWD


async def test_a_crowd_whose_time_is_over_is_ready_after_one_reclaim(store: Store, clock: ManualClock) -> None:
    """
    Jobs that are not running are never touched, but for held ones whose time is over: those are ready then, however many
    they are.
    """
    await crowd_held(store, timeout=100)
    clock.advance(100)
    assert await store.reclaim(10) == []
    stats = await store.stats()
    assert (stats.held, stats.ready) == (0, HELD_CROWD)
    again = await take_one(store)
    assert (await arrive(store, again)).kind == "timeout"


async def test_an_event_wakes_a_crowd(store: Store, second: Opener) -> None:
    """Every job that is held for it is ready when emit answers."""
    await crowd_held(store)
    await (await second()).emit("packed", b"1", WEEK)
    stats = await store.stats()
    assert (stats.held, stats.ready, await store.awaiting()) == (0, HELD_CROWD, 0)
