"""A fixed rate while another transaction holds an old snapshot of the database: does the queue decay, as others do?"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from hawser.lab.bottleneck import metered
from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.generator import noops
from hawser.lab.load import NewClaims, Pump, percentile, workers
from hawser.lab.plot import Band, Line, Plot
from hawser.lab.store_under_test import address, connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MARK_EVERY_S: Final = 5.0
"""Seconds between two marks."""

RATE_SHARE_AT_LEAST: Final = 0.95
"""Of the rate before, what must be left while the snapshot is held; of the rate asked for, where none is."""

WORST_SHARE_AT_LEAST: Final = 0.8
"""The same in every single interval."""

CLAIM_BAR: Final = 10.0
"""Milliseconds that 99 of 100 claims may take."""

NUMBERS: Final = {
    "rate": Number(8_000, 2_000, "jobs that do nothing, a second"),
    "free": Number(60, 10, "seconds before the snapshot is taken"),
    "seconds": Number(600, 10, "seconds for which it is held; 0: not at all, which every store can do"),
    "processes": Number(2, 2, "worker processes"),
    "slots": Number(400, 200, "slots of each process, and the most jobs in one claim"),
    "niceness": Number(5, 0, "niceness of the workers: what they leave to the store"),
}


async def run(lab: Lab) -> Finding:
    rate, free, held = lab.number("rate"), lab.number("free"), lab.number("seconds")
    async with lab.place.fresh() as (url, store):
        with workers(
            url,
            lab.folder,
            processes=int(lab.number("processes")),
            slots=int(lab.number("slots")),
            claim_batch=int(lab.number("slots")),
            niceness=int(lab.number("niceness")),
        ):
            await asyncio.sleep(3)
            claims = NewClaims(lab.folder)
            async with metered(lab.place, url) as meter, Pump(store, rate, noops) as pump:
                began = time.monotonic()
                marks = await _marks(lab, store, claims, began, free, held=False)
                if held:
                    async with _held(url):
                        marks += await _marks(lab, store, claims, began, free + held, held=True)
    before, during = ([mark for mark in marks if mark["held"] is each] for each in (False, True))
    spent = meter.require().per_job(pump.accepted)
    figures = {
        "free": _summary(before),
        "held": _summary(during) if during else None,
        "enqueue_p50_ms": round(percentile(pump.took, 0.5) * 1e3, 2),
        "enqueue_p99_ms": round(percentile(pump.took, 0.99) * 1e3, 2),
        **spent,
    }
    return Finding(
        broken=_judged(figures, rate),
        figures=figures,
        text=_told(figures, rate, held),
        plot=Plot(
            title=f"{rate:,.0f} jobs/s, and a snapshot held open elsewhere",
            x="seconds",
            lines=[
                Line("jobs/s", [(mark["at"], mark["per_s"]) for mark in marks]),
                Line("claim p99 ms", [(mark["at"], mark["claim_p99_ms"]) for mark in marks], right=True),
                Line("claim p50 ms", [(mark["at"], mark["claim_p50_ms"]) for mark in marks], right=True),
            ],
            bands=[Band(free, free + held, "a REPEATABLE READ transaction is held open elsewhere")] if held else [],
        ),
    )


@asynccontextmanager
async def _held(url: str) -> AsyncIterator[None]:
    """A client reads the table once and does not end the transaction."""
    async with connected(url) as con:
        await con.execute(f"set search_path to {address(url).schema}")
        await con.execute("begin isolation level repeatable read; select 1 from job limit 1")
        yield


async def _marks(lab: Lab, store: Any, claims: NewClaims, began: float, until: float, *, held: bool) -> list[dict[str, Any]]:
    """What the workers say of their claims. The store itself is asked only in the end: how deep it is costs it more the more it
    cannot vacuum, and would be in every mark."""
    marks: list[dict[str, Any]] = []
    last = time.monotonic()
    claims.read()
    while (left := began + until - time.monotonic()) > 0.5:
        await asyncio.sleep(min(MARK_EVERY_S, left))
        now, found = time.monotonic(), claims.read()
        seconds = [took for _, took in found]
        marks.append(
            {
                "at": round(now - began, 1),
                "held": held,
                "per_s": round(sum(count for count, _ in found) / (now - last)),
                "claim_p50_ms": round(percentile(seconds, 0.5) * 1e3, 2),
                "claim_p99_ms": round(percentile(seconds, 0.99) * 1e3, 2),
            }
        )
        last = now
        lab.show("held" if held else "free", int(now - began), int(until))
    marks[-1]["backlog"] = (await store.stats("default")).ready
    return marks


def _summary(marks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "per_s": round(sum(mark["per_s"] for mark in marks) / len(marks)),
        "lowest_per_s": min(mark["per_s"] for mark in marks),
        "claim_p50_ms": percentile([mark["claim_p50_ms"] for mark in marks], 0.5),
        "claim_p99_ms": percentile([mark["claim_p99_ms"] for mark in marks], 0.5),
        "claim_p99_ms_worst_mark": max(mark["claim_p99_ms"] for mark in marks),
        "backlog_end": marks[-1]["backlog"],
    }


def _judged(figures: dict[str, Any], rate: float) -> list[str]:
    broken = []
    worst, before = figures["held"] or figures["free"], figures["free"]["per_s"] if figures["held"] else rate
    if worst["per_s"] < RATE_SHARE_AT_LEAST * before:
        broken.append(f"{worst['per_s']} of {before:g} jobs/s: the bar is {RATE_SHARE_AT_LEAST}")
    if figures["held"] and worst["lowest_per_s"] < WORST_SHARE_AT_LEAST * before:
        broken.append(
            f"{worst['lowest_per_s']} of {before:g} jobs/s in the worst {MARK_EVERY_S:g} s: the bar is {WORST_SHARE_AT_LEAST}"
        )
    if worst["claim_p99_ms"] >= CLAIM_BAR:
        broken.append(f"claims took {worst['claim_p99_ms']} ms at p99; the bar is {CLAIM_BAR:g} ms")
    return broken


def _told(figures: dict[str, Any], rate: float, held: float) -> str:
    free, kept = figures["free"], figures["held"]
    said = f"{rate:g} jobs/s were asked for: {free['per_s']:,} were done, claims p99 {free['claim_p99_ms']} ms"
    if kept:
        said += (
            f"; with a snapshot held open for {held:g} s: {kept['per_s']:,} jobs/s, {kept['lowest_per_s']:,} in the worst"
            f" {MARK_EVERY_S:g} s, claims p99 {kept['claim_p99_ms']} ms at the middle of these intervals"
        )
    busy = f" The cores were busy for {figures['cpu_share']:.0%} of the time."
    return f"{said}. Enqueue took {figures['enqueue_p99_ms']} ms at p99.{busy}"
