"""Workers are killed under load: is anything lost, or settled twice?"""

from __future__ import annotations

from typing import Final

from hawser.lab.chaos.plan import Plan
from hawser.lab.chaos.processes import bury_late, freeze, kill_process, kill_supervisor
from hawser.lab.experiment import Finding, Lab
from hawser.lab.findings import over_time, told
from hawser.lab.journal import read
from hawser.lab.trial import beside, trial, under_load

LEASE: Final = 2.0
RATE: Final = 60.0


async def run(lab: Lab) -> Finding:
    kills, ships = int(lab.number("kills", 300, 10)), int(lab.number("ships", 3, 2))
    rate = lab.number("rate", RATE, RATE)
    async with lab.place.fresh(timeout=60) as (url, store):
        async with trial(lab, url, store, ships=ships, lease=LEASE) as found:
            plan = Plan(
                {
                    "kill process": (70, kill_process(found.ships)),
                    "kill supervisor": (10, kill_supervisor(found.ships)),
                    "kill process, supervisor frozen": (12, bury_late(found.ships)),
                    "freeze": (8, freeze(found.ships, 1.5 if lab.quick else 3.0)),
                },
                seed=lab.seed,
                every=(0.2, 0.8),
                tell=found.fault,
            )
            async with under_load(found, rate=rate):
                made = await beside(lambda: plan.run(times=kills))
        verdict = await found.verdict()
        records = read(found.folder / "journal")
    broken = told(verdict)
    if not lab.quick and not verdict.counts["stale_refused"]:
        broken.append("no stale settlement was tried, so nothing is proven about them; ask for more with --set kills=N")
    counts = verdict.counts
    return Finding(
        broken=broken,
        figures={"faults_made": dict(made), "drained_in_s": found.drained_in, **counts},
        settings={"rate": rate, "lease": LEASE, "ships": ships, "processes_per_ship": 2},
        text=(
            f"{made.total()} times a worker process, or its supervisor, was killed with -9 or frozen for three leases, under"
            f" {rate:g} mixed jobs/s. {counts['accepted']:,} jobs were accepted, {counts['done']:,} are done and"
            f" {counts['dead']:,} dead as they should be; lost {counts['lost']}, settled twice {counts['settled_twice']},"
            f" stale settlements accepted {counts['stale_accepted']}, refused {counts['stale_refused']}. {counts['redelivered']}"
            f" runs were lost with their process and made again; the sink refused {counts['stale_effects_refused']} effects of"
            " runs that others had taken over."
        ),
        plot=over_time("Jobs under kill -9", records),
    )
