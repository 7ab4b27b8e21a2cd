"""The store itself dies under load, again and again: is anything lost that was accepted, and when is work back?

A server, PostgreSQL or Redis, is killed with -9. A SQLite file has no server: its disk loses the power, with all that was not
forced onto it.
"""

from __future__ import annotations

import asyncio
import random
import time
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from typing import Final

from hawser.lab.chaos.plan import Plan
from hawser.lab.chaos.power import PowerCut
from hawser.lab.chaos.server import kill_server
from hawser.lab.checker import Verdict
from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.findings import over_time, told
from hawser.lab.generator import MIXED, LoadPlan
from hawser.lab.journal import Record, What, read
from hawser.lab.load import percentile
from hawser.lab.producer import LoadProducer
from hawser.lab.trial import Trial, beside, faults, trial, under_load
from hawser.stores import make_store

CRASH_LEASE_S: Final = 5.0
SERVER_DOWN_S: Final = 1.0
"""Seconds between the kill of a server and its start."""

FORGETFUL: Final[dict[str, dict[str, object]]] = {
    "postgres": {"synchronous_commit": "off"},
    # A Redis server that does not sync has its log with the kernel, which lives on: only one without a log forgets.
    "redis": {"appendonly": "no"},
}
"""Settings of a server that loses what it has accepted, by kind."""

CLAIMED_AGAIN_WITHIN_S: Final = 5.0
"""Seconds after the server takes connections again within which jobs must be claimed."""

NUMBERS: Final = {
    "crashes": Number(10, 2, "times that the store dies"),
    "rate": Number(200, 100, "jobs a second"),
    "relaxed": Number(0, 0, "1: without waiting for the disk, to see that this experiment can fail"),
}


async def run(lab: Lab) -> Finding:
    verdict, records, back = await (_disk(lab) if lab.place.kind == "sqlite" else _server(lab))
    crashes, rate, counts = int(lab.number("crashes")), lab.number("rate"), verdict.counts
    broken = told(verdict)
    if back and max(back) > CLAIMED_AGAIN_WITHIN_S:
        broken.append(
            f"workers claimed again only {max(back):.1f} s after the store was back; the bar is {CLAIMED_AGAIN_WITHIN_S:g} s"
        )
    how = "The power of the disk was cut" if lab.place.kind == "sqlite" else "The server was killed with -9"
    return Finding(
        broken=broken,
        figures={
            "crashes": crashes,
            "back_s_median": round(percentile(back, 0.5), 2),
            "back_s_max": round(max(back, default=0.0), 2),
            **counts,
        },
        settings={"lease": CRASH_LEASE_S, "seconds_away": SERVER_DOWN_S},
        text=(
            f"{how} {crashes} times under {rate:g} jobs/s. {counts['accepted']:,} jobs were accepted; lost {counts['lost']}."
            f" {counts['unknown']} enqueues stayed unknown, {counts['recovered']} of which had come in. Workers claimed again"
            f" within {max(back, default=0.0):.1f} s of the store's return."
        ),
        plot=over_time("The store dies under load", records),
    )


async def _server(lab: Lab) -> tuple[Verdict, list[Record], list[float]]:
    """The server is killed under producers and workers, which stay."""
    server = lab.place.server
    assert server is not None
    options: dict[str, object] = {"timeout": 5}
    if lab.number("relaxed"):
        options["durability"] = "relaxed"
        server.settings |= FORGETFUL[lab.place.kind]
        await beside(server.stop)
        await beside(server.start)
    ready: list[float] = []
    async with lab.place.fresh(**options) as (url, store):
        async with trial(lab, url, store, units=1, lease=CRASH_LEASE_S) as found:
            await found.until(lambda: _working(found))
            plan = Plan(
                {"kill server": (1, kill_server(server, SERVER_DOWN_S, ready.append))},
                seed=lab.seed,
                every=(1.0, 2.0),
                tell=found.fault,
            )
            async with under_load(found, rate=lab.number("rate"), mix=MIXED):
                await faults(plan, lab.number("crashes"))
                await asyncio.sleep(CLAIMED_AGAIN_WITHIN_S)
        verdict = await found.verdict()
        records = read(found.folder / "journal")
    return verdict, records, _back(records, ready)


async def _disk(lab: Lab) -> tuple[Verdict, list[Record], list[float]]:
    """The disk goes dark under producers and workers, which go with it; then all start again on what is left."""
    dice, load = random.Random(lab.seed), LoadPlan(lab.seed, MIXED)  # noqa: S311  # no secret
    ready: list[float] = []
    with PowerCut() as disk:
        url = f"sqlite:///{disk.folder}/jobs.db?timeout=5{'&durability=relaxed' if lab.number('relaxed') else ''}"
        store = make_store(url)
        await store.open()
        async with trial(lab, url, store, units=1, lease=CRASH_LEASE_S) as found:
            for number in range(int(lab.number("crashes"))):
                lab.show("cuts", number, int(lab.number("crashes")))
                await found.until(lambda: _working(found))
                [unit] = found.units
                async with LoadProducer(found.store, found.journal, load, lab.number("rate"), lab.seed + number) as producer:
                    await asyncio.sleep(dice.uniform(1.0, 2.0))
                    found.fault("power cut")
                    producer.believe_nothing()
                    await beside(partial(unit.kill_all, disk.cut))
                await found.store.close()
                await beside(disk.restore)
                found.store = make_store(url)
                await found.store.open()
                ready.append(time.monotonic())
                unit.start()
            await found.drain()
        verdict = await found.verdict()
        records = read(found.folder / "journal")
        await found.store.close()
    return verdict, records, _back(records, ready)


async def _working(found: Trial) -> bool:
    stats = await found.stats()
    return stats is not None and bool(await found.store.workers())


def _back(records: Sequence[Record], ready: Sequence[float]) -> list[float]:
    """Seconds from each return of the store to the next claim."""
    claims = [record.at / 1e9 for record in records if record.what is What.CLAIMED]
    places = [bisect_left(claims, at) for at in ready]
    return [claims[place] - at for place, at in zip(places, ready, strict=True) if place < len(claims)]
