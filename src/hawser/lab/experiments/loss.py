"""Workers are killed under load: is anything lost, or settled twice?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from hawser.lab.app import STALL
from hawser.lab.chaos.plan import Plan
from hawser.lab.chaos.processes import freeze, kill_process, kill_supervisor, settle_late
from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.findings import over_time, told
from hawser.lab.generator import WITH_ONCE
from hawser.lab.journal import read
from hawser.lab.trial import faults, trial, under_load

LOSS_LEASE_S: Final = 2.0
STALLS: Final = 0.003
"""The chance that a worker stands still for three leases right before it writes outcomes: then they are stale."""

AHEAD_BAR: Final = 0.3
"""Most runs for each fault that a worker was told of in time and that never began: a fault may come between a claim's answer and
the first steps of what it brought."""
NOT_KNOWN_BAR: Final = 1.0
"""Most dead jobs for each fault of which it is not known whether they began: those of a claim whose answer was under way."""


NUMBERS: Final = {
    "kills": Number(300, 10, "faults that are made"),
    "units": Number(3, 2, "supervised workers, of two processes each"),
    "rate": Number(60, 60, "jobs a second"),
}


async def run(lab: Lab) -> Finding:
    kills, units = int(lab.number("kills")), int(lab.number("units"))
    rate = lab.number("rate")
    async with lab.place.fresh(timeout=60) as (url, store):
        async with trial(
            lab, url, store, units=units, lease=LOSS_LEASE_S, environs=[{STALL: f"{STALLS},{3 * LOSS_LEASE_S:g}"}]
        ) as found:
            plan = Plan(
                {
                    "kill process": (60, kill_process(found.units)),
                    "kill supervisor": (10, kill_supervisor(found.units)),
                    "kill process, supervisor frozen": (22, settle_late(found.units)),
                    "freeze": (8, freeze(found.units, 1.5 if lab.quick else 3.0)),
                },
                seed=lab.seed,
                every=(0.1, 0.5),
                tell=found.fault,
            )
            async with under_load(found, rate=rate, mix=WITH_ONCE):
                made = await faults(plan, kills)
        verdict = await found.verdict()
        records = read(found.folder / "journal")
    broken = told(verdict)
    # Those of the worker processes are in the journal; those of supervisors, who settle for the dead, only in their logs.
    late = sum(map(int, re.findall(r"worker \S+: (\d+) outcomes were refused", found.said())))
    refused = verdict.counts["stale_refused"] + late
    broken += unstarted(verdict.counts)
    if not lab.quick and not refused:
        broken.append("no stale settlement was tried, so nothing is proven about them; ask for more with --set kills=N")
    counts = verdict.counts
    return Finding(
        broken=broken,
        figures={
            "faults_made": dict(made),
            "drained_in_s": found.drained_in,
            **counts,
            "stale_refused": refused,
            "dead_not_known_by": verdict.dead_not_known_by,
        },
        settings={"rate": rate, "lease": LOSS_LEASE_S, "units": units, "processes_per_unit": 2},
        text=(
            f"{made.total()} times a worker process, or its supervisor, was killed with -9 or frozen for three leases, under"
            f" {rate:g} mixed jobs/s. {counts['accepted']:,} jobs were accepted, {counts['done']:,} are done and"
            f" {counts['dead']:,} dead as they should be, {counts['dead_never_started']} of them never started; of"
            f" {counts['dead_not_known']} it is not known{_by(verdict.dead_not_known_by)}. Of"
            f" {counts['not_known_whether_begun']} runs the store does not know whether they began;"
            f" {counts['claimed_ahead']} of them had reached their worker in time."
            f" Lost {counts['lost']}, settled twice {counts['settled_twice']},"
            f" stale settlements accepted {counts['stale_accepted']}, refused {refused}; stale extensions refused"
            f" {counts['stale_extensions_refused']}. {counts['redelivered']}"
            f" runs were lost with their process and made again; the sink refused {counts['stale_effects_refused']} effects of"
            " runs that others had taken over."
        ),
        plot=over_time("Jobs under kill -9", records),
    )


def unstarted(counts: Mapping[str, int]) -> list[str]:
    """What is wrong with the runs that never began, for so many faults."""
    found, faults = [], max(1, counts["faults"])
    if counts["claimed_ahead"] > AHEAD_BAR * faults:
        text = f"{counts['claimed_ahead']} runs reached their worker in time and never began, with {faults} faults"
        found.append(f"claimed ahead: {text}; the bar is {AHEAD_BAR:g} for each")
    if counts["dead_not_known"] > NOT_KNOWN_BAR * faults:
        text = f"{counts['dead_not_known']} dead jobs may never have been started, with {faults} faults"
        found.append(f"dead, not known: {text}; the bar is {NOT_KNOWN_BAR:g} for each")
    return found


def _by(faults: Mapping[str, int]) -> str:
    return f" ({', '.join(f'{count} by {fault}' for fault, count in faults.items())})" if faults else ""
