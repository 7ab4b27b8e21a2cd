"""Queues of different weights, all full, and a quiet one: who is served, and who waits?"""

from __future__ import annotations

import asyncio
import math
import time
from typing import Final

from hawser.errors import StoreUnavailable
from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.generator import noops
from hawser.lab.load import Pump, all_jobs, fill, percentile, workers
from hawser.lab.plot import Line, Plot
from hawser.store import Filter, Store

WEIGHTS: Final = {"critical": 6, "default": 3, "low": 1}
"""Of the queues that are full all the time."""

QUIET: Final = "quiet"
"""A queue of the least weight into which a job comes now and then, beside all the others."""

OFF: Final = 0.1
"""How far a queue's share may be from its weight, as a part of it."""

QUIET_P99_WITHIN_S: Final = 1.0
"""Seconds within which 99 of 100 jobs of the quiet queue must start."""

NUMBERS: Final = {
    "jobs": Number(600_000, 150_000, "jobs in the backlog of the heaviest queue; the others have as much for their weight"),
    "seconds": Number(20, 3, "seconds over which the queues are watched"),
    "rate": Number(50, 50, "jobs a second that come into the quiet queue"),
}


async def run(lab: Lab) -> Finding:
    jobs, rate = int(lab.number("jobs")), lab.number("rate")
    async with lab.place.fresh() as (url, store):
        for queue, weight in WEIGHTS.items():
            await fill(store, jobs * weight // max(WEIGHTS.values()), lab.show, queue)
        queues = ",".join(f"{queue}:{weight}" for queue, weight in {**WEIGHTS, QUIET: 1}.items())
        with workers(url, lab.folder, processes=2, slots=200, claim_batch=200, queues=queues) as crew:
            # Watched from when they are at it: starting processes is no part of it.
            while not any((await _done(store)).values()):
                if not crew.lives:
                    raise StoreUnavailable(f"the workers made no progress; they said:\n{crew.last_words()}")
                await asyncio.sleep(0.05)
            async with Pump(store, rate, lambda count: noops(count, QUIET)):
                seen = await _watched(lab, store)
            left = {queue: (await store.stats(queue)).ready for queue in WEIGHTS}
            await asyncio.sleep(QUIET_P99_WITHIN_S)
            late = await _late(store)
    done = {queue: seen[-1][1][queue] - seen[0][1][queue] for queue in WEIGHTS}
    total, weights = sum(done.values()), sum(WEIGHTS.values())
    shares = {queue: count / total if total else 0.0 for queue, count in done.items()}
    p99 = percentile(late, 0.99)
    return Finding(
        broken=_unfair(shares, left, len(late), p99),
        figures={
            "done": done,
            "shares": {queue: round(share, 3) for queue, share in shares.items()},
            "left": left,
            "quiet_enqueued": len(late),
            "quiet_started": sum(seconds < math.inf for seconds in late),
            "quiet_late_p50_s": _finite(percentile(late, 0.5)),
            "quiet_late_p99_s": _finite(p99),
            "quiet_late_max_s": _finite(max(late, default=0.0)),
        },
        settings={"weights": WEIGHTS, "processes": 2, "slots": 200},
        text=(
            f"Three queues with more than could be done and a quiet one with {rate:g} jobs/s shared two processes. "
            + ", ".join(f"{queue} had {shares[queue]:.1%} for its weight of {WEIGHTS[queue]} in {weights}" for queue in WEIGHTS)
            + f". 99 of 100 jobs of the quiet queue, which weighs 1, started within {p99:.3f} s."
        ),
        plot=Plot(
            title="Jobs done by queues of different weight",
            x="seconds",
            lines=[
                Line(f"{queue} ({weight})", [(at, float(counts[queue])) for at, counts in seen])
                for queue, weight in WEIGHTS.items()
            ],
        ),
    )


async def _done(store: Store) -> dict[str, int]:
    return {queue: (await store.stats(queue)).done for queue in WEIGHTS}


async def _watched(lab: Lab, store: Store) -> list[tuple[float, dict[str, int]]]:
    """Jobs done by queue, over time."""
    seen: list[tuple[float, dict[str, int]]] = []
    began, seconds = time.monotonic(), lab.number("seconds")
    while (now := time.monotonic() - began) < seconds:
        seen.append((round(now, 1), await _done(store)))
        lab.show("seconds", int(now), int(seconds))
        await asyncio.sleep(0.1)
    return seen


async def _late(store: Store) -> list[float]:
    """Seconds that each job of the quiet queue waited; endless for one that has not started."""
    return [
        (job.started_at - job.run_at).total_seconds() if job.started_at else math.inf
        async for job in all_jobs(store, Filter(queue=QUIET))
    ]


def _unfair(shares: dict[str, float], left: dict[str, int], quiet: int, p99: float) -> list[str]:
    weights = sum(WEIGHTS.values())
    found = [
        f"{queue} had {share:.1%} of what was done; its weight is {WEIGHTS[queue] / weights:.0%}"
        for queue, share in shares.items()
        if abs(share - WEIGHTS[queue] / weights) > OFF * WEIGHTS[queue] / weights
    ]
    if not quiet or p99 >= QUIET_P99_WITHIN_S:
        found.append(
            f"99 of 100 of the {quiet} jobs of the quiet queue waited up to {p99:.2f} s; the bar is {QUIET_P99_WITHIN_S:g} s"
        )
    if not all(left.values()):
        found.append("a queue was drained too early to prove anything; ask for more with --set jobs=N")
    return found


def _finite(seconds: float) -> float | None:
    """None for a wait without an end, which JSON cannot say."""
    return round(seconds, 3) if seconds < math.inf else None
