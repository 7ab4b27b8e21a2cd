"""Where an experiment keeps its jobs: a new file, a new schema on a server, or a server of its own."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from hawser.errors import ConfigError
from hawser.lab.cluster import Cluster
from hawser.store import Store
from hawser.stores import make_store
from hawser.stores.url import without_password

if TYPE_CHECKING:
    import asyncpg

    from hawser.stores.postgres.address import Address

Kind = Literal["sqlite", "postgres"]

WARM: Final = 2_048
"""Megabytes of its log that a server of our own has before it is measured."""

SERVER_SETTINGS: Final = {
    "max_connections": 200,
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "min_wal_size": f"{WARM}MB",
}
"""Of a server of our own. All that makes it durable stays as PostgreSQL has it."""


class Base(NamedTuple):
    """An empty store, open."""

    url: str
    store: Store


class StorePlace:
    """Makes empty stores of one kind."""

    def __init__(self, kind: Kind, address: str, cluster: Cluster | None = None) -> None:
        self.kind = kind
        self.cluster = cluster
        """The server, where it is our own to do as we like with."""
        self._address = address
        self._made = 0

    @asynccontextmanager
    async def fresh(self, **options: object) -> AsyncIterator[Base]:
        """A new store, gone in the end; `options` go into its URL."""
        self._made += 1
        name = f"lab_{secrets.token_hex(6)}_{self._made}"
        if self.kind == "sqlite":
            url = f"sqlite:///{self._address}/{name}.db"
        else:
            url, options = self._address, {"schema": name, **options}
        for option, value in options.items():
            url += f"{'&' if '?' in url else '?'}{option}={value}"
        store = make_store(url)
        await store.open()
        try:
            yield Base(url, store)
        finally:
            await store.close()
            await self._remove(name)

    async def version(self) -> str:
        """Of SQLite, or of the server."""
        if self.kind == "sqlite":
            return sqlite3.sqlite_version
        async with connected(self._address) as con:
            return str(await con.fetchval("show server_version"))

    async def _remove(self, name: str) -> None:
        if self.kind == "postgres":
            async with connected(self._address) as con:
                await con.execute(f"drop schema if exists {name} cascade")
        else:
            await asyncio.to_thread(_unlink, Path(self._address), f"{name}.db*")


def _unlink(folder: Path, pattern: str) -> None:
    for path in folder.glob(pattern):
        path.unlink()


def address(url: str) -> Address:
    """Where a store in PostgreSQL is. The driver is an extra: without it the rest of the lab works."""
    from hawser.stores.postgres.address import parse  # noqa: PLC0415

    return parse(url)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the experiment's own to the server of a store."""
    import asyncpg  # noqa: PLC0415  # an extra

    con = await asyncpg.connect(address(url).dsn)
    try:
        yield con
    finally:
        await con.close()


def kind_of(store: str | None) -> Kind:
    """What `--store` names; nothing is opened."""
    if store is None or store == "sqlite":
        return "sqlite"
    if store == "postgres" or store.startswith(("postgresql://", "postgres://")):
        return "postgres"
    raise ConfigError(
        f"--store: {without_password(store)!r} cannot be experimented on; use sqlite, postgres (a server of our own), or postgresql://…"
    )


@contextmanager
def opened(store: str | None, folder: Path, *, warm: bool = False) -> Iterator[StorePlace]:
    """The place that `--store` names: `sqlite` (a new file), `postgres` (a server of its own), or the URL of a server.

    A server of our own that is to be measured had better be warm.
    """
    if store is None or kind_of(store) == "sqlite":
        yield StorePlace("sqlite", str(folder))
    elif store == "postgres":
        with Cluster(settings=SERVER_SETTINGS) as cluster:
            if warm:
                cluster.warm(WARM)
            yield StorePlace("postgres", cluster.url, cluster)
    else:
        yield StorePlace("postgres", store)
