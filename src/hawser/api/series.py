"""Rollups of single minutes as the columns of a chart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from msgspec import UNSET

from hawser.api.bodies import or_none
from hawser.api.figures import Mark, Series, WindowQuery
from hawser.clock import at, from_datetime
from hawser.store.rollup import BUCKETS, Kind, Measured, Rollup, percentile

POINTS: Final = 180
"""About as many points as a chart shows: a day is told in steps of 8 minutes."""

HISTORY_MINUTES: Final = 24 * 60
"""Minutes that figures are kept."""

MINUTE_US: Final = 60_000_000

COUNTS: Final = ("enqueued", "done", "failed", "dead")


def step_of(minutes: int) -> int:
    """Minutes of one step, so that the window has at most `POINTS` of them."""
    return max(1, -(-minutes // POINTS))


class Span(NamedTuple):
    """The time that charts are of: so many minutes back from now, without those from `until` on."""

    minutes: int
    until: datetime | None

    def begin(self, now: datetime) -> datetime:
        return at((from_datetime(now) // MINUTE_US - self.minutes) * MINUTE_US)

    def of(self, rollups: Sequence[Rollup]) -> Sequence[Rollup]:
        """Its minutes, of those up to now; the first at least."""
        found = rollups[-self.minutes :]
        return found if self.until is None else [each for each in found if each.minute < self.until] or found[:1]

    def marks(self, marks: Sequence[Mark]) -> list[Mark]:
        return [each for each in marks if self.until is None or each.at < self.until]


def span_of(query: WindowQuery, now: datetime) -> Span:
    minutes, until = query.minutes, or_none(query.until)
    if query.since is not UNSET:
        minutes = from_datetime(now) // MINUTE_US - from_datetime(query.since) // MINUTE_US + 1
    return Span(max(1, min(minutes, HISTORY_MINUTES)), None if until is None or until > now else until)


def series_of(rollups: Sequence[Rollup], step: int, now: datetime) -> Series:
    """The newest step may be shorter than the others: it is not over."""
    parts = [rollups[first : first + step] for first in range(0, len(rollups), step)]
    waits = [_sum([rollup.wait for rollup in part]) for part in parts]
    runs = [_sum([rollup.run for rollup in part]) for part in parts]
    counts = {name: [sum(rollup.counts.get(name, 0) for rollup in part) for part in parts] for name in COUNTS}
    return Series(
        start=rollups[0].minute,
        at=now,
        step=step,
        **counts,
        wait_p50=_percentiles(waits, 0.5),
        wait_p95=_percentiles(waits, 0.95),
        wait_p99=_percentiles(waits, 0.99),
        run_p50=_percentiles(runs, 0.5),
        run_p95=_percentiles(runs, 0.95),
        run_p99=_percentiles(runs, 0.99),
    )


_COMES: Final = ("enqueued", "failed", "returned", "lost")
_GOES: Final = ("claimed", "dead")
"""What makes the jobs that wait more, and fewer. An attempt that failed for good counts as failed and as dead."""


def waiting_of(rollups: Sequence[Rollup], now: int) -> list[int]:
    """About how many jobs waited at the end of each minute, when so many wait now: what came since is taken off, what went added.
    Jobs that were cancelled, replayed or discarded meanwhile are not reckoned with."""
    found = [now]
    for rollup in reversed(rollups[1:]):
        came = sum(rollup.counts.get(name, 0) for name in _COMES)
        went = sum(rollup.counts.get(name, 0) for name in _GOES)
        found.append(max(0, found[-1] - came + went))
    return found[::-1]


def at_ends(values: Sequence[int], step: int) -> list[int]:
    """Those of the last minute of each step."""
    return [values[min(first + step, len(values)) - 1] for first in range(0, len(values), step)]


def sum_times(rollups: Sequence[Rollup], kind: str) -> list[int]:
    """The histogram of all these minutes together."""
    return _sum([rollup.wait if kind == "wait" else rollup.run for rollup in rollups])


def times_by_task(measured: Sequence[Measured]) -> defaultdict[tuple[str, Kind], list[int]]:
    """Histograms by task and kind, of all queues together; of what was not measured they are empty."""
    found: defaultdict[tuple[str, Kind], list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
    for each in measured:
        found[each.task, each.kind][each.bucket] += each.count
    return found


def _sum(histograms: Sequence[Sequence[int]]) -> list[int]:
    return [sum(counts) for counts in zip(*histograms, strict=True)]


def _percentiles(histograms: Sequence[Sequence[int]], share: float) -> list[float | None]:
    return [percentile(counts, share) for counts in histograms]
