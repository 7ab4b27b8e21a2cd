"""The PostgreSQL store: for when one machine is not enough. Many machines may share a schema; durable before it answers."""

from __future__ import annotations

from hawser.clock import Clock, SystemClock
from hawser.stores.postgres.address import parse
from hawser.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore", "from_url"]


def from_url(url: str, clock: Clock) -> PostgresStore:
    """The store of `postgresql://user@host/database`, with `?schema=NAME` and the other settings of `address.py`.

    The time is the server's, unless a test gives another clock.
    """
    return PostgresStore(parse(url), clock=None if isinstance(clock, SystemClock) else clock)
