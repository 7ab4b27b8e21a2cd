"""The server as one process reaches it: for every event loop a few connections, each for one kind of work."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Mapping
from typing import Final, Literal

import asyncpg

from hawser.clock import Clock
from hawser.stores.postgres.address import Address
from hawser.stores.postgres.line import Line
from hawser.stores.postgres.trouble import UNREACHED
from hawser.stores.statements import load

Purpose = Literal[
    "enqueue", "keys", "claim", "settle", "chain", "keep", "reclaim", "operate", "read", "sweep", "history", "listen", "fire"
]
"""What a connection is for. Kinds of work that must not wait for each other have each their own."""

SQL: Mapping[str, str] = load(
    "hawser.stores.postgres", "jobs.sql", "schedules.sql", "operator.sql", "history.sql", "access.sql", "charts.sql"
)

SESSION: Final[Mapping[str, str]] = {
    # Every statement reads by an index from a known place. Statistics may be stale after a bulk load, and a plan that was
    # made for an empty table stays in use when the table has grown: the planner is not asked to choose.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    "application_name": "hawser",
    "tcp_user_timeout": "15000",
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}


STATEMENTS: Final = 100
"""Statements that a connection keeps prepared."""


class Server:
    """Opens connections, and closes those of a loop with the loop. A forked child opens its own."""

    def __init__(self, address: Address, clock: Clock | None, sql: Mapping[str, str] = SQL) -> None:
        self.address = address
        self.sql = {name: in_schema(text, address.schema) for name, text in sql.items()}
        self._clock = clock
        self._told = 0
        self._answered: str | None = None
        self.set_back = 1
        """How often the server's clock was seen to be set back. One at first: what went before us we cannot know."""
        self._guard = threading.Lock()
        self._pid = os.getpid()
        self._loops: dict[int, _Loop] = {}
        self._left_behind: list[dict[int, _Loop]] = []

    @property
    def given(self) -> int | None:
        """The time that a test gives; None lets the server's own clock be read."""
        return None if self._clock is None else self._clock.now()

    def saw(self, now: int) -> None:
        """The time that the server told us."""
        if now < self._told:
            self.set_back += 1
        self._told = now

    def line(self, purpose: Purpose) -> Line:
        """This loop's connection for some kind of work."""
        return self._here().line(purpose)

    async def dial(self) -> asyncpg.Connection:
        """A new connection, to the first host that answers in time and takes writes; the one that did last is asked first."""
        failed: list[BaseException] = []
        for host in sorted(self.address.hosts, key=lambda host: host != self._answered):
            try:
                con = await self._dial(host)
            except UNREACHED as error:
                failed.append(error)
            else:
                self._answered = host
                return con
        # What a server said is worth more than that another one did not answer, or is a standby.
        raise next((error for error in failed if isinstance(error, asyncpg.PostgresError)), failed[-1])

    async def _dial(self, host: str) -> asyncpg.Connection:
        address = self.address
        settings = {} if address.pooled else dict(SESSION)
        return await asyncpg.connect(
            host,
            timeout=address.connect_timeout,
            server_settings=settings,
            statement_cache_size=0 if address.pooled else STATEMENTS,
        )

    def _here(self) -> _Loop:
        loop = asyncio.get_running_loop()
        with self._guard:
            if self._pid != os.getpid():
                self._left_behind.append(self._loops)
                self._loops, self._pid = {}, os.getpid()
            mine = self._loops.get(id(loop))
            if mine is None or mine.loop is not loop:
                mine = self._loops[id(loop)] = _Loop(self, loop)
        return mine

    async def close(self) -> None:
        """Close all connections, on the loops that they belong to."""
        with self._guard:
            loops, self._loops = (self._loops, {}) if self._pid == os.getpid() else ({}, {})
        for each in loops.values():
            await each.close_from_anywhere()


class _Loop:
    """The connections of one event loop."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._server = server
        self._lines: dict[str, Line] = {}
        self._end: AsyncGenerator[None, None] | None = None

    def line(self, purpose: str) -> Line:
        line = self._lines.get(purpose)
        if line is None:
            if self._end is None:
                self._end = self._until_the_loop_ends()
                self.loop.create_task(_begin(self._end))
            address = self._server.address
            line = self._lines[purpose] = Line(self._server.dial, address.where, address.timeout)
        return line

    async def _until_the_loop_ends(self) -> AsyncGenerator[None, None]:
        """A loop that is shut down closes its asynchronous generators: so ours learns of it in time to hang up."""
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


def in_schema(text: str, schema: str) -> str:
    """A statement with our schema's name in it; the name was checked when the address was."""
    return text if schema == "hawser" else text.replace("hawser.", f"{schema}.")
