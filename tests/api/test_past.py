"""Long windows of what happened: read whole once a minute, with the newest minutes at every look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from hawser.api import day, past
from hawser.api.day import OPEN_MINUTES, RENEWED_EVERY, SLICE_MINUTES, TRIED_AGAIN_AFTER
from hawser.api.past import LONGER_BY, WHOLE_EVERY, Past
from hawser.job import NewJob
from hawser.store.rollup import EventCount, Measured
from hawser.stores.memory import MemoryStore
from hawser.stores.tally import MINUTE_US
from hawser.testing import ManualClock

EVENTS = ("enqueued", "done")


class Counting:
    """A store that keeps how many minutes it was asked for."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.asked: list[int] = []

    async def rollups(self, minutes, queue=None, task=None):
        self.asked.append(minutes)
        return await self.store.rollups(minutes, queue, task)

    async def times(self, minutes, queue=None):
        self.asked.append(minutes)
        return await self.store.times(minutes, queue)

    async def event_counts(self, minutes, events, back=0):
        self.asked.append(minutes)
        return await self.store.event_counts(minutes, events, back)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def store(clock):
    store = Counting(MemoryStore(clock=clock))
    for _ in range(30):
        await store.store.enqueue([NewJob(task="t", queue="a", body=b"{}"), NewJob(task="u", queue="b", body=b"{}")])
        clock.advance(60)
    return store


@pytest.fixture
def late():
    """The time by which windows grow old."""
    return [0.0]


@pytest.fixture
def kept(late):
    return Past(lambda: late[0])


def told(counts: list[EventCount]) -> list[tuple[int, str, str, str, int]]:
    return sorted((each.minute, each.queue, each.task, each.event, each.count) for each in counts)


@pytest.mark.parametrize("steps", [0, 1, 9, 11, 40, 3_000])
async def test_what_is_remembered_is_what_the_store_would_say(store, clock, kept, steps):
    await kept.rollups(store, 60)
    await kept.event_counts(store, 60, EVENTS)
    clock.advance(60 * steps)
    await store.store.enqueue([NewJob(task="t", queue="a", body=b"{}")])
    for minutes in (60, 20, 60):
        assert await kept.rollups(store, minutes) == await store.store.rollups(minutes)
        assert told(await kept.event_counts(store, minutes, EVENTS)) == told(await store.store.event_counts(minutes, EVENTS))
    assert await kept.rollups(store, 60, "b") == await store.store.rollups(60, "b")


async def test_a_clock_that_was_set_back_is_noticed(store, clock, kept):
    await kept.rollups(store, 60)
    await kept.event_counts(store, 60, EVENTS)
    clock.advance(-20 * 60)
    assert await kept.rollups(store, 60) == await store.store.rollups(60)
    assert told(await kept.event_counts(store, 60, EVENTS)) == told(await store.store.event_counts(60, EVENTS))


async def test_a_long_window_is_read_whole_once_in_a_hundredth_of_its_length(store, kept, late):
    for _ in range(5):
        await kept.rollups(store, 1440)
    assert store.asked == [1440, *[OPEN_MINUTES] * 4]
    store.asked.clear()
    late[0] = 1440 * 60 * LONGER_BY - 1
    await kept.rollups(store, 1440)
    late[0] += 1
    await kept.rollups(store, 1440)
    assert store.asked == [OPEN_MINUTES, 1440]


async def test_what_is_counted_late_is_seen_after_a_minute(store, clock, kept, late):
    before = await kept.rollups(store, 60)
    clock.advance(-15 * 60)
    await store.store.enqueue([NewJob(task="t", queue="a", body=b"{}")])
    clock.advance(15 * 60)
    late[0] = WHOLE_EVERY
    after = await kept.rollups(store, 60)
    assert sum(each.counts["enqueued"] for each in after) == sum(each.counts["enqueued"] for each in before) + 1


async def test_only_so_many_windows_are_kept(store, kept, monkeypatch):
    monkeypatch.setattr(past, "MOST_WINDOWS", 2)
    for queue in ("a", "b", "c", "c", "b", "a"):
        await kept.rollups(store, 60, queue)
    assert store.asked == [60, 60, 60, OPEN_MINUTES, OPEN_MINUTES, 60]


def summed(measured: list[Measured]) -> set[tuple[str, str, str, int, int]]:
    return {(each.queue, each.task, each.kind, each.bucket, each.count) for each in measured}


async def test_times_of_a_long_window_are_summed_anew_only_from_time_to_time(store, clock, kept):
    for minute in range(150):
        await store.store.measure([Measured("a", "t", "run", minute % 3, 1)])
        clock.advance(60)
    first = await kept.times(store, 200)
    assert summed(first) == summed(await store.store.times(200))
    await store.store.measure([Measured("a", "t", "run", 1, 7), Measured("b", "u", "wait", 2, 1)])
    store.asked.clear()
    assert summed(await kept.times(store, 200)) == summed(await store.store.times(200))
    assert 200 not in store.asked
    clock.advance(120)
    await store.store.measure([Measured("b", "u", "wait", 2, 1)])
    store.asked.clear()
    assert summed(await kept.times(store, 200)) == summed(await store.store.times(202)), "until then it reaches further back"
    assert 200 not in store.asked
    clock.advance(60)
    assert summed(await kept.times(store, 200)) == summed(await store.store.times(200))
    assert 200 in store.asked


async def test_times_of_a_short_window_are_read_at_each_look(store, clock, kept):
    await store.store.measure([Measured("a", "t", "run", 1, 7)])
    store.asked.clear()
    assert summed(await kept.times(store, 30)) == {("a", "t", "run", 1, 7)}
    assert store.asked == [30]


async def test_minutes_that_are_over_are_told_in_steps_and_lose_nothing(store, clock, kept):
    for _ in range(3):
        found = await kept.event_counts(store, 25, EVENTS, 4)
        closed = [each for each in found if each.minute <= clock.now() // MINUTE_US - OPEN_MINUTES]
        assert sum(each.count for each in found) == sum(each.count for each in await store.store.event_counts(25, EVENTS))
        assert len(found) < len(await store.store.event_counts(25, EVENTS))
        assert closed
        await store.store.enqueue([NewJob(task="t", queue="a", body=b"{}")])


@pytest.fixture
async def busy(store, clock):
    """A store in which something happened in each minute of a day."""
    for minute in range(1_500):
        await store.store.enqueue([NewJob(task="t", queue="a", body=b"{}"), NewJob(task="u", queue="b", body=b"{}")])
        await store.store.measure([Measured("a", "t", "run", minute % 3, 1), Measured("b", "u", "wait", minute % 5, 2)])
        clock.advance(60)
    store.asked.clear()
    return store


async def read_whole(kept: Past, store: Any) -> None:
    while not kept.day.complete:
        await kept.day.turn(store)


async def test_a_day_is_read_slice_by_slice_and_the_first_look_reads_no_more_than_the_rest(busy, kept):
    await read_whole(kept, busy)
    assert 45 <= busy.asked.count(SLICE_MINUTES + 1) <= 46
    busy.asked.clear()
    await kept.rollups(busy, 1440)
    await kept.rollups(busy, 1440, "a")
    await kept.event_counts(busy, 1440, EVENTS, 8)
    await kept.times(busy, 1440)
    assert max(busy.asked) < SLICE_MINUTES + OPEN_MINUTES


@pytest.mark.parametrize("minutes", [181, 720, 1440])
@pytest.mark.parametrize("later", [0, 1, 35, 90, 200])
async def test_a_first_look_is_told_what_the_store_would_say(busy, clock, kept, minutes, later):
    await read_whole(kept, busy)
    for _ in range(later):
        await busy.store.enqueue([NewJob(task="t", queue="a", body=b"{}")])
        clock.advance(60)
    assert await kept.rollups(busy, minutes) == await busy.store.rollups(minutes)
    assert await kept.rollups(busy, minutes, "b") == await busy.store.rollups(minutes, "b")
    assert await kept.rollups(busy, minutes, None, "t") == await busy.store.rollups(minutes, None, "t")
    assert told(await kept.event_counts(busy, minutes, EVENTS)) == told(await busy.store.event_counts(minutes, EVENTS))
    assert summed(await kept.times(busy, minutes)) == summed(await busy.store.times(minutes))


@pytest.mark.parametrize("step", [1, 2, 7, 8])
async def test_slices_are_told_in_steps_and_lose_nothing(busy, clock, kept, step):
    await read_whole(kept, busy)
    found = await kept.event_counts(busy, 1440, EVENTS, step)
    assert sum(each.count for each in found) == sum(each.count for each in await busy.store.event_counts(1440, EVENTS))
    assert len(found) <= 2 * (1440 / step + 1440 / SLICE_MINUTES + SLICE_MINUTES + OPEN_MINUTES)
    assert all(each.minute > clock.now() // MINUTE_US - 1440 for each in found)


async def test_slices_are_read_anew_in_turn_at_a_thousandth_of_the_time(busy, clock, kept, late):
    class Slow(Counting):
        async def event_counts(self, minutes: int, events: Sequence[str], back: int = 0) -> list[EventCount]:
            late[0] += 0.2
            return list(await busy.store.event_counts(minutes, events, back))

    slow: Any = Slow(busy.store)
    assert await kept.day.turn(slow) == pytest.approx(1.0), "a fifth of a core until the day is known"
    await read_whole(kept, slow)
    assert await kept.day.turn(slow) == pytest.approx(200.0)
    assert await kept.day.turn(busy) == RENEWED_EVERY
    clock.advance(-12 * 3_600)
    await busy.store.enqueue([NewJob(task="t", queue="a", body=b"{}")] * 3)
    clock.advance(12 * 3_600)
    late[0] += 2 * 1440 * 60 * LONGER_BY
    assert await kept.rollups(busy, 1440) != await busy.store.rollups(1440)
    for _ in range(46):
        await kept.day.turn(busy)
    late[0] += 2 * 1440 * 60 * LONGER_BY
    assert await kept.rollups(busy, 1440) == await busy.store.rollups(1440)


async def test_a_day_that_is_too_large_is_not_kept(busy, kept, monkeypatch):
    monkeypatch.setattr(day, "MOST_KEPT", 3)
    assert await kept.day.turn(busy) == TRIED_AGAIN_AFTER
    busy.asked.clear()
    await kept.rollups(busy, 1440)
    assert max(busy.asked) == 1440


async def test_a_clock_that_was_set_back_leaves_no_slices_of_the_future(busy, clock, kept):
    await read_whole(kept, busy)
    clock.advance(-20 * 3_600)
    assert await kept.rollups(busy, 1440) == await busy.store.rollups(1440)
    await kept.day.turn(busy)
    assert await kept.rollups(busy, 1440) == await busy.store.rollups(1440)
