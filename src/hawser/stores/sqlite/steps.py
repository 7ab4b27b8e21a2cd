"""The steps of jobs, in the SQLite store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hawser.clock import to_us
from hawser.store import Acted, Actor, LeaseRef, NewStep, RecordedStep
from hawser.stores.sqlite.ending import FoundJob
from hawser.stores.sqlite.operations import requeue
from hawser.stores.sqlite.running import RunningRow, held
from hawser.stores.sqlite.tx import Tx
from hawser.stores.steps import step_of


def record(tx: Tx, steps: Sequence[NewStep]) -> list[RecordedStep | None]:
    runs = held(tx, [LeaseRef(step.id, step.lease) for step in steps])
    return [_record(tx, step, runs.get((step.id, step.lease))) for step in steps]


def record_once(tx: Tx, step: NewStep) -> bool:
    """Record one step; false when its run stands no more, or the name is taken."""
    run = held(tx, [LeaseRef(step.id, step.lease)]).get((step.id, step.lease))
    return run is not None and _add(tx, step, run)


def _add(tx: Tx, step: NewStep, run: RunningRow) -> bool:
    until = None if step.lasts is None else tx.now + to_us(step.lasts)
    row = run.seq, step.name, step.kind, step.value, tx.now, step.lease, until
    if not tx.con.execute(tx.sql["record_step"], row).rowcount:
        return False
    tx.con.execute(tx.sql["count_from_step"], (run.seq,))
    tx.tally(run.queue, run.task, "steps")
    return True


def _record(tx: Tx, step: NewStep, run: RunningRow | None) -> RecordedStep | None:
    if run is None:
        return None
    _add(tx, step, run)
    return step_of(tx.con.execute(tx.sql["recorded_step"], (run.seq, step.name)).fetchone(), tx.now)


def rewinding(to: str | None) -> Callable[[Tx, FoundJob, Actor], Acted]:
    """Run a job again from behind one of its steps."""

    def rewind(tx: Tx, job: FoundJob, actor: Actor) -> Acted:
        place = (0,) if to is None else tx.con.execute(tx.sql["place_of_step"], (job.seq, to)).fetchone()
        if place is None:
            return Acted.NOT_FOUND
        acted = requeue(tx, job, actor)
        if acted is Acted.DONE:
            tx.con.execute(tx.sql["forget_later_steps"], (job.seq, place[0]))
        return acted

    return rewind
