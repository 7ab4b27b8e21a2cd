"""Waits of handlers: the rules that all stores share.

A wait is a step that came to nothing yet. While its kind is `wait`, its event or the end of its time wakes the job: then it is
`woken`. The next run decides what it came to, under its fence, so that what was decided is recorded once.
"""

from __future__ import annotations

from typing import Final

import msgspec

from hawser.job import NewJob
from hawser.outcome import Held, Step, holds
from hawser.store import Settlement

COUNTED_AS: Final = {"event": "came", "timeout": "late"}
"""How it is counted what a wait came to, by its kind."""


def came_to(came: tuple[int, bytes] | None, until: int | None, now: int) -> tuple[str, bytes, int] | None:
    """What a wait for an event comes to, from when the event came and what it says: a kind, a value and when; None: to nothing
    yet."""
    if came is not None and (until is None or came[0] <= until):
        return "event", came[1], came[0]
    if until is not None and until <= now:
        return "timeout", b"null", until
    return None


def is_over(came: tuple[int, bytes] | None, until: int | None, now: int) -> bool:
    """Whether there is nothing to wait for any more."""
    return came is not None or (until is not None and until <= now)


def waited_for(hold: Held) -> bytes:
    """What is kept of a wait meanwhile, as JSON text: the ids of its jobs."""
    return b"null" if hold.event is not None else msgspec.json.encode(hold.jobs)


def followers(settlement: Settlement, step: Step) -> tuple[NewJob, ...]:
    """The jobs that are added with a settlement: not those that its run was to wait for, when its job ends as cancelled."""
    return () if holds(settlement.outcome) and step.hold is None else settlement.then
