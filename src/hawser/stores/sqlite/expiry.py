"""Jobs that are too late: cancelled by claims, which pass over them, and by upkeep."""

from __future__ import annotations

from typing import Final

from hawser.job import State
from hawser.store import EXPIRED, Actor
from hawser.stores.sqlite.dependencies import tell_waiters
from hawser.stores.sqlite.ending import FoundJob, end_waiting
from hawser.stores.sqlite.tx import Tx

EXPIRED_PER_CLAIM: Final = 5_000
"""Jobs that one claim cancels: about 100 ms, in which no other process can write. It passes over those that are left."""


def expire(tx: Tx, limit: int) -> int:
    """Cancel jobs that wait and are past their expiry."""
    rows = tx.con.execute(tx.sql["past_expiry"], {"now": tx.now, "limit": limit}).fetchall()
    jobs = [FoundJob._make(row) for row in rows]
    for job in jobs:
        end_waiting(tx, job, Actor(reason=EXPIRED))
    if jobs:
        tell_waiters(tx, [(job.id, State.CANCELLED) for job in jobs])
    return len(jobs)
