"""Workers: signs of life."""

from __future__ import annotations

import asyncio

from hawser.store import WORKER_KEPT, Beat, Store, WorkerSeen
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import Opener, now


def a_beat(worker: str = "w1", running: int = 0, draining: bool = False) -> Beat:
    return Beat(
        worker=worker,
        host="host-\u00e9",
        pid=2**31,
        version="0.1.0",
        queues=("b", "a"),
        slots=64,
        running=running,
        stuck=2,
        draining=draining,
        tasks={"send": "a1", "größe": "b2"},
    )


async def names(store: Store) -> list[str]:
    return [seen.beat.worker for seen in await store.workers()]


async def test_a_worker_is_shown_by_what_it_last_said(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """
    Note that these workers live and that those in `gone` have ended.
    The workers that have not ended and gave a sign of life within `WORKER_KEPT` seconds, oldest first.
    """
    assert await store.workers() == []
    await store.beat([a_beat()])
    assert await store.workers() == [WorkerSeen(beat=a_beat(), since=now(clock), seen_at=now(clock))]
    clock.advance(10)
    last = a_beat(running=7, draining=True)
    await store.beat([last])
    store = await reopen()
    assert await store.workers() == [WorkerSeen(beat=last, since=now(clock, -10), seen_at=now(clock))]


async def test_a_worker_that_has_ended_is_not_listed(store: Store) -> None:
    """Note that these workers live and that those in `gone` have ended."""
    await store.beat([a_beat("a"), a_beat("b"), a_beat("c")])
    await store.beat([a_beat("a")], ["b", "unknown"])
    assert await names(store) == ["a", "c"]
    await store.beat([], ["a", "c"])
    assert await store.workers() == []


async def test_no_news_changes_nothing(store: Store, clock: ManualClock) -> None:
    """Note that these workers live and that those in `gone` have ended."""
    await store.beat([a_beat()])
    before = await store.workers()
    clock.advance(5)
    await store.beat([])
    assert await store.workers() == before


async def test_many_processes_may_give_signs_at_once(store: Store, second: Opener) -> None:
    """Note that these workers live and that those in `gone` have ended."""
    handles = [store, await second()]
    await asyncio.gather(*(handles[n % 2].beat([a_beat(f"w{n:02}"), a_beat("all")]) for n in range(20)))
    assert sorted(await names(store)) == ["all", *(f"w{n:02}" for n in range(20))]


async def test_the_oldest_worker_comes_first(store: Store, clock: ManualClock) -> None:
    """The workers that have not ended and gave a sign of life within `WORKER_KEPT` seconds, oldest first."""
    for name in ("z", "m", "a"):
        await store.beat([a_beat(name)])
        clock.advance(1)
    await store.beat([a_beat("m"), a_beat("z")])
    assert await names(store) == ["z", "m", "a"]


async def test_a_silent_worker_is_listed_for_a_while(store: Store, clock: ManualClock) -> None:
    """The workers that have not ended and gave a sign of life within `WORKER_KEPT` seconds, oldest first."""
    await store.beat([a_beat("silent"), a_beat("alive")])
    clock.advance(WORKER_KEPT - 1)
    assert await names(store) == ["alive", "silent"]
    await store.beat([a_beat("alive")])
    clock.advance(2)
    assert await names(store) == ["alive"]


async def test_a_worker_that_was_silent_for_long_may_come_back(store: Store, clock: ManualClock) -> None:
    """The workers that have not ended and gave a sign of life within `WORKER_KEPT` seconds, oldest first."""
    await store.beat([a_beat()])
    clock.advance(2 * WORKER_KEPT)
    assert await store.workers() == []
    await store.beat([a_beat()])
    assert await names(store) == ["w1"]
