"""The bulk operations of the SQLite store. Each change is one piece of work inside a write transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Final

import msgspec

from hawser.clock import to_us
from hawser.store import BULK_KEPT, BULK_SILENCE, BULKS_LISTED, Acted, Actor, BulkOperation, BulkPlan, BulkStep
from hawser.stores.order import spread_delays
from hawser.stores.record import bulk_of, changed
from hawser.stores.sqlite import edits, operations
from hawser.stores.sqlite.ending import FoundJob
from hawser.stores.sqlite.tx import Tx

_DO: Final = {"cancel": operations.cancel, "discard": operations.discard}
_SILENCE: Final = to_us(BULK_SILENCE)


def start(tx: Tx, id: str, plan: BulkPlan, owner: str) -> BulkOperation:
    row = {"id": id, "plan": msgspec.json.encode(plan).decode(), "owner": owner, "now": tx.now}
    tx.con.execute(tx.sql["start_bulk"], row)
    kept = get(tx.con, tx.sql, tx.now, id)
    assert kept is not None
    return kept


def get(con: sqlite3.Connection, sql: Mapping[str, str], now: int, id: str) -> BulkOperation | None:
    row = con.execute(sql["bulk"], {"id": id}).fetchone()
    return None if row is None else bulk_of(now, *row)


def latest(con: sqlite3.Connection, sql: Mapping[str, str], now: int) -> list[BulkOperation]:
    return [bulk_of(now, *row) for row in con.execute(sql["bulks"], {"limit": BULKS_LISTED})]


def step(tx: Tx, step: BulkStep) -> BulkOperation | None:
    found = tx.con.execute(tx.sql["current_bulk"], {"id": step.id, "turn": step.turn, "behind": step.behind}).fetchone()
    if found is None:
        return None
    plan = msgspec.json.decode(found[0], type=BulkPlan)
    later = dict(zip(step.ids, spread_delays(len(step.ids), step.spread, step.delay), strict=True))

    def requeue(tx: Tx, job: FoundJob, actor: Actor) -> Acted:
        return operations.requeue(tx, job, actor, later[job.id])

    do = edits.changing(plan.change) if plan.action == "change" else _DO.get(plan.action, requeue)
    answers = operations.act(tx, plan.action, step.ids, plan.actor(step.id), do)
    did = changed(answers)
    moved = {
        "id": step.id,
        "cursor": step.cursor,
        "did": did,
        "skipped": step.skipped + len(answers) - did,
        "ends": step.ends,
        "error": step.error,
        "now": tx.now,
    }
    tx.con.execute(tx.sql["step_bulk"], moved)
    return get(tx.con, tx.sql, tx.now, step.id)


def take(tx: Tx, owner: str, limit: int) -> list[BulkOperation]:
    asked = {"owner": owner, "limit": limit, "silence": _SILENCE, "now": tx.now}
    rows = tx.con.execute(tx.sql["take_bulks"], asked).fetchall()
    return sorted((bulk_of(tx.now, *row) for row in rows), key=lambda taken: taken.id)


def release(tx: Tx, id: str, turn: int) -> None:
    tx.con.execute(tx.sql["release_bulk"], {"id": id, "turn": turn, "silence": _SILENCE, "now": tx.now})


def stop(tx: Tx, id: str, actor: Actor) -> BulkOperation | None:
    if tx.con.execute(tx.sql["stop_bulk"], {"id": id, "now": tx.now}).rowcount:
        operations.note(tx, "stop_operation", f"operation:{id}", 0, actor)
    return get(tx.con, tx.sql, tx.now, id)


def forget(tx: Tx) -> None:
    tx.con.execute(tx.sql["forget_bulks"], {"before": tx.now - to_us(BULK_KEPT)})
