"""The groups of the memory store: each has its own heaps, and its place among the groups of its lane that wait for their turn."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING

from hawser.stores.memory.heap import Heap
from hawser.stores.order import UNGROUPED, GroupTurn, Lane, TurnLevel

if TYPE_CHECKING:
    from hawser.stores.memory.row import Row

Weights = Mapping[tuple[str, str], int]
"""By queue and group; a group that is not there has weight 1."""


class GroupHeaps:
    """The waiting jobs of one group in one lane."""

    __slots__ = ("heaps", "number", "served")

    def __init__(self, task: str) -> None:
        self.heaps = tuple(Heap(task, waited=lane is not Lane.FRESH) for lane in Lane)
        self.number: int | None = None
        """Its turn; None while nothing of it is due."""
        self.served = 0

    @property
    def size(self) -> int:
        return sum(heap.size for heap in self.heaps)

    def due_at(self) -> int | None:
        """When its next job is due."""
        return min((heap.head[0] for heap in self.heaps if heap.head), default=None)


class LaneGroups:
    """The groups of one queue, task and priority that have waiting jobs. A group whose last job leaves is forgotten."""

    def __init__(self, task: str, number: Callable[[], int]) -> None:
        self.task = task
        self.groups: dict[str, GroupHeaps] = {}
        self._number = number
        self._turns: list[tuple[int, str]] = []
        self._later: list[tuple[int, str]] = []

    def add(self, row: Row, now: int) -> None:
        """The one way of a job into its group: the group is open from now on, or from the job's due time."""
        assert row.group is not None
        group = self.groups.get(row.group)
        if group is None:
            group = self.groups[row.group] = GroupHeaps(self.task)
        group.heaps[row.lane].push(row, now)
        self._reopen(row.group, group, row.run_at, now)

    def remove(self, row: Row) -> None:
        assert row.group is not None
        group = self.groups[row.group]
        group.heaps[row.lane].leave(row)
        if not group.size:
            del self.groups[row.group]

    def _reopen(self, name: str, group: GroupHeaps, due_at: int, now: int) -> None:
        if group.number is None:
            if due_at <= now:
                group.number = self._number()
                heapq.heappush(self._turns, (group.number, name))
            else:
                heapq.heappush(self._later, (due_at, name))

    def wake(self, now: int) -> None:
        """Groups whose next job has become due take their turns behind the others."""
        while self._later and self._later[0][0] <= now:
            _, name = heapq.heappop(self._later)
            self._open(name, now)

    def _open(self, name: str, now: int) -> None:
        group = self.groups.get(name)
        due_at = None if group is None else group.due_at()
        if group is not None and due_at is not None:
            self._reopen(name, group, due_at, now)

    def first(self) -> int | None:
        """The lowest turn."""
        while self._turns:
            number, name = self._turns[0]
            group = self.groups.get(name)
            if group is not None and group.number == number:
                return number
            heapq.heappop(self._turns)
        return None

    def pop(self) -> str:
        """The group that has it; only after `first`."""
        return heapq.heappop(self._turns)[1]

    def close(self, turn: GroupTurn, now: int) -> None:
        """After a claim that has visited the group."""
        group = self.groups.get(turn.name)
        if group is None:
            return
        due_at = group.due_at()
        if due_at is None:
            del self.groups[turn.name]
            return
        group.served = turn.served
        group.number = turn.number if due_at <= now else None
        if group.number is None:
            heapq.heappush(self._later, (due_at, turn.name))
        else:
            heapq.heappush(self._turns, (group.number, turn.name))

    def next_due(self, now: int) -> int | None:
        """When a group may be served."""
        if self.first() is not None:
            return now
        return self._later[0][0] if self._later else None

    def set_back(self, now: int, before: int) -> None:
        for name, group in self.groups.items():
            for heap in group.heaps:
                heap.set_back(now, before)
            self._open(name, now)


class Turns:
    """All groups, by queue, task and priority, and the turns of the jobs without a group."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._lanes: dict[str, dict[tuple[str, int], LaneGroups]] = {}
        self._ungrouped: dict[tuple[str, int], tuple[int, int]] = {}
        """By queue and priority: turn and places had."""

    def number(self) -> int:
        return next(self._numbers)

    def lane(self, queue: str, task: str, priority: int) -> LaneGroups:
        lanes = self._lanes.setdefault(queue, {})
        if (task, priority) not in lanes:
            lanes[task, priority] = LaneGroups(task, self.number)
        return lanes[task, priority]

    def of(self, queue: str) -> Iterator[tuple[str, int, LaneGroups]]:
        """Task, priority and groups of the lanes of a queue that have groups."""
        for (task, priority), lane in self._lanes.get(queue, {}).items():
            if lane.groups:
                yield task, priority, lane

    def queues(self) -> list[str]:
        return list(self._lanes)

    def ungrouped(self, queue: str, priority: int) -> tuple[int, int]:
        return self._ungrouped.get((queue, priority), (0, 0))

    def close(self, queue: str, priority: int, turn: GroupTurn) -> None:
        self._ungrouped[queue, priority] = turn.number, turn.served

    def set_back(self, now: int, before: int) -> None:
        for lanes in self._lanes.values():
            for lane in lanes.values():
                lane.set_back(now, before)

    def forget_empty(self) -> None:
        for queue in list(self._lanes):
            lanes = self._lanes[queue]
            for name in [name for name, lane in lanes.items() if not lane.groups]:
                del lanes[name]
            if not lanes:
                del self._lanes[queue]
        kept = {(queue, priority) for queue, lanes in self._lanes.items() for _, priority in lanes}
        self._ungrouped = {name: turn for name, turn in self._ungrouped.items() if name in kept}


class HeapLevel(TurnLevel):
    """One priority of a queue in which some jobs have groups, as a claim takes from it."""

    def __init__(
        self, turns: Turns, queue: str, priority: int, ungrouped: Sequence[Heap], lanes: Sequence[LaneGroups], weights: Weights
    ) -> None:
        super().__init__()
        self._turns = turns
        self._queue = queue
        self._priority = priority
        self._plain: Sequence[Heap] | None = ungrouped or None
        self._lanes = lanes
        self._weights = weights
        self._seen: set[str] = set()

    def number(self) -> int:
        return self._turns.number()

    def first(self, room: Mapping[str, int]) -> GroupTurn | None:
        open_ = [lane for lane in self._lanes if room.get(lane.task, 1) > 0]
        while True:
            waiting = [(number, lane) for lane in open_ if (number := lane.first()) is not None]
            number, lane = min(waiting, key=lambda each: each[0], default=(None, None))
            plain, served = self._turns.ungrouped(self._queue, self._priority)
            if self._plain is not None and (number is None or plain < number):
                sources, self._plain = self._plain, None
                return GroupTurn(UNGROUPED, plain, served, 1, sources)
            if number is None or lane is None:
                return None
            name = lane.pop()
            if name not in self._seen:
                self._seen.add(name)
                return self._turn(name, number)

    def _turn(self, name: str, number: int) -> GroupTurn:
        """The group with its jobs of all lanes."""
        groups = [lane.groups[name] for lane in self._lanes if name in lane.groups]
        heaps = [heap for group in groups for heap in group.heaps if heap.size]
        weight = self._weights.get((self._queue, name), 1)
        return GroupTurn(name, number, max(group.served for group in groups), weight, heaps)

    def close(self, now: int) -> None:
        """After the claim: visited groups go to their new turns."""
        for turn in self.visited:
            if turn.name == UNGROUPED:
                self._turns.close(self._queue, self._priority, turn)
                continue
            for lane in self._lanes:
                lane.close(turn, now)


class ClaimLevels:
    """The levels that one claim has opened, to be closed when it has taken its jobs."""

    def __init__(self, read: Callable[[str], list[list[Heap] | HeapLevel]]) -> None:
        self._read = read
        self._opened: list[HeapLevel] = []

    def of(self, queue: str) -> list[list[Heap] | HeapLevel]:
        levels = self._read(queue)
        self._opened += [level for level in levels if isinstance(level, HeapLevel)]
        return levels

    def close(self, now: int) -> None:
        for level in self._opened:
            level.close(now)
