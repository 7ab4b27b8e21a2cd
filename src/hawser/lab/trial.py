"""A run under faults: a witnessed load on supervised workers, something done to them, a drain, and a verdict."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

from hawser.clock import SystemClock, at
from hawser.errors import OutcomeUnknown, StoreUnavailable
from hawser.job import Job
from hawser.lab.app import HEALED, LONG_VARIABLE, WITNESS
from hawser.lab.chaos.plan import Plan
from hawser.lab.chaos.processes import PROGRAM, UnitFlags, UnitLaunch, WorkerUnit
from hawser.lab.checker import Expected, Verdict, check
from hawser.lab.dependency import ADDRESS, Dependency
from hawser.lab.experiment import Lab
from hawser.lab.generator import HEALTHY_JOB_ATTEMPTS, SOFT_POISON, WITH_LONG, LoadPlan
from hawser.lab.journal import Journal, What, read
from hawser.lab.load import all_jobs
from hawser.lab.producer import LoadProducer
from hawser.lab.sink import Sink
from hawser.store import Filter, QueueStats, Store
from hawser.stores.tally import KEEP_MINUTES, STALE_EXTENSION

APP: Final = "hawser.lab.app:app"
HEALTHY: Final = frozenset({"fast", "slow", "once", "longer_than_the_lease", "flapping", "tick"})
POISON: Final = frozenset({"poison", "memory_bomb"})
ONE_ATTEMPT: Final = frozenset({"once"})
T = TypeVar("T")


class Trial:
    """What goes on, and how to judge it when it is over."""

    def __init__(self, lab: Lab, url: str, store: Store, folder: Path, lease: float) -> None:
        self.lab = lab
        self.url = url
        self.store = store
        self.folder = folder
        self.lease = lease
        self.journal = Journal(folder / "journal")
        self.dependency = Dependency()
        self.units: list[WorkerUnit] = []
        self.drained_in: float | None = None
        """Seconds from the end of the load until nothing was left; None when something was."""
        self.drained_at: datetime | None = None
        self.began = at(SystemClock().now())
        self.zero = self.began - timedelta(microseconds=time.monotonic_ns() / 1000)
        """What our clock showed when that of the journal stood at zero."""

    def fault(self, name: str) -> None:
        """Write down that a fault is about to be made."""
        self.journal.write(What.FAULT, note=name)

    async def drain(self) -> None:
        """Make no more faults, and wait until nothing waits and nothing runs, as long as it becomes less."""
        (self.folder / HEALED).touch()
        began = moved = time.monotonic()
        least = float("inf")
        patience = max(30.0, 10 * self.lease)
        while time.monotonic() - moved < patience:
            looked, stats = at(SystemClock().now()), await self.stats()
            if stats is not None:
                left = stats.ready + stats.scheduled + stats.retrying + stats.running
                if not left:
                    self.drained_in, self.drained_at = round(time.monotonic() - began, 1), looked
                    return
                if left < least:
                    least, moved = left, time.monotonic()
                self.lab.show("left to drain", 0, left)
            await asyncio.sleep(0.2)

    async def until(self, so: Callable[[], Awaitable[bool]]) -> None:
        """Wait until it is so; an error when that takes a minute."""
        async with asyncio.timeout(60):
            while not await so():  # noqa: ASYNC110  # what is waited for happens in other processes
                await asyncio.sleep(0.02)

    async def stats(self) -> QueueStats | None:
        """None while the store is away."""
        try:
            return await self.store.stats("default")
        except (StoreUnavailable, OutcomeUnknown):
            return None

    async def jobs(self) -> dict[str, Job]:
        """All that the store holds."""

        async def read_all() -> dict[str, Job]:
            return {job.id: job async for job in all_jobs(self.store, Filter())}

        return await surely(read_all)

    async def verdict(self) -> Verdict:
        """Judge everything. Call it when the workers have ended."""
        sink = Sink(self.folder / "sink")
        effects = sink.effects()
        sink.close()
        jobs = await self.jobs()
        expected = Expected(
            dead=POISON,
            either=ONE_ATTEMPT,
            effects=HEALTHY,
            drained_at=self.drained_at,
            ticks={"second": timedelta(seconds=1)},
            since=max(self.began, first_start(jobs.values()) or self.began),
            zero=self.zero,
        )
        refused = await surely(lambda: self.store.event_counts(KEEP_MINUTES, (STALE_EXTENSION,)))
        stale_extensions = sum(each.count for each in refused)
        return check(read(self.folder / "journal"), jobs, expected, effects, stale_extensions)

    def said(self) -> str:
        """The logs of all workers."""
        return "".join(unit.said() for unit in self.units)


@asynccontextmanager
async def trial(
    lab: Lab,
    url: str,
    store: Store,
    *,
    units: int = 2,
    processes: int = 2,
    slots: int = 24,
    lease: float = 2.0,
    app: str = APP,
    options: Sequence[str] = (),
    environs: Sequence[Mapping[str, str]] = (),
    urls: Sequence[str] = (),
    program: Sequence[str] = PROGRAM,
    within: Sequence[str] = (),
) -> AsyncIterator[Trial]:
    """Workers at work on an empty store, witnessed; they have ended when the context does. They reach it by `url`; the units
    take turns in having the surroundings of `environs`, and in the ways to the store of `urls`."""
    folder = lab.folder / f"trial-{time.monotonic_ns()}"
    folder.mkdir()
    found = Trial(lab, url, store, folder, lease)
    Sink(folder / "sink").close()
    with ExitStack() as stack:
        stack.enter_context(found.dependency)
        witnessed = {WITNESS: str(folder), ADDRESS: str(found.dependency.port), LONG_VARIABLE: f"{2.5 * lease:g}"}
        for number in range(units):
            unit = WorkerUnit(
                app,
                urls[number % len(urls)] if urls else url,
                folder,
                f"unit{number}",
                flags=UnitFlags(processes, slots, lease, options),
                launch=UnitLaunch({**witnessed, **(environs[number % len(environs)] if environs else {})}, within, program),
            )
            found.units.append(stack.enter_context(unit))
        yield found


@asynccontextmanager
async def under_load(
    found: Trial,
    *,
    rate: float,
    mix: Mapping[str, float] = WITH_LONG,
    poison: Sequence[str] = SOFT_POISON,
    tries: int = HEALTHY_JOB_ATTEMPTS,
    store: Store | None = None,
) -> AsyncIterator[LoadProducer]:
    """Jobs come at an even rate meanwhile, by a store of their own or by the trial's; then all is drained."""
    load = LoadPlan(found.lab.seed, mix, tuple(poison), tries)
    async with LoadProducer(store or found.store, found.journal, load, rate, found.lab.seed) as producer:
        yield producer
    await found.drain()


async def faults(plan: Plan, times: float) -> Counter[str]:
    """Make so many faults, in a thread. When we are cancelled it makes no further ones: nothing is started any more."""
    stop = threading.Event()
    making = asyncio.ensure_future(asyncio.to_thread(plan.run, times=times, stop=stop))
    try:
        return await asyncio.shield(making)
    finally:
        stop.set()
        await asyncio.wait([making])


def first_start(jobs: Iterable[Job]) -> datetime | None:
    """When the first job began. Until then workers were starting, which takes half a minute where the machine does much else."""
    return min((job.started_at for job in jobs if job.started_at is not None), default=None)


async def surely(call: Callable[[], Awaitable[T]]) -> T:
    """What may be repeated is, until it is answered. A store that is away is waited for."""
    async with asyncio.timeout(120):
        while True:
            try:
                return await call()
            except (StoreUnavailable, OutcomeUnknown):
                await asyncio.sleep(0.2)


async def beside(work: Callable[[], T]) -> T:
    """Faults are made in a thread: they wait, and the load must not."""
    return await asyncio.to_thread(work)
