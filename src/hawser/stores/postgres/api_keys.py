"""API keys, kept by their hashes."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
import msgspec

from hawser.clock import to_us
from hawser.store import Actor
from hawser.store.api_key import ApiKey, KeyRecord
from hawser.stores.postgres.server import Server
from hawser.stores.record import about_of, key_of


class ApiKeys:
    """Keys of the API. Each change is one transaction with its audit record."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def put(self, key: ApiKey, lasts: float | None, actor: Actor) -> None:
        about = msgspec.json.encode(key).decode()
        row = (key.id, about, None if lasts is None else to_us(lasts))
        await self._noted("put_api_key", row, "create_key", key.id, actor)

    async def revoke(self, id: str, actor: Actor) -> bool:
        return await self._noted("revoke_api_key", (id,), "revoke_key", id, actor)

    async def _noted(self, name: str, row: Sequence[object], action: str, id: str, actor: Actor) -> bool:
        """Write, and note it when that changed something."""
        sql, given = self._server.sql, self._server.given

        async def work(con: asyncpg.Connection) -> bool:
            changed = await con.fetchval(sql[name], given, *row) is not None
            if changed:
                await con.execute(sql["note"], given, actor.by, action, f"key:{id}", 0, actor.reason, about_of(actor))
            return changed

        return await self._server.connection("operate").together(work)

    async def use(self, ids: Sequence[str]) -> None:
        await self._server.connection("operate").rows(self._server.sql["use_api_keys"], self._server.given, list(ids))

    async def records(self) -> list[KeyRecord]:
        rows = await self._server.connection("read").rows(self._server.sql["api_keys"], self._server.given, writing=False)
        return [key_of(*row) for row in rows]
