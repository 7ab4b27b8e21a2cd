"""The scheduler's side: each is one piece of work inside a write transaction, or a look at a snapshot."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from hawser.clock import from_datetime, to_us
from hawser.job import NewJob
from hawser.schedule.declaration import Declaration
from hawser.schedule.schedule import Advance, Schedule
from hawser.store import Actor
from hawser.store.schedules import DECLARED_FOR, Advanced, DueSchedules
from hawser.stores.sqlite import enqueue, operations
from hawser.stores.sqlite.tx import Tx

_KEPT: Final = to_us(DECLARED_FOR)
_json = msgspec.json.Encoder().encode
_schedule = msgspec.json.Decoder(Schedule).decode


def named(
    con: sqlite3.Connection, sql: Mapping[str, str], names: Sequence[str] | None, after: str, limit: int | None
) -> list[Schedule]:
    wanted = {"names": None if names is None else _json(list(names)), "after": after, "limit": -1 if limit is None else limit}
    return [_schedule(about) for (about,) in con.execute(sql["schedules"], wanted)]


def due(con: sqlite3.Connection, sql: Mapping[str, str], now: int, limit: int) -> DueSchedules:
    found = [about for (about,) in con.execute(sql["due_schedules"], {"now": now, "limit": limit + 1})]
    if len(found) > limit:
        return DueSchedules(now, list(map(_schedule, found[:limit])), 0.0)
    next_ = con.execute(sql["next_schedule"], {"now": now}).fetchone()
    return DueSchedules(now, list(map(_schedule, found)), None if next_ is None else (next_[0] - now) / 1_000_000)


def following(con: sqlite3.Connection, sql: Mapping[str, str], limit: int) -> list[Schedule]:
    return [_schedule(about) for (about,) in con.execute(sql["next_schedules"], {"limit": limit})]


def fire(tx: Tx, advances: Sequence[Advance]) -> list[Advanced]:
    names = _json([advance.schedule.name for advance in advances])
    revisions: dict[str, str] = dict(tx.con.execute(tx.sql["revisions"], {"names": names}).fetchall())
    live = _live(tx, [advance.unless_live for advance in advances if advance.unless_live is not None])
    ticks = _ticks(tx, [job for advance in advances for job in advance.jobs])
    answers: list[Advanced] = []
    rows: dict[str, tuple[Any, ...]] = {}
    added: list[NewJob] = []
    for advance in advances:
        schedule, answer = _judged(advance, revisions, live)
        answers.append(answer)
        if schedule is not None:
            revisions[schedule.name] = schedule.revision
            rows[schedule.name] = (schedule.name, schedule.revision, schedule.due_us, _json(schedule))
        if answer is Advanced.DONE:
            new = [job for job in advance.jobs if job.tick is None or (job.schedule, job.tick) not in ticks]
            ticks |= {(job.schedule, job.tick) for job in new}
            live |= {job.id for job in new}
            added += new
    tx.con.executemany(tx.sql["put_schedule"], rows.values())
    if added:
        enqueue.add(tx, enqueue.sort_out(tx, added)[1], None)
    return answers


def _judged(advance: Advance, revisions: Mapping[str, str], live: set[str]) -> tuple[Schedule | None, Advanced]:
    """What is to be written of the schedule, and what to answer."""
    revision = revisions.get(advance.schedule.name)
    if revision == advance.schedule.revision:
        return None, Advanced.REPEATED
    if revision != advance.expect:
        return None, Advanced.STALE
    if advance.otherwise is not None and advance.unless_live in live:
        return advance.otherwise, Advanced.SKIPPED
    return advance.schedule, Advanced.DONE


def _live(tx: Tx, ids: Sequence[str]) -> set[str]:
    return {id for (id,) in tx.con.execute(tx.sql["live"], {"ids": _json(ids)})} if ids else set()


def _ticks(tx: Tx, wanted: Iterable[NewJob]) -> set[tuple[str | None, Any]]:
    """Of the ticks of these jobs, those that have a job already."""
    of = {(job.schedule, from_datetime(job.tick)): (job.schedule, job.tick) for job in wanted if job.tick is not None}
    return {of[name, tick] for name, tick in tx.con.execute(tx.sql["ticks"], {"ticks": _json(list(of))})} if of else set()


def put(tx: Tx, advance: Advance, action: str, actor: Actor) -> Advanced:
    [answer] = fire(tx, (advance,))
    if answer in (Advanced.DONE, Advanced.SKIPPED):
        made = len(advance.jobs) if answer is Advanced.DONE else 0
        operations.note(tx, action, f"schedule:{advance.schedule.name}", made, actor)
    return answer


def delete(tx: Tx, name: str, actor: Actor) -> bool:
    gone = tx.con.execute(tx.sql["delete_schedule"], {"name": name}).rowcount > 0
    if gone:
        operations.note(tx, "delete_schedule", f"schedule:{name}", 0, actor)
    return gone


def declare(tx: Tx, declaration: Declaration) -> list[Declaration]:
    tx.con.execute(tx.sql["clamp_declarations"], {"now": tx.now})
    tx.con.execute(tx.sql["forget_declarations"], {"before": tx.now - _KEPT})
    row = {"id": declaration.id, "names": _json(declaration.names).decode(), "now": tx.now}
    tx.con.execute(tx.sql["declare"], row)
    return [Declaration(id=id, names=tuple(msgspec.json.decode(names))) for id, names in tx.con.execute(tx.sql["declarations"])]
