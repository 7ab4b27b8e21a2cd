"""Limits per group, for the stores that decide in Python: where a group of a lane stands when a claim has looked at it.

A group has a turn, waits for the time of its next job, or is shut: a limit keeps it back, or the job that is first in its order.
A shut group costs claims nothing. It is looked at again when its rate opens, and whenever a job of the group leaves: a run that
ends, or a waiting job that is cancelled or moved. What a claim finds then decides; the call that opens the group again does
not need to know whether it may go on.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hawser.stores.limits import Room

GROUPS_COUNTED: Final = 10_000
"""Up to this number groups are counted that a limit keeps back, or that stand before another."""


class GroupPlace(NamedTuple):
    """Where a group of a lane stands: at a turn, or not before a time, or at neither until it is opened again."""

    turn: int | None = None
    due_at: int | None = None
    shut: bool = False
    """No job that comes to it opens it."""


class GroupHead(NamedTuple):
    """The job of an ordered group that goes before all others of the group, in any queue."""

    id: str
    queue: str
    priority: int
    run_at: int
    running: bool
    started: bool
    """It has started, and keeps its group until it comes to its end."""

    def is_in(self, queue: str, priority: int) -> bool:
        return (self.queue, self.priority) == (queue, priority)

    def may_start(self, queue: str, priority: int, now: int) -> bool:
        return not self.running and self.run_at <= now and self.is_in(queue, priority)


def place_of(turn: int, due_at: int, now: int, room: Room | None) -> GroupPlace:
    """Where a group stands whose next job is due then, and of which a limit leaves so much."""
    if room is not None and room.places <= 0:
        return GroupPlace(None, room.opens_at, shut=True)
    return GroupPlace(turn) if due_at <= now else GroupPlace(None, due_at)


def ordered_place(turn: int, now: int, head: GroupHead, *, here: bool) -> GroupPlace:
    """Where an ordered group with room stands. A job that comes to it may go before the first one, unless that has started."""
    if head.running or not here:
        return GroupPlace(None, None, shut=head.started)
    return GroupPlace(turn) if head.run_at <= now else GroupPlace(None, head.run_at, shut=head.started)
