"""Limits per group: what they leave of a group, and which job of an ordered group goes first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from hawser.job import Claimed
from hawser.stores.group_limits import GroupHead
from hawser.stores.limits import Bound, Room, Window
from hawser.stores.order import GroupRooms
from hawser.stores.sqlite.tx import Tx


class FirstJob(NamedTuple):
    """The job that goes before all others of an ordered group. Same order as in `live_head` and `first_of_group`."""

    seq: int
    id: str
    queue: str
    priority: int
    run_at: int
    lane: int
    running: int
    started: int

    @property
    def head(self) -> GroupHead:
        return GroupHead(self.id, self.queue, self.priority, self.run_at, bool(self.running), bool(self.started))


def group_bounds_of(rows: Iterable[Sequence[Any]]) -> dict[str, Bound]:
    """The limits per group among what `controls` says, by task."""
    found = {}
    for _, name, what, running, starts, width, _, _, per_group, ordered in rows:
        if what == 0 and per_group:
            found[name] = Bound(running, starts, width, per_group=True, ordered=bool(ordered))
    return found


class GroupRules:
    """The limits per group as one claim asks for them."""

    def __init__(self, tx: Tx, bounds: Mapping[str, Bound]) -> None:
        self._tx = tx
        self._bounds = bounds
        self._rooms: GroupRooms = {}

    def admit(self, tasks: Iterable[str], group: str) -> GroupRooms:
        """What is left to this claim, in any queue that it takes jobs of the group."""
        for task in tasks:
            if (task, group) not in self._rooms and (room := self.room(task, group)) is not None:
                self._rooms[task, group] = room.places
        return self._rooms

    def room(self, task: str, group: str) -> Room | None:
        """What is left of a group; None when its task has no limit per group."""
        bound = self._bounds.get(task)
        if bound is None:
            return None
        tx, running = self._tx, 0
        if bound.running is not None:
            running = tx.con.execute(tx.sql["running_in_group"], (task, group)).fetchone()[0]
        return bound.room(running, bound.window(self.window(task, group), tx.now) if bound.starts is not None else Window())

    def window(self, task: str, group: str) -> Window:
        found = self._tx.con.execute(self._tx.sql["group_state"], (task, group)).fetchone()
        return Window() if found is None else window_of(found[1], found[2])

    def first(self, task: str, group: str) -> FirstJob | None:
        """The job that goes before all others of an ordered group: the one that has started and not ended, else the one that is
        due for longest. None where no order is kept."""
        bound = self._bounds.get(task)
        if bound is None or not bound.ordered:
            return None
        con, sql = self._tx.con, self._tx.sql
        known = con.execute(sql["group_state"], (task, group)).fetchone()
        found = con.execute(sql["live_head"], (known[0],)).fetchone() if known is not None and known[0] is not None else None
        found = found or con.execute(sql["first_of_group"], (task, group)).fetchone()
        return None if found is None else FirstJob._make(found)

    def start(self, claimed: Sequence[Claimed]) -> None:
        """These jobs start: rates count them, and ordered groups know their heads by them."""
        tx = self._tx
        counts = Counter((job.task, job.group) for job in claimed if job.group is not None and job.task in self._bounds)
        for (task, group), starts in counts.items():
            bound = self._bounds[task]
            if bound.starts is not None and group is not None:
                slot, slots = bound.window(self.window(task, group), tx.now).with_starts(starts)
                tx.con.execute(tx.sql["note_group_starts"], (task, group, slot, msgspec.json.encode(slots).decode()))
        heads = [(job.task, job.group, job.id) for job in claimed if job.group is not None and self._is_ordered(job.task)]
        if heads:
            tx.con.executemany(tx.sql["note_head"], heads)

    def _is_ordered(self, task: str) -> bool:
        return task in self._bounds and self._bounds[task].ordered


def window_of(slot: int, slots: str | None) -> Window:
    return Window() if slots is None else Window(slot, msgspec.json.decode(slots, type=tuple[int, ...]))


def forget(tx: Tx) -> None:
    """Forget groups of which nothing counts any longer."""
    gone = []
    for task, group, slot, slots, width, live in tx.con.execute(tx.sql["known_groups"]).fetchall():
        if not live and (not width or not window_of(slot, slots).at(tx.now, width).started):
            gone.append((task, group))
    tx.con.executemany(tx.sql["forget_known_group"], gone)
