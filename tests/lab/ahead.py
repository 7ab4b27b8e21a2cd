"""Workers that claim ahead: twice as many jobs as they have slots, of which the second half waits in the process.

An experiment that finds nothing wrong with them proves nothing: a kill takes an attempt from jobs that were never started.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from hawser.job import Claimed
from hawser.lab.app import app as app  # noqa: PLC0414  # for the workers to find
from hawser.worker.executor import Executor
from hawser.worker.run import Run
from hawser.worker.slots import Slots

_waiting: deque[Run] = deque()
_end = Executor._end


def _free(self: Slots) -> int:
    return min(2 * self._count - len(self.runs) - len(_waiting), self._board.free)


def _accept(self: Executor, jobs: Sequence[Claimed], sent: float) -> None:
    _waiting.extend(self._slots.admit(job, self._tasks.get(job.task), sent, self) for job in jobs)
    _fill(self)


def _ended(self: Executor, *ended: Any, **more: Any) -> None:
    _end(self, *ended, **more)
    _fill(self)


def _fill(executor: Executor) -> None:
    slots = executor._slots
    while _waiting and len(slots.runs) < slots._count:
        run = _waiting.popleft()
        if slots.closed or not run.may_start(time.monotonic()):
            executor._release(run)
            continue
        slots.take(run)
        executor._start(run, time.monotonic())


setattr(Slots, "free", property(_free))  # noqa: B010  # a property cannot be assigned to a class otherwise
Executor.accept = _accept  # type: ignore[method-assign]
Executor._end = _ended  # type: ignore[method-assign]
