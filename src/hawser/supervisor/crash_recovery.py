"""What is left to do when a worker process has died: settle for it, and run apart what may have killed it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final

from hawser.errors import StoreError
from hawser.outcome import Failed, Failure, Outcome, Released
from hawser.store import SettleAnswer, Settled, Settlement, Store
from hawser.supervisor.board_reader import HeldLease
from hawser.supervisor.worker_process import WorkerProcess
from hawser.telemetry.meter import Meter
from hawser.telemetry.reporter import Reporter
from hawser.worker.board import How
from hawser.worker.broadcast import Broadcast
from hawser.worker.process import how

_logger = logging.getLogger("hawser.supervisor")

AFTER_CRASH: Final = 1.0
"""Seconds before a job is tried again whose process died."""

DANGEROUS_FOR: Final = 600.0
"""Seconds for which a task that has crashed a process is run apart."""

SUSPECT_FOR: Final = 30.0
"""Seconds for which a task is run apart that may have. Long enough for the job that did it to crash a process of its own, which
is the proof; short, for its neighbours are slower meanwhile and did nothing wrong."""


class CrashRecovery:
    """Every outcome that a dead process can no longer write is written here, fenced, and counted."""

    def __init__(self, broadcast: Broadcast, meter: Meter) -> None:
        self._broadcast = broadcast
        self._meter = meter
        self._reporter = Reporter()
        self._dangerous: dict[str, float] = {}

    async def settle(self, store: Store, child: WorkerProcess, code: int, *, graceful: bool) -> None:
        """Runs that were under way failed with the process; those that had not begun are handed back. At a drain all are handed
        back. When the process was killed for a handler that blocked it, so are the runs that cannot have blocked it."""
        left = list(child.board.held())
        if not left:
            return
        guilty = set() if graceful else _guilty(child, left)
        outcomes = [_outcome(child, held, guilty, graceful=graceful, code=code) for held in left]
        settlements = [Settlement(held.id, held.lease, outcome) for held, outcome in zip(left, outcomes, strict=True)]
        try:
            answers = await store.settle(settlements)
        except StoreError as error:
            answers = []
            _logger.warning("could not settle %d runs of worker %s: %s; their leases will run out", len(left), child.name, error)
        else:
            if graceful:
                _logger.info("worker %s ended with %d runs, which were handed back", child.name, len(left))
            self._account(child, settlements, answers)
        if not graceful:
            tasks = {held.id: answer.task for held, answer in zip(left, answers, strict=False) if answer.task is not None}
            await self._blame(store, child, guilty, tasks)

    def _account(self, child: WorkerProcess, settlements: list[Settlement], answers: list[SettleAnswer]) -> None:
        """Count and tell what was written."""
        if late := sum(answer.said is Settled.LOST for answer in answers):
            _logger.warning("worker %s: %d outcomes were refused, their leases were gone", child.name, late)
        self._meter.answered(settlements, answers)
        self._reporter.report(settlements, answers)

    async def _blame(self, store: Store, child: WorkerProcess, guilty: set[HeldLease], tasks: Mapping[str, str]) -> None:
        """Run the tasks apart whose jobs killed their process, or may have: before the next process starts, or they kill that
        one too."""
        proven, suspects = _proof(child, guilty)
        try:
            await self.hear(store, child)
        except StoreError as error:
            _logger.warning("cannot find out which task has crashed worker %s: %s; it is not run apart", child.name, error)
        self._remember({tasks[id] for id in proven if id in tasks}, DANGEROUS_FOR)
        self._remember({tasks[id] for id in suspects if id in tasks}, SUSPECT_FOR)

    async def hear(self, store: Store, child: WorkerProcess) -> None:
        """A job has killed a child process that it had to itself: there is no better proof."""
        crasher = child.board.crasher
        if crasher is not None and crasher != child.crasher:
            if (job := await store.get(crasher)) is not None:
                self._remember({job.task}, DANGEROUS_FOR)
            child.crasher = crasher

    def _remember(self, tasks: set[str], seconds: float) -> None:
        """The jobs of these tasks run apart for a while, in all processes."""
        now = time.monotonic()
        for task in sorted(tasks):
            left = self._dangerous.get(task, now) - now
            if seconds > SUSPECT_FOR >= left:
                _logger.error("task %s has crashed a process; its jobs run apart for the next %d s", task, seconds)
            elif left <= 0:
                _logger.warning("task %s may have crashed a process; its jobs run apart for the next %d s", task, seconds)
            self._dangerous[task] = now + max(left, seconds)
        if tasks:
            self._broadcast.write(self._dangerous)

    def forget(self, now: float) -> None:
        """The tasks whose time apart is over."""
        over = [task for task, until in self._dangerous.items() if until <= now]
        for task in over:
            del self._dangerous[task]
        if over:
            self._broadcast.write(self._dangerous)


def _could(child: WorkerProcess, held: HeldLease) -> bool:
    """Whether the run could hold up or kill its process in its last moment: the loop was in its step, or it was in a thread."""
    return held.cell == child.board.inside or held.how is How.THREAD


def _guilty(child: WorkerProcess, left: list[HeldLease]) -> set[HeldLease]:
    """The runs that may have killed their process, and are best run apart next time.

    The run whose step it was, and all that were in threads; when there is no such run, as after a kill from outside, any.
    """
    if child.hung:
        return {held for held in left if _could(child, held) and (held.id in child.hung or held.cell == child.board.inside)}
    here = {held for held in left if held.how in (How.LOOP, How.THREAD)}
    return {held for held in here if _could(child, held)} or here


def _proof(child: WorkerProcess, guilty: set[HeldLease]) -> tuple[list[str], list[str]]:
    """The jobs that did it for certain, and those that may have.

    When the loop was inside a run's step, it was that run, unless there are threads. Which of those in threads it was is not
    known; but one that is past its timeout while the process stands still is proof enough.
    """
    if child.hung:
        proven = [held.id for held in guilty if held.id in child.hung]
        return proven, [held.id for held in guilty if held.id not in child.hung]
    inside = [held.id for held in guilty if held.cell == child.board.inside]
    threads = [held.id for held in guilty if held.how is How.THREAD]
    return ([], inside + threads) if threads else (inside, [])


def _outcome(child: WorkerProcess, held: HeldLease, guilty: set[HeldLease], *, graceful: bool, code: int) -> Outcome:
    """The outcome of a run whose process died by itself. A started run has used its attempt, whether it caused the crash or
    not."""
    if graceful or held.how is How.CLAIMED:
        return Released()
    if child.hung:
        return _outcome_of_hung(child, held)
    if held not in guilty:
        return Failed(Failure(f"the worker process {how(code)} while running; another job is to blame"), AFTER_CRASH)
    return Failed(Failure(f"the worker process {how(code)} while running"), AFTER_CRASH, lost=True)


def _outcome_of_hung(child: WorkerProcess, held: HeldLease) -> Outcome:
    """The outcome of a run whose process the supervisor killed because it stood still past a timeout.

    Each such kill uses up an attempt of the run whose time was up, so that this ends. Every run that could have blocked the
    process loses one too: otherwise a job with a long timeout could block those with a short one without end. The others lose
    none.
    """
    if held.id in child.hung and _could(child, held):
        return Failed(Failure("timeout: the handler blocked its worker process past the timeout, so the process was killed"))
    if held.id in child.hung:
        return Failed(Failure("timeout: the worker process stood still until the attempt's time was up, and was killed"))
    if _could(child, held):
        text = (
            "the worker process was killed, for it stood still until another attempt's time was up; this one may have blocked it"
        )
        return Failed(Failure(text), AFTER_CRASH)
    return Released()
