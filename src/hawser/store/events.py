"""Events: something that happened outside of a job, by its name, and that jobs wait for."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

from hawser.store.steps import MAX_STEP_NAME, MAX_STEP_VALUE

MAX_EVENT_NAME: Final = MAX_STEP_NAME
"""Characters of an event's name."""

MAX_EVENT: Final = MAX_STEP_VALUE
"""Bytes of JSON that an event may say: as many as a step may come to."""

EVENT_KEPT: Final = 7 * 86_400.0
"""Seconds that an event is kept, unless its emitter says otherwise."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event that has come."""

    name: str
    body: bytes
    """What it says, as JSON text."""
    at: datetime
    """When it came."""
    until: datetime
    """How long it is kept at least."""

    @property
    def value(self) -> Any:
        return msgspec.json.decode(self.body)


class Emitted(msgspec.Struct, frozen=True):
    """What became of an event."""

    created: bool
    """False: one of this name came before, and stays."""
    at: datetime
    """When the event that stands came."""
    same: bool
    """Whether the event that stands says what this one does."""


class EventStore(Protocol):
    """What those need who tell jobs of events."""

    async def emit(self, name: str, body: bytes, keep: float) -> Emitted:
        """Say that an event has come, durably before it returns.

        The first event under a name stays; another one changes nothing, and the answer says when the first came, and whether it
        says the same. Every job that is held for it is ready when emit answers. An event is kept for `keep` seconds, and as long
        as a job waits for it that has not gone on yet. Then its name is free. `event_counts` has the first of each name as
        `emitted`, of no queue and no task, and each job that a wait let go on as `woken`.
        """

    async def event(self, name: str) -> Event | None:
        """The event of that name; None when it has not come, or is kept no longer."""

    async def awaiting(self) -> int:
        """How many waits for events last, counted up to `DUE_COUNTED`."""
