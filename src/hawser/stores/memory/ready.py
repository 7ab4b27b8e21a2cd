"""The waiting jobs of the memory store, in lanes that a claim takes from without looking at anything else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from hawser.stores.memory.heap import Heap
from hawser.stores.memory.turns import HeapLevel, LaneGroups, Turns, Weights
from hawser.stores.order import Lane

if TYPE_CHECKING:
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

    def levels(self, queue: str, open_to: Callable[[str], bool], now: int, weights: Weights) -> list[list[Heap] | HeapLevel]:
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
            HeapLevel(self._turns, queue, priority, by_priority.get(priority, ()), grouped[priority], weights)
            if priority in grouped
            else by_priority[priority]
            for priority in sorted({*by_priority, *grouped}, reverse=True)
        ]

    def next_due(self, queue: str, open_to: Callable[[str], bool], now: int) -> int | None:
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
                due_at = lane.next_due(now)
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
