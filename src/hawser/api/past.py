"""What happened over a long window, without reading all of it at each look: minutes that are over change no more, mostly."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from hawser.api.day import OPEN_MINUTES, Day, minute_now, minute_of
from hawser.store import Store
from hawser.store.rollup import EventCount, Kind, Measured, Rollup

WHOLE_EVERY: Final = 60.0
"""Seconds after which the whole window is read anew: a transaction may commit long after what it counts."""

LONGER_BY: Final = 0.01
"""A long window is read anew after this share of itself: a day after 14 minutes, because it costs half a second of CPU."""

MOST_WINDOWS: Final = 16
"""Windows that are kept; the one that was not looked at for longest goes."""

MOST_COUNTS: Final = 200_000
"""Counts above which a window is not kept, for its size."""

SHORT_MINUTES: Final = 30
"""Windows up to here are summed at each look."""

MOST_SUMMED: Final = 8
"""Windows of which sums are kept; the oldest goes."""

TimeSums = Counter[tuple[str, str, Kind, int]]
"""Counts by queue, task, kind and bucket."""

T = TypeVar("T")


class Remembered(msgspec.Struct, Generic[T], frozen=True):
    """What was read of so many minutes up to one of them."""

    read_at: float
    minutes: int
    this: int
    rows: Sequence[T]


class RememberedWindows(Generic[T]):
    """The windows of one kind, by what was asked."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: OrderedDict[Hashable, Remembered[T]] = OrderedDict()

    def known(self, key: Hashable, minutes: int) -> Remembered[T] | None:
        known = self._kept.get(key)
        if (
            known is None
            or not OPEN_MINUTES < minutes <= known.minutes
            or self._clock() - known.read_at >= max(WHOLE_EVERY, minutes * 60 * LONGER_BY)
        ):
            return None
        self._kept.move_to_end(key)
        return known

    def keep(self, key: Hashable, window: Remembered[T]) -> None:
        if window.minutes <= OPEN_MINUTES:
            return
        self._kept[key] = window
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_WINDOWS:
            self._kept.popitem(last=False)


class SummedTimes(NamedTuple):
    """What was measured in a window up to one minute, but for its open minutes."""

    this: int
    over: TimeSums


class Past:
    """The windows that one server remembers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rollups: RememberedWindows[Rollup] = RememberedWindows(clock)
        self._counts: RememberedWindows[EventCount] = RememberedWindows(clock)
        self.day = Day(clock)
        self._times: dict[int, SummedTimes] = {}
        """By the length of the window, of which there are few."""

    async def rollups(self, store: Store, minutes: int, queue: str | None = None, task: str | None = None) -> list[Rollup]:
        """As `Watcher.rollups`."""
        known = self._rollups.known((queue, task), minutes)
        if known is not None:
            fresh = await store.rollups(OPEN_MINUTES, queue, task)
            begins = minute_of(fresh[0])
            if begins - 1 <= known.this <= minute_of(fresh[-1]):
                before = [each for each in known.rows if minute_of(each) < begins]
                return [*before, *fresh][-minutes:]
        read_at, rollups = self._clock(), await self.day.rollups(store, minutes, queue, task)
        self._rollups.keep((queue, task), Remembered(read_at, minutes, minute_of(rollups[-1]), rollups))
        return rollups

    async def event_counts(self, store: Store, minutes: int, events: Sequence[str], step: int = 1) -> list[EventCount]:
        """As `Watcher.event_counts`. Minutes that are over may be told together, `step` of them under the last."""
        if minutes <= OPEN_MINUTES:
            return await store.event_counts(minutes, events)
        this = await minute_now(store)
        known = self._counts.known((tuple(events), step), minutes)
        # By the time of the answer there may be a new minute, and then the first of those that were asked for is not in it.
        begins = this - OPEN_MINUTES + 2
        if known is not None and begins - 1 <= known.this <= this:
            fresh = await store.event_counts(OPEN_MINUTES, events)
            before = [each for each in known.rows if this - minutes < each.minute < begins]
            return [*before, *(each for each in fresh if each.minute >= begins)]
        read_at = self._clock()
        over, rest = await self.day.event_counts(store, this, minutes, events, step)
        counts = [*over, *_merged(rest, step, this - OPEN_MINUTES)]
        if len(counts) <= MOST_COUNTS:
            self._counts.keep((tuple(events), step), Remembered(read_at, minutes, this, counts))
        return counts

    async def times(self, store: Store, minutes: int) -> list[Measured]:
        """As `Watcher.times` of all queues. Of a long window the part that is over is summed anew from time to time; until then
        it reaches further back than asked, by a hundredth of the window at most."""
        if minutes <= SHORT_MINUTES:
            return await store.times(minutes)
        this = await minute_now(store)
        kept = self._times.get(minutes)
        if kept is None or not 0 <= this - kept.this <= minutes * LONGER_BY:
            whole = await self.day.times(store, minutes)
            over = _sums(whole)
            # What comes between the two reads is missing until the next ones: some milliseconds of a long window.
            over.subtract(_sums(await store.times(OPEN_MINUTES)))
            if await minute_now(store) != this:
                return whole
            kept = self._times[minutes] = SummedTimes(this, over)
            while len(self._times) > MOST_SUMMED:
                del self._times[next(iter(self._times))]
        sums = Counter(kept.over)
        sums.update(_sums(await store.times(OPEN_MINUTES + this - kept.this)))
        return [Measured(*key, count) for key, count in sums.items() if count > 0]


def _merged(counts: list[EventCount], step: int, over: int) -> list[EventCount]:
    """Those up to a minute added up in steps."""
    if step == 1:
        return counts
    sums: Counter[tuple[int, str, str, str]] = Counter()
    for each in counts:
        minute = each.minute if each.minute > over else min(over, each.minute - each.minute % step + step - 1)
        sums[minute, each.queue, each.task, each.event] += each.count
    return [EventCount(*key, count) for key, count in sums.items()]


def _sums(measured: Sequence[Measured]) -> TimeSums:
    sums: TimeSums = Counter()
    for each in measured:
        sums[each.queue, each.task, each.kind, each.bucket] += each.count
    return sums
