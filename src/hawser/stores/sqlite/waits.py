"""Jobs that wait in the middle of their handlers, in the writer's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from hawser.clock import at, to_us
from hawser.outcome import Held
from hawser.store import OPEN_KINDS, Arrival, Emitted, LeaseRef, RecordedStep
from hawser.stores.sqlite.dependencies import depend
from hawser.stores.sqlite.running import RunningRow, held
from hawser.stores.sqlite.tx import Tx
from hawser.stores.steps import step_of
from hawser.stores.waits import COUNTED_AS, came_to, is_over, waited_for

WOKEN: Final = 1_000
"""Waits of one kind that one transaction ends, in about 10 ms: others write between two of them."""

_json = msgspec.json.Encoder().encode


def emit(tx: Tx, name: str, body: bytes, keep: float) -> tuple[Emitted, bool]:
    """Also whether there are more to wake than one transaction does: `wake_more` goes on, here or in any other process."""
    event = {"name": name, "body": body, "now": tx.now, "until": tx.now + to_us(keep)}
    created = bool(tx.con.execute(tx.sql["emit"], event).rowcount)
    _, said, came_at, _ = tx.con.execute(tx.sql["event"], {"name": name}).fetchone()
    if created:
        tx.tally("", "", "emitted")
        if more := _wake_for(tx, name):
            tx.con.execute(tx.sql["stir"], (name,))
    else:
        more = tx.con.execute(tx.sql["stirred"], {"event": name}).fetchone() is not None
    return Emitted(created=created, at=at(came_at), same=bytes(said) == body), more


def wake_more(tx: Tx) -> bool:
    """Go on with jobs that have waited for as long as they were to, and with those whose event has come and woke others so far;
    whether there may be more."""
    overdue = tx.con.execute(tx.sql["overdue_waits"], {"now": tx.now, "limit": WOKEN}).fetchall()
    _wake(tx, overdue)
    more = len(overdue) == WOKEN
    stirred = tx.con.execute(tx.sql["stirred"], {"event": None}).fetchone()
    if stirred is not None:
        more = True
        if not _wake_for(tx, stirred[0]):
            tx.con.execute(tx.sql["settle_down"], stirred)
    return more


def _wake_for(tx: Tx, event: str) -> bool:
    """Whether there may be more who wait for it."""
    waits = tx.con.execute(tx.sql["waiting_for"], {"event": event, "limit": WOKEN}).fetchall()
    _wake(tx, waits)
    return len(waits) == WOKEN


def _wake(tx: Tx, waits: Sequence[Any]) -> None:
    """These waits are over, each a row of `waiting_for`: their jobs may go on, those that are held for an event."""
    if not waits:
        return
    tx.con.execute(tx.sql["wake"], (_json([step for step, *_ in waits]),))
    jobs = {row[1]: row[2:6] for row in waits if row[6]}
    tx.con.execute(tx.sql["release_woken"], {"now": tx.now, "jobs": _json(list(jobs))})
    for queue, task, priority, group in jobs.values():
        tx.hold(queue, task, priority, -1)
        tx.tally(queue, task, "woken")
        tx.open_group(queue, task, priority, group, tx.now)
        tx.reopen_group(task, group)


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
        _wake(tx, tx.con.execute(tx.sql["lasting_wait"], {"job": run.seq, "name": hold.name}).fetchall())


def _came(tx: Tx, event: str | None) -> tuple[int, bytes] | None:
    found = tx.con.execute(tx.sql["event"], {"name": event}).fetchone()
    return None if found is None else (found[2], bytes(found[1]))


def arrive(tx: Tx, arrival: Arrival) -> RecordedStep | None:
    run = held(tx, [LeaseRef(arrival.id, arrival.lease)]).get((arrival.id, arrival.lease))
    if run is None:
        return None
    found = tx.con.execute(tx.sql["recorded_step"], (run.seq, arrival.name)).fetchone()
    if found is not None and found[1] not in OPEN_KINDS:
        return step_of(found, tx.now)
    since, until = (tx.now, None) if found is None else (found[3], found[5])
    if arrival.value is not None:
        came: tuple[str, bytes, int] | None = ("gather", arrival.value, tx.now)
    else:
        came = came_to(_came(tx, arrival.event), until, tx.now)
    if came is None:
        row = found or (arrival.name, "wait", b"null", tx.now, arrival.lease, None, arrival.event)
        return step_of(row, tx.now)
    kind, value, end = came
    step = {"job": run.seq, "name": arrival.name, "kind": kind, "value": value, "at": since, "lease": run.lease}
    tx.con.execute(tx.sql["record_wait"], {**step, "until": max(since, end), "event": arrival.event})
    tx.con.execute(tx.sql["count_from_step"], (run.seq,))
    tx.tally(run.queue, run.task, "steps")
    if (counted := COUNTED_AS.get(kind)) is not None:
        tx.tally(run.queue, run.task, counted)
    return step_of(tx.con.execute(tx.sql["recorded_step"], (run.seq, arrival.name)).fetchone(), tx.now)
