"""Extend and reclaim: a lease is lengthened while its worker lives, and taken back once it has run out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hawser.clock import to_us
from hawser.outcome import abandoned
from hawser.store import (
    SETTLE_GRACE,
    LeaseRef,
    LeaseStatus,
    Reclaimed,
)
from hawser.stores.sqlite.running import RunningRow, held
from hawser.stores.sqlite.settle import LeaveBatch, standings
from hawser.stores.sqlite.tx import Tx
from hawser.stores.tally import STALE_EXTENSION

_GRACE: Final = to_us(SETTLE_GRACE)


def extend(tx: Tx, leases: Sequence[LeaseRef], lease_for: float) -> list[LeaseStatus]:
    runs = held(tx, leases)
    answers = []
    stale = []
    longer: dict[int, tuple[int, int, int]] = {}
    noted = []
    for ref in leases:
        run = runs.get((ref.id, ref.lease))
        until = 0 if run is None else min(tx.now + to_us(lease_for), run.started_at + to_us(run.timeout) + _GRACE)
        if run is None or max(until, run.lease_until) <= tx.now:
            stale.append(ref)
            answers.append(LeaseStatus.LOST)
            continue
        if until > run.lease_until:
            longer[run.seq] = (until, until - tx.now, run.seq)
        if ref.progress is not None:
            noted.append((ref.progress, run.seq))
        answers.append(LeaseStatus.CANCEL_ASKED if run.cancel_asked else LeaseStatus.HELD)
    tx.con.executemany(tx.sql["lengthen"], list(longer.values()))
    tx.con.executemany(tx.sql["note_progress"], noted)
    if stale:
        standing = standings(tx, stale)
        for ref in stale:
            _, _, _, queue, task, *_ = standing.get(ref.id, (0, 0, "", "", ""))
            tx.tally(queue, task, STALE_EXTENSION)
    return answers


def reclaim(tx: Tx, limit: int, *, clock_was_set_back: bool) -> list[Reclaimed]:
    if clock_was_set_back:
        tx.con.execute(tx.sql["cut_leases"], {"now": tx.now})
    rows = tx.con.execute(tx.sql["expired"], {"now": tx.now, "limit": limit})
    runs = [(RunningRow._make(row[:-1]), bool(row[-1])) for row in rows]
    leaving = LeaveBatch(tx)
    reclaimed = []
    for run, renewed in runs:
        asked = bool(run.cancel_asked)
        step = abandoned(run.worker, renewed=renewed, attempt=run.attempt, max_attempts=run.max_attempts, cancel_asked=asked)
        leaving.add(run, step, reclaimed=True)
        reclaimed.append(Reclaimed(run.id, run.task, run.queue, run.worker, run.attempt, step.state, renewed, step.due_in))
    leaving.write()
    return reclaimed
