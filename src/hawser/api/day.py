"""A day of what happened, read slice by slice beside the requests: no screen waits until all of it has been read."""

from __future__ import annotations

import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from hawser.clock import from_datetime
from hawser.store import Store
from hawser.store.rollup import BUCKETS, EventCount, Measured, Rollup
from hawser.stores.tally import KEEP_MINUTES, MINUTE_US, TALLIED_EVENTS, TIMED, rolled, times_of

SLICE_MINUTES: Final = 32
"""Minutes that are read at once. Steps of charts are powers of two for the windows that the dashboard offers, and end with it."""

OPEN_MINUTES: Final = 10
"""The newest minutes, of which the counts still change."""

FROM_MINUTES: Final = 180
"""Windows up to here are cheap enough to be read from the store."""

MOST_REST: Final = 3 * SLICE_MINUTES
"""Minutes behind the newest slice that a look may read by itself."""

BUSY_SHARE: Final = 0.2
"""Of a core, until the whole day is known."""

IDLE_SHARE: Final = 0.001
"""Of a core, from then on: slices are read anew in turn, for a transaction may commit long after what it counts."""

RENEWED_EVERY: Final = 60.0
"""Seconds between two slices then, at least: a day is read anew within three quarters of an hour."""

MOST_KEPT: Final = 60_000
"""Rows of counts above which no day is kept, for its size: some 25 MB."""

TRIED_AGAIN_AFTER: Final = 3_600.0
"""Seconds until a day that was too large is tried again."""

READ_WITHIN: Final = 60.0
"""Seconds after which the answer to a read may be of other minutes than were asked for."""

DAY_EVENTS: Final = (*TALLIED_EVENTS, *(f"{prefix}{bucket}" for prefix in TIMED for bucket in range(len(BUCKETS) + 1)))

Row = tuple[str, str, str]
"""Queue, task, event."""


class Slice(NamedTuple):
    """What happened in `SLICE_MINUTES` minutes: of each row a count for each of them."""

    read_at: float
    first: int
    counts: Mapping[Row, array[int]]
    rollups: Sequence[Rollup]
    """Of the whole store."""

    def rolled(self, queue: str | None, task: str | None) -> Sequence[Rollup]:
        return self.rollups if queue is task is None else _rolled(self.first, self.counts, queue, task)


class Day:
    """The slices of the last day that are over."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._slices: dict[int, Slice] = {}
        self.complete = False
        """All that is over has been read."""

    async def turn(self, store: Store) -> float:
        """Read one slice, and say how long to wait before the next."""
        this = await minute_now(store)
        numbers = _numbers(this)
        self._slices = {number: each for number, each in self._slices.items() if number in numbers}
        missing = [number for number in reversed(numbers) if number not in self._slices]
        number = missing[0] if missing else min(numbers, key=lambda each: self._slices[each].read_at)
        began = self._clock()
        await self._read(store, this, number)
        took = self._clock() - began
        self.complete = len(missing) <= 1
        if sum(len(each.counts) for each in self._slices.values()) > MOST_KEPT:
            self._slices.clear()
            return TRIED_AGAIN_AFTER
        return max(RENEWED_EVERY, took / IDLE_SHARE) if self.complete else took / BUSY_SHARE

    async def _read(self, store: Store, this: int, number: int) -> None:
        first, last = number * SLICE_MINUTES, number * SLICE_MINUTES + SLICE_MINUTES - 1
        asked_at = self._clock()
        # The minute may change before the store looks: one older than asked for is read, too.
        found = await store.event_counts(SLICE_MINUTES + 1, DAY_EVENTS, this - last)
        if self._clock() - asked_at < READ_WITHIN:
            counts: dict[Row, array[int]] = {}
            for each in found:
                if first <= each.minute <= last:
                    row = each.queue, each.task, each.event
                    counts.setdefault(row, array("Q", bytes(8 * SLICE_MINUTES)))[each.minute - first] += each.count
            self._slices[number] = Slice(asked_at, first, counts, _rolled(first, counts, None, None))

    def _helps(self, minutes: int) -> bool:
        return minutes > FROM_MINUTES and bool(self._slices)

    def _known(self, this: int, minutes: int) -> tuple[list[Slice], int]:
        """The slices of a window that ends with this minute, and how many minutes behind them are to be read; no slices when
        too little is known."""
        numbers = _numbers(this)
        wanted = range((this - minutes + 1) // SLICE_MINUTES, numbers.stop)
        found = [self._slices[number] for number in wanted if number in self._slices]
        rest = this - (found[-1].first + SLICE_MINUTES) + 1 if found else minutes
        if rest > MOST_REST or not _joined(found) or found[0].first // SLICE_MINUTES != wanted.start:
            return [], minutes
        return found, rest

    async def rollups(self, store: Store, minutes: int, queue: str | None, task: str | None) -> list[Rollup]:
        """As `Watcher.rollups`."""
        if not self._helps(minutes):
            return await store.rollups(minutes, queue, task)
        slices, rest = self._known(await minute_now(store), minutes)
        if not slices:
            return await store.rollups(minutes, queue, task)
        fresh = await store.rollups(rest, queue, task)
        if minute_of(fresh[0]) != slices[-1].first + SLICE_MINUTES:
            return await store.rollups(minutes, queue, task)
        return [*(rollup for each in slices for rollup in each.rolled(queue, task)), *fresh][-minutes:]

    async def event_counts(
        self, store: Store, this: int, minutes: int, events: Sequence[str], step: int
    ) -> tuple[list[EventCount], list[EventCount]]:
        """What is known of a window, `step` minutes together under the last, and the rest as `Watcher.event_counts` has it."""
        slices, rest = self._known(this, minutes) if self._helps(minutes) else ([], minutes)
        fresh = await store.event_counts(rest, events)
        if slices and await minute_now(store) != this:
            slices, fresh = [], await store.event_counts(minutes, events)
        return [each for slice_ in slices for each in _stepped(slice_, this - minutes + 1, frozenset(events), step)], fresh

    async def times(self, store: Store, minutes: int) -> list[Measured]:
        """As `Watcher.times` of all queues."""
        if not self._helps(minutes):
            return await store.times(minutes)
        this = await minute_now(store)
        slices, rest = self._known(this, minutes)
        fresh = await store.times(rest)
        if not slices:
            return fresh
        if await minute_now(store) != this:
            return await store.times(minutes)
        sums: Counter[Row] = Counter()
        for each in slices:
            skipped = max(0, this - minutes + 1 - each.first)
            for row, counts in each.counts.items():
                if row[2].startswith(TIMED):
                    sums[row] += sum(counts[skipped:])
        for measured in fresh:
            sums[measured.queue, measured.task, f"{measured.kind}:{measured.bucket}"] += measured.count
        return times_of((*row, count) for row, count in sums.items() if count)


async def minute_now(store: Store) -> int:
    """The minute as the store has it: its clock need not be ours."""
    return minute_of((await store.rollups(1))[0])


def minute_of(rollup: Rollup) -> int:
    return from_datetime(rollup.minute) // MINUTE_US


def _numbers(this: int) -> range:
    """The slices that are over, and of which anything is kept."""
    return range((this - KEEP_MINUTES + 1) // SLICE_MINUTES, (this - OPEN_MINUTES + 1) // SLICE_MINUTES)


def _joined(slices: Sequence[Slice]) -> bool:
    return bool(slices) and slices[-1].first - slices[0].first == (len(slices) - 1) * SLICE_MINUTES


def _rolled(first: int, counts: Mapping[Row, array[int]], queue: str | None, task: str | None) -> list[Rollup]:
    by_event: defaultdict[str, list[array[int]]] = defaultdict(list)
    for (of_queue, of_task, event), row in counts.items():
        if queue in (None, of_queue) and task in (None, of_task):
            by_event[event].append(row)
    return rolled(_flat(first, by_event), (first + SLICE_MINUTES - 1) * MINUTE_US, SLICE_MINUTES)


def _flat(first: int, by_event: Mapping[str, Iterable[array[int]]]) -> Iterator[tuple[int, str, int]]:
    for event, rows in by_event.items():
        for offset, counts in enumerate(zip(*rows, strict=True)):
            if count := sum(counts):
                yield first + offset, event, count


def _stepped(slice_: Slice, begin: int, events: Collection[str], step: int) -> Iterator[EventCount]:
    """From a minute on, added up in steps that end where those of the other slices do."""
    first, end = max(slice_.first, begin), slice_.first + SLICE_MINUTES
    edges = [first, *(minute for minute in range(first + 1, end) if minute % step == 0), end]
    spans = [(behind - 1, start - slice_.first, behind - slice_.first) for start, behind in pairwise(edges)]
    for (queue, task, event), counts in slice_.counts.items():
        if event in events:
            for last, low, high in spans:
                if count := sum(counts[low:high]):
                    yield EventCount(last, queue, task, event, count)
