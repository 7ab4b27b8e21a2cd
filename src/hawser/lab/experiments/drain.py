"""A deep backlog is drained: does the rate hold to its end?"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.load import NewClaims, fill, percentile, rate, wait_done, workers
from hawser.lab.plot import Line, Plot

DRAIN_PROCESSES: Final = 2
DRAIN_SLOTS: Final = 400
LAST_TENTH_AT_LEAST: Final = 0.9
"""The last tenth's rate, as a share of the first tenth's, below which the rate has decayed."""

Looks = list[tuple[float, int]]

NUMBERS: Final = {
    "jobs": Number(5_000_000, 40_000, "jobs in the backlog"),
}


async def run(lab: Lab) -> Finding:
    jobs = int(lab.number("jobs"))
    async with lab.place.fresh() as (url, store):
        await fill(store, jobs, lab.show)
        with workers(url, lab.folder, processes=DRAIN_PROCESSES, slots=DRAIN_SLOTS, claim_batch=DRAIN_SLOTS) as crew:
            seen = await wait_done(store, jobs, crew, lab.show, "drain")
        claims = NewClaims(lab.folder).seconds()
        stats = await store.stats("default")
    tenths = [per_s for _, per_s in rates(seen, 10)]
    ratio = round(tenths[-1] / tenths[0], 2) if tenths else None
    return Finding(
        broken=amiss(jobs, stats.done, ratio, judged=not lab.quick),
        figures={
            "jobs": jobs,
            "drain_per_s": rate(seen),
            "per_tenth": tenths,
            "last_to_first": ratio,
            "claim_p50_ms": round(percentile(claims, 0.5) * 1e3, 2),
            "claim_p99_ms": round(percentile(claims, 0.99) * 1e3, 2),
        },
        settings={"processes": DRAIN_PROCESSES, "slots": DRAIN_SLOTS},
        text=f"{jobs:,} jobs that do nothing were drained{_speed(seen, tenths)}.",
        plot=Plot(
            title=f"Drain of {jobs:,} jobs",
            x="jobs done",
            lines=[Line("jobs/s", rates(seen, 50))],
        ),
    )


def rates(seen: Looks, parts: int) -> list[tuple[float, int]]:
    """Jobs a second in each of so many equal parts of the drain, with the middle of the part. Between two looks the rate is taken
    to be even: a short drain has fewer looks than parts. Empty when there was only one look."""
    first, last = seen[0][1], seen[-1][1]
    if last == first:
        return []
    edges = [first + (last - first) * n / parts for n in range(parts + 1)]
    times = [_reached(seen, edge) for edge in edges]
    return [
        ((edges[n] + edges[n + 1]) / 2, round((edges[n + 1] - edges[n]) / max(times[n + 1] - times[n], 1e-6)))
        for n in range(parts)
    ]


def _reached(seen: Looks, done: float) -> float:
    """When so many were done."""
    for (before, low), (after, high) in pairwise(seen):
        if done <= high:
            return before + (after - before) * (done - low) / (high - low)
    return seen[-1][0]


def amiss(jobs: int, done: int, ratio: float | None, *, judged: bool) -> list[str]:
    """What did not hold. Rates of a quick run are shown, not judged."""
    broken = [f"{jobs - done} of {jobs} jobs are not done"] if done != jobs else []
    if ratio is None:
        broken.append("the backlog was drained between two looks, so no rate can be told; ask for more with --set jobs=NUMBER")
    elif ratio < LAST_TENTH_AT_LEAST and judged:
        broken.append(f"the last tenth ran at {ratio:.2f} of the first tenth's rate; the bar is {LAST_TENTH_AT_LEAST}")
    return broken


def _speed(seen: Looks, tenths: list[int]) -> str:
    if not tenths:
        return ""
    return (
        f" at {rate(seen):,} jobs/s; the last tenth at {tenths[-1]:,}, the first at {tenths[0]:,}:"
        f" {tenths[-1] / tenths[0]:.2f} of it"
    )
