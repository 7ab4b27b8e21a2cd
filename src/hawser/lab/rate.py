"""How fast a backlog is drained with some settings, what that costs, and what bounds it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from hawser.lab.bottleneck import metered
from hawser.lab.experiment import Lab
from hawser.lab.load import NewClaims, fill, percentile, quiet, rate, wait_done, workers
from hawser.lab.plot import Line, Plot

PROCESSES: Final = 2


class Setting(NamedTuple):
    """A backlog, and how each process goes about it."""

    jobs: int
    slots: int
    claim_batch: int


async def each_drained(lab: Lab, name: str, settings: Mapping[int, Setting]) -> list[dict[str, Any]]:
    """A row of figures for each setting, with its number under a name."""
    rows = []
    for done, (number, setting) in enumerate(settings.items()):
        lab.show(name.replace("_", " "), done, len(settings))
        rows.append({name: number, **await _drained(lab, *setting)})
    return rows


async def _drained(lab: Lab, jobs: int, slots: int, claim_batch: int) -> dict[str, Any]:
    """Drain a backlog of jobs that do nothing: its rate, claim times and costs."""
    async with lab.place.fresh() as (url, store):
        await fill(store, jobs, quiet)
        with tempfile.TemporaryDirectory(dir=lab.folder) as name:
            with workers(url, Path(name), processes=PROCESSES, slots=slots, claim_batch=claim_batch) as crew:
                # Measured from when they are at it: starting processes is no part of the rate.
                started = (await wait_done(store, 1, crew, quiet, ""))[-1][1]
                async with metered(lab.place, url) as meter:
                    seen = await wait_done(store, jobs, crew, quiet, "")
            claims = NewClaims(Path(name)).seconds()
        stats = await store.stats("default")
    return {
        "not_done_once": abs(jobs - stats.done) + stats.ready + stats.running + stats.dead,
        "drain_per_s": rate(seen),
        "claim_p50_ms": round(percentile(claims, 0.5) * 1e3, 2),
        "claim_p99_ms": round(percentile(claims, 0.99) * 1e3, 2),
        **meter.require().per_job(jobs - started),
    }


def amiss(rows: list[dict[str, Any]]) -> list[str]:
    """A rate at which jobs get lost or are counted twice is not a result."""
    return [f"{row['not_done_once']} jobs were not done once" for row in rows if row["not_done_once"]]


def named_bound(row: dict[str, Any]) -> str:
    """What the rate of a row is bound by, in words, from what was measured."""
    waits = ", ".join(f"{name} {share:.0%}" for name, share in row["waits"].items())
    bound = "the CPU is the bound" if row["cpu_share"] >= 0.85 else "the bound is waiting, not the CPU"
    said = f"There the machine's cores were busy for {row['cpu_share']:.0%} of the time: {bound}."
    cost = f" A job cost {row['worker_us']} µs in the workers"
    if row["log_bytes"]:
        cost += f", {row['server_us']} µs in the server and {row['log_bytes']} bytes of its log"
    if waits:
        cost += f"; the server was at: {waits}"
    return f"{said}{cost}."


def by_setting(title: str, x: str, name: str, rows: list[dict[str, Any]]) -> Plot:
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
