"""Groups take turns: what a claim reads of them, and writes when it has taken its jobs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from hawser.store import Leave
from hawser.stores.group_limits import GroupPlace, ordered_place, place_of
from hawser.stores.limits import Rooms, is_shut
from hawser.stores.order import GROUPED, UNGROUPED, Entry, GroupTurn, Lane, Level, Source, TurnLevel
from hawser.stores.sqlite.group_rules import GroupRules
from hawser.stores.sqlite.tx import Tx

WOKEN: Final = 1_000
"""Groups of one lane that one claim gives turns to because their next job has become due."""


FIRST_READ: Final = 2
"""Jobs that a claim reads of a lane when it comes to it: with a thousand lanes it takes a job or none of each."""

READ_MORE: Final = 4
"""Times as many jobs as before that it reads when it has taken those."""


LaneKey = tuple[str, str, int, int]
"""Queue, task, priority and kind."""

Place = Entry
"""Of which only due time and order are known."""

BEFORE_ALL: Final[Place] = (0, 0)

LANE_COLUMN: Final = 11
"""Of the columns that a claim reads of a job."""


class LaneReader:
    """A lane's due jobs, read a few at a time, and none before the claim comes to the lane.

    A cursor that stays open would read nearly none in vain. But then its statement is prepared anew for the next lane, and that
    costs more than to read a few jobs.
    """

    __slots__ = ("_at", "_left", "_more", "_read", "_rows", "_where", "_without", "begin", "task", "waited")

    def __init__(
        self,
        where: LaneKey,
        without: Collection[str],
        *,
        begin: Place,
        most: int,
        read: Callable[[LaneKey, Place, int], list[Entry]],
    ) -> None:
        """`most`: jobs that the claim looks at; `read` gives so many that stand behind a place."""
        self.begin: Place | None = begin
        self.task = where[1]
        self.waited = where[3] != Lane.FRESH
        self._where = where
        self._without = without
        self._read = read
        self._rows: list[Entry] = []
        """What was read, the last first."""
        self._at: Place = (begin[0], begin[1] - 1)
        self._left = most
        self._more = FIRST_READ

    @property
    def head(self) -> Entry | None:
        if self._rows:
            return self._rows[-1]
        while not self._rows and self.begin is not None:
            self._read_on()
        return self._rows[-1] if self._rows else None

    def pop(self) -> None:
        """Before more is read, the next one is only known to stand behind this one."""
        self._rows.pop()
        if self._rows:
            self.begin = self._rows[-1]
        elif not self._left:
            self.begin = None

    def _read_on(self) -> None:
        some = min(self._more, self._left)
        self.got(self._read(self._where, self._at, some), some)

    def got(self, rows: list[Entry], some: int) -> None:
        """These are the next ones, all that there are or so many."""
        self._left = self._left - some if len(rows) == some else 0
        self._more *= READ_MORE
        if rows:
            self._at = rows[-1][:2]
        self._rows = [row for row in rows if row[2] not in self._without] if self._without else rows
        self._rows.reverse()
        if self._rows:
            self.begin = self._rows[-1]
        else:
            self.begin = self._at if self._left else None


class WaitingGroups:
    """The groups of one task that have a turn, in order."""

    def __init__(self, tx: Tx, lane: tuple[str, int, str], most: int) -> None:
        """`most`: how many are read at once. While a cursor stays open, its statement is prepared anew for the next task."""
        self._tx = tx
        self._lane = lane
        self._most = most
        self._rows: list[tuple[int, str, int]] = []
        """What was read, the last first."""
        self._last = -1
        self.task = lane[2]
        self.head: tuple[int, str, int] | None = None
        """Turn, group and places had."""
        self.pop()
        self.known = len(self._rows) + (self.head is not None)
        """How many there are, up to as many as are read at once."""

    def pop(self) -> None:
        if not self._rows:
            self._rows = self._tx.con.execute(self._tx.sql["turns"], (*self._lane, self._last, self._most)).fetchall()
            self._rows.reverse()
        self.head = self._rows.pop() if self._rows else None
        if self.head is not None:
            self._last = self.head[0]


class OpenLane(NamedTuple):
    """A lane that a claim may take from: where its first job of each kind stands, and how many jobs have a group."""

    task: str
    priority: int
    grouped: int
    begins: Sequence[Place]


class ClaimLevels:
    """The levels that one claim has opened, to be closed when it has taken its jobs."""

    def __init__(self, tx: Tx, limit: int, leave: Leave, rooms: Rooms, rules: GroupRules | None) -> None:
        self._tx = tx
        self._most = limit + len(leave.jobs)
        self._leave = leave
        self._rooms = rooms
        self._rules = rules
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
        return [OpenLane(row[0], row[1], row[2], (row[3:5], row[5:7], row[7:9])) for row in rows if self._is_open(row[0])]

    def _is_open(self, task: str) -> bool:
        left = task in self._leave.tasks or is_shut(self._rooms, "task", task)
        return not left and not self._tx.paused("task", task)

    def _level(self, queue: str, priority: int, lanes: Sequence[OpenLane]) -> Level:
        plain = [source for lane in lanes for source in self._sources(queue, lane)]
        grouped = [lane.task for lane in lanes if lane.grouped]
        if not grouped:
            return plain
        due = any(source.head is not None for source in plain)
        groups = LevelGroups(self._tx, queue, priority, grouped, self._most, self._leave.jobs, self._rules)
        level = RowLevel(self._tx, groups, plain if due else ())
        self._by_turns.append(level)
        return level

    def _sources(self, queue: str, lane: OpenLane) -> Iterator[LaneReader]:
        read = partial(_due, self._tx)
        for kind in Lane:
            begin = lane.begins[kind]
            if begin[0] is not None and begin[0] <= self._tx.now:
                where = (queue, lane.task, lane.priority, int(kind))
                yield LaneReader(where, self._leave.jobs, begin=begin, most=self._most, read=read)


def _due(tx: Tx, where: LaneKey, behind: Place, most: int) -> list[Entry]:
    """No method: a circle of references would keep the cursors of groups open behind the claim, and with them its snapshot."""
    return tx.con.execute(tx.sql["due"], (*where, *behind, tx.now, tx.now, most)).fetchall()


def _due_of_group(tx: Tx, name: str, where: LaneKey, behind: Place, most: int) -> list[Entry]:
    queue, task, priority, lane = where
    asked = (queue, task, priority, name, lane + GROUPED, *behind, tx.now, tx.now, most)
    return tx.con.execute(tx.sql["due_of_group"], asked).fetchall()


class LevelGroups:
    """The groups of one queue and priority, as one claim reads and leaves them."""

    def __init__(
        self,
        tx: Tx,
        queue: str,
        priority: int,
        tasks: Sequence[str],
        most: int,
        without: Collection[str],
        rules: GroupRules | None,
    ) -> None:
        self._tx = tx
        self.queue = queue
        self.priority = priority
        self.tasks = tasks
        self.most = most
        """Jobs that the claim looks at."""
        self._each = 1
        self._without = without
        self._rules = rules
        self._weighted = tx.con.execute(tx.sql["some_weight"], (queue,)).fetchone() is not None

    def turn(self, name: str, number: int, served: int) -> GroupTurn:
        """A group with its jobs of all tasks."""
        rooms = None if self._rules is None else self._rules.admit(self.tasks, name)
        sources = [source for task in self.tasks for source in self._sources(task, name) if source.head is not None]
        return GroupTurn(name, number, served, self._weight(name), sources, rooms)

    def _weight(self, name: str) -> int:
        tx = self._tx
        found = tx.con.execute(tx.sql["weight"], (self.queue, name)).fetchone() if self._weighted else None
        return found[0] if found else 1

    def _sources(self, task: str, name: str) -> Iterator[LaneReader]:
        first = None if self._rules is None else self._rules.first(task, name)
        if first is not None:
            if first.head.may_start(self.queue, self.priority, self._tx.now):
                rows = self._tx.con.execute(self._tx.sql["due_one"], (first.seq, self._tx.now)).fetchall()
                yield from self._readers(task, name, rows, 1)
            return
        where = {"queue": self.queue, "task": task, "priority": self.priority, "group": name}
        asked = {**where, "now": self._tx.now, "most": self._each}
        yield from self._readers(task, name, self._tx.con.execute(self._tx.sql["first_of_lanes"], asked).fetchall(), self._each)

    def _readers(self, task: str, name: str, rows: list[Entry], each: int) -> Iterator[LaneReader]:
        """Of lanes of which these rows were read, or `each`."""
        read = partial(_due_of_group, self._tx, name)
        while rows:
            lane = rows[0][LANE_COLUMN]
            own = rows if rows[-1][LANE_COLUMN] == lane else [row for row in rows if row[LANE_COLUMN] == lane]
            rows = rows[len(own) :]
            where = (self.queue, task, self.priority, lane - GROUPED)
            reader = LaneReader(where, self._without, begin=BEFORE_ALL, most=each if each == 1 else self.most + 1, read=read)
            reader.got(own, each)
            yield reader

    def expect(self, groups: int) -> None:
        """So many will be visited, as far as is known: of each its share is read at once, and one more, to see what is left."""
        self._each = 1 + -(-self.most // max(1, groups))

    def place(self, task: str, group: GroupTurn, due_at: int) -> GroupPlace:
        """Where a group stands in a lane after the claim."""
        now = self._tx.now
        room = None if self._rules is None else self._rules.room(task, group.name)
        first = self._rules.first(task, group.name) if self._rules is not None and room is not None and room.places > 0 else None
        if first is None:
            return place_of(group.number, due_at, now, room)
        here = first.head.is_in(self.queue, self.priority)
        if not here:
            self._tx.con.execute(self._tx.sql["reopen_lane"], (now, first.queue, first.priority, task, group.name))
        return ordered_place(group.number, now, first.head, here=here)

    def next_due(self, task: str, name: str) -> int | None:
        asked = {"queue": self.queue, "task": task, "priority": self.priority, "group": name}
        found: int | None = self._tx.con.execute(self._tx.sql["next_due_of_group"], asked).fetchone()[0]
        return found


class RowLevel(TurnLevel):
    """One priority of a queue in which some jobs have groups."""

    def __init__(self, tx: Tx, groups: LevelGroups, ungrouped: Sequence[Source]) -> None:
        super().__init__()
        self._tx = tx
        self._groups = groups
        self._plain: Sequence[Source] | None = ungrouped or None
        self._seen: set[str] = set()
        for task in groups.tasks:
            self._wake(task)
        self._waiting = [WaitingGroups(tx, (groups.queue, groups.priority, task), groups.most) for task in groups.tasks]
        groups.expect(max((each.known for each in self._waiting), default=0))
        found = tx.con.execute(tx.sql["ungrouped_turn"], (groups.queue, groups.priority)).fetchone()
        self._plain_turn: int = found[0] if found else 0
        self._plain_served: int = found[1] if found else 0

    def _wake(self, task: str) -> None:
        tx, lane = self._tx, (self._groups.queue, self._groups.priority, task)
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
                return self._groups.turn(name, number, served)

    def close(self) -> None:
        """After the claim has taken its jobs: visited groups go to their new turns."""
        tx, queue, priority = self._tx, self._groups.queue, self._groups.priority
        changed, forgotten = [], []
        for group in self.visited:
            if group.name == UNGROUPED:
                if (group.number, group.served) != (self._plain_turn, self._plain_served):
                    tx.con.execute(tx.sql["note_ungrouped"], (queue, priority, group.number, group.served))
                continue
            due = {source.task for source in group.sources if source.head is not None}
            for task in self._groups.tasks:
                due_at = tx.now if task in due else self._groups.next_due(task, group.name)
                if due_at is None:
                    forgotten.append((queue, priority, task, group.name))
                else:
                    place = self._groups.place(task, group, due_at)
                    where = {"queue": queue, "priority": priority, "task": task, "group": group.name}
                    changed.append({**place._asdict(), "served": group.served, **where})
        tx.con.executemany(tx.sql["visited"], changed)
        tx.con.executemany(tx.sql["forget_group"], forgotten)
