"""Rollups of single minutes as the columns of a chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hawser.api.figures import Series
from hawser.store.rollup import Rollup, percentile

POINTS: Final = 180
"""About as many points as a chart shows: a day is told in steps of 8 minutes."""

COUNTS: Final = ("enqueued", "done", "failed", "dead")


def step_of(minutes: int) -> int:
    """Minutes of one step, so that the window has at most `POINTS` of them."""
    return max(1, -(-minutes // POINTS))


def series_of(rollups: Sequence[Rollup], step: int) -> Series:
    """The newest step may be shorter than the others: it is not over."""
    parts = [rollups[first : first + step] for first in range(0, len(rollups), step)]
    waits = [_sum([rollup.wait for rollup in part]) for part in parts]
    runs = [_sum([rollup.run for rollup in part]) for part in parts]
    counts = {name: [sum(rollup.counts.get(name, 0) for rollup in part) for part in parts] for name in COUNTS}
    return Series(
        start=rollups[0].minute,
        step=step,
        **counts,
        wait_p50=_percentiles(waits, 0.5),
        wait_p95=_percentiles(waits, 0.95),
        wait_p99=_percentiles(waits, 0.99),
        run_p50=_percentiles(runs, 0.5),
        run_p95=_percentiles(runs, 0.95),
        run_p99=_percentiles(runs, 0.99),
    )


def sum_times(rollups: Sequence[Rollup], kind: str) -> list[int]:
    """The histogram of all these minutes together."""
    return _sum([rollup.wait if kind == "wait" else rollup.run for rollup in rollups])


def _sum(histograms: Sequence[Sequence[int]]) -> list[int]:
    return [sum(counts) for counts in zip(*histograms, strict=True)]


def _percentiles(histograms: Sequence[Sequence[int]], share: float) -> list[float | None]:
    return [percentile(counts, share) for counts in histograms]
