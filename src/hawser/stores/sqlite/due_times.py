"""When the jobs of lanes are due, with a group or without."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from hawser.store import DUE_COUNTED, Leave
from hawser.stores.order import GROUPED, Lane

_json = msgspec.json.Encoder().encode

LaneName = tuple[str, str, int]
"""Queue, task and priority."""


class DueTimes:
    """What one read transaction sees of due times."""

    def __init__(self, con: sqlite3.Connection, sql: Mapping[str, str], now: int) -> None:
        self._con = con
        self._sql = sql
        self._now = now

    def heads(self, queues: Sequence[str], leave: Leave, ordered: Collection[str]) -> Iterator[tuple[str, int]]:
        """By task, when the first job of each lane is due, and the first group of each lane may be served."""
        left = _json(list(leave.jobs)).decode()
        for queue in queues:
            for task, priority, grouped, *begins in self._con.execute(self._sql["lanes"], {"queue": queue}).fetchall():
                if grouped:
                    place = {"queue": queue, "priority": priority, "task": task, "now": self._now}
                    turns = self._con.execute(self._sql["next_turn"], {**place, "without": left, "ordered": task in ordered})
                    yield from ((task, due) for (due,) in turns if due is not None)
                for lane in Lane:
                    if (run_at := begins[2 * lane]) is not None and not leave.jobs:
                        yield task, run_at
                    elif run_at is not None:
                        asked = (queue, task, priority, lane, left)
                        yield from ((task, due) for (due,) in self._con.execute(self._sql["next_due_without"], asked))

    def first(self, where: LaneName, lane: Lane, grouped: int) -> int:
        """When the first job of a lane is due."""
        asked = [(*where, number) for number in _numbers(lane, grouped)]
        rows = [self._con.execute(self._sql["next_due"], each).fetchone() for each in asked]
        return min((row[0] for row in rows if row is not None), default=self._now)

    def count(self, statement: str, where: LaneName, lane: Lane, grouped: int) -> int:
        """How many jobs of a lane are past their time, or before it, counted up to a limit."""
        asked = [(*where, number, self._now, DUE_COUNTED) for number in _numbers(lane, grouped)]
        return sum(self._con.execute(self._sql[statement], each).fetchone()[0] for each in asked)


def _numbers(lane: Lane, grouped: int) -> tuple[int, ...]:
    """Where the jobs of a lane stand: those with a group apart from the others."""
    return (lane, lane + GROUPED) if grouped else (lane,)
