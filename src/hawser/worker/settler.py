"""Writes outcomes: what arrived since the last write goes into the next, one write at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from hawser.batcher import Batcher
from hawser.cycle import wait_after
from hawser.errors import NotAStore, OutcomeUnknown, SchemaTooNew, StoreUnavailable
from hawser.job import NewJob
from hawser.outcome import Outcome, holds
from hawser.store import SettleAnswer, Settled, Settlement
from hawser.telemetry.events import Events, SettledBatch, tell
from hawser.telemetry.reporter import Reporter
from hawser.worker.progress_writer import WorkerStore, write_output
from hawser.worker.run import Run
from hawser.worker.slots import Slots

_logger = logging.getLogger("hawser.worker")

AWAY = (StoreUnavailable, OutcomeUnknown, NotAStore, SchemaTooNew)
"""Errors that mean the store cannot answer now: the outcomes wait. Any other error lies in what is written."""

MOST = 2_000
"""Outcomes in one write."""


Told = Callable[[Iterable[str]], None]


class Settler:
    """Two writers: an outcome with jobs that follow, or whose job waits for something, may have to wait for others, and the plain
    ones must not wait with it."""

    def __init__(self, store: WorkerStore, slots: Slots, events: Events, told: Told | None = None) -> None:
        """`told` hears of the jobs whose outcomes are written."""
        self._plain, self._chained = OutcomeWriter(store, slots, events, told), OutcomeWriter(store, slots, events, told)

    def add(self, run: Run, outcome: Outcome, then: Sequence[NewJob] = (), *, keep: bool = True) -> None:
        """Write an outcome; for all other parts the run is over."""
        job, doubtful = run.job, run.doubtful
        run.settled = True
        writer = self._chained if then or doubtful or holds(outcome) else self._plain
        writer.add(run, Settlement(job.id, job.lease, outcome, tuple(then), keep, run.hint, doubtful))

    def start(self) -> None:
        self._plain.start()
        self._chained.start()

    async def stop(self, within: float) -> None:
        """Write what is there, as long as there is time, then end."""
        end = time.monotonic() + within
        await self._plain.stop(end)
        await self._chained.stop(end)


class OutcomeWriter:
    """Runs on its own, so that nothing that ends a handler ends a write. While the store is away outcomes wait here, however
    long: only the store can tell whether a run was reclaimed. A run keeps its place on the board meanwhile, so there are never
    more than the board has places, and its lease is kept or held again as soon as the store answers."""

    def __init__(self, store: WorkerStore, slots: Slots, events: Events, told: Told | None = None) -> None:
        self._store = store
        self._told = told
        self._slots = slots
        self._events = events
        self._reporter = Reporter()
        self._outcomes: Batcher[tuple[Run, Settlement]] = Batcher(MOST)
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._resting = True
        """Whether it waits for the first outcome of the next write."""
        self._away = 0
        self._task: asyncio.Task[None] | None = None

    def add(self, run: Run, settlement: Settlement) -> None:
        self._outcomes.add((run, settlement))
        if self._resting:
            self._resting = False
            self._idle.clear()
            self._wanted.set()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="hawser-settler")

    async def stop(self, end: float) -> None:
        """Write what is there until then, and end. What cannot be written is given up: its job runs again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, end - time.monotonic())):
                await self._idle.wait()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if left := self._outcomes.clear():
            _logger.error(
                "settler: %d outcomes could not be written before the end; their leases will run out (first: job %s)",
                len(left),
                left[0][1].id,
            )
            tell(self._events.dropped, len(left))

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._outcomes:
                try:
                    wait = await self.turn()
                except Exception:
                    _logger.exception("settler: a turn failed; it is tried again")
                    wait = 1.0
                if wait:
                    await asyncio.sleep(wait)
            self._idle.set()
            self._resting = True

    async def turn(self) -> float:
        """One write; seconds to wait before the next one."""
        batch = self._outcomes.take()
        if not batch:
            return 0.0
        settlements = [settlement for _, settlement in batch]
        tell(self._events.settling, settlements)
        try:
            await write_output(self._store, (run for run, _ in batch))
            answers = await self._store.settle(settlements)
        except AWAY as error:
            self._outcomes.put_back(batch)
            if not self._away:
                _logger.warning("settler: the store is away, %d outcomes wait: %s", len(self._outcomes), error)
            self._away += 1
            return wait_after(self._away)
        except asyncio.CancelledError:
            self._outcomes.put_back(batch)
            raise
        except Exception:
            # The store is there, so the error lies in one outcome: write each by itself, so that the others get through.
            if self._outcomes.split(batch):
                _logger.exception("settler: a write of %d outcomes failed; each is written by itself", len(batch))
            else:
                [(run, settlement)] = batch
                _logger.exception("settler: the outcome of job %s cannot be written; its lease will run out", settlement.id)
                self._slots.settled((run,))
            return 0.0
        if self._away:
            _logger.warning("settler: the store is back")
            self._away = 0
        self._written(batch, answers)
        return 0.0

    def _written(self, batch: list[tuple[Run, Settlement]], answers: list[SettleAnswer]) -> None:
        lost = Settled.LOST
        stale = [settlement for (_, settlement), answer in zip(batch, answers, strict=True) if answer.said is lost]
        self._slots.settled(run for run, _ in batch)
        if stale:
            _logger.warning(
                "settler: %d outcomes were refused, their runs were reclaimed (first: job %s)", len(stale), stale[0].id
            )
        settlements = [settlement for _, settlement in batch]
        self._reporter.report(settlements, answers)
        if self._told is not None:
            self._told(settlement.id for settlement in settlements)
        now = time.monotonic()
        jobs = [run.job for run, _ in batch]
        seconds = [now - run.deadline + run.job.timeout for run, _ in batch]
        tell(self._events.settled, SettledBatch(settlements, answers, jobs, seconds))
