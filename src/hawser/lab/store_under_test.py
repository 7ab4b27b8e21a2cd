"""Where an experiment keeps its jobs: a new file, a new schema or namespace on a server, or a server of its own."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from hawser.errors import ConfigError
from hawser.lab.cluster import Cluster
from hawser.lab.redis_server import RedisServer
from hawser.store import Store
from hawser.stores import make_store
from hawser.stores.url import one_of, without_password

if TYPE_CHECKING:
    import asyncpg

    from hawser.stores.postgres.address import Address

Kind = Literal["sqlite", "postgres", "redis"]

WARM: Final = 2_048
"""Megabytes of its log that a server of our own has before it is measured."""

SERVER_SETTINGS: Final = {
    "max_connections": 200,
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "min_wal_size": f"{WARM}MB",
}
"""Of a server of our own. All that makes it durable stays as PostgreSQL has it."""

PRIMARY_WITHIN_S: Final = 60.0
"""Seconds in which a server that takes writes must be there again."""

NAMED_BY: Final = ("schema", "namespace", "lanes", "done_most")
"""Settings of a URL that say which store of a server it is, and how that is kept."""

KEPT: Final = {"done_most": 10**9}
"""Of a store in Redis: an experiment looks at every job in the end."""


class StoreChoice(NamedTuple):
    """What `--store` names."""

    kind: Kind
    own: bool
    """A server, or a file, that is the experiment's own to do as it likes with."""
    lanes: str = "lists"
    """Of Redis."""

    @property
    def label(self) -> str:
        """One word for it, for folders and results."""
        return self.kind if self.lanes == "lists" else f"{self.kind}-{self.lanes}"

    @property
    def words(self) -> str:
        """How to name it in a command; a server that is not our own is not told."""
        if not self.own:
            return {"postgres": "postgresql", "redis": "redis"}[self.kind] + "://…"
        return self.kind if self.lanes == "lists" else f"'{self.kind}?lanes={self.lanes}'"


class Base(NamedTuple):
    """An empty store, open."""

    url: str
    store: Store


class StorePlace:
    """Makes empty stores of one kind."""

    def __init__(self, kind: Kind, address: str, server: Cluster | RedisServer | None = None, *, lanes: str = "lists") -> None:
        self.kind = kind
        self.lanes = lanes
        self.server = server
        """Where it is our own to do as we like with."""
        self._address = address
        self._made = 0

    @property
    def url(self) -> str:
        """Of a store on the server that no experiment has made."""
        return with_options(self._address, KEPT) if self.kind == "redis" else self._address

    @property
    def cluster(self) -> Cluster | None:
        """The server of our own, if it is PostgreSQL."""
        return self.server if isinstance(self.server, Cluster) else None

    @property
    def redis(self) -> RedisServer | None:
        """The server of our own, if it is Redis."""
        return self.server if isinstance(self.server, RedisServer) else None

    @asynccontextmanager
    async def fresh(self, **options: object) -> AsyncIterator[Base]:
        """A new store, gone in the end; `options` go into its URL."""
        self._made += 1
        name = f"lab_{secrets.token_hex(6)}_{self._made}"
        url = self._address
        if self.kind == "sqlite":
            url = f"sqlite:///{self._address}/{name}.db"
        elif self.kind == "postgres":
            options = {"schema": name, **options}
        else:
            options = {"namespace": name, **KEPT, **options}
        url = with_options(url, options)
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
        if self.kind == "redis":
            info = (await ask_redis(self._address, "INFO", "server")).decode()
            found = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
            return f"valkey {found['valkey_version']}" if "valkey_version" in found else str(found["redis_version"])
        async with connected(self._address) as con:
            return str(await con.fetchval("show server_version"))

    async def _remove(self, name: str) -> None:
        if self.kind == "postgres":
            async with connected(self._address) as con:
                await con.execute(f"drop schema if exists {name} cascade")
        elif self.kind == "redis":
            await _forget(self._address, name)
        else:
            await asyncio.to_thread(_unlink, Path(self._address), f"{name}.db*")


def with_options(url: str, options: Mapping[str, object]) -> str:
    """The URL with more settings."""
    for option, value in options.items():
        url += f"{'&' if '?' in url else '?'}{option}={value}"
    return url


def same_store(base: str, server: str, **options: object) -> str:
    """The store of that URL by another way to its server."""
    settings = dict(parse_qsl(urlsplit(base).query))
    named: dict[str, object] = {name: settings[name] for name in NAMED_BY if name in settings}
    return with_options(server, {**named, **options})


def _unlink(folder: Path, pattern: str) -> None:
    for path in folder.glob(pattern):
        path.unlink()


async def ask_redis(url: str, *command: str | bytes | int) -> Any:
    """What the server of a store answers. The driver is an extra: without it the rest of the lab works."""
    from hawser.stores.redis.address import parse  # noqa: PLC0415
    from hawser.stores.redis.dial import Dialer  # noqa: PLC0415
    from hawser.stores.redis.errors import NoPrimary  # noqa: PLC0415

    end = asyncio.get_running_loop().time() + PRIMARY_WITHIN_S
    while True:
        try:
            con = await Dialer(parse(url)).dial()
            break
        except NoPrimary:  # one is being promoted
            if asyncio.get_running_loop().time() > end:
                raise
            await asyncio.sleep(0.2)
    try:
        await con.send_command(*command)
        return await con.read_response()
    finally:
        await con.disconnect(nowait=True)


async def _forget(url: str, namespace: str) -> None:
    """Remove all keys of a namespace."""
    cursor: bytes | int = 0
    while True:
        cursor, keys = await ask_redis(url, "SCAN", cursor, "MATCH", f"{{{namespace}}}:*", "COUNT", 10_000)
        for start in range(0, len(keys), 1_000):
            await ask_redis(url, "UNLINK", *keys[start : start + 1_000])
        if not int(cursor):
            return


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


def chosen(store: str | None) -> StoreChoice:
    """What `--store` names; nothing is opened."""
    if store is None or store == "sqlite":
        return StoreChoice("sqlite", own=True)
    if store == "postgres" or store.startswith(("postgresql://", "postgres://")):
        return StoreChoice("postgres", own=store == "postgres")
    name, _, query = store.partition("?")
    if name == "redis" or name.startswith(("redis://", "rediss://", "unix://")):
        settings = dict(pair.partition("=")[::2] for pair in query.split("&") if pair)
        if name == "redis" and settings.keys() - {"lanes"}:
            raise ConfigError("--store: a server of our own takes no setting but lanes; use redis or 'redis?lanes=streams'")
        return StoreChoice("redis", own=name == "redis", lanes=one_of("lanes", settings, "lists", "streams"))
    raise ConfigError(
        f"--store: {without_password(store)!r} cannot be experimented on; use sqlite, postgres or redis (servers of our own), "
        "'redis?lanes=streams', postgresql://… or redis://…"
    )


OWN: Final = ("sqlite", "postgres", "redis")
"""Words of `--store` for a file or a server of our own."""


@contextmanager
def lent(store: str | None, folder: Path, name: str) -> Iterator[str]:
    """The URL that `--store` names for a command that needs one store: a new file, a store on a new server, or the URL itself."""
    if store is None or store == "sqlite":
        yield f"sqlite:///{folder}/{name}.db"
    elif store.partition("?")[0] not in OWN:
        yield store
    else:
        with opened(store, folder) as place:
            yield place.url


@contextmanager
def opened(store: str | None, folder: Path, *, warm: bool = False) -> Iterator[StorePlace]:
    """The place that `--store` names: `sqlite` (a new file), `postgres` or `redis` (servers of our own), or the URL of a server.

    A server of our own that is to be measured had better be warm.
    """
    choice = chosen(store)
    if choice.kind == "sqlite":
        yield StorePlace("sqlite", str(folder))
    elif not choice.own:
        assert store is not None
        yield StorePlace(choice.kind, store)
    elif choice.kind == "redis":
        with RedisServer() as server:
            yield StorePlace("redis", f"{server.url}?lanes={choice.lanes}", server, lanes=choice.lanes)
    else:
        with Cluster(settings=SERVER_SETTINGS) as cluster:
            if warm:
                cluster.warm(WARM)
            yield StorePlace("postgres", cluster.url, cluster)
