"""Writes what handlers say while they run to the store, together, now and then: progress, requests for a longer lease, output."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from hawser.batcher import Batcher
from hawser.cycle import Cycle, Unasked
from hawser.errors import StoreError
from hawser.store import JobStore, LeaseRef, OutputStore
from hawser.worker.run import Run

_logger = logging.getLogger("hawser.worker")

GATHER: Final = 0.5
"""Seconds between two deliveries: a handler may report a thousand times a second, the store hears of the last."""

RUNS_PER_DELIVERY: Final = 10_000
"""Runs in one delivery: more than one process has."""

UNTIL_ASKED: Final = 3600.0
"""Seconds between two turns while no handler says anything: the first that does ends the wait."""


class WorkerStore(JobStore, OutputStore, Protocol):
    """What a worker writes to."""


async def write_output(store: OutputStore, runs: Iterable[Run]) -> None:
    """Write what these runs have written and the store does not have yet. It may be repeated, and may overlap."""
    outputs = [(run.output, sent) for run in runs if run.output is not None and (sent := run.output.pending(run.job)) is not None]
    if not outputs:
        return
    answers = await store.write_output([sent for _, sent in outputs])
    for (output, sent), kept in zip(outputs, answers, strict=True):
        was_cut = output.cut
        output.answered(sent, kept)
        if output.cut and not was_cut:
            _logger.warning("job %s has written as much output as it may; the rest is left out", sent.id)


class ProgressWriter:
    """Collects, then extends once for all runs that reported something, and writes the output of those that wrote some."""

    def __init__(self, store: WorkerStore, worker: str, lease: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._worker = worker
        self._lease = lease
        self._clock = clock
        self._runs: Batcher[Run] = Batcher(RUNS_PER_DELIVERY)
        self._writers: Batcher[Run] = Batcher(RUNS_PER_DELIVERY)
        self._not_before = 0.0
        self._loop = asyncio.get_running_loop()
        self.cycle = Cycle("progress writer", self.turn)

    def notify(self, run: Run, seconds: float = 0.0) -> None:
        """The run has progress to write, and may want a lease of so many seconds. From any thread."""
        self._loop.call_soon_threadsafe(self._add, run, seconds)

    def wrote(self, run: Run) -> None:
        """The run has output to write. From any thread."""
        self._loop.call_soon_threadsafe(self._add_writer, run)

    def _add(self, run: Run, seconds: float) -> None:
        self._wake_for_first()
        self._wish(run, seconds)

    def _add_writer(self, run: Run) -> None:
        self._wake_for_first()
        self._writers.add(run)

    def _wake_for_first(self) -> None:
        if not self._runs and not self._writers and not self.cycle.away:
            self.cycle.wake()

    def _wish(self, run: Run, seconds: float) -> None:
        """A run has one request at a time, the longest; its progress is read when it is sent."""
        if run.wish is None:
            self._runs.add(run)
        run.wish = max(run.wish or 0.0, seconds)

    async def turn(self) -> float:
        """Write for all runs that said something, unless that was done a moment ago; returns seconds until the next look."""
        early = self._not_before - self._clock()
        if early > 0:
            return Unasked(early)
        wrote = await self._write_output()
        by_time: dict[float, list[Run]] = {}
        for run in self._runs.take():
            if not run.settled:
                by_time.setdefault(max(run.wish or 0.0, self._lease), []).append(run)
            run.wish = None
        if not by_time and not wrote:
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
        return GATHER if self._runs or self._writers else UNTIL_ASKED

    async def _write_output(self) -> bool:
        """A run that has ended is left out: its output is written with its outcome."""
        writers = self._writers.take()
        if not writers:
            return False
        try:
            await write_output(self._store, (run for run in writers if not run.settled))
        except StoreError:
            self._writers.put_back(writers)
            raise
        return True

    async def _extend(self, runs: list[Run], lease_for: float) -> None:
        refs = [LeaseRef(run.job.id, run.job.lease, run.note) for run in runs]
        sent = self._clock()
        answers = await self._store.extend(self._worker, refs, lease_for)
        for run, answer in zip(runs, answers, strict=True):
            run.extended(answer, sent, lease_for)
