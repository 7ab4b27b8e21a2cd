"""Says in the log what failed. A dependency that is down fails thousands of jobs a second; the log gets some lines and a sum."""

from __future__ import annotations

import logging
import os
import re
import sysconfig
import time
from collections.abc import Iterable
from typing import Final

from hawser.job import Claimed, Job, State
from hawser.outcome import Dead, Done, Failed, Outcome, lease_ran_out
from hawser.store import Reclaimed

_logger = logging.getLogger("hawser.worker")

LINES: Final = 20
"""Failures told one by one within a second; the others are summed up. Dead jobs are always told."""

_FRAME: Final = re.compile(r'^  File "(.+)", line (\d+)', re.MULTILINE)
_OTHERS: Final = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
"""Where code lies that is not the user's."""


class Reporter:
    """Failures are never silent; what works is, unless the log is to have everything."""

    def __init__(self) -> None:
        self._second = 0
        self._told = 0
        self._untold = 0

    def report(self, job: Claimed, outcome: Outcome) -> None:
        """A run has ended so in this process."""
        if isinstance(outcome, Done):
            if _logger.isEnabledFor(logging.DEBUG):
                _logger.debug("job is done", extra=_about(job))
            return
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
        if not dead and not self._may_tell():
            return
        traceback = outcome.failure.traceback
        error = outcome.failure.error.partition("\n")[0] + _place(traceback)
        if dead:
            self._tell_dead(job, error)
        else:
            after = outcome.after if isinstance(outcome, Failed) else 0.0
            told = job.attempt, job.max_attempts, round(after, 1 if after < 10 else None), error
            _logger.warning("job failed, attempt %d of %d, again in %g s: %s", *told, extra=_about(job))
        if traceback is not None and _logger.isEnabledFor(logging.DEBUG):
            _logger.debug("%s", traceback.rstrip(), extra=_about(job))

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


def _place(traceback: str | None) -> str:
    """Where it was raised, in the user's own code if that is in the traceback."""
    frames = _FRAME.findall(traceback or "")
    own = [frame for frame in frames if not frame[0].startswith(_OTHERS)]
    if not frames:
        return ""
    file, line = (own or frames)[-1]
    near = os.path.relpath(file) if file.startswith(os.getcwd() + os.sep) else file
    return f", at {near}:{line}"


def _about(job: Claimed | Job | Reclaimed) -> dict[str, object]:
    return {"job_id": job.id, "task": job.task, "attempt": job.attempt}
