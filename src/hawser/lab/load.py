"""Putting load on a store and watching it: what bench and experiments have in common."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from hawser.errors import StoreUnavailable
from hawser.job import NewJob, State
from hawser.lab.app import FOLDER
from hawser.store import Filter, Store

LOOK: Final = 0.1
"""Seconds between two looks at how far it is: a look costs the store something, too."""

Show = Callable[[str, int, int], None]
"""Told what is going on, how much is done, and of how much."""


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values does not exceed; 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@contextmanager
def workers(url: str, folder: Path, *, processes: int, slots: int, claim_batch: int) -> Iterator[subprocess.Popen[bytes]]:
    """A supervised worker for the lab's app, ended in the end."""
    environ = {**os.environ, "HAWSER_STORE": url, FOLDER: str(folder)}
    args = [sys.executable, "-m", "hawser.cli", "worker", "hawser.lab.app:app", "--processes", str(processes)]
    args += ["--slots", str(slots), "--claim-batch", str(claim_batch), "--store", url, "--log-level", "warning"]
    process = subprocess.Popen(args, env=environ, stdin=subprocess.DEVNULL)  # noqa: S603
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def claim_times(folder: Path) -> list[float]:
    """Seconds of the claims that the workers wrote down."""
    lines = [line for path in folder.glob("claims-*") for line in path.read_bytes().splitlines()]
    return [msgspec.json.decode(line)[1] for line in lines]


async def produce(store: Store, jobs: Sequence[NewJob], batch: int, show: Show, what: str) -> list[float]:
    """Enqueue in batches, one after the other; the seconds that each took."""
    took = []
    for start in range(0, len(jobs), batch):
        began = time.perf_counter()
        await store.enqueue(jobs[start : start + batch])
        took.append(time.perf_counter() - began)
        show(what, min(start + batch, len(jobs)), len(jobs))
    return took


async def done_count(store: Store) -> int:
    return (await store.stats("default")).done


async def wait_done(store: Store, total: int, worker: subprocess.Popen[bytes], show: Show, what: str) -> list[tuple[float, int]]:
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
        if worker.poll() is not None or time.monotonic() - still_since > 60:
            raise StoreUnavailable(f"the workers made no progress: {done} of {total} jobs are done; look at their log")
        await asyncio.sleep(LOOK)


class Toll:
    """What became of the jobs that were accepted."""

    def __init__(self, lost: int, duplicated: int) -> None:
        self.lost = lost
        self.duplicated = duplicated


async def check(store: Store, ids: set[str]) -> Toll:
    """Look at every job: lost is one that is not done, duplicated one that was started more than once."""
    done, again, after = set(), 0, None
    while True:
        page = await store.find(Filter(queue="default"), after, 1000)
        for job in page.jobs:
            if job.id in ids:
                if job.state is State.DONE:
                    done.add(job.id)
                again += job.attempt > 1 or job.crashes > 0
        after = page.next
        if after is None:
            return Toll(len(ids - done), again)
