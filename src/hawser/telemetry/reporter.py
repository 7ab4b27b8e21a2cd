"""Says in the log what failed. A dependency that is down fails thousands of jobs a second; the log gets some lines and a sum."""

from __future__ import annotations

import logging
import os
import re
import sysconfig
import time
from collections.abc import Iterable, Sequence
from typing import Final, assert_never

from hawser.job import State
from hawser.outcome import Failure, failure_in, lease_ran_out
from hawser.store import Reclaimed, SettleAnswer, Settlement

_logger = logging.getLogger("hawser.worker")

FAILURES_LOGGED: Final = 20
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

    def report(self, settlements: Sequence[Settlement], answers: Sequence[SettleAnswer]) -> None:
        """Outcomes were written, and the jobs went where the store says. The settler logs the stale ones."""
        done, tells_done = State.DONE, _logger.isEnabledFor(logging.DEBUG)
        for settlement, answer in zip(settlements, answers, strict=True):
            if answer.state is done:
                if tells_done:
                    _logger.debug("job is done", extra=_about(settlement.id, answer))
            elif answer.state is not None and (failure := failure_in(settlement.outcome)) is not None:
                self._report(settlement.id, failure, answer, answer.state)

    def report_reclaimed(self, runs: Iterable[Reclaimed]) -> None:
        """The runs were lost; no other log line tells of those that were the last attempt of their job."""
        for run in runs:
            if run.state is State.DEAD:
                _tell_dead(run.id, run, lease_ran_out(run.worker, renewed=run.renewed))

    def _report(self, id: str, failure: Failure, answer: SettleAnswer, state: State) -> None:
        if state is not State.DEAD and not self._may_tell():
            return
        traceback, about = failure.traceback, _about(id, answer)
        error = failure.error.partition("\n")[0] + _place(traceback)
        match state:
            case State.DEAD:
                _tell_dead(id, answer, error)
            case State.CANCELLED:
                _logger.info("job is cancelled; its run ended with: %s", error, extra=about)
            case State.READY | State.RUNNING | State.DONE:
                after = answer.after or 0.0
                told = answer.attempt, answer.max_attempts, round(after, 1 if after < 10 else None), error
                _logger.warning("job failed, attempt %d of %d, again in %g s: %s", *told, extra=about)
            case _:
                assert_never(state)
        if traceback is not None and _logger.isEnabledFor(logging.DEBUG):
            _logger.debug("%s", traceback.rstrip(), extra=about)

    def _may_tell(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            if self._untold:
                _logger.warning("%d more jobs failed and will be tried again", self._untold)
            self._second, self._told, self._untold = second, 0, 0
        self._told += 1
        self._untold += self._told > FAILURES_LOGGED
        return self._told <= FAILURES_LOGGED


def _place(traceback: str | None) -> str:
    """Where it was raised, in the user's own code if that is in the traceback."""
    frames = _FRAME.findall(traceback or "")
    own = [frame for frame in frames if not frame[0].startswith(_OTHERS)]
    if not frames:
        return ""
    file, line = (own or frames)[-1]
    near = os.path.relpath(file) if file.startswith(os.getcwd() + os.sep) else file
    return f", at {near}:{line}"


def _tell_dead(id: str, job: SettleAnswer | Reclaimed, error: str) -> None:
    _logger.error("job is dead: %s", error, extra=_about(id, job))


def _about(id: str, job: SettleAnswer | Reclaimed) -> dict[str, object]:
    return {"job_id": id, "task": job.task, "attempt": job.attempt}
