"""Groups take turns: what a claim reads of them, and writes when it has taken its jobs."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from hawser.store import Leave
from hawser.stores.limits import Rooms, is_shut
from hawser.stores.order import GROUPED, UNGROUPED, Entry, GroupTurn, Lane, Level, Source, TurnLevel
from hawser.stores.sqlite.tx import Tx

WOKEN: Final = 1_000
"""Groups of one lane that one claim gives turns to because their next job has become due."""


class LaneCursor:
    """A lane's due jobs, read only as far as they are taken."""

    __slots__ = ("_cursor", "_without", "head", "task", "waited")

    def __init__(self, cursor: sqlite3.Cursor, task: str, without: Collection[str], *, waited: bool) -> None:
        self._cursor = cursor
        self._without = without
        self.task = task
        self.waited = waited
        self.head: Entry | None = None
        self.pop()

    def pop(self) -> None:
        self.head = self._cursor.fetchone()
        while self._without and self.head is not None and self.head[2] in self._without:
            self.head = self._cursor.fetchone()


class WaitingGroups:
    """The groups of one task that have a turn, in order."""

    def __init__(self, cursor: sqlite3.Cursor, task: str) -> None:
        self._cursor = cursor
        self.task = task
        self.head: tuple[int, str, int] | None = cursor.fetchone()
        """Turn, group and places had."""

    def pop(self) -> None:
        self.head = self._cursor.fetchone()

    def close(self) -> None:
        self._cursor.close()


class OpenLane(NamedTuple):
    """A lane that a claim may take from: its waiting jobs by kind, and how many of them have a group."""

    task: str
    priority: int
    waiting: Sequence[int]
    grouped: int


class ClaimLevels:
    """What one claim reads, by queue and priority, to be closed when its jobs are started."""

    def __init__(self, tx: Tx, limit: int, leave: Leave, rooms: Rooms) -> None:
        self._tx = tx
        self._most = limit + len(leave.jobs)
        self._leave = leave
        self._rooms = rooms
        self._by_turns: list[RowLevel] = []

    def of(self, queue: str) -> list[Level]:
        """The levels of a queue, highest priority first."""
        by_priority: dict[int, list[OpenLane]] = {}
        for lane in self._lanes(queue):
            by_priority.setdefault(lane.priority, []).append(lane)
        return [self._level(queue, priority, lanes) for priority, lanes in by_priority.items()]

    def close(self) -> None:
        for level in self._by_turns:
            level.close()

    def _lanes(self, queue: str) -> list[OpenLane]:
        tx = self._tx
        if tx.paused("queue", queue) or is_shut(self._rooms, "queue", queue):
            return []
        rows = tx.con.execute(tx.sql["lanes"], {"queue": queue}).fetchall()
        lanes = [OpenLane(task, priority, waiting, grouped) for task, priority, *waiting, grouped in rows]
        return [lane for lane in lanes if self._is_open(lane.task)]

    def _is_open(self, task: str) -> bool:
        left = task in self._leave.tasks or is_shut(self._rooms, "task", task)
        return not left and not self._tx.paused("task", task)

    def _level(self, queue: str, priority: int, lanes: Sequence[OpenLane]) -> Level:
        plain = [source for lane in lanes if sum(lane.waiting) > lane.grouped for source in self._sources(queue, lane)]
        grouped = [lane.task for lane in lanes if lane.grouped]
        if not grouped:
            return plain
        due = [source for source in plain if source.head is not None]
        level = RowLevel(self._tx, queue, priority, due, grouped, self._most, self._leave.jobs)
        self._by_turns.append(level)
        return level

    def _sources(self, queue: str, lane: OpenLane) -> Iterator[LaneCursor]:
        for kind in Lane:
            if lane.waiting[kind]:
                asked = (queue, lane.task, lane.priority, kind, self._tx.now, self._most)
                cursor = self._tx.con.execute(self._tx.sql["due"], asked)
                yield LaneCursor(cursor, lane.task, self._leave.jobs, waited=kind is not Lane.FRESH)


class RowLevel(TurnLevel):
    """One priority of a queue in which some jobs have groups."""

    def __init__(
        self,
        tx: Tx,
        queue: str,
        priority: int,
        ungrouped: Sequence[Source],
        tasks: Sequence[str],
        most: int,
        without: Collection[str],
    ) -> None:
        super().__init__()
        self._tx = tx
        self._queue = queue
        self._priority = priority
        self._plain: Sequence[Source] | None = ungrouped or None
        self._tasks = tasks
        self._most = most
        self._without = without
        self._seen: set[str] = set()
        for task in tasks:
            self._wake(task)
        asked = [(queue, priority, task) for task in tasks]
        self._waiting = [WaitingGroups(tx.con.execute(tx.sql["turns"], each), each[2]) for each in asked]
        found = tx.con.execute(tx.sql["ungrouped_turn"], (queue, priority)).fetchone()
        self._plain_turn: int = found[0] if found else 0
        self._plain_served: int = found[1] if found else 0
        self._weighted = tx.con.execute(tx.sql["some_weight"], (queue,)).fetchone() is not None

    def _wake(self, task: str) -> None:
        tx, lane = self._tx, (self._queue, self._priority, task)
        due = tx.con.execute(tx.sql["groups_due"], (*lane, tx.now, WOKEN)).fetchall()
        tx.con.executemany(tx.sql["give_turn"], [(tx.next_turn(), *lane, name) for (name,) in due])

    def number(self) -> int:
        return self._tx.next_turn()

    def first(self, room: Mapping[str, int]) -> GroupTurn | None:
        while True:
            heads = [(*each.head, each) for each in self._waiting if each.head is not None and room.get(each.task, 1) > 0]
            number, name, served, best = min(heads, key=lambda each: each[0], default=(None, "", 0, None))
            if self._plain is not None and (number is None or self._plain_turn < number):
                sources, self._plain = self._plain, None
                return GroupTurn(UNGROUPED, self._plain_turn, self._plain_served, 1, sources)
            if number is None or best is None:
                return None
            best.pop()
            if name not in self._seen:
                self._seen.add(name)
                return GroupTurn(name, number, served, self._weight(name), self._sources(name))

    def _weight(self, name: str) -> int:
        tx = self._tx
        found = tx.con.execute(tx.sql["weight"], (self._queue, name)).fetchone() if self._weighted else None
        return found[0] if found else 1

    def _sources(self, name: str) -> list[LaneCursor]:
        con, statement, cursors = self._tx.con, self._tx.sql["due_of_group"], []
        for task in self._tasks:
            for lane in Lane:
                asked = (self._queue, task, self._priority, name, lane + GROUPED, self._tx.now, self._most)
                cursor = LaneCursor(con.execute(statement, asked), task, self._without, waited=lane is not Lane.FRESH)
                if cursor.head is not None:
                    cursors.append(cursor)
        return cursors

    def close(self) -> None:
        """After the claim has taken its jobs: visited groups go to their new turns."""
        tx = self._tx
        for each in self._waiting:
            each.close()
        changed, forgotten = [], []
        for group in self.visited:
            if group.name == UNGROUPED:
                tx.con.execute(tx.sql["note_ungrouped"], (self._queue, self._priority, group.number, group.served))
                continue
            due = {source.task for source in group.sources if source.head is not None}
            for task in self._tasks:
                place = (self._queue, self._priority, task, group.name)
                due_at = tx.now if task in due else self._next_due(task, group.name)
                if due_at is None:
                    forgotten.append(place)
                else:
                    changed.append((*((group.number, None) if due_at <= tx.now else (None, due_at)), group.served, *place))
        tx.con.executemany(tx.sql["visited"], changed)
        tx.con.executemany(tx.sql["forget_group"], forgotten)

    def _next_due(self, task: str, name: str) -> int | None:
        asked = {"queue": self._queue, "task": task, "priority": self._priority, "group": name}
        found: int | None = self._tx.con.execute(self._tx.sql["next_due_of_group"], asked).fetchone()[0]
        return found
