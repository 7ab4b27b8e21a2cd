"""The Redis store, for Redis 7.0 and Valkey 7.2 or newer: one Lua script per method, so each call is one step."""

from __future__ import annotations

import asyncio

from hawser.clock import Clock, SystemClock
from hawser.stores.redis.address import parse
from hawser.stores.redis.server import REDIS_SCHEMA
from hawser.stores.redis.store import RedisStore
from hawser.stores.schema import Schema

__all__ = ["RedisStore", "from_url", "schema"]


def schema(url: str) -> Schema:
    """What stands in the namespace that the URL names."""

    async def look() -> Schema:
        store = RedisStore(parse(url))
        try:
            return Schema(await store.server.version(), REDIS_SCHEMA, ())
        finally:
            await store.close()

    return asyncio.run(look())


def from_url(url: str, clock: Clock) -> RedisStore:
    """The store of `redis://host:6379/0`, with `?namespace=NAME` and the other settings of `address.py`.

    The time is the server's, unless a test gives another clock.
    """
    return RedisStore(parse(url), clock=None if isinstance(clock, SystemClock) else clock)
