"""What keeps a waiting job of a group back, as one read transaction sees it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from hawser.store import WAIT_COUNTED, GroupWait
from hawser.stores.limits import bound_of
from hawser.stores.sqlite.group_rules import GroupRules
from hawser.stores.sqlite.limits import in_force
from hawser.stores.sqlite.tx import Tx


def group_wait(con: sqlite3.Connection, sql: Mapping[str, str], now: int, id: str) -> GroupWait | None:
    found = con.execute(sql["place_in_group"], (id,)).fetchone()
    if found is None:
        return None
    queue, task, priority, group, run_at, seq = found
    place = {"queue": queue, "task": task, "priority": priority, "group": group, "most": WAIT_COUNTED}
    groups = con.execute(sql["groups_before"], place).fetchone()[0]
    jobs = con.execute(sql["jobs_before"], {**place, "run_at": run_at, "seq": seq}).fetchone()[0]
    limit = in_force(con, sql, "task", task)
    bound = bound_of(limit)
    if limit is None or bound is None or not bound.per_group:
        return GroupWait(groups_before=groups, jobs_before=jobs)
    rules = GroupRules(Tx(con, now, sql), {task: bound})
    first, running = rules.first(task, group), con.execute(sql["running_in_group"], (task, group)).fetchone()[0]
    told = bound.told(running, rules.window(task, group), now)
    head: tuple[str | None, bool] = (None, False) if first is None else (first.id, bool(first.running))
    return GroupWait(limit, running, *told, *head, groups, jobs)
