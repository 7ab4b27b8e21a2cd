"""How long a wait may last."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from hawser.store import Leave
from hawser.stores.breakers import with_breakers
from hawser.stores.sqlite import breakers, limits
from hawser.stores.sqlite.due_times import DueTimes
from hawser.stores.sqlite.group_rules import group_bounds_of


def due_in(con: sqlite3.Connection, sql: Mapping[str, str], now: int, queues: Sequence[str], leave: Leave) -> float | None:
    """Seconds until a job of these queues may be claimed, 0 if one may be now, None if no job waits."""
    controls = con.execute(sql["controls"], {"now": now}).fetchall()
    rooms = limits.rooms(con, sql, limits.bounds_of(controls, now))
    rooms = with_breakers(rooms, breakers.probes_of(controls), now)
    paused = {(kind, name) for kind, name, what, *_ in controls if what == 1}
    paused |= {("task", task) for task in leave.tasks}
    paused |= {(target.kind, target.name) for target, room in rooms.items() if room.places <= 0}
    heads = [room.opens_at for room in rooms.values() if room.opens_at is not None]
    open_ = [queue for queue in queues if ("queue", queue) not in paused]
    ordered = {task for task, bound in group_bounds_of(controls).items() if bound.ordered}
    waiting = DueTimes(con, sql, now).heads(open_, leave, ordered)
    heads += [run_at for task, run_at in waiting if ("task", task) not in paused]
    return max(0.0, (min(heads) - now) / 1_000_000) if heads else None
