"""When upkeep has something to do next: one look answers for schedules, expiries and runs, so that an idle worker asks rarely."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, NamedTuple

from hawser.clock import to_us
from hawser.stores.redis.server import Server
from hawser.stores.redis.wake import Wake

OUTLOOK_KEPT_S: Final = 10.0
"""Seconds between two looks; a sign of life of a worker is one, too. What changes in between is heard of: jobs that come,
schedules that are put, the first run."""

Upkeep = Literal["schedules", "expiry", "runs"]
_ORDER: Final[tuple[Upkeep, ...]] = ("schedules", "expiry", "runs")


class _Seen(NamedTuple):
    """What a look found."""

    changes: int
    """What had been heard before it."""
    at: float
    now: int
    due: dict[Upkeep, float]
    """Monotonic times."""


class Outlook:
    """The knowledge of one process. Without a subscription, or with a test's clock, nothing is known."""

    def __init__(self, server: Server, wake: Wake) -> None:
        self._server = server
        self._wake = wake
        self._looked = -math.inf
        self._seen: _Seen | None = None

    async def rest(self, upkeep: Upkeep) -> Rest | None:
        """For how long there is nothing to do; None when that is not known, or there may be something."""
        if self._server.has_own_time or not self._wake.listens():
            return None
        if time.monotonic() - self._looked >= OUTLOOK_KEPT_S:
            await self.look(lambda: self._server.look("outlook"))
        seen = self._seen
        if seen is None or seen.changes != self._wake.changes:
            return None
        here = time.monotonic()
        left = seen.due[upkeep] - here
        return Rest(seen.now + to_us(here - seen.at), left) if left > 0 else None

    async def look(self, asked: Callable[[], Awaitable[Sequence[bytes]]]) -> None:
        """Learn what a script says that returns the times of upkeep."""
        self._looked = time.monotonic()
        self._seen, changes = None, self._wake.changes
        now, *left = map(int, await asked())
        at = time.monotonic()
        due = {name: math.inf if us < 0 else at + us / 1_000_000 for name, us in zip(_ORDER, left, strict=True)}
        self._seen = _Seen(changes, at, now, due)


class Rest(NamedTuple):
    """A time without anything to do."""

    now: int
    """The store's time."""
    left: float
    """Seconds; infinite when nothing is known to come."""
