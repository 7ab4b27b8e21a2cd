"""Throughput by slots, and what bounds it."""

from __future__ import annotations

from typing import Final

from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.rate import PROCESSES, Setting, amiss, by_setting, each_drained, named_bound

SLOTS: Final = (16, 32, 64, 128, 256, 512, 1_024)
MOST_CLAIMED: Final = 400

NUMBERS: Final = {
    "jobs": Number(150_000, 8_000, "jobs for each setting"),
}


async def run(lab: Lab) -> Finding:
    jobs = int(lab.number("jobs"))
    steps = SLOTS[::3] if lab.quick else SLOTS
    settings = {slots: Setting(jobs, slots, min(slots, MOST_CLAIMED)) for slots in steps}
    rows = await each_drained(lab, "slots", settings)
    best = max(rows, key=lambda row: row["drain_per_s"])
    return Finding(
        broken=amiss(rows),
        figures={"by_slots": rows, "best_per_s": best["drain_per_s"], "best_slots": best["slots"]},
        settings={"jobs": jobs, "processes": PROCESSES},
        text=(
            f"{jobs:,} jobs that do nothing, drained by {PROCESSES} processes. The best of {len(rows)} settings was"
            f" {best['drain_per_s']:,} jobs/s with {best['slots']} slots for each process. {named_bound(best)}"
        ),
        plot=by_setting("Throughput by slots of a process", "slots of each process", "slots", rows),
    )
