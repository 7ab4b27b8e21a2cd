"""Throughput by the size of a claim."""

from __future__ import annotations

from typing import Final

from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.rate import RATE_PROCESSES, Setting, amiss, by_setting, each_drained, named_bound

SIZES: Final = (1, 4, 16, 64, 200, 400, 1_000)
LEAST_SLOTS: Final = 64
PER_SIZE: Final = 4_000
"""Jobs for each place in a claim: small claims are slow, and need fewer jobs to be measured."""

NUMBERS: Final = {
    "jobs": Number(150_000, 8_000, "jobs for each setting, at the most"),
}


async def run(lab: Lab) -> Finding:
    most = int(lab.number("jobs"))
    steps = SIZES[::3] if lab.quick else SIZES
    settings = {size: Setting(min(most, PER_SIZE * size), max(size, LEAST_SLOTS), size) for size in steps}
    rows = await each_drained(lab, "claim_batch", settings)
    best, single = max(rows, key=lambda row: row["drain_per_s"]), rows[0]
    return Finding(
        broken=amiss(rows),
        figures={"by_size": rows, "best_per_s": best["drain_per_s"], "best_size": best["claim_batch"]},
        settings={"jobs": most, "processes": RATE_PROCESSES},
        text=(
            f"Claims of 1 job reach {single['drain_per_s']:,} jobs/s, claims of {best['claim_batch']} the most:"
            f" {best['drain_per_s']:,} jobs/s. {named_bound(best)}"
        ),
        plot=by_setting("Throughput by the size of a claim", "most jobs in one claim", "claim_batch", rows),
    )
