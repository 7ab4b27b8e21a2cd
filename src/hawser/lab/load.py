"""Putting load on a store and watching it: what bench and experiments have in common."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self, TypeVar

import msgspec

from hawser.errors import StoreUnavailable
from hawser.job import Job, NewJob, State
from hawser.lab.app import FOLDER
from hawser.lab.generator import noops
from hawser.store import Filter, Store

FILL: Final = 50_000
"""Jobs in one write of a backlog."""

PUMP: Final = 0.02
"""Seconds between two writes of a pump."""

PUMPED: Final = 2_000
"""Jobs in one write of a pump, at the most."""

WORKERS_DRAIN_WITHIN_S: Final = 40.0
"""Seconds that workers may take to drain."""

PROGRESS_LOOK_EVERY_S: Final = 0.1
"""Seconds between two looks at how far it is: a look costs the store something, too."""

T = TypeVar("T")

Show = Callable[[str, int, int], None]
"""Told what is going on, how much is done, and of how much; 0 of 0 is only said."""


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values does not exceed; 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def rate(seen: Sequence[tuple[float, int]]) -> int:
    """Jobs a second between the first look and the last."""
    (first_at, first), (last_at, last) = seen[0], seen[-1]
    return round((last - first) / (last_at - first_at)) if last_at > first_at else 0


def quiet(*_: object) -> None:
    """Show nothing."""


async def stoppable(work: Coroutine[Any, Any, T], show: Show) -> T:
    """Do the work; when it is cancelled, as Ctrl-C does, say so at once: to end what was started may take seconds."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        show("stopping: what was started is ended first", 0, 0)
        task.cancel()
        await asyncio.wait([task])
        raise


class Crew:
    """A supervised worker of the lab's, and what it says."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    def end(self) -> None:
        """Let it drain; end it at once when that takes too long."""
        if self.lives:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(WORKERS_DRAIN_WITHIN_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@contextmanager
def workers(
    url: str,
    folder: Path,
    *,
    processes: int,
    slots: int,
    claim_batch: int,
    queues: str = "default",
    niceness: int = 0,
    environ: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Crew]:
    """A supervised worker for the lab's app, ended in the end. With niceness it lets others have the CPU first."""
    surroundings = {**os.environ, "HAWSER_STORE": url, FOLDER: str(folder), **environ}
    args = [*(("nice", "-n", str(niceness)) if niceness else ()), sys.executable, "-m", "hawser.cli", "worker"]
    args += ["hawser.lab.app:app", "--processes", str(processes), "--slots", str(slots), "--claim-batch", str(claim_batch)]
    args += ["--queues", queues, "--store", url, "--log-level", "warning"]
    log = folder / "workers.log"
    with log.open("ab") as said:
        process = subprocess.Popen(args, env=surroundings, stdin=subprocess.DEVNULL, stdout=said, stderr=said)  # noqa: S603
    crew = Crew(process, log)
    try:
        yield crew
    finally:
        crew.end()


_CLAIM = msgspec.json.Decoder(tuple[int, float])


class NewClaims:
    """What the workers wrote down of their claims since the last look: how many jobs each found, and its seconds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def seconds(self) -> list[float]:
        return [seconds for _, seconds in self.read()]

    def read(self) -> list[tuple[int, float]]:
        found: list[tuple[int, float]] = []
        for path in self._folder.glob("claims-*"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            found += [_CLAIM.decode(line) for line in whole.splitlines()]
        return found


async def produce(store: Store, jobs: Sequence[NewJob], batch: int, show: Show, what: str) -> list[float]:
    """Enqueue in batches, one after the other; the seconds that each took."""
    took = []
    for start in range(0, len(jobs), batch):
        began = time.perf_counter()
        await store.enqueue(jobs[start : start + batch])
        took.append(time.perf_counter() - began)
        show(what, min(start + batch, len(jobs)), len(jobs))
    return took


async def fill(store: Store, count: int, show: Show, queue: str = "default") -> None:
    """A backlog of jobs that do nothing."""
    for begin in range(0, count, FILL):
        await store.enqueue(noops(min(FILL, count - begin), queue))
        show("fill", min(begin + FILL, count), count)


class Ongoing:
    """Goes on beside everything else for as long as its context lasts."""

    def __init__(self) -> None:
        self._stop = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop = True
        assert self._task is not None
        await self._task

    async def _run(self) -> None:
        """Until `_stop` is set."""
        raise NotImplementedError


class Pump(Ongoing):
    """Enqueues at an even rate for as long as the context lasts, and counts what was accepted. When the store is slow it falls
    behind and catches up: the load asked for is the load that comes."""

    def __init__(self, store: Store, rate: float, take: Callable[[int], list[NewJob]]) -> None:
        super().__init__()
        self._store = store
        self.rate = rate
        self._take = take
        self.accepted = 0
        self.took: list[float] = []
        """Seconds of each enqueue."""

    async def _run(self) -> None:
        began = time.monotonic()
        while not self._stop:
            due = min(PUMPED, int((time.monotonic() - began) * self.rate) - self.accepted)
            if due > 0:
                sent = time.perf_counter()
                await self._store.enqueue(self._take(due))
                self.took.append(time.perf_counter() - sent)
                self.accepted += due
            await asyncio.sleep(PUMP)


async def done_count(store: Store) -> int:
    return (await store.stats("default")).done


async def wait_done(store: Store, total: int, crew: Crew, show: Show, what: str) -> list[tuple[float, int]]:
    """Watch until so many are done: (time, done) from the first that was on."""
    seen: list[tuple[float, int]] = []
    base, still_since = None, time.monotonic()
    while True:
        done = await done_count(store)
        base = done if base is None else base
        if not seen or done != seen[-1][1]:
            still_since = time.monotonic()
            if done > base or seen:
                seen.append((time.perf_counter(), done))
        show(what, done, total)
        if done >= total:
            return seen or [(time.perf_counter(), done)]
        if not crew.lives or time.monotonic() - still_since > 60:
            said = crew.last_words()
            raise StoreUnavailable(f"the workers made no progress: {done} of {total} jobs are done; they said:\n{said}")
        await asyncio.sleep(PROGRESS_LOOK_EVERY_S)


class Toll:
    """What became of the jobs that were accepted."""

    def __init__(self, lost: int, duplicated: int) -> None:
        self.lost = lost
        self.duplicated = duplicated


async def check(store: Store, ids: set[str]) -> Toll:
    """Look at every job: lost is one that is not done, duplicated one that was started more than once."""
    done, again = set(), 0
    async for job in all_jobs(store, Filter(queue="default")):
        if job.id in ids:
            if job.state is State.DONE:
                done.add(job.id)
            again += job.attempt > 1 or job.crashes > 0
    return Toll(len(ids - done), again)


async def all_jobs(store: Store, filter: Filter) -> AsyncIterator[Job]:
    """What a store holds, page by page."""
    after = None
    while True:
        page = await store.find(filter, after, 1000)
        for job in page.jobs:
            yield job
        after = page.next
        if after is None:
            return
