"""Says in the log what failed. A dependency that is down fails thousands of jobs a second; the log gets some lines and a sum."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Final

from hawser.job import Claimed, Job, State
from hawser.outcome import Dead, Failed, Outcome, lease_ran_out
from hawser.store import Reclaimed

_logger = logging.getLogger("hawser.worker")

LINES: Final = 20
"""Failures told one by one within a second; the others are summed up. Dead jobs are always told."""


class Reporter:
    """Failures are never silent; what works is."""

    def __init__(self) -> None:
        self._second = 0
        self._told = 0
        self._untold = 0

    def report(self, job: Claimed, outcome: Outcome) -> None:
        """A run has ended so in this process."""
        dead = isinstance(outcome, Dead) or job.attempt >= job.max_attempts
        self._report(job, outcome, dead=dead)

    def report_for_another(self, job: Job, outcome: Outcome) -> None:
        """This outcome was written for a process that is dead; the job is as it stands since."""
        self._report(job, outcome, dead=job.state is State.DEAD)

    def report_reclaimed(self, runs: Iterable[Reclaimed]) -> None:
        """The runs were lost, and nobody else can tell of those that were the last of their jobs."""
        for run in runs:
            if run.state is State.DEAD:
                self._tell_dead(run, lease_ran_out(run.worker))

    def _report(self, job: Claimed | Job, outcome: Outcome, *, dead: bool) -> None:
        if not isinstance(outcome, (Failed, Dead)):
            return
        error = outcome.failure.error.partition("\n")[0]
        if dead:
            self._tell_dead(job, error)
        elif self._may_tell():
            _logger.warning("job failed, attempt %d of %d: %s", job.attempt, job.max_attempts, error, extra=_about(job))

    def _tell_dead(self, job: Claimed | Job | Reclaimed, error: str) -> None:
        _logger.error("job is dead: %s", error, extra=_about(job))

    def _may_tell(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            if self._untold:
                _logger.warning("%d more jobs failed and will be tried again", self._untold)
            self._second, self._told, self._untold = second, 0, 0
        self._told += 1
        self._untold += self._told > LINES
        return self._told <= LINES


def _about(job: Claimed | Job | Reclaimed) -> dict[str, object]:
    return {"job_id": job.id, "task": job.task, "attempt": job.attempt}
