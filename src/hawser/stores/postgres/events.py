"""Events, in the PostgreSQL store."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from hawser.clock import at, to_us
from hawser.store import DUE_COUNTED, Emitted, Event
from hawser.stores.postgres.dependencies import DependencyStatements
from hawser.stores.postgres.enqueue import BY_TURNS
from hawser.stores.postgres.errors import Locked
from hawser.stores.postgres.server import Server


class EventStatements:
    """The events that one process emits."""

    def __init__(self, server: Server, dependencies: DependencyStatements) -> None:
        self._server = server
        self._dependencies = dependencies

    async def emit(self, name: str, body: bytes, keep: float) -> Emitted:
        """Another transaction may be about to emit the same event: then this one waits by turns, and others go between."""
        connection, end = self._server.connection("events"), time.monotonic() + self._server.address.timeout
        await self._dependencies.use(connection)
        while True:
            try:
                rows = await connection.rows(self._server.sql["emit"], *self.arguments(name, body, keep), BY_TURNS)
                break
            except Locked:
                if time.monotonic() >= end:
                    raise
                await asyncio.sleep(BY_TURNS / 1_000)
        # Also when it came before: its emitter may have died before all were woken.
        await self._dependencies.wake_waiting("events")
        return emitted_of(rows)

    def arguments(self, name: str, body: bytes, keep: float) -> tuple[Any, ...]:
        """An event as the arguments of `emit`, but for the last."""
        return self._server.given, name, body, to_us(keep)

    async def get(self, name: str) -> Event | None:
        rows = await self._server.connection("read").rows(self._server.sql["event"], name, writing=False)
        if not rows:
            return None
        [(name, body, came_at, until)] = rows
        return Event(name=name, body=bytes(body), at=at(came_at), until=at(until))

    async def awaiting(self) -> int:
        return int(await self._server.connection("read").value(self._server.sql["awaiting"], DUE_COUNTED, writing=False))


def emitted_of(rows: Any) -> Emitted:
    """The answer of `emit`."""
    [(created, came_at, same)] = rows
    return Emitted(created=created, at=at(came_at), same=same)
