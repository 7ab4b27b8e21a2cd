"""One tenant floods a queue, many others come after it with a little each: how long do they wait?"""

from __future__ import annotations

import asyncio
import random
import signal
from bisect import bisect_left
from typing import Final

from msgspec.structs import replace

from hawser.clock import SystemClock
from hawser.errors import StoreUnavailable
from hawser.ids import new_id
from hawser.lab import process_tree
from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.generator import noops
from hawser.lab.load import Crew, all_jobs, done_count, percentile, workers
from hawser.lab.plot import Line, Plot
from hawser.store import Filter, Store

BAR: Final = 1.2
"""Jobs of all tenants that may be done by when the small ones are through, as against a perfect round."""

SLOTS: Final = 100
PROCESSES: Final = 2
CHUNK: Final = 5_000

NUMBERS: Final = {
    "flood": Number(1_000_000, 15_000, "jobs of the one tenant that came first"),
    "tenants": Number(9_999, 400, "other tenants"),
    "each": Number(10, 10, "jobs of each of them"),
    "kills": Number(5, 2, "worker processes that are killed with -9 meanwhile"),
}


async def run(lab: Lab) -> Finding:
    flood, tenants, each, kills = (int(lab.number(name)) for name in NUMBERS)
    small, parent = tenants * each, new_id()
    chance = random.Random(lab.seed)  # noqa: S311  # no secret
    async with lab.place.fresh() as (url, store):
        await _fill(lab, store, flood, ["flood"], None)
        await _fill(lab, store, small, [f"tenant-{n}" for n in range(tenants)], parent)
        with workers(url, lab.folder, processes=PROCESSES, slots=SLOTS, claim_batch=SLOTS) as crew:
            seen, killed = await _watched(lab, store, crew, chance, kills, min(flood + small, round(small * 1.6) + 500))
            ended = [
                job.finished_at
                async for job in all_jobs(store, Filter(parent_id=parent))
                if job.finished_at is not None and job.attempt == 1
            ]
    last = max((at.timestamp() for at in ended), default=0.0)
    began = seen[0][0]
    at_last = seen[min(bisect_left([when for when, _ in seen], last), len(seen) - 1)][1]
    share = small + each + PROCESSES * SLOTS
    waits = [at.timestamp() - began for at in ended]
    broken = []
    if small - len(ended) > killed * SLOTS:  # what a killed process had waits for the end of its leases
        broken.append(f"{small - len(ended)} of {small} jobs of the small tenants were not done when {seen[-1][1]} of all were")
    if at_last > BAR * share:
        most = f"{BAR:g} times their share is {BAR * share:.0f}"
        broken.append(f"{at_last} jobs were done by when the small tenants were through; {most}")
    return Finding(
        broken=broken,
        figures={
            "small_jobs": small,
            "small_done": len(ended),
            "done_by_then": at_last,
            "times_their_share": round(at_last / share, 3),
            "killed": killed,
            "small_wait_p50_s": round(percentile(waits, 0.5), 2),
            "small_wait_p99_s": round(percentile(waits, 0.99), 2),
            "jobs_per_second": round(seen[-1][1] / max(seen[-1][0] - began, 0.001)),
        },
        settings={"processes": PROCESSES, "slots": SLOTS, "flood": flood, "tenants": tenants, "each": each},
        text=(
            f"One tenant had {flood:,} jobs waiting when {tenants:,} others came with {each} each. {killed} worker processes "
            f"were killed with -9 meanwhile. When all of the others' jobs were done, {at_last:,} jobs were done in all: "
            f"{at_last / share:.2f} times what a perfect round would have taken."
        ),
        plot=Plot(
            title="Jobs done, and those of the small tenants",
            x="seconds",
            lines=[
                Line("all", [(round(when - began, 2), float(count)) for when, count in seen]),
                Line("small tenants", _sums(sorted(waits))),
            ],
        ),
    )


async def _fill(lab: Lab, store: Store, count: int, groups: list[str], parent: str | None) -> None:
    """Jobs that do nothing, of these groups by turns."""
    for begin in range(0, count, CHUNK):
        jobs = enumerate(noops(min(CHUNK, count - begin)), begin)
        await store.enqueue([replace(job, group=groups[n % len(groups)], parent_id=parent) for n, job in jobs])
        lab.show("fill", min(begin + CHUNK, count), count)


async def _watched(
    lab: Lab, store: Store, crew: Crew, chance: random.Random, kills: int, until: int
) -> tuple[list[tuple[float, int]], int]:
    """Jobs done over time, until so many are; and how many processes were killed on the way."""
    while not await done_count(store):
        if not crew.lives:
            raise StoreUnavailable(f"the workers made no progress; they said:\n{crew.last_words()}")
        await asyncio.sleep(0.02)
    seen, killed = [(_now(), await done_count(store))], 0
    at = sorted(chance.uniform(0.1, 0.6) * until for _ in range(kills))
    while seen[-1][1] < until and crew.lives:
        if killed < kills and seen[-1][1] >= at[killed] and (living := process_tree.children(crew.process.pid)):
            process_tree.send([chance.choice(living)], signal.SIGKILL)
            killed += 1
        await asyncio.sleep(0.05)
        seen.append((_now(), await done_count(store)))
        lab.show("done", seen[-1][1], until)
    return seen, killed


def _now() -> float:
    """Seconds, as the jobs' own times are."""
    return SystemClock().now() / 1_000_000


def _sums(waits: list[float]) -> list[tuple[float, float]]:
    step = max(1, len(waits) // 200)
    return [(round(wait, 2), float(n + 1)) for n, wait in enumerate(waits) if n % step == 0]
