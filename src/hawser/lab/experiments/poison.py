"""Jobs that kill their process: dead after exactly their attempts, and the others go on?"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any, Final

from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.findings import told
from hawser.lab.generator import ALL_POISON
from hawser.lab.plot import Line, Plot
from hawser.lab.trial import Trial, trial, under_load

POISON_PERCENT: Final = 5
"""Percent of the load that is poison."""

HEALTHY_SHARE_AT_LEAST: Final = 0.7
"""Of the healthy throughput without poison, what must be left with it."""

MEASURED: Final = ("fast", "slow")

NUMBERS: Final = {
    "seconds": Number(60, 6, "seconds of load, without poison and again with it"),
    "rate": Number(150, 80, "jobs a second"),
}


async def run(lab: Lab) -> Finding:
    seconds, rate = lab.number("seconds"), lab.number("rate")
    clean, _ = await _played(lab, seconds, rate, 0)
    sick, verdict = await _played(lab, seconds, rate, POISON_PERCENT)
    ratio = sick["healthy_per_s"] / clean["healthy_per_s"]
    broken = told(verdict)
    if ratio < HEALTHY_SHARE_AT_LEAST:
        broken.append(f"healthy throughput fell to {ratio:.2f} of that without poison; the bar is {HEALTHY_SHARE_AT_LEAST}")
    return Finding(
        broken=broken,
        figures={"without": clean, "with": sick, "ratio": round(ratio, 2), **verdict.counts},
        settings={"seconds": seconds, "rate": rate, "poison_percent": POISON_PERCENT, "kinds": list(ALL_POISON)},
        text=(
            f"Of {rate:g} jobs/s, {POISON_PERCENT} % raised, left by os._exit, crashed with SIGSEGV, killed their process or ate"
            f" its memory. All {sick['poison_dead']} of them are dead after exactly 3 starts; healthy jobs ran at"
            f" {sick['healthy_per_s']:g}/s, {ratio:.2f} of the {clean['healthy_per_s']:g}/s without poison."
            f" Processes replaced: {sick['processes_lost']}."
        ),
        plot=Plot(
            title="Healthy jobs done, with and without poison",
            x="seconds",
            lines=[Line("without poison", clean.pop("curve")), Line(f"with {POISON_PERCENT} % poison", sick.pop("curve"))],
        ),
    )


async def _played(lab: Lab, seconds: float, rate: float, share: float) -> tuple[dict[str, Any], Any]:
    """So many seconds of load, and what became of it."""
    mix = {"fast": 80.0, "slow": 20.0, **({"poison": share * 100 / (100 - share)} if share else {})}
    async with lab.place.fresh(timeout=60) as (url, store):
        async with trial(lab, url, store, units=1, processes=2, slots=64, lease=10.0) as found:
            lab.show(f"with {share:g} % poison", 0, 1)
            await found.until(lambda: _working(found))
            async with under_load(found, rate=rate, mix=mix, poison=ALL_POISON):
                curve = await _curve(found, seconds)
                done = curve[-1][1]
        verdict = await found.verdict()
        tasks = Counter(job.task for job in (await found.jobs()).values() if job.state == "dead")
    return {
        "healthy_per_s": round(done / seconds, 1),
        "poison_dead": tasks.total(),
        "processes_lost": found.said().count("starting another"),
        "curve": curve,
    }, verdict


async def _working(found: Trial) -> bool:
    return bool(await found.store.workers())


async def _curve(found: Trial, seconds: float) -> list[tuple[float, float]]:
    began, curve = time.monotonic(), []
    while (now := time.monotonic() - began) < seconds:
        stats = await found.stats()
        if stats is not None:
            curve.append((now, float(stats.done)))
        await asyncio.sleep(0.5)
    return curve
