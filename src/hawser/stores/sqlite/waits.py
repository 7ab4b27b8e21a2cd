"""Jobs that wait in the middle of their handlers, in the writer's transaction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hawser.clock import at, to_us
from hawser.outcome import Held
from hawser.store import OPEN, Arrival, Emitted, LeaseRef, RecordedStep
from hawser.stores.sqlite.dependencies import depend, release
from hawser.stores.sqlite.running import RunningRow, held
from hawser.stores.sqlite.tx import Tx
from hawser.stores.steps import step_of
from hawser.stores.waits import COUNTED_AS, came_to, is_over, waited_for

WOKEN: Final = 1_000
"""Waits whose time is over that one reclaim ends."""


def emit(tx: Tx, name: str, body: bytes, keep: float) -> Emitted:
    event = {"name": name, "body": body, "now": tx.now, "until": tx.now + to_us(keep)}
    created = bool(tx.con.execute(tx.sql["emit"], event).rowcount)
    _, said, came_at, _ = tx.con.execute(tx.sql["event"], {"name": name}).fetchone()
    if created:
        _wake(tx, tx.con.execute(tx.sql["waiting_for"], (name,)).fetchall())
    return Emitted(created=created, at=at(came_at), same=bytes(said) == body)


def wake_overdue(tx: Tx) -> None:
    """Go on with jobs that have waited for as long as they were to."""
    _wake(tx, tx.con.execute(tx.sql["overdue_waits"], {"now": tx.now, "limit": WOKEN}).fetchall())


def _wake(tx: Tx, waits: Iterable[tuple[int, str]]) -> None:
    for seq, name in waits:
        tx.con.execute(tx.sql["wake"], (seq, name))
        found = tx.con.execute(tx.sql["waiting_job"], (seq,)).fetchone()
        if found is not None:
            id, queue, task = found
            release(tx, id)
            tx.tally(queue, task, "woken")


def hold_run(tx: Tx, run: RunningRow, hold: Held) -> None:
    """Hold a job that has just left running, unless what it waits for has come."""
    until = None if hold.timeout is None else tx.now + to_us(hold.timeout)
    wait = {"job": run.seq, "name": hold.name, "value": waited_for(hold), "now": tx.now, "lease": run.lease, "until": until}
    tx.con.execute(tx.sql["note_wait"], {**wait, "event": hold.event})
    tx.con.execute(tx.sql["hold_run"], (None if hold.event is not None else len(hold.jobs), run.seq))
    tx.hold(run.queue, run.task, run.priority, +1)
    if hold.event is None:
        depend(tx, run.id, hold.jobs, "done")
        return
    *_, until, _ = tx.con.execute(tx.sql["recorded_step"], (run.seq, hold.name)).fetchone()
    if is_over(_came(tx, hold.event), until, tx.now):
        _wake(tx, [(run.seq, hold.name)])


def _came(tx: Tx, event: str | None) -> tuple[int, bytes] | None:
    found = tx.con.execute(tx.sql["event"], {"name": event}).fetchone()
    return None if found is None else (found[2], bytes(found[1]))


def arrive(tx: Tx, arrival: Arrival) -> RecordedStep | None:
    run = held(tx, [LeaseRef(arrival.id, arrival.lease)]).get((arrival.id, arrival.lease))
    if run is None:
        return None
    found = tx.con.execute(tx.sql["recorded_step"], (run.seq, arrival.name)).fetchone()
    if found is not None and found[1] not in OPEN:
        return step_of(found, tx.now)
    until, value = None if found is None else found[5], ("gather", arrival.value)
    if arrival.value is None:
        came = came_to(_came(tx, arrival.event), until, tx.now)
        if came is None:
            row = found or (arrival.name, "wait", b"null", tx.now, arrival.lease, None, arrival.event)
            return step_of(row, tx.now)
        value = came
    step = {"job": run.seq, "name": arrival.name, "kind": value[0], "value": value[1], "now": tx.now, "lease": run.lease}
    tx.con.execute(tx.sql["record_wait"], {**step, "event": arrival.event})
    tx.con.execute(tx.sql["count_from_step"], (run.seq,))
    tx.tally(run.queue, run.task, "steps")
    if (counted := COUNTED_AS.get(value[0])) is not None:
        tx.tally(run.queue, run.task, counted)
    return step_of(tx.con.execute(tx.sql["recorded_step"], (run.seq, arrival.name)).fetchone(), tx.now)
