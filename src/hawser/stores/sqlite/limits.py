"""Limits: what is said of queues and tasks, and the room that they leave to a claim."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from hawser.limit import Limit
from hawser.store import Actor, LimitUse, Target
from hawser.stores.group_limits import GROUPS_COUNTED
from hawser.stores.limits import Bound, KeptLimit, Room, Rooms, Window, bound_of
from hawser.stores.sqlite.group_rules import window_of
from hawser.stores.sqlite.tx import Tx


class KeptBound(NamedTuple):
    """A limit that binds claims, and the starts of the last period, as of now."""

    bound: Bound
    window: Window


def bounds_of(rows: Iterable[tuple[Any, ...]], now: int) -> dict[Target, KeptBound]:
    """The limits among what `controls` says."""
    found = {}
    for kind, name, what, running, starts, width, slot, slots, per_group, _ in rows:
        if what == 0 and not per_group:
            bound = Bound(running, starts, width)
            found[Target(kind, name)] = KeptBound(bound, bound.window(window_of(slot, slots), now))
    return found


def rooms(con: sqlite3.Connection, sql: Mapping[str, str], bounds: Mapping[Target, KeptBound]) -> Rooms:
    """What these limits leave. The counts of jobs must be written."""
    return {target: _room(con, sql, target, kept) for target, kept in bounds.items()}


def _room(con: sqlite3.Connection, sql: Mapping[str, str], target: Target, kept: KeptBound) -> Room:
    return kept.bound.room(0 if kept.bound.running is None else running(con, sql, target), kept.window)


def running(con: sqlite3.Connection, sql: Mapping[str, str], target: Target) -> int:
    """How many jobs of a queue or task run."""
    statement = "running_in_queue" if target.kind == "queue" else "running_of_task"
    return int(con.execute(sql[statement], (target.name,)).fetchone()[0])


def start(tx: Tx, bounds: Mapping[Target, KeptBound], started: Mapping[tuple[str, str], int]) -> None:
    """So many jobs of each queue and task start."""
    counts: Counter[Target] = Counter()
    for (queue, task), starts in started.items():
        counts[Target("queue", queue)] += starts
        counts[Target("task", task)] += starts
    for target, (bound, window) in bounds.items():
        if bound.starts is not None and counts[target]:
            slot, slots = window.with_starts(counts[target])
            tx.con.execute(tx.sql["note_starts"], (slot, msgspec.json.encode(slots).decode(), target.kind, target.name))
    tx.controls_changed()


def choose(tx: Tx, target: Target, limit: Limit | None, actor: Actor) -> bool:
    """What an operator says; False when there is nothing to take back."""
    kept = _kept(tx, target)
    if limit is None and kept.chosen is None:
        return False
    _put(tx, target, kept.choosing(target, limit, tx.now, actor.by))
    return True


def declare(tx: Tx, limits: Mapping[str, Limit | None]) -> None:
    """What code says."""
    for task, limit in limits.items():
        target = Target("task", task)
        kept = _kept(tx, target)
        if kept.declared != limit:
            _put(tx, target, kept.declaring(limit, tx.now))


def _kept(tx: Tx, target: Target) -> KeptLimit:
    row = tx.con.execute(tx.sql["limit"], {"kind": target.kind, "name": target.name}).fetchone()
    return KeptLimit() if row is None else KeptLimit(read(row[0]), read(row[1]), row[2], row[3])


def _put(tx: Tx, target: Target, kept: KeptLimit) -> None:
    where = {"kind": target.kind, "name": target.name}
    before, limit = bound_of(in_force(tx.con, tx.sql, target.kind, target.name)) or Bound(), kept.in_force
    if limit is None:
        tx.con.execute(tx.sql["drop_limit"], where)
    else:
        bound = bound_of(limit) or Bound()
        about = {"declared": written(kept.declared), "chosen": written(kept.chosen), "since": kept.since, "by": kept.by}
        tx.con.execute(tx.sql["put_limit"], where | about | bound._asdict())
    if target.kind == "task":
        _look_at_groups(tx, target.name, before, bound_of(limit) or Bound())
    if target.kind == "queue":
        tx.con.execute(tx.sql["set_depth"], {"queue": target.name, "max_depth": None if limit is None else limit.max_depth})
    tx.controls_changed()


def in_force(con: sqlite3.Connection, sql: Mapping[str, str], kind: str, name: str) -> Limit | None:
    """What holds for a queue or task."""
    row = con.execute(sql["limit"], {"kind": kind, "name": name}).fetchone()
    return None if row is None else KeptLimit(read(row[0]), read(row[1])).in_force


def _look_at_groups(tx: Tx, task: str, before: Bound, bound: Bound) -> None:
    """A limit is another: groups that the one before kept back may go on, and starts under another period count no longer."""
    tx.con.execute(tx.sql["reopen_groups"], (tx.now, task))
    if (before.width, before.per_group) != (bound.width, bound.per_group):
        tx.con.execute(tx.sql["forget_group_starts"], (task,))
    if not bound.ordered:
        tx.con.execute(tx.sql["forget_heads"], (task,))


def uses(con: sqlite3.Connection, sql: Mapping[str, str], now: int) -> list[LimitUse]:
    """All limits, with how much of each is in use."""
    found = []
    for kind, name, declared, chosen, since, by, slot, slots in con.execute(sql["limits"]).fetchall():
        target, kept = Target(kind, name), KeptLimit(read(declared), read(chosen), since, by)
        shut = con.execute(sql["shut_groups"], (name, GROUPS_COUNTED)).fetchone()[0] if kept.per_group else 0
        found.append(kept.use(target, running(con, sql, target), window_of(slot, slots), now, shut))
    return found


def read(text: str | None) -> Limit | None:
    return None if text is None else msgspec.json.decode(text, type=Limit)


def written(limit: Limit | None) -> str | None:
    return None if limit is None else msgspec.json.encode(limit).decode()
