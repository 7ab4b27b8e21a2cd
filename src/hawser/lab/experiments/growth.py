"""The cost of a job as something grows: jobs that wait, queues, tasks, payloads, schedulers. Does any of it get out of hand?

CPU is measured, not time: a machine that does other work besides changes it far less. Each step is held against the first one
of its row, with a bound that is said.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from hawser.errors import StoreError
from hawser.lab.app import TASKS
from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.feeder import JobMix, as_figures, cost_of, deepen
from hawser.lab.load import NewClaims, workers
from hawser.lab.plot import Line, Plot
from hawser.lab.schedule_cost import schedulers_row
from hawser.lab.store_under_test import Base
from hawser.value.payload import MAX_PAYLOAD

GROWTH_PROCESSES: Final = 2
GROWTH_SLOTS: Final = 200
JOBS_BEHIND: Final = 100_000
"""Jobs that wait while something else grows."""

NUMBERS: Final = {
    "only": Number(0, 0, "1: waiting jobs, 2: queues, 3: tasks, 4: payloads, 5: schedulers; 0: all of them"),
    "waiting": Number(5_000_000, 20_000, "the deepest backlog"),
    "most": Number(1_000, 10, "queues, and tasks, at the most"),
    "schedulers": Number(100, 4, "schedulers at the most"),
    "schedules": Number(10_000, 200, "schedules"),
    "stretches": Number(3, 1, "stretches of time whose median counts"),
    "seconds": Number(2, 0.6, "seconds of each, longer where few jobs are done"),
}

Row = dict[str, Any]


class CostBound(NamedTuple):
    """What a step may cost, as against the first of its row."""

    cpu: float
    """Times the CPU of a job."""
    log: float
    """Times the bytes of the log."""
    cpu_per_kb: float = 0.0
    """Microseconds more for each 1,000 bytes of payload."""
    log_per_kb: float = 0.0
    """Bytes of the log more for the same."""


class Dimension(NamedTuple):
    """Something that grows."""

    name: str
    what: str
    bound: CostBound
    measure: Callable[[Lab], AsyncIterator[Row]]


async def run(lab: Lab) -> Finding:
    if lab.place.redis is not None:
        # A rewrite of the log would make it shorter in the midst.
        lab.place.redis.ask("CONFIG", "SET", "auto-aof-rewrite-percentage", 0)
    only = int(lab.number("only"))
    chosen = [each for number, each in enumerate(DIMENSIONS, 1) if only in (0, number)]
    found: dict[Dimension, list[Row]] = {each: [] for each in chosen}
    broken = []
    for each, rows in found.items():
        try:
            async for row in each.measure(lab):
                rows.append(row)
        except StoreError as error:
            # The others go on: a full run takes ten minutes.
            broken.append(f"{each.name}: after {len(rows)} steps the next could not be measured: {error}")
    plots = {each.name: _plot(each, rows) for each, rows in found.items()}
    return Finding(
        broken=broken
        + [said for each, rows in found.items() for said in too_dear(each.name, each.bound, rows, judged=not lab.quick)],
        figures={each.name: rows for each, rows in found.items()},
        settings={"processes": GROWTH_PROCESSES, "slots": GROWTH_SLOTS, "jobs_behind": JOBS_BEHIND},
        text=" ".join(_said(each, rows) for each, rows in found.items()),
        plot=plots.pop(chosen[0].name),
        plots=plots,
    )


def too_dear(name: str, bound: CostBound, rows: Sequence[Row], *, judged: bool) -> list[str]:
    """Where a bound is not kept. Costs of a quick run are shown, not judged; that each tick fires is judged in both."""
    broken = [f"{name}: {row['amiss']}" for row in rows if row.get("amiss")]
    if not judged or not rows:
        return broken
    first, *others = rows
    for row in others:
        more = (row[name] - first[name]) / 1_000
        for unit, words, times, per_kb in (
            ("cpu_us", "µs of CPU", bound.cpu, bound.cpu_per_kb),
            ("log_bytes", "bytes of log", bound.log, bound.log_per_kb),
        ):
            most = first[unit] * times + per_kb * more
            if row[unit] > most:
                said = f"a job cost {row[unit]:,.0f} {words} at {row[name]:,}, and {first[unit]:,.0f} at {first[name]:,}"
                broken.append(f"{name}: {said}; the bound is {most:,.0f}")
    return broken


async def _waiting(lab: Lab) -> AsyncIterator[Row]:
    """One backlog that becomes deeper."""
    mix = JobMix()
    async with lab.place.fresh() as base:
        for depth in _steps((10_000, 100_000, 1_000_000, 5_000_000), int(lab.number("waiting"))):
            await deepen(lab, base.store, mix, depth, f"{depth:,} waiting")
            yield {"waiting": depth, **await _at_work(lab, base, mix, "default")}


async def _queues(lab: Lab) -> AsyncIterator[Row]:
    for count in _steps((1, 10, 100, 1_000), int(lab.number("most"))):
        yield {"queues": count, **await _with(lab, JobMix(queues=count), f"{count:,} queues", queues="*")}


async def _tasks(lab: Lab) -> AsyncIterator[Row]:
    for count in _steps((1, 10, 100, 1_000), int(lab.number("most"))):
        yield {"tasks": count, **await _with(lab, JobMix(tasks=count), f"{count:,} tasks", tasks=count)}


async def _payloads(lab: Lab) -> AsyncIterator[Row]:
    for size in (100, MAX_PAYLOAD) if lab.quick else (100, 1_000, 10_000, MAX_PAYLOAD):
        yield {"bytes": size, **await _with(lab, JobMix(payload=size), f"{size:,} bytes")}


async def _schedulers(lab: Lab) -> AsyncIterator[Row]:
    for count in _steps((1, 10, 100), int(lab.number("schedulers"))):
        lab.show(f"{count} schedulers", 0, 0)
        yield {"schedulers": count, **await schedulers_row(lab, count, int(lab.number("schedules")))}


async def _with(lab: Lab, mix: JobMix, words: str, queues: str = "default", tasks: int = 0) -> Row:
    """In a store of its own, with a backlog that is always the same."""
    behind = (JOBS_BEHIND if not lab.quick else JOBS_BEHIND // 20) * mix.at_once // JobMix().at_once
    async with lab.place.fresh() as base:
        await deepen(lab, base.store, mix, behind, words)
        return await _at_work(lab, base, mix, queues, tasks)


async def _at_work(lab: Lab, base: Base, mix: JobMix, queues: str, tasks: int = 0) -> Row:
    with (
        tempfile.TemporaryDirectory(dir=lab.folder) as name,
        workers(
            base.url,
            Path(name),
            processes=GROWTH_PROCESSES,
            slots=GROWTH_SLOTS,
            claim_batch=GROWTH_SLOTS,
            queues=queues,
            environ={TASKS: str(tasks)},
        ) as crew,
    ):
        claims = NewClaims(Path(name))
        row = await cost_of(lab, base, mix, crew, claims, int(lab.number("stretches")), lab.number("seconds"))
    return as_figures(row)


def _steps(usual: Sequence[int], most: int) -> list[int]:
    """The usual steps below the last, and the last."""
    return [*(step for step in usual if step < most), most]


def _said(dimension: Dimension, rows: Sequence[Row]) -> str:
    if not rows:
        return f"{dimension.what}: nothing was measured."
    first, last = rows[0], rows[-1]
    words = f"{dimension.what}: {first['cpu_us']:g} µs of CPU a job at {first[dimension.name]:,}, {last['cpu_us']:g} at"
    words += f" {last[dimension.name]:,}"
    if first["log_bytes"]:
        words += f"; {first['log_bytes']:,} and {last['log_bytes']:,} bytes of log"
    return f"{words}."


def _plot(dimension: Dimension, rows: Sequence[Row]) -> Plot:
    name = dimension.name
    parts = [("CPU", "cpu_us"), ("workers", "worker_us"), ("server", "server_us"), ("producer", "producer_us")]
    log = (
        [Line("bytes of log", [(row[name], row["log_bytes"]) for row in rows], right=True)]
        if any(row["log_bytes"] for row in rows)
        else []
    )
    return Plot(
        title=f"Cost of a job by {dimension.what.lower()}",
        x=dimension.what.lower(),
        log_x=True,
        lines=[
            *(
                Line(f"{words}, µs", [(row[name], row[part]) for row in rows])
                for words, part in parts
                if any(row.get(part) for row in rows)
            ),
            *log,
        ],
    )


DIMENSIONS: Final = (
    Dimension("waiting", "Jobs that wait", CostBound(1.5, 1.3), _waiting),
    Dimension("queues", "Queues", CostBound(3, 2), _queues),
    Dimension("tasks", "Tasks", CostBound(1.5, 1.2), _tasks),
    Dimension("bytes", "Bytes of payload", CostBound(1.5, 1.3, cpu_per_kb=100, log_per_kb=2_500), _payloads),
    Dimension("schedulers", "Schedulers", CostBound(3, 1.5), _schedulers),
)
