"""Writes outcomes: what piled up since the last write goes into the next, one write at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from hawser.cycle import wait_after
from hawser.errors import NotAStore, OutcomeUnknown, SchemaTooNew, StoreUnavailable
from hawser.job import NewJob
from hawser.outcome import Outcome
from hawser.store import JobStore, Settled, Settlement
from hawser.telemetry.events import Events, SettledBatch, tell
from hawser.worker.run import Run

_logger = logging.getLogger("hawser.worker")

AWAY = (StoreUnavailable, OutcomeUnknown, NotAStore, SchemaTooNew)
"""The store cannot answer now: the outcomes wait. Anything else is a fault of what is written."""

MOST = 2_000
"""Outcomes in one write."""


class Settler:
    """Two piles: an outcome with jobs that follow may have to wait for their keys, and the others must not wait with it."""

    def __init__(self, store: JobStore, until: Callable[[Run], float], left: Callable[[Run], None], events: Events) -> None:
        self._plain, self._chained = Pile(store, until, left, events), Pile(store, until, left, events)

    def add(self, run: Run, outcome: Outcome, then: Sequence[NewJob] = (), *, keep: bool = True) -> None:
        """Have an outcome written; the run is over for everybody else."""
        job = run.job
        run.settled = True
        pile = self._chained if then else self._plain
        pile.add(run, Settlement(job.id, job.lease, outcome, tuple(then), keep, job.hint))

    def start(self) -> None:
        self._plain.start()
        self._chained.start()

    async def stop(self) -> None:
        """Write what is there, then end."""
        await self._plain.stop()
        await self._chained.stop()


class Pile:
    """Runs on its own, so that nothing that ends a handler ends a write. While the store is away outcomes wait here, each
    for as long as its lease may still stand; then it is dropped, for the run has no right to write any more."""

    def __init__(self, store: JobStore, until: Callable[[Run], float], left: Callable[[Run], None], events: Events) -> None:
        self._store = store
        self._until = until
        self._left = left
        self._events = events
        self._pile: list[tuple[Run, Settlement]] = []
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._away = 0
        self._task: asyncio.Task[None] | None = None

    def add(self, run: Run, settlement: Settlement) -> None:
        self._pile.append((run, settlement))
        self._idle.clear()
        self._wanted.set()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="hawser-settler")

    async def stop(self) -> None:
        """Write what is there, then end."""
        await self._idle.wait()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._pile:
                try:
                    wait = await self.turn()
                except Exception:
                    _logger.exception("settler: a turn failed; it is tried again")
                    wait = 1.0
                if wait:
                    await asyncio.sleep(wait)
            self._idle.set()

    async def turn(self) -> float:
        """One write; seconds to wait before the next one."""
        self._drop_lost()
        batch, self._pile = self._pile[:MOST], self._pile[MOST:]
        if not batch:
            return 0.0
        settlements = [settlement for _, settlement in batch]
        tell(self._events.settling, settlements)
        try:
            answers = await self._store.settle(settlements)
        except AWAY as error:
            self._pile = batch + self._pile
            if not self._away:
                _logger.warning("settler: the store is away, %d outcomes wait: %s", len(self._pile), error)
            self._away += 1
            return wait_after(self._away)
        except Exception:
            # Not the store's absence but a fault in what is written: find out in which, and let the others through.
            _logger.exception("settler: a write of %d outcomes failed", len(batch))
            for one in batch:
                await self._one(*one)
            return 0.0
        if self._away:
            _logger.warning("settler: the store is back")
            self._away = 0
        self._written(batch, answers)
        return 0.0

    async def _one(self, run: Run, settlement: Settlement) -> None:
        try:
            answers = await self._store.settle([settlement])
        except AWAY:
            self._pile.append((run, settlement))
        except Exception:
            _logger.exception("settler: the outcome of job %s cannot be written; its lease will run out", settlement.id)
            self._left(run)
        else:
            self._written([(run, settlement)], answers)

    def _written(self, batch: list[tuple[Run, Settlement]], answers: list[Settled]) -> None:
        stale = [settlement for (_, settlement), answer in zip(batch, answers, strict=True) if answer is Settled.LOST]
        for run, _ in batch:
            self._left(run)
        if stale:
            _logger.warning("settler: %d outcomes were refused, their leases were gone (first: job %s)", len(stale), stale[0].id)
        now = time.monotonic()
        jobs = [run.job for run, _ in batch]
        seconds = [now - run.deadline + run.job.timeout for run, _ in batch]
        tell(self._events.settled, SettledBatch([settlement for _, settlement in batch], answers, jobs, seconds))

    def _drop_lost(self) -> None:
        """Give up outcomes whose lease is over by our own clock."""
        now = time.monotonic()
        lost = [run for run, _ in self._pile if self._until(run) <= now]
        if lost:
            gone = set(lost)
            self._pile = [(run, settlement) for run, settlement in self._pile if run not in gone]
            for run in lost:
                self._left(run)
            _logger.warning(
                "settler: %d outcomes were dropped, their leases ran out first (first: job %s)", len(lost), lost[0].job.id
            )
            tell(self._events.dropped, len(lost))
