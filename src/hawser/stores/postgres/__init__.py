"""The PostgreSQL store: for when one machine is not enough. Many machines may share a schema; durable before it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from hawser.clock import Clock, SystemClock
from hawser.stores.postgres.address import parse
from hawser.stores.postgres.migrate import schema_in
from hawser.stores.postgres.server import SQL
from hawser.stores.postgres.store import PostgresStore
from hawser.stores.schema import Schema

__all__ = ["PostgresStore", "from_url", "missing_rights", "schema", "sizes"]

T = TypeVar("T")


def schema(url: str) -> Schema:
    """What stands in the database that the URL names."""
    return _looked(url, schema_in)


def missing_rights(url: str) -> list[str]:
    """What the role of the URL may not do, in words; nothing is written."""

    async def look(con: asyncpg.Connection, schema: str) -> list[str]:
        return [row["may_not"] for row in await con.fetch(SQL["missing_rights"], schema)]

    return _looked(url, look)


def sizes(url: str) -> dict[str, int]:
    """Bytes of the tables with their indexes, and of the indexes among them."""

    async def look(con: asyncpg.Connection, schema: str) -> dict[str, int]:
        return dict((await con.fetch(SQL["sizes"], schema))[0])

    return _looked(url, look)


def _looked(url: str, look: Callable[[asyncpg.Connection, str], Awaitable[T]]) -> T:
    """What a look at the database finds, on a connection of its own and before there is a schema."""

    async def main() -> T:
        store = PostgresStore(parse(url))
        try:
            return await store.server.connection("read").do(lambda con: look(con, store.address.schema), writing=False)
        finally:
            await store.close()

    return asyncio.run(main())


def from_url(url: str, clock: Clock) -> PostgresStore:
    """The store of `postgresql://user@host/database`, with `?schema=NAME` and the other settings of `address.py`.

    The time is the server's, unless a test gives another clock.
    """
    return PostgresStore(parse(url), clock=None if isinstance(clock, SystemClock) else clock)
