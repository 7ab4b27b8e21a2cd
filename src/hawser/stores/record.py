"""An attempt as stores keep it, and as it is shown."""

from __future__ import annotations

from hawser.clock import at
from hawser.job import Attempt

Record = tuple[int, int, str, int, int | None, str, str | None, str | None]
"""Number, lease, worker, started, ended, outcome, error, traceback; times in microseconds."""


def shown(record: Record) -> Attempt:
    number, lease, worker, started_at, ended_at, outcome, error, traceback = record
    return Attempt(
        number=number,
        lease=lease,
        worker=worker,
        started_at=at(started_at),
        ended_at=None if ended_at is None else at(ended_at),
        outcome=outcome,
        error=error,
        traceback=traceback,
    )
