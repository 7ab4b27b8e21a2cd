"""Says in the log what failed. A dependency that is down fails thousands of jobs a second; the log gets some lines and a sum."""

from __future__ import annotations

import logging
import time
from typing import Final

from hawser.job import Claimed
from hawser.outcome import Dead, Failed, Outcome

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
        if not isinstance(outcome, (Failed, Dead)):
            return
        error = outcome.failure.error.partition("\n")[0]
        about = {"job_id": job.id, "task": job.task, "attempt": job.attempt}
        if isinstance(outcome, Dead) or job.attempt >= job.max_attempts:
            _logger.error("job is dead: %s", error, extra=about)
        elif self._may_tell():
            _logger.warning("job failed, attempt %d of %d: %s", job.attempt, job.max_attempts, error, extra=about)

    def _may_tell(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            if self._untold:
                _logger.warning("%d more jobs failed and will be tried again", self._untold)
            self._second, self._told, self._untold = second, 0, 0
        self._told += 1
        self._untold += self._told > LINES
        return self._told <= LINES
