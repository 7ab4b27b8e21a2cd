"""Counters of the whole store: what all producers and workers of the store did since this server started."""

from __future__ import annotations

from collections import Counter
from typing import Final

from hawser.clock import Clock
from hawser.store.rollup import Watcher
from hawser.telemetry import metric
from hawser.telemetry.meter import Readings

SETTLED_AFTER_MINUTES: Final = 2
"""Minutes after which a minute's counts no longer change: a transaction may commit late."""

MOST_MINUTES: Final = 24 * 60
"""The store keeps its counts for so long."""

COUNTERS: Final = {
    "enqueued": metric.ENQUEUED,
    "deduplicated": metric.DEDUPLICATED,
    "dead": metric.DEAD,
    "steps": metric.STEPS,
    "came": metric.EVENTS_CAME,
    "late": metric.EVENTS_LATE,
    "emitted": metric.EMITTED,
    "woken": metric.WOKEN,
}
"""The events of the store that are told as counters."""

MINUTE_US: Final = 60_000_000

_Lane = tuple[str, str]
_Key = tuple[int, str, str, str]
_NO_LANE: Final[_Lane] = ("", "")


class Totals:
    """Adds up the store's counts per minute. Each read asks for the minutes that may have changed since the last one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._read_at: int | None = None
        self._counted: dict[_Key, int] = {}
        """What was counted before, of the minutes that may still change."""
        self._sums: Counter[tuple[str, _Lane]] = Counter()
        self._lanes: set[_Lane] = set()

    async def read(self, store: Watcher) -> None:
        """Bring the totals up to date. The first read only sets the start: counters begin at 0."""
        now = self._clock.now() // MINUTE_US
        first = self._read_at is None
        since = now if self._read_at is None else self._read_at
        minutes = min(max(now - since, 0) + SETTLED_AFTER_MINUTES + 1, MOST_MINUTES)
        counts = await store.event_counts(minutes, list(COUNTERS))
        for each in counts:
            key = (each.minute, each.queue, each.task, each.event)
            before = self._counted.get(key, 0)
            # More than one scrape may read at once: the later answer must not take anything back.
            if each.count > before:
                self._counted[key] = each.count
                if not first:
                    self._sums[each.event, (each.queue, each.task)] += each.count - before
            if COUNTERS[each.event].labels:
                self._lanes.add((each.queue, each.task))
        self._read_at = now
        self._counted = {key: count for key, count in self._counted.items() if key[0] >= now - SETTLED_AFTER_MINUTES - 1}

    def add_to(self, readings: Readings) -> None:
        """Tell the totals, also those that are 0: Prometheus sees no increase in a counter that begins with its first event."""
        for event, what in COUNTERS.items():
            for lane in self._lanes if what.labels else (_NO_LANE,):
                readings.count(what, lane if what.labels else (), self._sums[event, lane])
