"""Find: by which index the jobs of a filter are looked for."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hawser.job import State
from hawser.store import Filter

SORTED_UP_TO: Final = 10_000
"""Jobs in the lanes of a filter up to which all of them are looked up and sorted: no more than one look costs."""

LAST_NAME: Final = "\U0010ffff"
"""Sorts behind every name of a queue."""

_BY_FIELD: Final = {
    "key": "find_key",
    "parent_id": "find_children",
    "schedule": "find_scheduled",
    "batch": "find_batch",
    "group_name": "find_members",
    "argument": "find_indexed",
}
"""Fields of a filter that have an index of their own, the narrowest first."""

_json = msgspec.json.Encoder().encode


def finder(con: sqlite3.Connection, sql: Mapping[str, str], filter: Filter, asked: dict[str, Any]) -> str:
    """The statement whose index leaves the fewest jobs to look at."""
    if filter.group is not None:
        asked |= {"of_task": filter.group.task, "fingerprint": filter.group.fingerprint}
        return "find_group"
    for field, statement in _BY_FIELD.items():
        if getattr(filter, field) is not None:
            return statement
    state = State.READY if filter.waiting else filter.state
    if state is State.RUNNING:
        return "find_running"
    few = _few(con, sql, state, filter)
    if few is not None:
        asked |= few
        return "find_few"
    if filter.tag is not None:
        return "find_tagged"
    return "find_failed" if state in (State.DEAD, State.CANCELLED) else "find_any"


def _few(con: sqlite3.Connection, sql: Mapping[str, str], state: State | None, filter: Filter) -> dict[str, Any] | None:
    """Where the jobs of a queue, task and state stand, when the counts say that they are few; None when they are not."""
    queue, task = filter.queue, filter.task
    lanes: set[tuple[str, str]] = set()
    running = left = 0
    ended: Counter[tuple[str, State]] = Counter()
    names: set[str] = set()
    for name, kind, _, *waiting, in_flight, done, dead, cancelled, _, _ in con.execute(
        sql["depths"], {"first": "", "last": LAST_NAME}
    ):
        # The index of finished jobs knows their task and not their queue: other queues with the same tasks count.
        if task in (None, kind):
            ended.update({(kind, State.DONE): done, (kind, State.DEAD): dead, (kind, State.CANCELLED): cancelled})
        if queue in (None, name) and task in (None, kind):
            names.add(kind)
            if state in (None, State.READY) and sum(waiting):
                lanes.add((name, kind))
                left += sum(waiting)
            if state is None:
                running += in_flight
    ends = [(kind, end) for (kind, end), n in ended.items() if n and kind in names and state in (None, end)]
    if left + running + sum(ended[end] for end in ends) > SORTED_UP_TO:
        return None
    return {"lanes": _json(list(lanes)), "running": running > 0, "ended": _json(ends)}
