"""A deep backlog is drained: does the rate hold to its end?"""

from __future__ import annotations

from typing import Final

from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.load import NewClaims, fill, percentile, rate, wait_done, workers
from hawser.lab.plot import Line, Plot

PROCESSES: Final = 2
SLOTS: Final = 400
BAR: Final = 0.9
"""The last tenth's rate, as a share of the first tenth's, below which the rate has decayed."""

Looks = list[tuple[float, int]]

NUMBERS: Final = {
    "jobs": Number(5_000_000, 40_000, "jobs in the backlog"),
}


async def run(lab: Lab) -> Finding:
    jobs = int(lab.number("jobs"))
    async with lab.place.fresh() as (url, store):
        await fill(store, jobs, lab.show)
        with workers(url, lab.folder, processes=PROCESSES, slots=SLOTS, claim_batch=SLOTS) as crew:
            seen = await wait_done(store, jobs, crew, lab.show, "drain")
        claims = NewClaims(lab.folder).seconds()
        stats = await store.stats("default")
    tenths = [rate(_between(seen, jobs * n / 10, jobs * (n + 1) / 10)) for n in range(10)]
    ratio = tenths[-1] / tenths[0]
    broken = [f"{jobs - stats.done} of {jobs} jobs are not done"] if stats.done != jobs else []
    if ratio < BAR and not lab.quick:
        broken.append(f"the last tenth ran at {ratio:.2f} of the first tenth's rate; the bar is {BAR}")
    return Finding(
        broken=broken,
        figures={
            "jobs": jobs,
            "drain_per_s": rate(seen),
            "per_tenth": tenths,
            "last_to_first": round(ratio, 2),
            "claim_p50_ms": round(percentile(claims, 0.5) * 1e3, 2),
            "claim_p99_ms": round(percentile(claims, 0.99) * 1e3, 2),
        },
        settings={"processes": PROCESSES, "slots": SLOTS},
        text=(
            f"{jobs:,} jobs that do nothing were drained at {rate(seen):,} jobs/s; the last tenth at {tenths[-1]:,}, the first at"
            f" {tenths[0]:,}: {ratio:.2f} of it."
        ),
        plot=Plot(
            title=f"Drain of {jobs:,} jobs",
            x="jobs done",
            lines=[Line("jobs/s", _smoothed(seen, jobs))],
        ),
    )


def _between(seen: Looks, low: float, high: float) -> Looks:
    """The looks of a stretch, with the one before it."""
    inside = [n for n, (_, done) in enumerate(seen) if low <= done <= high]
    return seen[max(0, inside[0] - 1) : inside[-1] + 1] if inside else seen[:2]


def _smoothed(seen: Looks, jobs: int, parts: int = 50) -> list[tuple[float, float]]:
    return [(jobs * (n + 0.5) / parts, rate(_between(seen, jobs * n / parts, jobs * (n + 1) / parts))) for n in range(parts)]
