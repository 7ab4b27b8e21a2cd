"""Throughput by slots, and what bounds it."""

from __future__ import annotations

from typing import Any, Final

from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.plot import Line, Plot
from hawser.lab.rate import drained

SLOTS: Final = (16, 32, 64, 128, 256, 512, 1_024)
PROCESSES: Final = 2
MOST_CLAIMED: Final = 400

NUMBERS: Final = {
    "jobs": Number(150_000, 8_000, "jobs for each setting"),
}


async def run(lab: Lab) -> Finding:
    jobs = int(lab.number("jobs"))
    steps = SLOTS[::3] if lab.quick else SLOTS
    rows: list[dict[str, Any]] = []
    for number, slots in enumerate(steps):
        lab.show("slots", number, len(steps))
        found = await drained(lab, jobs, processes=PROCESSES, slots=slots, claim_batch=min(slots, MOST_CLAIMED))
        rows.append({"slots": slots, **found})
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


def amiss(rows: list[dict[str, Any]]) -> list[str]:
    """A rate at which jobs get lost or are counted twice is none."""
    return [f"{row['not_done_once']} jobs were not done once" for row in rows if row["not_done_once"]]


def named_bound(row: dict[str, Any]) -> str:
    """What the rate of a row is bound by, in words, from what was measured."""
    waits = ", ".join(f"{name} {share:.0%}" for name, share in row["waits"].items())
    bound = "the CPU is the bound" if row["cpu_share"] >= 0.85 else "the bound is waiting, not the CPU"
    said = f"There the machine's cores were busy for {row['cpu_share']:.0%} of the time: {bound}."
    cost = f" A job cost {row['worker_us']} µs in the workers"
    if row["log_bytes"]:
        cost += f", {row['server_us']} µs in the server and {row['log_bytes']} bytes of its log; the server was at: {waits}"
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
