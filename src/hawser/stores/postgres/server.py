"""The server as one process reaches it: for every event loop a few connections, each for one kind of work."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

import asyncpg

from hawser.clock import Clock, to_us
from hawser.stores.postgres.address import Address
from hawser.stores.postgres.dial import DialAnswer, dial
from hawser.stores.postgres.errors import POSTGRES_UNREACHED
from hawser.stores.postgres.managed_connection import ManagedConnection
from hawser.stores.postgres.primary import Primary, Standing, check_client, identify
from hawser.stores.postgres.watch import HostWatch
from hawser.stores.statements import load

Purpose = Literal[
    "enqueue",
    "keys",
    "claim",
    "settle",
    "chain",
    "keep",
    "reclaim",
    "operate",
    "read",
    "history",
    "events",
    "steps",
]
"""What a connection is for. Kinds of work that must not wait for each other have each their own; decision 12 says why."""

KEPT_OPEN: Final[frozenset[Purpose]] = frozenset({"claim", "enqueue"})
"""Connections that stay open while they are idle: the next job must not wait for one to be made, which takes milliseconds."""

IDLE_FOR: Final = 10.0
"""Seconds without a call after which another connection is closed."""

SQL: Mapping[str, str] = load(
    "hawser.stores.postgres",
    "jobs.sql",
    "aged.sql",
    "leases.sql",
    "schedules.sql",
    "operator.sql",
    "figures.sql",
    "history.sql",
    "access.sql",
    "charts.sql",
    "requests.sql",
    "rights.sql",
    "bulk.sql",
    "declined.sql",
    "steps.sql",
    "output.sql",
    "limits.sql",
    "edits.sql",
    "debounce.sql",
    "breakers.sql",
    "turns.sql",
    "dependencies.sql",
    "expiry.sql",
    "events.sql",
    "batches.sql",
)

SESSION_SETTINGS: Final[Mapping[str, str]] = {
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


OUT_OF_ORDER: Final = to_us(0.2)
"""A clock that went back by less than this was not set back."""


class Server:
    """The connections of one process. Those of a loop are closed with the loop; a forked child opens its own."""

    def __init__(self, address: Address, clock: Clock | None, sql: Mapping[str, str] = SQL) -> None:
        self.address = address
        self.sql = {name: in_schema(text, address.schema) for name, text in sql.items()}
        self._clock = clock
        self._told = 0
        self.primary = Primary()
        self.left_at = 0.0
        """When, by the monotonic clock, another primary was found than the one before."""
        self.set_back = 1
        """How often the server's clock was seen to be set back. One at first: what happened before this process started is not
        known."""
        self.before = 0
        """The server's time as it was when it was last set back, as far as we saw it."""
        self._guard = threading.Lock()
        self._pid = os.getpid()
        self._loops: dict[int, _Loop] = {}
        self._left_behind: list[dict[int, _Loop]] = []

    @property
    def given(self) -> int | None:
        """The time that a test gives; None lets the server's own clock be read."""
        return None if self._clock is None else self._clock.now()

    def saw(self, now: int) -> None:
        """The time that the server told us. Answers of several connections may come in another order than they were made."""
        if now < self._told - OUT_OF_ORDER:
            self.set_back += 1
            self.before = self._told
            self._told = now
        self._told = max(self._told, now)

    def connection(self, purpose: Purpose) -> ManagedConnection:
        """This loop's connection for some kind of work."""
        return self._here().connection(purpose)

    def new_connection(self, timeout: float | None) -> ManagedConnection:
        """A connection for one caller, who closes it."""
        return ManagedConnection(self.dial, self.doubt, self.address.where, timeout)

    async def dial(self) -> asyncpg.Connection:
        """A new connection to the primary."""
        here = self._here()
        answer = await dial(self.address.hosts, self.primary, self._reach)
        try:
            self.accept(answer.host, answer.standing)
        except POSTGRES_UNREACHED:
            answer.con.terminate()
            raise
        here.keep(answer)
        return answer.con

    async def _reach(self, host: str) -> DialAnswer:
        address = self.address
        con: asyncpg.Connection = await asyncpg.connect(
            host,
            timeout=address.connect_timeout,
            server_settings={} if address.pooled else dict(SESSION_SETTINGS),
            statement_cache_size=0 if address.pooled else STATEMENTS,
        )
        try:
            async with asyncio.timeout(address.connect_timeout):
                standing = await identify(con)
                if not address.pooled:
                    await check_client(con)
        except BaseException:
            con.terminate()
            raise
        return DialAnswer(host, con, standing)

    def accept(self, host: str, standing: Standing) -> None:
        """A server took us in that can be written to. If it is another primary than before, all connections to that one are
        closed: what was under way on them has an unknown outcome."""
        if self.primary.accept(host, standing):
            self.left_at = time.monotonic()
            for each in self._all_loops():
                each.soon(each.leave_old)

    def doubt(self, con: asyncpg.Connection) -> None:
        """A call was not answered in time: the next connection is made where a primary answers, and idle ones that are
        as old as the call are made again as well."""
        kept = self._here().kept(con)
        if kept is not None:
            self.primary.doubt(kept.host)
            before = time.monotonic() - self.address.timeout
            for each in self._all_loops():
                each.soon(lambda each=each: each.hang_up_idle(kept.host, before))  # type: ignore[misc]

    def _all_loops(self) -> list[_Loop]:
        with self._guard:
            return list(self._loops.values())

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


class _Kept(NamedTuple):
    """A connection that is open, and to whom."""

    host: str
    standing: Standing
    made_at: float


class _Loop:
    """The connections of one event loop."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._server = server
        self._connections: dict[Purpose, ManagedConnection] = {}
        self._open: dict[asyncpg.Connection, _Kept] = {}
        self._watch: HostWatch | None = None
        self._end: AsyncGenerator[None, None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def connection(self, purpose: Purpose) -> ManagedConnection:
        connection = self._connections.get(purpose)
        if connection is None:
            if self._end is None:
                self._end = self._until_the_loop_ends()
                self.loop.create_task(_begin(self._end))
            server, address = self._server, self._server.address
            if self._watch is None and len(address.hosts) > 1:
                self._watch = HostWatch(address, server.primary, server.accept, lambda: server.left_at)
                self._watch.start()
            connection = self._connections[purpose] = server.new_connection(address.timeout)
        return connection

    def keep(self, answer: DialAnswer) -> None:
        """Remember a connection for as long as it is open."""
        self._open[answer.con] = _Kept(answer.host, answer.standing, time.monotonic())
        answer.con.add_termination_listener(self._closed)
        self._look_later()

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(IDLE_FOR / 2, self.close_idle)

    def close_idle(self) -> None:
        """Close what was not used for a while: every session costs the server memory, and it may have many workers."""
        self._timer = None
        before, others = (
            time.monotonic() - IDLE_FOR,
            [connection for purpose, connection in self._connections.items() if purpose not in KEPT_OPEN],
        )
        for connection in others:
            if connection.is_idle(before):
                closing = self.loop.create_task(connection.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
        if any(connection.is_open for connection in others):
            self._look_later()

    def _closed(self, con: Any) -> None:
        self._open.pop(con, None)

    def kept(self, con: asyncpg.Connection) -> _Kept | None:
        return self._open.get(con)

    def soon(self, work: Callable[[], None]) -> None:
        """Do it on the loop's own thread: at once if that is this one."""
        if self.loop is asyncio.get_running_loop():
            work()
        elif self.loop.is_running():
            self.loop.call_soon_threadsafe(work)

    def leave_old(self) -> None:
        """Close the connections to a primary that was replaced. Nothing is cancelled there: a commit that is under way may be
        reported as done then although no standby has it."""
        for con, kept in list(self._open.items()):
            if self._server.primary.has_left(kept.standing):
                con.terminate()

    def hang_up_idle(self, host: str, before: float) -> None:
        """Close the idle connections to a host that were made before."""
        busy = [connection.busy for connection in self._connections.values()]
        for con, kept in list(self._open.items()):
            if kept.host == host and kept.made_at < before and con not in busy:
                con.terminate()

    async def _until_the_loop_ends(self) -> AsyncGenerator[None, None]:
        """A loop that is shut down closes its asynchronous generators: so ours learns of it in time to close its connections."""
        try:
            yield
        finally:
            await self.close()

    async def close(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            await watch.stop()
        if self._timer is not None:
            self._timer.cancel()
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


def in_schema(text: str, schema: str) -> str:
    """A statement with our schema's name in it; the name was checked when the address was."""
    return text if schema == "hawser" else text.replace("hawser.", f"{schema}.")
