"""The waiting jobs of one group of the memory store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hawser.stores.memory.heap import Heap
from hawser.stores.order import Entry, Lane

if TYPE_CHECKING:
    from hawser.stores.memory.row import Row


class GroupHeaps:
    """The waiting jobs of one group in one lane."""

    __slots__ = ("aside", "heaps", "idle", "number", "served", "shut")

    def __init__(self, task: str) -> None:
        self.heaps = tuple(Heap(task, waited=lane is not Lane.FRESH) for lane in Lane)
        self.number: int | None = None
        """Its turn; None while nothing of it is due, or it is shut."""
        self.served = 0
        self.shut = False
        """A limit, or a job that goes before all others, keeps it back."""
        self.idle = False
        """It has neither a turn nor a time at which it gets one."""
        self.aside: list[Row] = []
        """Jobs that the claim of the moment leaves to others."""

    @property
    def size(self) -> int:
        return sum(heap.size for heap in self.heaps) + len(self.aside)

    def due_at(self) -> int | None:
        """When its next job is due."""
        heads = [heap.head[0] for heap in self.heaps if heap.head]
        return min([*heads, *(row.run_at for row in self.aside)], default=None)

    def rows(self) -> Iterator[Row]:
        """Its waiting jobs."""
        for heap in self.heaps:
            yield from heap.rows()

    def first(self) -> Row | None:
        """The job that is due for longest."""
        heads = [heap.head[3] for heap in self.heaps if heap.head]
        return min([*heads, *self.aside], key=lambda row: (row.run_at, row.seq), default=None)


class OnlyJob:
    """The one job of an ordered group that may start, in the shape that `pick` takes from."""

    __slots__ = ("_heap", "head", "task", "waited")

    def __init__(self, heap: Heap, row: Row) -> None:
        self._heap = heap
        self.task = heap.task
        self.waited = heap.waited
        self.head: Entry | None = (row.run_at, row.seq, row.ticket, row)

    @property
    def begin(self) -> Entry | None:
        return self.head

    def pop(self) -> None:
        assert self.head is not None
        self._heap.leave(self.head[3])
        self.head = None
