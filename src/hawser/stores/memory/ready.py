"""The waiting jobs of the memory store, in lanes that a claim takes from without looking at anything else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from hawser.store import WAIT_COUNTED
from hawser.stores.group_limits import GROUPS_COUNTED
from hawser.stores.memory.heap import Heap
from hawser.stores.memory.turns import HeapLevel, LaneGroups, Turns, Weights
from hawser.stores.order import Lane

if TYPE_CHECKING:
    from hawser.stores.memory.group_rules import GroupRules
    from hawser.stores.memory.row import Row


class ReadyJobs:
    """All lanes, by queue, task and priority. Jobs with a group lie in heaps of their own."""

    def __init__(self) -> None:
        self._lanes: dict[str, dict[tuple[str, int], tuple[Heap, Heap, Heap]]] = {}
        self._turns = Turns()

    def add(self, row: Row, now: int) -> None:
        if row.group is not None:
            self._turns.lane(row.queue, row.task, row.priority).add(row, now)
        else:
            self._lane(row).push(row, now)

    def remove(self, row: Row) -> None:
        if row.group is not None:
            self._turns.lane(row.queue, row.task, row.priority).remove(row)
        else:
            self._lane(row).leave(row)

    def set_aside(self, row: Row) -> None:
        """Leave a job to others for a moment."""
        if row.group is not None:
            self._turns.lane(row.queue, row.task, row.priority).set_aside(row)
        else:
            self._lane(row).leave(row)

    def put_back(self, row: Row, now: int) -> None:
        if row.group is not None:
            self._turns.lane(row.queue, row.task, row.priority).put_back(row, now)
        else:
            self._lane(row).push(row, now)

    def reopen(self, task: str, group: str | None = None) -> None:
        """Let the next claim look at a group of a task, or at all, if they are shut."""
        for lane in self._turns.of_task(task):
            if group is None:
                lane.reopen_all()
            else:
                lane.reopen(group)

    def shut_groups(self, task: str) -> int:
        """Groups of a task that are shut, by queue and priority."""
        return min(GROUPS_COUNTED, sum(lane.shut_groups() for lane in self._turns.of_task(task)))

    def before_in_turn(self, row: Row) -> tuple[int, int]:
        """How many groups have their turn before that of a job, and how many jobs of its group are before it."""
        assert row.group is not None
        lanes = [lane for _, priority, lane in self._turns.of(row.queue) if priority == row.priority]
        own = self._turns.lane(row.queue, row.task, row.priority).groups[row.group].number
        turns = ((name, group.number) for lane in lanes for name, group in lane.groups.items() if name != row.group)
        groups = {name for name, number in turns if number is not None and (own is None or number < own)}
        rows = (each for lane in lanes if row.group in lane.groups for each in lane.groups[row.group].rows())
        jobs = sum((each.run_at, each.seq) < (row.run_at, row.seq) for each in rows)
        return min(len(groups), WAIT_COUNTED), min(jobs, WAIT_COUNTED)

    def first_of_group(self, task: str, group: str) -> Row | None:
        return self._turns.first_of(task, group)

    def _lane(self, row: Row) -> Heap:
        lanes = self._lanes.setdefault(row.queue, {})
        kinds = lanes.get((row.task, row.priority))
        if kinds is None:
            kinds = lanes[row.task, row.priority] = (
                Heap(row.task, waited=False),
                Heap(row.task, waited=True),
                Heap(row.task, waited=True),
            )
        return kinds[row.lane]

    def levels(
        self, queue: str, open_to: Callable[[str], bool], now: int, weights: Weights, rules: GroupRules | None
    ) -> list[list[Heap] | HeapLevel]:
        """The lanes of a queue that hold jobs of tasks that may run, by priority, highest first."""
        by_priority: dict[int, list[Heap]] = {}
        for (task, priority), kinds in self._lanes.get(queue, {}).items():
            filled = [heap for heap in kinds if heap.size]
            if filled and open_to(task):
                by_priority.setdefault(priority, []).extend(filled)
        grouped: defaultdict[int, list[LaneGroups]] = defaultdict(list)
        for task, priority, lane in self._turns.of(queue):
            if open_to(task):
                lane.wake(now)
                grouped[priority].append(lane)
        return [
            HeapLevel(self._turns, queue, priority, by_priority.get(priority, ()), grouped[priority], weights, rules)
            if priority in grouped
            else by_priority[priority]
            for priority in sorted({*by_priority, *grouped}, reverse=True)
        ]

    def next_due(self, queue: str, open_to: Callable[[str], bool], now: int, rules: GroupRules | None) -> int | None:
        """When a job of a task that may run is due, or a group of one has its turn."""
        dues = [
            heap.head[0]
            for (task, _), kinds in self._lanes.get(queue, {}).items()
            if open_to(task)
            for heap in kinds
            if heap.head
        ]
        for task, _, lane in self._turns.of(queue):
            if open_to(task):
                lane.wake(now)
                due_at = lane.next_due(now, ordered=rules is not None and rules.is_ordered(task))
                dues += [] if due_at is None else [due_at]
        return min(dues, default=None)

    def heaps(self, queue: str, *kinds: Lane) -> Iterator[Heap]:
        """The lanes of these kinds of a queue that hold jobs."""
        for lanes in self._lanes.get(queue, {}).values():
            yield from (lanes[kind] for kind in kinds if lanes[kind].size)
        for _, _, lane in self._turns.of(queue):
            for group in lane.groups.values():
                yield from (group.heaps[kind] for kind in kinds if group.heaps[kind].size)

    def all(self) -> Iterator[tuple[str, str, int, list[Heap]]]:
        """Queue, task, priority and lanes, of those that hold jobs."""
        found: defaultdict[tuple[str, str, int], list[Heap]] = defaultdict(list)
        for queue, lanes in self._lanes.items():
            for (task, priority), kinds in lanes.items():
                found[queue, task, priority] += [heap for heap in kinds if heap.size]
        for queue in self._turns.queues():
            for task, priority, lane in self._turns.of(queue):
                found[queue, task, priority] += [heap for group in lane.groups.values() for heap in group.heaps if heap.size]
        return ((*name, heaps) for name, heaps in found.items() if heaps)

    def set_back(self, now: int, before: int) -> None:
        """The clock was set back."""
        for lanes in self._lanes.values():
            for kinds in lanes.values():
                for heap in kinds:
                    heap.set_back(now, before)
        self._turns.set_back(now, before)

    def forget_empty(self) -> None:
        """Let go of lanes that hold nothing, so that names that come and go cost nothing for ever."""
        for queue in list(self._lanes):
            lanes = self._lanes[queue]
            for name in [name for name, kinds in lanes.items() if not any(heap.size for heap in kinds)]:
                del lanes[name]
            if not lanes:
                del self._lanes[queue]
        self._turns.forget_empty()
