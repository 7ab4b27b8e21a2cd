"""The PostgreSQL store: for when one machine is not enough. Many machines may share a schema; durable before it answers."""

from __future__ import annotations

import asyncio

from hawser.clock import Clock, SystemClock
from hawser.stores.postgres.address import parse
from hawser.stores.postgres.migrate import schema_in
from hawser.stores.postgres.store import PostgresStore
from hawser.stores.schema import Schema

__all__ = ["PostgresStore", "from_url", "schema"]


def schema(url: str) -> Schema:
    """What stands in the database that the URL names."""

    async def look() -> Schema:
        store = PostgresStore(parse(url))
        try:
            return await store.server.line("read").do(lambda con: schema_in(con, store.address.schema), writing=False)
        finally:
            await store.close()

    return asyncio.run(look())


def from_url(url: str, clock: Clock) -> PostgresStore:
    """The store of `postgresql://user@host/database`, with `?schema=NAME` and the other settings of `address.py`.

    The time is the server's, unless a test gives another clock.
    """
    return PostgresStore(parse(url), clock=None if isinstance(clock, SystemClock) else clock)
