"""Jobs that are too late: claims pass over them, and cancel them now and then; so does upkeep."""

from __future__ import annotations

import time
from typing import Final

from hawser.clock import to_us
from hawser.store import EXPIRED
from hawser.stores.postgres.dependencies import DependencyStatements
from hawser.stores.postgres.lane_catalog import LaneCatalog
from hawser.stores.postgres.server import Purpose, Server

AT_ONCE: Final = 1_000
"""Jobs that one statement of a claim cancels."""

ROUNDS: Final = 5
"""Such statements of one claim. It passes over the jobs that are left."""

LOOK_EVERY: Final = to_us(0.5)
"""How often the claims of a process look for such jobs."""

BEHIND: Final = to_us(10.0)
"""How far before the last look the next one begins, while looks at all are slow: a job may have been long in committing."""

SHARE: Final = 20
"""A look at all jobs that expire is made again after so many times its own length, if it was slow. It is slow while a transaction
holds an old snapshot: it reads past all jobs that are gone since and cannot be vacuumed."""

SLOW: Final = LOOK_EVERY / 1_000_000 / SHARE
"""Seconds in the server. A shorter look takes less than that share of the time anyway."""


class ExpiryStatements:
    """What a process does for jobs that expire."""

    def __init__(self, server: Server, directory: LaneCatalog, dependencies: DependencyStatements) -> None:
        self._server = server
        self._directory = directory
        self._dependencies = dependencies
        self._looked_at = 0
        self._done_to = 0
        self._whole_again = 0.0

    async def before_claim(self, now: int) -> None:
        """Cancel some of those that are past their expiry, if it is time for a look."""
        if self._directory.view.expiries and not 0 <= now - self._looked_at < LOOK_EVERY:
            rounds = 1
            while await self.expire(AT_ONCE, "claim") == AT_ONCE and rounds < ROUNDS:
                rounds += 1
            self._looked_at = now

    async def expire(self, limit: int, purpose: Purpose = "operate") -> int:
        """On the connection of those who call: a claim must not wait for upkeep."""
        line = self._server.line(purpose)
        whole = time.monotonic() >= self._whole_again
        asked = limit, EXPIRED, 0 if whole else self._done_to
        [(now, count, told, took)] = await line.rows(self._server.sql["expire"], self._server.given, *asked)
        if whole and took > SLOW:
            self._whole_again = time.monotonic() + SHARE * took
        if count < limit:
            self._done_to = now - BEHIND
        if told:
            await self._dependencies.go_on(purpose)
        return int(count)
