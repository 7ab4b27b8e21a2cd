"""Throughput by slots and by processes, what bounds it, and what more processes cost."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, Final

from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.rate import CORES_ARE_BUSY, RATE_PROCESSES, Setting, amiss, by_setting, drained, each_drained, named_bound

SLOTS_TRIED: Final = (16, 32, 64, 128, 256, 512, 1_024)
MOST_CLAIMED: Final = 400

CROWDS: Final = ((1, 512), (2, 256), (4, 128), (8, 64), (16, 32))
"""Processes, and the slots of each: as many slots in all, in more and more processes."""

FEW_PROCESSES: Final = (2, 256)
MANY_PROCESSES: Final = (8, 64)
"""The two that are held against each other, by turns."""

MANY_AT_LEAST: Final = 0.7
"""The rate of the many on PostgreSQL, as a share of that of the few."""

NUMBERS: Final = {
    "jobs": Number(150_000, 8_000, "jobs for each setting"),
    "slots": Number(1, 1, "1: by slots of two processes as well; 0: only by processes"),
    "rounds": Number(5, 0, "rounds in which 2 processes of 256 slots and 8 of 64 are held against each other"),
}

Row = dict[str, Any]


async def run(lab: Lab) -> Finding:
    jobs, rounds = int(lab.number("jobs")), int(lab.number("rounds"))
    steps = () if not lab.number("slots") else SLOTS_TRIED[::3] if lab.quick else SLOTS_TRIED
    by_slots = await each_drained(lab, "slots", {slots: _setting(jobs, RATE_PROCESSES, slots) for slots in steps})
    crowds = [await _crowd(lab, jobs, *crowd) for crowd in (CROWDS[1::2] if lab.quick else CROWDS)]
    pairs = []
    for number in range(rounds):
        lab.show("rounds", number, rounds)
        turn = (FEW_PROCESSES, MANY_PROCESSES) if number % 2 else (MANY_PROCESSES, FEW_PROCESSES)
        one, other = [await _crowd(lab, jobs, *crowd) for crowd in turn]
        pairs.append((one, other) if turn[0] is FEW_PROCESSES else (other, one))
    few, many = (
        [row for row in [*crowds, *(row for pair in pairs for row in pair)] if (row["processes"], row["slots"]) == crowd]
        for crowd in (FEW_PROCESSES, MANY_PROCESSES)
    )
    ratios = [round(more["drain_per_s"] / max(1, less["drain_per_s"]), 2) for less, more in pairs]
    ratio = statistics.median(ratios) if ratios else None
    rows = [*by_slots, *crowds, *(row for pair in pairs for row in pair)]
    best = max([*by_slots, *crowds], key=lambda row: row["drain_per_s"])
    return Finding(
        broken=[*amiss(rows), *too_slow(ratio, judged=lab.place.kind == "postgres")],
        figures={
            "by_slots": by_slots,
            "by_processes": crowds,
            "rounds": [{"ratio": ratio, **_short(pair)} for ratio, pair in zip(ratios, pairs, strict=True)],
            "many_to_few": ratio,
            "best_per_s": best["drain_per_s"],
            "best_slots": best["slots"],
        },
        settings={"jobs": jobs, "processes": RATE_PROCESSES, "most_claimed": MOST_CLAIMED},
        text=(
            f"{jobs:,} jobs that do nothing were drained. The best of {len(by_slots) + len(crowds)} settings was"
            f" {best['drain_per_s']:,} jobs/s. {named_bound(best)} {_what_more_cost(few, many, ratio)}"
        ),
        plot=by_setting(f"Throughput by processes that share {CROWDS[0][1]} slots", "processes", "processes", crowds),
        plots={"slots": by_setting("Throughput by slots of a process", "slots of each process", "slots", by_slots)}
        if by_slots
        else {},
    )


def too_slow(ratio: float | None, *, judged: bool) -> list[str]:
    """More processes on one PostgreSQL must not cost too much of the rate."""
    if not judged or ratio is None or ratio >= MANY_AT_LEAST:
        return []
    return [f"8 processes of 64 slots drained at {ratio:.2f} of the rate of 2 processes of 256; the bar is {MANY_AT_LEAST}"]


def _setting(jobs: int, processes: int, slots: int) -> Setting:
    return Setting(jobs, slots, min(slots, MOST_CLAIMED), processes)


async def _crowd(lab: Lab, jobs: int, processes: int, slots: int) -> Row:
    lab.show(f"{processes} processes of {slots} slots", 0, 0)
    return {"processes": processes, "slots": slots, **await drained(lab, _setting(jobs, processes, slots))}


def _short(pair: tuple[Row, Row]) -> Row:
    """A row of a round: what both came to."""
    return {
        f"{row['processes']}x{row['slots']} {name}": row[name]
        for row in pair
        for name in ("drain_per_s", "claim_p99_ms", "cpu_share")
    }


def _what_more_cost(few: Sequence[Row], many: Sequence[Row], ratio: float | None) -> str:
    """In words: the same slots in four times the processes."""

    def middle(rows: Sequence[Row], name: str) -> float:
        return statistics.median(row[name] or 0.0 for row in rows)

    parts = [
        f"a job cost {middle(few, name):g} and {middle(many, name):g} µs in the {where}"
        for name, where in (("worker_us", "workers"), ("server_us", "server"))
        if any(row[name] for row in few)
    ]
    share = f", {ratio:.2f} of the rate as the median of the rounds" if ratio is not None else ""
    waits = ", ".join(f"{name} {part:.0%}" for name, part in many[-1]["waits"].items())
    bound = "the cores are the bound" if middle(many, "cpu_share") >= CORES_ARE_BUSY else "the bound is waiting, not the cores"
    smaller = middle(many, "jobs_per_claim") < middle(few, "jobs_per_claim")
    why = " More processes are smaller claims, and more commits for as many jobs." if smaller else ""
    return (
        f"The same slots in 8 processes instead of 2: {middle(many, 'drain_per_s'):,.0f} jobs/s and"
        f" {middle(few, 'drain_per_s'):,.0f}{share}; claims brought {middle(many, 'jobs_per_claim'):g} jobs and"
        f" {middle(few, 'jobs_per_claim'):g}, and took {middle(many, 'claim_p99_ms'):g} and"
        f" {middle(few, 'claim_p99_ms'):g} ms at p99; with 2 and with 8 processes {' and '.join(parts)}. There {bound}: busy for"
        f" {middle(many, 'cpu_share'):.0%}{f', and the server was at: {waits}' if waits else ''}.{why}"
    )
