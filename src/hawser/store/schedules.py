"""The scheduler's part of the seam: what a store says of schedules that are due, and how they are put forward."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from hawser.schedule.declaration import Declaration
from hawser.schedule.schedule import Advance, Schedule
from hawser.store.api_key import Actor

DECLARED_FOR: Final = 60.0
"""Seconds after which a declaration that no worker has repeated is forgotten."""


class DueSchedules(msgspec.Struct, frozen=True):
    """The store's time, in microseconds; what is due by it; and in how many seconds the next one is."""

    now: int
    schedules: list[Schedule]
    next_in: float | None
    """0 when there are more than were asked for; None when nothing is to come."""


class Advanced(StrEnum):
    """What became of an advance."""

    DONE = "done"
    SKIPPED = "skipped"
    """The schedule's last job is still live: no job was added."""
    REPEATED = "repeated"
    """It had been made before; nothing changed."""
    STALE = "stale"
    """The schedule has changed since, or is gone; nothing changed."""


class ScheduleStore(Protocol):
    """What a scheduler needs. Which ticks there are is decided by `hawser.schedule`; here it is written, once."""

    async def schedules(self, names: Sequence[str] | None = None, after: str = "", limit: int | None = None) -> list[Schedule]:
        """The schedules with these names, or all, in order of their names; an unknown name is passed over.

        No more than `limit` of them, from behind the name `after`.
        """

    async def due_schedules(self, limit: int) -> DueSchedules:
        """The time of the store, and up to `limit` schedules that are due by it, those due for longest first.

        It says in how many seconds the next one is due. Its cost does not grow with the number of schedules.
        """

    async def next_schedules(self, limit: int) -> list[Schedule]:
        """Up to `limit` schedules that a scheduler has to look at some time, the earliest first."""

    async def fire(self, advances: Sequence[Advance]) -> list[Advanced]:
        """Put schedules forward and add the jobs of their ticks, each schedule together with its jobs or not at all.

        An advance that was decided on another revision than the current one changes nothing. One that was made before
        changes nothing and says so. The jobs are added as by enqueue, also beyond the depth limit. A job of a schedule counts
        as one that had to wait for its time, and is due when it is added if that has passed. A tick whose job the store
        still has makes no second one. While the job in `unless_live` is ready or running, `otherwise` is written and no job
        is added.
        """

    async def put_schedule(self, advance: Advance, action: str, actor: Actor) -> Advanced:
        """As `fire`, for a person who creates, edits, pauses or otherwise changes one schedule.

        It leaves an audit record that names the action.
        """

    async def delete_schedule(self, name: str, actor: Actor) -> bool:
        """Remove a schedule; False when there is none. Its jobs stay."""

    async def declare(self, declaration: Declaration) -> list[Declaration]:
        """Note that a living worker makes this declaration, and give all that living workers make, oldest first.

        One that no worker has made for `DECLARED_FOR` seconds is forgotten; made again, it is new. A declaration that is
        repeated in time keeps its place. After the store's clock was set back, none lasts longer than it would have.
        """
