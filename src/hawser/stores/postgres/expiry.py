"""Jobs that are too late: claims pass over them, and cancel them now and then; so does upkeep."""

from __future__ import annotations

import time
from typing import Final

from hawser.clock import to_us
from hawser.store import EXPIRED
from hawser.stores.postgres.dependencies import DependencyStatements
from hawser.stores.postgres.lane_catalog import LaneCatalog
from hawser.stores.postgres.server import Purpose, Server

EXPIRED_PER_STATEMENT: Final = 1_000
"""Jobs that one statement of a claim cancels."""

STATEMENTS_PER_CLAIM: Final = 5
"""Such statements of one claim. It passes over the jobs that are left."""

EXPIRY_LOOK_EVERY_US: Final = to_us(0.5)
"""How often the claims of a process look for such jobs."""

EXPIRY_LOOK_BACK_US: Final = to_us(10.0)
"""How far before the last look the next one begins, while looks at all are slow: a job may have been long in committing."""

LOOK_REST_FACTOR: Final = 20
"""A look at all jobs that expire is made again after so many times its own length, if it was slow. It is slow while a transaction
holds an old snapshot: it reads past all jobs that are gone since and cannot be vacuumed."""

SLOW_LOOK_S: Final = EXPIRY_LOOK_EVERY_US / 1_000_000 / LOOK_REST_FACTOR
"""Seconds in the server. A shorter look takes less than that share of the time anyway."""


class ExpiryStatements:
    """What a process does for jobs that expire."""

    def __init__(self, server: Server, catalog: LaneCatalog, dependencies: DependencyStatements) -> None:
        self._server = server
        self._catalog = catalog
        self._dependencies = dependencies
        self._looked_at = 0
        self._done_to = 0
        self._whole_again = 0.0

    async def before_claim(self, now: int) -> None:
        """Cancel some of those that are past their expiry, if it is time for a look."""
        if self._catalog.view.expiries and not 0 <= now - self._looked_at < EXPIRY_LOOK_EVERY_US:
            rounds = 1
            while await self.expire(EXPIRED_PER_STATEMENT, "claim") == EXPIRED_PER_STATEMENT and rounds < STATEMENTS_PER_CLAIM:
                rounds += 1
            self._looked_at = now

    async def expire(self, limit: int, purpose: Purpose = "operate") -> int:
        """On the connection of those who call: a claim must not wait for upkeep."""
        connection = self._server.connection(purpose)
        whole = time.monotonic() >= self._whole_again
        asked = limit, EXPIRED, 0 if whole else self._done_to
        [(now, count, told, took)] = await connection.rows(self._server.sql["expire"], self._server.given, *asked)
        if whole and took > SLOW_LOOK_S:
            self._whole_again = time.monotonic() + LOOK_REST_FACTOR * took
        if count < limit:
            self._done_to = now - EXPIRY_LOOK_BACK_US
        if told:
            await self._dependencies.go_on(purpose)
        return int(count)
