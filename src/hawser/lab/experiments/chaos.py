"""All faults at once, in a seeded order."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

from hawser.lab.chaos import processes, server
from hawser.lab.chaos.clock import WrongClock
from hawser.lab.chaos.disk import SmallDisk, fill_for
from hawser.lab.chaos.memory import limited
from hawser.lab.chaos.plan import MakeFault, Plan
from hawser.lab.chaos.wire import Wire
from hawser.lab.cluster import Cluster
from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.findings import over_time, told
from hawser.lab.generator import ALL_POISON
from hawser.lab.journal import What, read
from hawser.lab.redis_server import RedisServer
from hawser.lab.store_under_test import Base, StorePlace, same_store
from hawser.lab.trial import Trial, trial, under_load
from hawser.lab.trial import faults as make_faults
from hawser.stores import make_store

CHAOS_LEASE_S: Final = 2.0
DEADLINE: Final = 3.0
"""Seconds after which a call to a store that does not answer is given up."""

MEMORY: Final = 8 * 2**30
"""Bytes of address space that a process of a worker may have: a job that asks for more gets a MemoryError."""

DISK: Final = 256 * 2**20
"""Bytes of the disk of a file: more than the jobs need, and little enough to be filled at once."""

SKEWS: Final = (3_600.0, -3_600.0, 0.0)
"""By how many seconds the clocks of the workers are wrong."""

NUMBERS: Final = {
    "faults": Number(150, 12, "faults that are made"),
    "rate": Number(60, 40, "jobs a second"),
}


class Way(NamedTuple):
    """How workers and producers reach the store, and what can be done to it."""

    url: str
    faults: dict[str, tuple[float, MakeFault]]
    environs: tuple[dict[str, str], ...]


async def run(lab: Lab) -> Finding:
    faults, rate = int(lab.number("faults")), lab.number("rate")
    with _place(lab) as (place, on_the_disk):
        async with place.fresh(timeout=60) as base:
            with _way(lab, base) as way:
                async with trial(
                    lab, way.url, base.store, units=3, lease=CHAOS_LEASE_S, environs=way.environs, within=limited(MEMORY)
                ) as found:
                    plan = Plan(
                        {**_on_workers(found), **way.faults, **on_the_disk},
                        seed=lab.seed,
                        every=(0.2, 0.8),
                        tell=found.fault,
                    )
                    store = make_store(way.url)
                    await store.open()
                    try:
                        async with under_load(found, rate=rate, poison=ALL_POISON, store=store):
                            made = await make_faults(plan, faults)
                    finally:
                        await store.close()
            verdict = await found.verdict()
            records = read(found.folder / "journal")
    counts = verdict.counts
    refused = sum(record.what is What.REFUSED for record in records)
    listed = ", ".join(f"{name} {times}" for name, times in sorted(made.items()))
    return Finding(
        broken=told(verdict),
        figures={"faults_made": dict(made), "drained_in_s": found.drained_in, "enqueues_refused": refused, **counts},
        settings={"lease": CHAOS_LEASE_S, "clocks_wrong_by_s": list(SKEWS) if way.environs else []},
        text=(
            f"{made.total()} faults under {rate:g} mixed jobs/s with poison of every kind: {listed}."
            f" {counts['accepted']:,} jobs were accepted, {refused} enqueues were refused for the time,"
            f" {counts['unknown']} jobs had no answer, {counts['recovered']} of which had come in; lost {counts['lost']},"
            f" settled twice {counts['settled_twice']}, stale settlements accepted {counts['stale_accepted']}, refused"
            f" {counts['stale_refused']}."
        ),
        plot=over_time("Jobs under all faults", records),
    )


@contextmanager
def _place(lab: Lab) -> Iterator[tuple[StorePlace, dict[str, tuple[float, MakeFault]]]]:
    """A file goes onto a small disk of its own, which can be filled, where we may mount one."""
    if lab.place.kind != "sqlite" or os.geteuid():
        yield lab.place, {}
        return
    with SmallDisk(DISK) as disk:
        yield StorePlace("sqlite", str(disk.folder)), {"disk full": (4, fill_for(disk, CHAOS_LEASE_S / 2))}


@contextmanager
def _way(lab: Lab, base: Base) -> Iterator[Way]:
    """On a server of our own: through a wire, with wrong clocks. A file is reached by no wire, and its clock is the machine's."""
    own = lab.place.server
    if own is None:
        yield Way(base.url, {}, ())
        return
    with ExitStack() as stack:
        wire = stack.enter_context(Wire(own.port, seed=lab.seed))
        clocks = [stack.enter_context(WrongClock(seconds)) for seconds in SKEWS]
        url = same_store(base.url, wire.url(own.tcp_url), timeout=f"{DEADLINE:g}")
        yield Way(url, {**_on_the_wire(wire), **_on_the_server(own)}, tuple(clock.environ for clock in clocks))
        wire.heal()


def _on_workers(found: Trial) -> dict[str, tuple[float, MakeFault]]:
    return {
        "kill process": (20, processes.kill_process(found.units)),
        "kill supervisor": (4, processes.kill_supervisor(found.units)),
        "kill process, supervisor frozen": (4, processes.settle_late(found.units)),
        "freeze": (4, processes.freeze(found.units)),
        "restart": (4, processes.restart(found.units)),
        "dependency away": (4, _away(found)),
    }


def _away(found: Trial) -> MakeFault:
    def fault(dice: random.Random) -> None:
        found.dependency.down()
        time.sleep(dice.uniform(0.5, 2.0))
        found.dependency.up()

    return fault


def _on_the_wire(wire: Wire) -> dict[str, tuple[float, MakeFault]]:
    def for_a_while(order: str, low: float, high: float, *arguments: float) -> MakeFault:
        def fault(dice: random.Random) -> None:
            getattr(wire, order)(*arguments)
            time.sleep(dice.uniform(low, high))
            wire.heal()

        return fault

    return {
        "cut": (10, lambda _: wire.cut()),
        "reply lost": (10, lambda _: wire.lose_reply()),
        "black hole": (3, for_a_while("swallow", 0.5, 2 * CHAOS_LEASE_S)),
        "latency": (4, for_a_while("slow", 1.0, 3.0, 0.05, 0.01)),
    }


def _on_the_server(own: Cluster | RedisServer) -> dict[str, tuple[float, MakeFault]]:
    found: dict[str, tuple[float, MakeFault]] = {
        "kill server": (3, server.kill_server(own, away=0.5)),
        "server restarted": (2, server.restart(own, away=0.5)),
    }
    if isinstance(own, Cluster):
        found["kill backend"] = (4, server.kill_backend(own))
    return found
