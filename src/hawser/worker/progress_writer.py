"""Writes what handlers report while they run, progress and requests for a longer lease, to the store: together, now and then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from hawser.batcher import Batcher
from hawser.cycle import Cycle, Unasked
from hawser.errors import StoreError
from hawser.store import JobStore, LeaseRef
from hawser.worker.run import Run

GATHER: Final = 0.5
"""Seconds between two deliveries: a handler may report a thousand times a second, the store hears of the last."""

MOST: Final = 10_000
"""Runs in one delivery: more than one process has."""

UNTIL_ASKED: Final = 3600.0
"""Seconds between two turns while no handler says anything: the first that does ends the wait."""


class ProgressWriter:
    """Collects, then extends once for all runs that reported something."""

    def __init__(self, store: JobStore, worker: str, lease: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._worker = worker
        self._lease = lease
        self._clock = clock
        self._runs: Batcher[Run] = Batcher(MOST)
        self._not_before = 0.0
        self._loop = asyncio.get_running_loop()
        self.cycle = Cycle("progress writer", self.turn)

    def notify(self, run: Run, seconds: float = 0.0) -> None:
        """The run has progress to write, and may want a lease of so many seconds. From any thread."""
        self._loop.call_soon_threadsafe(self._add, run, seconds)

    def _add(self, run: Run, seconds: float) -> None:
        first = not self._runs
        self._wish(run, seconds)
        if first and not self.cycle.away:
            self.cycle.wake()

    def _wish(self, run: Run, seconds: float) -> None:
        """A run has one request at a time, the longest; its progress is read when it is sent."""
        if run.wish is None:
            self._runs.add(run)
        run.wish = max(run.wish or 0.0, seconds)

    async def turn(self) -> float:
        """Extend for all runs that reported something, unless that was done a moment ago; returns seconds until the next look."""
        early = self._not_before - self._clock()
        if early > 0:
            return Unasked(early)
        by_time: dict[float, list[Run]] = {}
        for run in self._runs.take():
            if not run.settled:
                by_time.setdefault(max(run.wish or 0.0, self._lease), []).append(run)
            run.wish = None
        if not by_time:
            return Unasked(UNTIL_ASKED)
        for lease_for in sorted(by_time):
            try:
                await self._extend(by_time[lease_for], lease_for)
            except StoreError:
                # What was not taken goes along next time. An extension that was, its answer lost, may be made again.
                for seconds, runs in by_time.items():
                    for run in runs if seconds >= lease_for else ():
                        self._wish(run, seconds)
                raise
        self._not_before = self._clock() + GATHER
        return GATHER if self._runs else UNTIL_ASKED

    async def _extend(self, runs: list[Run], lease_for: float) -> None:
        refs = [LeaseRef(run.job.id, run.job.lease, run.note) for run in runs]
        sent = self._clock()
        answers = await self._store.extend(self._worker, refs, lease_for)
        for run, answer in zip(runs, answers, strict=True):
            run.extended(answer, sent, lease_for)
