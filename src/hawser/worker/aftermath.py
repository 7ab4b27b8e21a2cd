"""What is left to do when a worker process has died: settle for it, and run apart what may have killed it."""

from __future__ import annotations

import logging
import signal
import time
from typing import Final

from hawser.errors import StoreError
from hawser.job import Job
from hawser.outcome import Failed, Failure, Outcome, Released
from hawser.store import Settled, Settlement, Store
from hawser.telemetry.meter import Meter
from hawser.worker.board import Held, How
from hawser.worker.notice import Notice
from hawser.worker.process import Child

_logger = logging.getLogger("hawser.supervisor")

AFTER_CRASH: Final = 1.0
"""Seconds before a job is tried again whose process died."""

DANGEROUS_FOR: Final = 600.0
"""Seconds for which a task that has crashed a process is run apart."""


class Aftermath:
    """Every outcome that a dead process can no longer write is written here, fenced, and counted."""

    def __init__(self, notice: Notice, meter: Meter) -> None:
        self._notice = notice
        self._meter = meter
        self._dangerous: dict[str, float] = {}

    async def settle(self, store: Store, child: Child, code: int, *, graceful: bool) -> None:
        """Those runs that were under way failed with the process, those that waited are handed back; at a drain all are."""
        left = list(child.board.held())
        if not left:
            return
        guilty = set() if graceful else _guilty(child, left)
        fates = [_fate(held, guilty, hung=bool(child.hung), graceful=graceful, code=code) for held in left]
        settlements = [Settlement(held.id, held.lease, fate) for held, fate in zip(left, fates, strict=True)]
        try:
            answers = await store.settle(settlements)
            if graceful:
                _logger.info("worker %s ended with %d runs, which were handed back", child.name, len(left))
            if late := answers.count(Settled.LOST):
                _logger.warning("worker %s: %d outcomes were refused, their leases were gone", child.name, late)
            written = [one for one, answer in zip(settlements, answers, strict=True) if answer is not Settled.LOST]
            jobs = {held.id: job for held in left if (job := await store.get(held.id)) is not None}
            self._meter.settled_for_another([(jobs[one.id], one.outcome) for one in written if one.id in jobs], late)
            self._remember([jobs[held.id] for held in guilty if held.cell == child.board.inside and held.id in jobs])
        except StoreError as error:
            _logger.warning("could not settle %d runs of worker %s: %s; their leases will run out", len(left), child.name, error)

    def _remember(self, jobs: list[Job]) -> None:
        """The tasks of jobs that have crashed a process run apart for a while, in all processes."""
        for job in jobs:
            _logger.error("task %s has crashed a process; its jobs run apart for the next %d s", job.task, DANGEROUS_FOR)
            self._dangerous[job.task] = time.monotonic() + DANGEROUS_FOR
            self._notice.write(self._dangerous)

    def forget(self, now: float) -> None:
        """The tasks whose time apart is over."""
        over = [task for task, until in self._dangerous.items() if until <= now]
        for task in over:
            del self._dangerous[task]
        if over:
            self._notice.write(self._dangerous)


def _guilty(child: Child, left: list[Held]) -> set[Held]:
    """The runs that may have killed their process, and are best run apart next time.

    The run whose step it was, and all that were in threads; when that is nobody, as with a kill from outside, any.
    """
    if child.hung:
        return {held for held in left if held.id in child.hung}
    here = {held for held in left if held.how in (How.LOOP, How.THREAD)}
    inside = child.board.inside
    return {held for held in here if held.cell == inside or held.how is How.THREAD} or here


def _fate(held: Held, guilty: set[Held], *, hung: bool, graceful: bool, code: int) -> Outcome:
    """What becomes of a run whose process has died. One that was started has used its attempt, guilty or not."""
    if graceful or held.how is How.WAITING:
        return Released()
    if held not in guilty:
        return Failed(Failure(f"the worker process {how(code)} while running; another job is to blame"), AFTER_CRASH)
    if hung:
        return Failed(Failure("timeout: the handler blocked its worker process past the timeout, so the process was killed"))
    return Failed(Failure(f"the worker process {how(code)} while running"), AFTER_CRASH, lost=True)


def how(code: int) -> str:
    """The end of a process in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was killed by signal {-code}"
