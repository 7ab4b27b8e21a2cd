"""The server that a URL names: its connections, one per event loop and kind of work, and whether writes are durable there."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from redis.exceptions import ResponseError

from hawser.clock import Clock
from hawser.errors import ConfigError, NotAStore, SchemaTooNew, StoreError, StoreUnavailable
from hawser.stores.redis.address import Address
from hawser.stores.redis.dial import Dialer, fields
from hawser.stores.redis.scripts import Script
from hawser.stores.redis.server_connection import Argument, ServerConnection
from hawser.stores.schema import too_new

SCHEMA: Final = 1

CHECK_EVERY: Final = 60.0
"""Seconds between two looks at the server's settings: they can be changed while it runs."""

SCANNED: Final = 1_000
"""Keys that one look for keys of others passes."""

TYPES: Final = {
    "schema": "string",
    "lanekind": "string",
    "clock": "string",
    "seq": "string",
    "lanes": "hash",
    "lanename": "hash",
    "buckets": "zset",
    "leases": "zset",
    "queues": "set",
    "finished": "set",
    "groups": "set",
    "asked": "set",
    "s": "hash",
    "kw": "zset",
    "kc": "hash",
    "pauses": "hash",
    "limits": "hash",
    "rules": "hash",
    "starts": "hash",
    "taskruns": "hash",
    "breakers": "hash",
    "probes": "hash",
    "weights": "hash",
    "policies": "hash",
    "requests": "hash",
    "requestends": "zset",
    "schedules": "hash",
    "scheduledue": "zset",
    "workers": "hash",
    "apikeys": "hash",
    "audit": "stream",
    "declined": "hash",
    "bulks": "hash",
    "bulkids": "zset",
    "declarations": "hash",
    "epoch": "hash",
    "streams": "set",
}
"""The keys that every store has, and their types: a key of another type under our prefix is another program's."""

MUST_BE: Final = {
    "appendonly": ("yes", "what it accepts is in memory only"),
    "appendfsync": ("always", "it answers before a write is on the disk"),
    "no-appendfsync-on-rewrite": ("no", "while it rewrites its log it does not sync"),
}
"""Settings of a server that keeps what it accepts, and what another value means."""

OLDEST: Final = {"redis": (7, 0), "valkey": (7, 2)}


class Server:
    """The connections of one process."""

    def __init__(self, address: Address, clock: Clock | None, scripts: Mapping[str, Script]) -> None:
        self.address = address
        self.dialer = Dialer(address)
        self._clock = clock
        self._scripts = scripts
        self._guard = threading.Lock()
        self._loops: dict[int, LoopConnections] = {}
        self._checked = time.monotonic()
        self._unsafe: str | None = None

    async def run(self, name: str, *arguments: Argument, line: str = "operate", writing: bool = True) -> Any:
        """Run a script by its name; the time is put in front of the arguments."""
        now: Argument = "" if self._clock is None else self._clock.now()
        given = [now, *arguments]
        return await self.line(line).run(self._scripts[name], self.address.prefix, given, writing=writing)

    async def look(self, name: str, *arguments: Argument, line: str = "read") -> Any:
        """Run a script that writes nothing."""
        return await self.run(name, *arguments, line=line, writing=False)

    def line(self, kind: str) -> ServerConnection:
        """The connection of the running loop for this kind of work."""
        loop = asyncio.get_running_loop()
        with self._guard:
            here = self._loops.get(id(loop))
            if here is None or here.loop is not loop:
                here = self._loops[id(loop)] = LoopConnections(self, loop)
        return here.line(kind)

    async def prepare(self) -> None:
        """Refuse a server that is too old or does not keep what it accepts, then make the store when it is missing."""
        await self.check()
        await self._check_free()
        types: list[Argument] = [word for pair in TYPES.items() for word in pair]
        said = [text.decode() for text in await self.run("open", SCHEMA, self.address.lanes, *types)]
        if said[0] == "type":
            raise NotAStore(
                f"{self.address.where}: the key {self.address.prefix}{said[1]} is a {said[2]}, so the namespace "
                f"{self.address.namespace!r} belongs to another program; choose another with ?namespace=NAME"
            )
        if said[0] == "version":
            if not said[1].isdigit():
                raise NotAStore(f"{self.address.where}: the namespace {self.address.namespace!r} is not a store of Hawser")
            raise SchemaTooNew(too_new(int(said[1]), SCHEMA))
        if said[0] == "lanes":
            raise ConfigError(
                f"store: the namespace {self.address.namespace!r} at {self.address.where} was made with lanes={said[1]}; "
                f"use ?lanes={said[1]} in the URL, or another namespace"
            )

    async def _check_free(self) -> None:
        """A store is made in a namespace without keys: a script that meets a key of another program fails in its middle."""
        line, prefix = self.line("operate"), self.address.prefix
        cursor: Argument = b"0"
        while await line.ask("GET", f"{prefix}schema") is None:
            cursor, found = await line.ask("SCAN", cursor, "MATCH", f"{prefix}*", "COUNT", SCANNED)
            if found and await line.ask("GET", f"{prefix}schema") is None:
                raise NotAStore(
                    f"{self.address.where}: there is the key {found[0].decode(errors='replace')} and no store, so the namespace "
                    f"{self.address.namespace!r} belongs to another program; choose another with ?namespace=NAME"
                )
            if cursor == b"0":
                return

    async def check(self) -> None:
        """Raise `ConfigError` when the server must not be trusted with jobs."""
        line, where = self.line("operate"), self.address.where
        info = fields(await line.ask("INFO"))
        kind = "valkey" if "valkey_version" in info else "redis"
        version = info.get(f"{kind}_version", "0.0")
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST[kind]:
            oldest = ".".join(map(str, OLDEST[kind]))
            raise ConfigError(f"store: {where} has version {version}; Hawser needs {kind.capitalize()} {oldest} or newer")
        if info.get("cluster_enabled") == "1":
            raise ConfigError(
                f"store: {where} is a cluster; a store lives in one slot, so a cluster adds nothing: use a server with replicas, "
                "and several stores to scale out"
            )
        policy = info.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            raise ConfigError(f"store: {where} removes keys when its memory is full ({policy}); set maxmemory-policy noeviction")
        if self.address.durability == "durable" and not self.address.trusted:
            await self._check_durable(line)

    async def _check_durable(self, line: ServerConnection) -> None:
        otherwise = "or say that losing jobs is acceptable by adding ?durability=relaxed to the URL"
        try:
            found = await line.ask("CONFIG", "GET", *MUST_BE)
        except StoreError as error:
            if isinstance(error.__cause__, ResponseError):
                raise ConfigError(
                    f"store: {self.address.where} does not show its settings, so it is unknown whether it keeps what it accepts; "
                    f"add ?trust=always to the URL if it runs with appendonly yes and appendfsync always, {otherwise}"
                ) from error
            raise
        settings = {name.decode(): value.decode() for name, value in zip(found[::2], found[1::2], strict=True)}
        for name, (right, meaning) in MUST_BE.items():
            if settings.get(name) != right:
                raise ConfigError(f"store: {name} is not {right} at {self.address.where}: {meaning}. Set it, {otherwise}")

    async def check_again(self) -> None:
        """Look at the settings every minute. While they are wrong, new jobs are refused and the rest drains."""
        if time.monotonic() - self._checked < CHECK_EVERY:
            return
        self._checked = time.monotonic()
        try:
            await self.check()
        except ConfigError as error:
            self._unsafe = str(error)
        else:
            self._unsafe = None

    def check_safe(self) -> None:
        """Raise when the last look found the server unsafe; nothing was written."""
        if self._unsafe is not None:
            raise StoreUnavailable(f"{self._unsafe}; nothing was written")

    async def close(self) -> None:
        """Hang up, on every loop that runs."""
        with self._guard:
            self._loops, gone = {}, self._loops
        for there in gone.values():
            await there.close_from_anywhere()


class LoopConnections:
    """The connections of one event loop, which end with it."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._server = server
        self._lines: dict[str, ServerConnection] = {}
        self._end: AsyncGenerator[None, None] | None = None

    def line(self, kind: str) -> ServerConnection:
        line = self._lines.get(kind)
        if line is None:
            if self._end is None:
                self._end = self._until_the_loop_ends()
                self.loop.create_task(_begin(self._end))
            address = self._server.address
            line = self._lines[kind] = ServerConnection(self._server.dialer, address.where, address.timeout, address.replicas)
        return line

    async def _until_the_loop_ends(self) -> AsyncGenerator[None, None]:
        """A loop that is shut down closes its asynchronous generators: so we learn of it in time to hang up."""
        try:
            yield
        finally:
            await self.close()

    async def close(self) -> None:
        lines, self._lines = self._lines, {}
        for line in lines.values():
            await line.close()

    async def close_from_anywhere(self) -> None:
        if self.loop is asyncio.get_running_loop():
            await self.close()
        elif self.loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.close(), self.loop))


async def _begin(end: AsyncGenerator[None, None]) -> None:
    await anext(end)
