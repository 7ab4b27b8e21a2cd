"""A mixed load for a long time: does the queue stay flat?"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from hawser.lab.bottleneck import metered
from hawser.lab.dependency import ADDRESS, Dependency
from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.generator import LoadPlan
from hawser.lab.load import Crew, NewClaims, Pump, percentile, workers
from hawser.lab.plot import Line, Plot
from hawser.lab.rate import named_bound
from hawser.store import QueueStats, Store

MARK_EVERY_S: Final = 5.0
"""Seconds between two marks."""

FLAT: Final = 2.0
"""Seconds of the load that may wait at the end: more than that, and the queue has grown."""

NUMBERS: Final = {
    "rate": Number(10_000, 500, "jobs a second"),
    "seconds": Number(1_200, 10, "seconds of load"),
    "processes": Number(2, 2, "worker processes"),
    "slots": Number(1_600, 200, "slots of each process"),
    "niceness": Number(5, 0, "niceness of the workers: what they leave to the store"),
}


async def run(lab: Lab) -> Finding:
    rate, seconds = lab.number("rate"), lab.number("seconds")
    processes, slots = int(lab.number("processes")), int(lab.number("slots"))
    niceness = int(lab.number("niceness"))
    load, marks = LoadPlan(lab.seed), []
    async with lab.place.fresh() as (url, store):
        with (
            Dependency() as dependency,
            workers(
                url,
                lab.folder,
                processes=processes,
                slots=slots,
                claim_batch=slots,
                niceness=niceness,
                environ={ADDRESS: str(dependency.port)},
            ) as crew,
        ):
            await asyncio.sleep(3)
            async with metered(lab.place, url) as meter, Pump(store, rate, load.take) as pump:
                marks = await _watched(lab, store, seconds, pump)
            ended = await _emptied(lab, store, crew)
    broken = _judged(rate, marks, ended, pump.accepted, load.poisoned)
    spent = meter.require().per_job(pump.accepted)
    figures = {
        "rate_asked": rate,
        "accepted": pump.accepted,
        "per_s": round(pump.accepted / seconds),
        "attempts_per_s": round(sum(mark["attempts_per_s"] for mark in marks) / len(marks)),
        "done": ended.done,
        "dead": ended.dead,
        "lost": pump.accepted - ended.done - ended.dead,
        "depth_mid": marks[len(marks) // 2]["depth"],
        "depth_end": marks[-1]["depth"],
        "depth_max": max(mark["depth"] for mark in marks),
        "claim_p99_ms": percentile([mark["claim_p99_ms"] for mark in marks], 0.5),
        "enqueue_p99_ms": round(percentile(pump.took, 0.99) * 1e3, 1),
        **spent,
    }
    return Finding(
        broken=broken,
        figures=figures,
        settings={"seconds": seconds, "processes": processes, "slots": slots, "niceness": niceness},
        text=(
            f"{pump.accepted:,} mixed jobs (70 % of 1 to 5 ms, 20 % of 0.2 to 2 s, 5 % with a dependency, 5 % poison"
            f" that fails three times) at {figures['per_s']:,} jobs/s, which is {figures['attempts_per_s']:,} attempts/s,"
            f" for {seconds:g} s. In the end {figures['depth_end']:,} waited, {figures['depth_max']:,} at the most;"
            f" {ended.done:,} are done and {ended.dead:,} dead: {figures['lost']} lost. {named_bound(spent)}"
        ),
        plot=Plot(
            title=f"A mixed load of {rate:,.0f} jobs/s",
            x="seconds",
            lines=[
                Line("jobs done or dead/s", [(mark["at"], mark["per_s"]) for mark in marks]),
                Line("waiting", [(mark["at"], mark["depth"]) for mark in marks]),
                Line("claim p99 ms", [(mark["at"], mark["claim_p99_ms"]) for mark in marks], right=True),
            ],
        ),
    )


async def _watched(lab: Lab, store: Store, seconds: float, pump: Pump) -> list[dict[str, Any]]:
    """A mark every few seconds."""
    claims, began = NewClaims(lab.folder), time.monotonic()
    marks: list[dict[str, Any]] = []
    before, last = await store.stats("default"), began
    while time.monotonic() - began < seconds:
        await asyncio.sleep(min(MARK_EVERY_S, seconds / 4))
        stats, now = await store.stats("default"), time.monotonic()
        sizes_and_seconds = claims.read()
        marks.append(
            {
                "at": round(now - began, 1),
                "per_s": round((_ended(stats) - _ended(before)) / (now - last)),
                "attempts_per_s": round(sum(size for size, _ in sizes_and_seconds) / (now - last)),
                "depth": stats.due,
                "running": stats.running,
                "behind": round((now - began) * pump.rate) - pump.accepted,
                "claim_p99_ms": round(percentile([each for _, each in sizes_and_seconds], 0.99) * 1e3, 1),
            }
        )
        before, last = stats, now
        lab.show("seconds", int(now - began), int(seconds))
    return marks


def _ended(stats: QueueStats) -> int:
    return stats.done + stats.dead


async def _emptied(lab: Lab, store: Store, crew: Crew) -> QueueStats:
    """Until nothing waits and nothing runs, or nothing moves any more."""
    last, moved = -1, time.monotonic()
    while crew.lives and time.monotonic() - moved < 60:
        stats = await store.stats("default")
        left = stats.ready + stats.scheduled + stats.retrying + stats.running
        if not left:
            return stats
        if left != last:
            last, moved = left, time.monotonic()
        lab.show("left", left, left)
        await asyncio.sleep(0.2)
    return await store.stats("default")


def _judged(rate: float, marks: list[dict[str, Any]], ended: QueueStats, accepted: int, poisoned: int) -> list[str]:
    broken = []
    if ended.dead != poisoned:
        broken.append(f"{ended.dead} jobs are dead, and {poisoned} were poison")
    if lost := accepted - ended.done - ended.dead:
        broken.append(f"{lost} of {accepted} accepted jobs are neither done nor dead")
    behind = marks[-1]["depth"] + max(0, marks[-1]["behind"])
    if behind > FLAT * rate:
        broken.append(f"{behind} jobs waited in the end, more than {FLAT:g} s of the load: this rate does not hold")
    return broken
