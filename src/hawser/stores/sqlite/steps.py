"""The steps of jobs, in the SQLite store."""

from __future__ import annotations

from collections.abc import Sequence

from hawser.clock import to_us
from hawser.store import LeaseRef, NewStep, RecordedStep
from hawser.stores.sqlite.settle import RunningRow, held
from hawser.stores.sqlite.tx import Tx
from hawser.stores.steps import step_of


def record(tx: Tx, steps: Sequence[NewStep]) -> list[RecordedStep | None]:
    runs = held(tx, [LeaseRef(step.id, step.lease) for step in steps])
    return [_record(tx, step, runs.get((step.id, step.lease))) for step in steps]


def _record(tx: Tx, step: NewStep, run: RunningRow | None) -> RecordedStep | None:
    if run is None:
        return None
    until = None if step.lasts is None else tx.now + to_us(step.lasts)
    row = run.seq, step.name, step.kind, step.value, tx.now, step.lease, until
    if tx.con.execute(tx.sql["record_step"], row).rowcount:
        tx.con.execute(tx.sql["count_from_step"], (run.seq,))
        tx.tally(run.queue, run.task, "steps")
    return step_of(tx.con.execute(tx.sql["recorded_step"], (run.seq, step.name)).fetchone(), tx.now)
