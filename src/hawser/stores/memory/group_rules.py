"""What limits per group say of a group of the memory store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from hawser.job import State
from hawser.stores.group_limits import GroupHead
from hawser.stores.limits import Room
from hawser.stores.memory.limits import Limits
from hawser.stores.memory.row import Row
from hawser.stores.order import GroupRooms


class GroupRules:
    """The limits per group as one claim asks for them."""

    def __init__(
        self,
        limits: Limits,
        running: Callable[[str, str], int],
        first: Callable[[str, str], Row | None],
        rows: Mapping[str, Row],
        now: int,
    ) -> None:
        self._limits = limits
        self._running = running
        self._first = first
        self._rows = rows
        self._now = now
        self.rooms: GroupRooms = {}

    def admit(self, tasks: Iterable[str], group: str) -> GroupRooms:
        """What is left to this claim, in any queue that it takes jobs of the group."""
        for task in tasks:
            if (task, group) not in self.rooms and (room := self.room(task, group)) is not None:
                self.rooms[task, group] = room.places
        return self.rooms

    def room(self, task: str, group: str) -> Room | None:
        """What is left of a group; None when its task has no limit per group."""
        return self._limits.room_of_group(task, group, self._running(task, group), self._now)

    def told(self, task: str, group: str) -> tuple[int, int, datetime | None, str | None, bool]:
        """Runs, starts that count, when the rate opens, and the job that goes first."""
        running, first = self._running(task, group), self.first(task, group)
        told = self._limits.per_group[task].told(running, self._limits.window_of_group(task, group), self._now)
        return running, *told, *((None, False) if first is None else (first.new.id, first.state is State.RUNNING))

    def is_ordered(self, task: str) -> bool:
        bound = self._limits.per_group.get(task)
        return bound is not None and bound.ordered

    def first(self, task: str, group: str) -> Row | None:
        """The job that goes before all others of an ordered group: the one that has started and not ended, else the one that is
        due for longest. None where no order is kept."""
        if not self.is_ordered(task):
            return None
        kept = self._kept(task, group)
        return kept if kept is not None else self._first(task, group)

    def _kept(self, task: str, group: str) -> Row | None:
        row = self._rows.get(self._limits.heads.get((task, group), ""))
        return None if row is None or row.state.finished else row

    def head(self, row: Row) -> GroupHead:
        """The job as others see it that wait behind it."""
        assert row.group is not None
        started = self._kept(row.task, row.group) is row
        return GroupHead(row.new.id, row.queue, row.priority, row.run_at, row.state is State.RUNNING, started)
