"""A dependency goes away for a while: what becomes of the jobs that need it, and of the others?"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.findings import told
from hawser.lab.journal import What, read
from hawser.lab.plot import Band, Line, Plot
from hawser.lab.trial import trial, under_load

MIX: Final = {"fast": 75.0, "slow": 10.0, "flapping": 15.0}
CALM_AROUND_S: Final = 5.0
"""Seconds of calm before and after."""

NUMBERS: Final = {
    "seconds": Number(60, 5, "seconds that the dependency is away"),
    "rate": Number(200, 100, "jobs a second"),
}


async def run(lab: Lab) -> Finding:
    away, rate = lab.number("seconds"), lab.number("rate")
    async with lab.place.fresh(timeout=60) as (url, store):
        # Tried again every 0.2 s: the time away must not use up all attempts, so a job gets as many as it may need.
        tries = int((away + CALM_AROUND_S) / 0.2 * 3)
        async with (
            trial(lab, url, store, units=1, processes=2, slots=64, lease=10.0) as found,
            under_load(found, rate=rate, mix=MIX, tries=tries),
        ):
            began = time.monotonic_ns()
            await asyncio.sleep(CALM_AROUND_S)
            found.fault("dependency down")
            found.dependency.down()
            down = time.monotonic_ns()
            await asyncio.sleep(away)
            found.dependency.up()
            found.fault("dependency up")
            up = time.monotonic_ns()
            await asyncio.sleep(CALM_AROUND_S)
        verdict = await found.verdict()
        records = read(found.folder / "journal")
        jobs = await found.jobs()
    needing = {id for id, job in jobs.items() if job.task == "flapping"}
    ends = [(record.at, run.id) for record in records if record.what is What.EFFECT for run in record.runs]
    others = [at for at, id in ends if id not in needing]
    calm = _rate(others, began, down)
    meanwhile = _rate(others, down, up)
    early = {run.id for record in records if record.what is What.ACCEPTED and record.at < up for run in record.runs}
    caught_up = (max((at for at, id in ends if id in needing & early and at >= up), default=up) - up) / 1e9
    attempts = max((jobs[id].attempt for id in needing), default=0)
    broken = told(verdict)
    if meanwhile < 0.9 * calm:
        broken.append(f"jobs that do not need the dependency fell from {calm:.0f} to {meanwhile:.0f}/s while it was away")
    return Finding(
        broken=broken,
        figures={
            "others_per_s_before": round(calm, 1),
            "others_per_s_meanwhile": round(meanwhile, 1),
            "needing": len(needing),
            "most_attempts": attempts,
            "caught_up_in_s": round(caught_up, 2),
            **verdict.counts,
        },
        settings={"seconds_away": away, "rate": rate},
        text=(
            f"A dependency of 15 % of {rate:g} jobs/s refused connections for {away:g} s. The other jobs ran at {meanwhile:.0f}/s"
            f" meanwhile ({calm:.0f}/s before). The {len(needing)} jobs that needed it were tried again, up to {attempts} times,"
            f" and all are done; those that had waited were through {caught_up:.1f} s"
            f" after it was back. Lost: {verdict.counts['lost']}."
        ),
        plot=Plot(
            title="Effects while a dependency is away",
            x="seconds",
            lines=[
                Line("others/s", _by_second([at for at, id in ends if id not in needing], began)),
                Line("needing it/s", _by_second([at for at, id in ends if id in needing], began)),
            ],
            bands=[Band((down - began) / 1e9, (up - began) / 1e9, "the dependency is away")],
        ),
    )


def _rate(at: list[int], start: int, end: int) -> float:
    return sum(start <= each < end for each in at) / ((end - start) / 1e9)


def _by_second(at: list[int], began: int) -> list[tuple[float, float]]:
    seconds = [int((each - began) / 1e9) for each in at]
    return [(float(second), float(seconds.count(second))) for second in range(max(seconds, default=0) + 1)]
