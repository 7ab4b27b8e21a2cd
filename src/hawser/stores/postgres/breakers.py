"""Breakers: each change is one transaction, and raises the number that tells every claimer."""

from __future__ import annotations

import asyncpg
from msgspec.structs import replace

from hawser.clock import to_us
from hawser.store import Actor
from hawser.store.breakers import BreakerStatus
from hawser.stores.breakers import NO_BREAKER, BreakerChanges, Change, KeptBreaker, decoded, encoded
from hawser.stores.postgres.lane_catalog import LaneCatalog
from hawser.stores.postgres.managed_connection import IMPATIENT
from hawser.stores.postgres.operations import Action
from hawser.stores.postgres.server import Server


class BreakerStatements(BreakerChanges):
    """What code, people and judges do to breakers."""

    def __init__(self, server: Server, catalog: LaneCatalog) -> None:
        self._server = server
        self._catalog = catalog

    async def statuses(self) -> list[BreakerStatus]:
        rows = await self._server.connection("operate").rows(self._server.sql["breakers"], writing=False)
        return [_read(*row).status(task) for task, *row in rows]

    async def _change(self, task: str, change: Change, noted: tuple[str, Actor] | None = None) -> bool:
        sql = self._server.sql

        async def work(con: asyncpg.Connection) -> bool:
            row = await con.fetchrow(sql["breaker"], task)
            now = await con.fetchval(sql["store_time"], self._server.given)
            kept = change(NO_BREAKER if row is None else _read(*row), now)
            if kept is None:
                return False
            if kept.is_needed:
                every = None if kept.rule is None else to_us(kept.rule.probe_every)
                probe = kept.probe_at or None, every, kept.probe_id or None, kept.probe_lease or None
                await con.execute(sql["put_breaker"], task, encoded(kept).decode(), kept.open, *probe)
            else:
                await con.execute(sql["drop_breaker"], task)
            if noted is not None:
                await Action(self._server, self._catalog, con, noted[1]).note(noted[0], f"task:{task}", 0)
            await con.execute(sql["changed"])
            return True

        return await self._server.connection("operate").together(work, begin=IMPATIENT)


def _read(about: str, probe_at: int | None, probe_id: str | None, probe_lease: int | None) -> KeptBreaker:
    return replace(decoded(about), probe_at=probe_at or 0, probe_id=probe_id or "", probe_lease=probe_lease or 0)
