"""How fast a backlog is drained with some settings, what that costs, and what bounds it."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from hawser.errors import StoreUnavailable
from hawser.lab import bottleneck, process_tree
from hawser.lab.bottleneck import metered
from hawser.lab.experiment import Lab
from hawser.lab.load import Crew, NewClaims, fill, percentile, quiet, rate, wait_done, workers
from hawser.lab.plot import Line, Plot
from hawser.store.api_key import Actor
from hawser.store.operator import Target

RATE_PROCESSES: Final = 2

READY_WITHIN_S: Final = 120.0
READY_LOOK_EVERY_S: Final = 0.5
STANDS_STILL_S: Final = 0.05
"""Seconds of CPU between two looks that workers may spend which have nothing to do."""

LAB_ACTOR: Final = Actor("lab")

CORES_ARE_BUSY: Final = 0.85
"""The share of the cores from which on they are taken for the bound."""


class Setting(NamedTuple):
    """A backlog, and how each process goes about it."""

    jobs: int
    slots: int
    claim_batch: int
    processes: int = RATE_PROCESSES


async def each_drained(lab: Lab, name: str, settings: Mapping[int, Setting]) -> list[dict[str, Any]]:
    """A row of figures for each setting, with its number under a name."""
    rows = []
    for done, (number, setting) in enumerate(settings.items()):
        lab.show(name.replace("_", " "), done, len(settings))
        rows.append({name: number, **await drained(lab, setting)})
    return rows


async def drained(lab: Lab, setting: Setting) -> dict[str, Any]:
    """Drain a backlog of jobs that do nothing: its rate, claim times and costs."""
    jobs, slots, claim_batch, processes = setting
    async with lab.place.fresh() as (url, store):
        held = Target("queue", "default")
        await store.pause(held, LAB_ACTOR)
        await fill(store, jobs, quiet)
        with tempfile.TemporaryDirectory(dir=lab.folder) as name:
            with workers(url, Path(name), processes=processes, slots=slots, claim_batch=claim_batch) as crew:
                await _all_ready(crew, Path(name), processes)
                async with metered(lab.place, url) as meter:
                    await store.resume(held, LAB_ACTOR)
                    seen = await wait_done(store, jobs, crew, quiet, "")
            seen_claims = [claim for claim in NewClaims(Path(name)).read() if claim[0]]
        stats = await store.stats("default")
    claims = [took for _, took in seen_claims]
    return {
        "not_done_once": abs(jobs - stats.done) + stats.ready + stats.running + stats.dead,
        "drain_per_s": rate(seen),
        "jobs_per_claim": round(sum(size for size, _ in seen_claims) / max(1, len(seen_claims)), 1),
        "claim_p50_ms": round(percentile(claims, 0.5) * 1e3, 2),
        "claim_p99_ms": round(percentile(claims, 0.99) * 1e3, 2),
        **meter.require().per_job(jobs),
    }


async def _all_ready(crew: Crew, folder: Path, processes: int) -> None:
    """Until each process has begun and none has anything more to do.

    To start one costs more CPU than thousands of jobs, and those that are there first would have done the work of the others.
    """
    end = time.monotonic() + READY_WITHIN_S
    before = -1.0
    while crew.lives and time.monotonic() < end:
        spent = bottleneck.cpu_of([crew.process.pid, *process_tree.descendants(crew.process.pid)])
        if len(os.listdir(folder)) > processes and spent - before <= STANDS_STILL_S:
            return
        before = spent
        await asyncio.sleep(READY_LOOK_EVERY_S)
    raise StoreUnavailable(f"the workers were not ready within {READY_WITHIN_S:g} s; they said:\n{crew.last_words()}")


def amiss(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A rate at which jobs get lost or are counted twice is not a result."""
    return [f"{row['not_done_once']} jobs were not done once" for row in rows if row["not_done_once"]]


def named_bound(row: dict[str, Any]) -> str:
    """What the rate of a row is bound by, in words, from what was measured."""
    waits = ", ".join(f"{name} {share:.0%}" for name, share in row["waits"].items())
    bound = "the CPU is the bound" if row["cpu_share"] >= CORES_ARE_BUSY else "the bound is waiting, not the CPU"
    said = f"There the machine's cores were busy for {row['cpu_share']:.0%} of the time: {bound}."
    cost = f" A job cost {row['worker_us']} µs in the workers"
    if row["log_bytes"]:
        cost += f", {row['server_us']} µs in the server and {row['log_bytes']} bytes of its log"
    if waits:
        cost += f"; the server was at: {waits}"
    return f"{said}{cost}."


def by_setting(title: str, x: str, name: str, rows: Sequence[dict[str, Any]]) -> Plot:
    """Rate and costs of a row of settings."""
    return Plot(
        title=title,
        x=x,
        log_x=True,
        lines=[
            Line("jobs/s", [(row[name], row["drain_per_s"]) for row in rows]),
            Line("worker µs per job", [(row[name], row["worker_us"]) for row in rows], right=True),
            *(
                [Line("server µs per job", [(row[name], row["server_us"]) for row in rows], right=True)]
                if rows[0]["log_bytes"]
                else []
            ),
        ],
    )
