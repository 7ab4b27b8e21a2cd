"""One tenant floods a queue, many others come after it with a little each: how long do they wait?"""

from __future__ import annotations

import asyncio
import random
import signal
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from math import inf
from typing import Final

from msgspec.structs import replace

from hawser.clock import SystemClock
from hawser.errors import StoreUnavailable
from hawser.job import Job, State
from hawser.lab import process_tree
from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.generator import noops
from hawser.lab.load import Crew, all_jobs, done_count, percentile, workers
from hawser.lab.plot import Line, Plot
from hawser.store import Filter, Store
from hawser.value.ids import new_id

ROUND_AT_MOST: Final = 1.2
"""Jobs of all tenants that may be done by when the small ones are through, as against a perfect round."""

ROUNDS_AT_MOST: Final = 2.0
"""Rounds in which 99 of 100 tenants have their first job started, and 99 of 100 newcomers theirs. A round is one job of each
tenant that has some."""

TENANTS_SLOTS: Final = 100
TENANTS_PROCESSES: Final = 2
JOBS_PER_ENQUEUE: Final = 5_000
FLOOD: Final = "flood"

NUMBERS: Final = {
    "flood": Number(1_000_000, 15_000, "jobs of the one tenant that came first"),
    "tenants": Number(9_999, 400, "other tenants"),
    "each": Number(10, 10, "jobs of each of them"),
    "newcomers": Number(200, 20, "tenants with a job each that come while the others have jobs waiting"),
    "kills": Number(5, 2, "worker processes that are killed with -9 meanwhile"),
}


async def run(lab: Lab) -> Finding:
    flood, tenants, each, newcomers, kills = (int(lab.number(name)) for name in NUMBERS)
    small, parent, late = tenants * each, new_id(), new_id()
    chance = random.Random(lab.seed)  # noqa: S311  # no secret
    async with lab.place.fresh() as (url, store):
        await _fill(lab, store, flood, [FLOOD], None)
        await _fill(lab, store, small, [f"tenant-{n}" for n in range(tenants)], parent)
        with workers(url, lab.folder, processes=TENANTS_PROCESSES, slots=TENANTS_SLOTS, claim_batch=TENANTS_SLOTS) as crew:
            until = min(flood + small, round(small * 1.6) + 500)
            # While all of the others wait still: each has had less than half of its jobs.
            coming = sorted(chance.uniform(0.05, 0.4) * small for _ in range(newcomers))
            seen, killed = await _watched(lab, store, crew, chance, kills, until, coming, late)
        done = [job async for job in all_jobs(store, Filter(state=State.DONE))]
        came = [job async for job in all_jobs(store, Filter(parent_id=late))]
    # The jobs' own times say it to the job: two looks at a count are a thousand jobs apart at these rates.
    ended = [_ended(job) for job in done if job.parent_id == parent and job.attempt == 1]
    last = max(ended, default=0.0)
    began = seen[0][0]
    share = small + each + newcomers + TENANTS_PROCESSES * TENANTS_SLOTS
    ends = [_ended(job) for job in done]
    at_last = sum(end <= last for end in ends)
    # The first look at the count may come a round late.
    first = min(attempt.started_at.timestamp() for job in done for attempt in job.attempts)
    rounds = rounds_waited([job for job in done if job.parent_id == parent], ends, first, tenants + 1)
    of_newcomers = rounds_waited(came, ends, first, tenants + 1)
    rounds_p99, newcomers_p99 = percentile(rounds, 0.99), percentile(of_newcomers, 0.99)
    waits = [at - began for at in ended]
    broken = waited_too_long(rounds, of_newcomers, newcomers)
    if small - len(ended) > killed * TENANTS_SLOTS:  # what a killed process had waits for the end of its leases
        broken.append(f"{small - len(ended)} of {small} jobs of the small tenants were not done when {seen[-1][1]} of all were")
    if at_last > ROUND_AT_MOST * share:
        most = f"{ROUND_AT_MOST:g} times their share is {ROUND_AT_MOST * share:.0f}"
        broken.append(f"{at_last} jobs were done by when the small tenants were through; {most}")
    return Finding(
        broken=broken,
        figures={
            "small_jobs": small,
            "small_done": len(ended),
            "done_by_then": at_last,
            "times_their_share": round(at_last / share, 3),
            "first_start_rounds_p50": round(percentile(rounds, 0.5), 2),
            "first_start_rounds_p99": round(rounds_p99, 2),
            "newcomers": len(of_newcomers),
            "newcomer_rounds_p50": round(percentile(of_newcomers, 0.5), 2),
            "newcomer_rounds_p99": round(newcomers_p99, 2),
            "killed": killed,
            "small_wait_p50_s": round(percentile(waits, 0.5), 2),
            "small_wait_p99_s": round(percentile(waits, 0.99), 2),
            "jobs_per_second": round(seen[-1][1] / max(seen[-1][0] - began, 0.001)),
        },
        settings={"processes": TENANTS_PROCESSES, "slots": TENANTS_SLOTS, "flood": flood, "tenants": tenants, "each": each},
        text=(
            f"One tenant had {flood:,} jobs waiting when {tenants:,} others came with {each} each. {killed} worker processes "
            f"were killed with -9 meanwhile. When all of the others' jobs were done, {at_last:,} jobs were done in all: "
            f"{at_last / share:.2f} times what a perfect round would have taken. 99 of 100 tenants waited at most "
            f"{rounds_p99:.2f} rounds for their first job, 99 of 100 of the {newcomers} that came later {newcomers_p99:.2f}."
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
    for begin in range(0, count, JOBS_PER_ENQUEUE):
        jobs = enumerate(noops(min(JOBS_PER_ENQUEUE, count - begin)), begin)
        await store.enqueue([replace(job, group=groups[n % len(groups)], parent_id=parent) for n, job in jobs])
        lab.show("fill", min(begin + JOBS_PER_ENQUEUE, count), count)


async def _watched(
    lab: Lab, store: Store, crew: Crew, chance: random.Random, kills: int, until: int, coming: list[float], late: str
) -> tuple[list[tuple[float, int]], int]:
    """Jobs done over time, until so many are; and how many processes were killed on the way. A newcomer comes at each count of
    `coming`, with a job of the parent `late`."""
    while not await done_count(store):
        if not crew.lives:
            raise StoreUnavailable(f"the workers made no progress; they said:\n{crew.last_words()}")
        await asyncio.sleep(0.02)
    seen, killed = [(_now(), await done_count(store))], 0
    at = sorted(chance.uniform(0.1, 0.6) * until for _ in range(kills))
    came = 0
    while seen[-1][1] < until and crew.lives:
        if killed < kills and seen[-1][1] >= at[killed] and (living := process_tree.children(crew.process.pid)):
            process_tree.send([chance.choice(living)], signal.SIGKILL)
            killed += 1
        if due := bisect_left(coming, seen[-1][1]) - came:
            jobs = enumerate(noops(due), came)
            await store.enqueue([replace(job, group=f"newcomer-{n}", parent_id=late) for n, job in jobs])
            came += due
        await asyncio.sleep(0.05)
        seen.append((_now(), await done_count(store)))
        lab.show("done", seen[-1][1], until)
    return seen, killed


def rounds_waited(jobs: Iterable[Job], ends: Sequence[float], began: float, round_: int) -> list[float]:
    """For each tenant how many jobs ended between its coming, or the beginning, and its first start; in rounds. One that has had
    no start has waited for all of them."""
    ordered = sorted(ends)
    came: dict[str, float] = {}
    first: dict[str, float] = {}
    for job in jobs:
        if job.group is not None:
            enqueued, starts = job.enqueued_at.timestamp(), [attempt.started_at.timestamp() for attempt in job.attempts]
            came[job.group] = min(enqueued, came.get(job.group, enqueued))
            first[job.group] = min(*starts, first.get(job.group, inf), inf)
    return [
        (bisect_left(ordered, first[group]) - bisect_left(ordered, min(max(came[group], began), first[group]))) / round_
        for group in first
    ]


def waited_too_long(tenants: Sequence[float], newcomers: Sequence[float], expected: int) -> list[str]:
    """Each with a bar of its own: newcomers are so few among all that none of them is in the last hundredth."""
    broken = []
    if len(newcomers) < expected:
        broken.append(f"{len(newcomers)} of {expected} newcomers came; let the others have more jobs, with --set each=…")
    for who, rounds in (("tenants", tenants), ("newcomers", newcomers)):
        if (p99 := percentile(rounds, 0.99)) > ROUNDS_AT_MOST:
            broken.append(f"99 of 100 {who} waited {p99:.2f} rounds for their first job; the bar is {ROUNDS_AT_MOST:g}")
    return broken


def _ended(job: Job) -> float:
    assert job.finished_at is not None
    return job.finished_at.timestamp()


def _now() -> float:
    """Seconds, as the jobs' own times are."""
    return SystemClock().now() / 1_000_000


def _sums(waits: list[float]) -> list[tuple[float, float]]:
    step = max(1, len(waits) // 200)
    return [(round(wait, 2), float(n + 1)) for n, wait in enumerate(waits) if n % step == 0]
