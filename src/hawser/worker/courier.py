"""Takes what handlers say on the way, progress and wishes for a longer lease, to the store: together, now and then."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from hawser.cycle import Cycle
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
        self._runs: dict[Run, None] = {}
        self._loop = asyncio.get_running_loop()
        self.cycle = Cycle("courier", self.turn)

    def notify(self, run: Run) -> None:
        """The run has something to say. From any thread."""
        self._loop.call_soon_threadsafe(self._add, run)

    def _add(self, run: Run) -> None:
        self._runs[run] = None
        self.cycle.wake()

    async def turn(self) -> float:
        runs = [run for run in self._runs if not run.settled]
        self._runs.clear()
        by_time: dict[float, list[Run]] = {}
        for run in runs:
            by_time.setdefault(max(run.wanted or 0.0, self._lease), []).append(run)
            run.wanted = None
        for lease_for, group in by_time.items():
            await self._extend(group, lease_for)
        if runs:
            await asyncio.sleep(GATHER)
        return 3600.0 if not self._runs else 0.0

    async def _extend(self, runs: list[Run], lease_for: float) -> None:
        refs = [LeaseRef(run.job.id, run.job.lease, run.note) for run in runs]
        sent = time.monotonic()
        answers = await self._store.extend(self._worker, refs, lease_for)
        for run, answer in zip(runs, answers, strict=True):
            run.until = 0.0 if answer is LeaseStatus.LOST else max(run.until, min(sent + lease_for, run.cap) - margin(lease_for))
