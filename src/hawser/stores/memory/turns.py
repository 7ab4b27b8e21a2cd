"""The groups of the memory store: each has its own heaps, and its place among the groups of its lane that wait for their turn."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from hawser.job import State
from hawser.stores.group_limits import GroupPlace, ordered_place, place_of
from hawser.stores.memory.group_heaps import GroupHeaps, OnlyJob
from hawser.stores.memory.heap import Heap
from hawser.stores.order import UNGROUPED, GroupTurn, TurnLevel

if TYPE_CHECKING:
    from hawser.stores.memory.group_rules import GroupRules
    from hawser.stores.memory.row import Row

Weights = Mapping[tuple[str, str], int]
"""By queue and group; a group that is not there has weight 1."""


class TurnNumbers:
    """The turns that were given. Parts of a store share it, also after a restart."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        self._last += 1
        return self._last


class LaneGroups:
    """The groups of one queue, task and priority that have waiting jobs. A group whose last job leaves is forgotten."""

    def __init__(self, task: str, numbers: TurnNumbers) -> None:
        self.task = task
        self.groups: dict[str, GroupHeaps] = {}
        self._numbers = numbers
        self._turns: list[tuple[int, str]] = []
        self._later: list[tuple[int, str]] = []
        self._aside = 0

    def add(self, row: Row, now: int) -> None:
        """The one way of a job into its group: the group is open from now on, or from the job's due time."""
        assert row.group is not None
        group = self.groups.get(row.group)
        if group is None:
            group = self.groups[row.group] = GroupHeaps(self.task)
        group.heaps[row.lane].push(row, now)
        self._reopen(row.group, group, row.run_at, now)

    def set_aside(self, row: Row) -> None:
        """Leave the job to others for a moment; its group stays where it is."""
        assert row.group is not None
        group = self.groups[row.group]
        group.heaps[row.lane].leave(row)
        group.aside.append(row)
        self._aside += 1

    def put_back(self, row: Row, now: int) -> None:
        assert row.group is not None
        group = self.groups[row.group]
        group.aside.remove(row)
        self._aside -= 1
        group.heaps[row.lane].push(row, now)

    def reopen(self, name: str) -> None:
        """Let the next claim look at a group that is kept back."""
        group = self.groups.get(name)
        if group is not None and (group.shut or group.idle):
            self._turn_now(name, group)

    def reopen_all(self) -> None:
        for name in self.groups:
            self.reopen(name)

    def shut_groups(self) -> int:
        return sum(group.shut or group.idle for group in self.groups.values())

    def remove(self, row: Row) -> None:
        assert row.group is not None
        group = self.groups[row.group]
        group.heaps[row.lane].leave(row)
        if not group.size:
            del self.groups[row.group]

    def _reopen(self, name: str, group: GroupHeaps, due_at: int, now: int) -> None:
        if group.number is None and not group.shut:
            if due_at <= now:
                self._turn_now(name, group)
            else:
                group.idle = False
                heapq.heappush(self._later, (due_at, name))

    def _turn_now(self, name: str, group: GroupHeaps) -> None:
        group.shut, group.idle, group.number = False, False, self._numbers.next()
        heapq.heappush(self._turns, (group.number, name))

    def wake(self, now: int) -> None:
        """Groups whose next job has become due, or whose rate opens, take their turns behind the others."""
        while self._later and self._later[0][0] <= now:
            _, name = heapq.heappop(self._later)
            self.reopen(name)
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

    def close(self, name: str, served: int, place: GroupPlace) -> None:
        """After a claim that has visited the group."""
        group = self.groups[name]
        group.served, group.number, group.shut = served, place.turn, place.shut
        group.idle = place.turn is None and place.due_at is None
        if place.turn is not None:
            heapq.heappush(self._turns, (place.turn, name))
        elif place.due_at is not None:
            heapq.heappush(self._later, (place.due_at, name))

    def forget(self, name: str) -> None:
        self.groups.pop(name, None)

    def next_due(self, now: int, *, ordered: bool) -> int | None:
        """When a group may be served, by a claim that leaves those jobs to others that are set aside."""
        if self.first() is not None and (
            not self._aside or any(self._may_go(group, now, ordered) for group in self.groups.values())
        ):
            return now
        return self._later[0][0] if self._later else None

    def _may_go(self, group: GroupHeaps, now: int, ordered: bool) -> bool:
        if group.number is None or (ordered and group.aside):
            return False
        return any(heap.head[0] <= now for heap in group.heaps if heap.head)

    def set_back(self, now: int, before: int) -> None:
        for name, group in self.groups.items():
            for heap in group.heaps:
                heap.set_back(now, before)
            self.reopen(name)
            self._open(name, now)


class Turns:
    """All groups, by queue, task and priority, and the turns of the jobs without a group."""

    def __init__(self) -> None:
        self._numbers = TurnNumbers()
        self._lanes: dict[str, dict[tuple[str, int], LaneGroups]] = {}
        self._ungrouped: dict[tuple[str, int], tuple[int, int]] = {}
        """By queue and priority: turn and places had."""

    def number(self) -> int:
        return self._numbers.next()

    def lane(self, queue: str, task: str, priority: int) -> LaneGroups:
        lanes = self._lanes.setdefault(queue, {})
        if (task, priority) not in lanes:
            lanes[task, priority] = LaneGroups(task, self._numbers)
        return lanes[task, priority]

    def of(self, queue: str) -> Iterator[tuple[str, int, LaneGroups]]:
        """Task, priority and groups of the lanes of a queue that have groups."""
        for (task, priority), lane in self._lanes.get(queue, {}).items():
            if lane.groups:
                yield task, priority, lane

    def first_of(self, task: str, group: str) -> Row | None:
        """The waiting job of a group that is due for longest, in any queue."""
        firsts = [lane.groups[group].first() for lane in self.of_task(task) if group in lane.groups]
        return min((row for row in firsts if row is not None), key=lambda row: (row.run_at, row.seq), default=None)

    def of_task(self, task: str) -> Iterator[LaneGroups]:
        """The lanes of a task that have groups."""
        return (lane for lanes in self._lanes.values() for lane in lanes.values() if lane.task == task)

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
        self,
        turns: Turns,
        queue: str,
        priority: int,
        ungrouped: Sequence[Heap],
        lanes: Sequence[LaneGroups],
        weights: Weights,
        rules: GroupRules | None,
    ) -> None:
        super().__init__()
        self._rules = rules
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
        lanes = [lane for lane in self._lanes if name in lane.groups]
        sources = [source for lane in lanes for source in self._sources(lane, name)]
        rooms = None if self._rules is None else self._rules.admit([lane.task for lane in lanes], name)
        weight = self._weights.get((self._queue, name), 1)
        served = max(lane.groups[name].served for lane in lanes)
        return GroupTurn(name, number, served, weight, sources, rooms)

    def _sources(self, lane: LaneGroups, name: str) -> list[Heap | OnlyJob]:
        group = lane.groups[name]
        head = None if self._rules is None else self._rules.first(lane.task, name)
        if head is None:
            return [heap for heap in group.heaps if heap.size]
        left = head.state is State.READY and head not in group.aside
        return [OnlyJob(group.heaps[head.lane], head)] if left and self._is_here(head) else []

    def _is_here(self, row: Row) -> bool:
        return (row.queue, row.priority) == (self._queue, self._priority)

    def close(self, now: int) -> None:
        """After the claim: visited groups go to their new turns."""
        for turn in self.visited:
            if turn.name == UNGROUPED:
                self._turns.close(self._queue, self._priority, turn)
                continue
            for lane in self._lanes:
                self._close(lane, turn, now)

    def _close(self, lane: LaneGroups, turn: GroupTurn, now: int) -> None:
        due_at = lane.groups[turn.name].due_at() if turn.name in lane.groups else None
        if due_at is None:
            lane.forget(turn.name)
            return
        room = None if self._rules is None else self._rules.room(lane.task, turn.name)
        head = (
            self._rules.first(lane.task, turn.name) if self._rules is not None and room is not None and room.places > 0 else None
        )
        if head is None or self._rules is None:
            lane.close(turn.name, turn.served, place_of(turn.number, due_at, now, room))
            return
        here = self._is_here(head)
        lane.close(turn.name, turn.served, ordered_place(turn.number, now, self._rules.head(head), here=here))
        if not here:
            self._turns.lane(head.queue, head.task, head.priority).reopen(turn.name)


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
