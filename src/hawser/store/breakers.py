"""The part of the seam that breakers are: what code declares, what was counted, what a person decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

import msgspec

from hawser.breaker import Breaker
from hawser.store.api_key import Actor
from hawser.store.jobs import LeaseRef
from hawser.store.rollup import EventCount

FAILURES: Final = ("failed", "lost")
COUNTED_ENDS: Final = ("done", *FAILURES)
"""How attempts end that a breaker counts, as events."""


class AttemptCount(msgspec.Struct, frozen=True, gc=False):
    """Attempts of a task in one minute that have ended: all of them, and those that failed or were lost."""

    minute: int = 0
    """Since 1970."""
    ended: int = 0
    failed: int = 0


NOTHING_COUNTED: Final = AttemptCount()


def counted_in(counts: Iterable[EventCount], task: str, minute: int) -> AttemptCount:
    """The attempts of a task that have ended in one minute. A run that was lost is one that failed."""
    events = [(each.event, each.count) for each in counts if each.task == task and each.minute == minute]
    failed = sum(count for event, count in events if event in FAILURES)
    return AttemptCount(minute, failed + sum(count for event, count in events if event == "done"), failed)


class BreakerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The breaker of a task."""

    task: str
    rule: Breaker | None = None
    """None when code declares none: a person opened it."""
    open: bool = False
    since: datetime
    """When it opened or closed last, or was declared."""
    by: str = "breaker"
    """Who did that: `breaker`, `code`, or a person."""
    by_hand: bool = False
    """Whether a person opened it."""
    revision: int = 0
    """Rises with every change but those of probes."""
    failed: int = 0
    attempts: int = 0
    """What it opened on."""
    probe_at: datetime | None = None
    """When the next probe may start; None when it is closed, or a person opened it."""
    probe: LeaseRef | None = None
    """The last probe; None when its job was dead or cancelled, and is gone."""
    counted: AttemptCount = NOTHING_COUNTED
    """What had been counted in the minute in which it closed: it does not count again."""


class BreakerVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from what was counted, or from a probe."""

    task: str
    revision: int
    """Of the breaker that was looked at."""
    open: bool
    failed: int = 0
    attempts: int = 0
    counted: AttemptCount = NOTHING_COUNTED
    """Of one that closes it: what was counted so far in this minute."""


class BreakerStore(Protocol):
    """Breakers of tasks. Jobs of a task whose breaker is open are not given out, and lose no attempt."""

    async def declare_breakers(self, breakers: Mapping[str, Breaker | None]) -> None:
        """Note the breakers that a worker's code declares of its tasks, in place of what was declared of them before; None
        declares none, and closes one that no person opened."""

    async def breakers(self) -> list[BreakerStatus]:
        """The breakers that are declared or open, by task.

        The last probe is named until its job is removed without having been done: one that is named and gone was done.
        """

    async def judge(self, verdicts: Sequence[BreakerVerdict]) -> list[bool]:
        """Open or close breakers, each only if it is as it was when it was looked at; of many who judge at once one does.

        A breaker that a person opened is closed by a person only.
        """

    async def open_breaker(self, task: str, actor: Actor) -> bool:
        """Open the breaker of a task by hand: none of its jobs is given out until a person closes it; False when a person had
        opened it already."""

    async def close_breaker(self, task: str, actor: Actor, counted: AttemptCount = NOTHING_COUNTED) -> bool:
        """Close the breaker of a task by hand, and keep what was counted in this minute so far; False when it was closed."""
