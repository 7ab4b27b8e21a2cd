"""The server that a URL names: its connections, one per event loop and kind of work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from hawser.clock import Clock
from hawser.errors import ConfigError, NotAStore, SchemaTooNew
from hawser.stores.redis.address import Address
from hawser.stores.redis.dial import Dialer
from hawser.stores.redis.key_types import FAMILIES, KEYS
from hawser.stores.redis.safety import Safety
from hawser.stores.redis.scripts import ADDS_JOBS, Script
from hawser.stores.redis.server_connection import Argument, ServerConnection
from hawser.stores.schema import too_new

REDIS_SCHEMA: Final = 1

SCANNED: Final = 1_000
"""Keys that one look for keys of others passes."""

LOOKS: Final = 20
"""How many such looks `open` takes for keys of another type in a store that stands: what it does not come to, writes find."""


class Server:
    """The connections of one process."""

    def __init__(self, address: Address, clock: Clock | None, scripts: Mapping[str, Script]) -> None:
        self.address = address
        self.dialer = Dialer(address)
        self._clock = clock
        self._scripts = scripts
        self._guard = threading.Lock()
        self._loops: dict[int, LoopConnections] = {}
        self.safety = Safety(address)

    @property
    def has_own_time(self) -> bool:
        """Whether a test's clock is sent instead of the server's being read."""
        return self._clock is not None

    async def run(self, name: str, *arguments: Argument, connection: str = "operate", writing: bool = True) -> Any:
        """Run a script by its name; the time is put in front of the arguments."""
        now: Argument = "" if self._clock is None else self._clock.now()
        given = [now, *arguments]
        script = self._scripts[name]
        return await self.connection(connection).run(
            script, self.address.prefix, given, writing=writing, adding=name in ADDS_JOBS
        )

    async def look(self, name: str, *arguments: Argument, connection: str = "read") -> Any:
        """Run a script that writes nothing."""
        return await self.run(name, *arguments, connection=connection, writing=False)

    def connection(self, kind: str) -> ServerConnection:
        """The connection of the running loop for this kind of work."""
        loop = asyncio.get_running_loop()
        with self._guard:
            here = self._loops.get(id(loop))
            if here is None or here.loop is not loop:
                here = self._loops[id(loop)] = LoopConnections(self, loop)
        return here.connection(kind)

    async def prepare(self) -> None:
        """Refuse a server that is too old or does not keep what it accepts, then make the store when it is missing."""
        await self.connection("operate").look_at_settings()
        self.safety.check_trusted()
        await self._check_free()
        types: list[Argument] = [word for pair in KEYS.items() for word in pair]
        said = [text.decode() for text in await self.run("open", REDIS_SCHEMA, self.address.lanes, *types)]
        if said[0] == "type":
            raise self._of_another_type(self.address.prefix + said[1], said[2])
        if said[0] == "version":
            raise SchemaTooNew(too_new(self._number(said[1]), REDIS_SCHEMA))
        if said[0] == "lanes":
            raise ConfigError(
                f"store: the namespace {self.address.namespace!r} at {self.address.where} was made with lanes={said[1]}; "
                f"use ?lanes={said[1]} in the URL, or another namespace"
            )
        if said[0] == "stands":
            await self._check_types()

    async def _check_types(self) -> None:
        """Refuse a store in which a key that it has many of is of another type, as far as a few looks see."""
        types: list[Argument] = [word for pair in FAMILIES.items() for word in pair]
        cursor: Argument = b"0"
        for _ in range(LOOKS):
            cursor, found, kind = await self.look("types", cursor, SCANNED, self.address.lanes, *types, connection="operate")
            if found:
                raise self._of_another_type(found.decode(errors="replace"), kind.decode())
            if cursor == b"0":
                return

    def _of_another_type(self, key: str, kind: str) -> NotAStore:
        return NotAStore(
            f"{self.address.where}: the key {key} is a {kind}, so the namespace "
            f"{self.address.namespace!r} belongs to another program; choose another with ?namespace=NAME"
        )

    async def version(self) -> int:
        """The version of the schema that stands there; 0 when no store was made. Nothing is written."""
        said = await self.connection("read").ask("GET", f"{self.address.prefix}schema")
        return 0 if said is None else self._number(said.decode(errors="replace"))

    def _number(self, version: str) -> int:
        if not version.isdigit():
            raise NotAStore(f"{self.address.where}: the namespace {self.address.namespace!r} is not a store of Hawser")
        return int(version)

    async def _check_free(self) -> None:
        """A store is made in a namespace without keys: a script that meets a key of another program fails in its middle."""
        connection, prefix = self.connection("operate"), self.address.prefix
        cursor: Argument = b"0"
        while await connection.ask("GET", f"{prefix}schema") is None:
            cursor, found = await connection.ask("SCAN", cursor, "MATCH", f"{prefix}*", "COUNT", SCANNED)
            if found and await connection.ask("GET", f"{prefix}schema") is None:
                raise NotAStore(
                    f"{self.address.where}: there is the key {found[0].decode(errors='replace')} and no store, so the namespace "
                    f"{self.address.namespace!r} belongs to another program; choose another with ?namespace=NAME"
                )
            if cursor == b"0":
                return

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
        self._connections: dict[str, ServerConnection] = {}
        self._end: AsyncGenerator[None, None] | None = None

    def connection(self, kind: str) -> ServerConnection:
        connection = self._connections.get(kind)
        if connection is None:
            if self._end is None:
                self._end = self._until_the_loop_ends()
                self.loop.create_task(_begin(self._end))
            address = self._server.address
            connection = self._connections[kind] = ServerConnection(
                self._server.dialer, self._server.safety, address.timeout, address.replicas
            )
        return connection

    async def _until_the_loop_ends(self) -> AsyncGenerator[None, None]:
        """A loop that is shut down closes its asynchronous generators: so we learn of it in time to hang up."""
        try:
            yield
        finally:
            await self.close()

    async def close(self) -> None:
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.close()

    async def close_from_anywhere(self) -> None:
        if self.loop is asyncio.get_running_loop():
            await self.close()
        elif self.loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.close(), self.loop))


async def _begin(end: AsyncGenerator[None, None]) -> None:
    await anext(end)
