"""Takes what handlers say on the way, progress and wishes for a longer lease, to the store: together, now and then."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from hawser.cycle import Cycle
from hawser.errors import StoreError
from hawser.store import JobStore, LeaseRef, LeaseStatus
from hawser.worker.keeper import margin
from hawser.worker.run import Run

GATHER: Final = 0.5
"""Seconds between two deliveries: a handler may report a thousand times a second, the store hears of the last."""


class Courier:
    """Collects, then extends once for all that have something to say."""

    def __init__(self, store: JobStore, worker: str, lease: float) -> None:
        self._store = store
        self._worker = worker
        self._lease = lease
        self._wishes: dict[Run, float] = {}
        self._loop = asyncio.get_running_loop()
        self.cycle = Cycle("courier", self.turn)

    def notify(self, run: Run, seconds: float = 0.0) -> None:
        """The run has something to say, and perhaps wants a lease of so many seconds. From any thread."""
        self._loop.call_soon_threadsafe(self._add, run, seconds)

    def _add(self, run: Run, seconds: float) -> None:
        self._wish(run, seconds)
        if not self.cycle.away:
            self.cycle.wake()

    def _wish(self, run: Run, seconds: float) -> None:
        """A run has one wish at a time, the longest; what it says is read when it is sent."""
        self._wishes[run] = max(self._wishes.get(run, 0.0), seconds)

    async def turn(self) -> float:
        wishes, self._wishes = self._wishes, {}
        by_time: dict[float, list[Run]] = {}
        for run, seconds in wishes.items():
            if not run.settled:
                by_time.setdefault(max(seconds, self._lease), []).append(run)
        told = bool(by_time)
        while by_time:
            lease_for = min(by_time)
            try:
                await self._extend(by_time[lease_for], lease_for)
            except StoreError:
                # What was not taken goes along next time. An extension that was, its answer lost, may be made again.
                for seconds, runs in by_time.items():
                    for run in runs:
                        self._wish(run, seconds)
                raise
            del by_time[lease_for]
        if told:
            await asyncio.sleep(GATHER)
        return 3600.0 if not self._wishes else 0.0

    async def _extend(self, runs: list[Run], lease_for: float) -> None:
        refs = [LeaseRef(run.job.id, run.job.lease, run.note) for run in runs]
        sent = time.monotonic()
        answers = await self._store.extend(self._worker, refs, lease_for)
        for run, answer in zip(runs, answers, strict=True):
            run.until = 0.0 if answer is LeaseStatus.LOST else max(run.until, min(sent + lease_for, run.cap) - margin(lease_for))
