"""A connection for one kind of work, used by one call at a time, made when it is needed and again after it broke.

Every call has a deadline. A statement that is under way is never cancelled, neither by its deadline nor with its caller: a
cancelled commit may be reported as done although no standby has it. The connection is dropped instead: the outcome is unknown.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import asyncpg

from hawser.errors import OutcomeUnknown, StoreUnavailable
from hawser.stores.postgres.errors import POSTGRES_UNREACHED, cannot_connect, explain, is_broken, must_repeat

T = TypeVar("T")

Work = Callable[[asyncpg.Connection], Awaitable[T]]
Dial = Callable[[], Awaitable[asyncpg.Connection]]
Doubt = Callable[[asyncpg.Connection], None]
"""Told of a connection on which a call was not answered in time."""

REPEATS: Final = 8
"""How often work is done again after a deadlock or a serialization failure before its caller hears of it."""

IDLE_IN_TRANSACTION: Final = 10
"""Seconds after which the server ends an idle transaction: a frozen process must not keep its locks."""

_LIMITED: Final = f"set local idle_in_transaction_session_timeout = '{IDLE_IN_TRANSACTION}s'"

BEGIN: Final = f"begin; {_LIMITED}"

IMPATIENT: Final = f"{BEGIN}; set local lock_timeout = '2s'"
"""For work that a caller waits for, and that may need a key which another transaction is about to take."""

BEGIN_READING: Final = f"begin isolation level repeatable read, read only; {_LIMITED}"
"""For several statements that must see the same."""


class ManagedConnection:
    """One connection of one event loop."""

    def __init__(self, dial: Dial, doubt: Doubt, where: str, timeout: float | None) -> None:
        self._dial = dial
        self._doubt = doubt
        self._where = where
        self._timeout = timeout
        self._turn = asyncio.Lock()
        self._con: asyncpg.Connection | None = None
        self._dialling: asyncio.Future[asyncpg.Connection] | None = None
        self._sent: asyncio.Future[Any] | None = None
        """Whose work is with the server now."""
        self._warned = False
        self._new = False
        self._used_at = time.monotonic()

    async def rows(self, sql: str, *arguments: Any, writing: bool = True) -> Sequence[Any]:
        """One statement, which is a transaction of its own."""
        return await self.do(lambda con: con.fetch(sql, *arguments), writing=writing)

    async def value(self, sql: str, *arguments: Any, writing: bool = True) -> Any:
        """The first column of the first row."""
        return await self.do(lambda con: con.fetchval(sql, *arguments), writing=writing)

    async def together(self, work: Work[T], *, begin: str = BEGIN, writing: bool = True) -> T:
        """Several statements in one transaction. The work may be repeated from the start."""

        async def transaction(con: asyncpg.Connection) -> T:
            await con.execute(begin)
            try:
                answer = await work(con)
            except BaseException:
                if not con.is_closed():
                    await con.execute("rollback")
                raise
            await con.execute("commit")
            return answer

        return await self.do(transaction, writing=writing)

    async def do(self, work: Work[T], *, writing: bool = True) -> T:
        """Some work on the connection, until our time is up."""
        under_way = asyncio.ensure_future(self._do(work, writing=writing))
        try:
            done, _ = await asyncio.wait((under_way,), timeout=self._timeout)
        except asyncio.CancelledError:
            if self._sent is not under_way:
                under_way.cancel()
            under_way.add_done_callback(_heard)
            raise
        if done:
            return under_way.result()
        return await self._give_up(under_way, writing=writing)

    async def _give_up(self, under_way: asyncio.Future[T], *, writing: bool) -> T:
        under_way.add_done_callback(_heard)
        if self._sent is not under_way:
            under_way.cancel()
            raise StoreUnavailable(f"{self._where} was busy for {self._timeout:g} s; nothing was written: try again")
        if self._con is not None:
            self._doubt(self._con)
        self._drop()
        if writing:
            raise OutcomeUnknown(f"{self._where} did not answer within {self._timeout:g} s; repeat with the same ids")
        raise StoreUnavailable(f"{self._where} did not answer within {self._timeout:g} s")

    async def _do(self, work: Work[T], *, writing: bool) -> T:
        async with self._turn:
            try:
                return await self._repeated(work, writing=writing)
            finally:
                self._sent = None
                self._used_at = time.monotonic()

    async def _repeated(self, work: Work[T], *, writing: bool) -> T:
        for turn in range(REPEATS):
            con = await self._connected()
            self._sent, self._warned = asyncio.current_task(), False
            try:
                answer = await work(con)
            except BaseException as error:
                if is_broken(error):
                    self._drop()
                if must_repeat(error) and turn < REPEATS - 1:
                    await asyncio.sleep(random.uniform(0, 0.005 * 2**turn))
                    continue
                if not isinstance(error, Exception):
                    raise
                raise explain(error, self._where, writing=writing) from error
            if self._warned:
                raise OutcomeUnknown(
                    f"{self._where} gave up waiting for its standby, so the write may yet be lost; repeat with the same ids"
                )
            return answer
        raise AssertionError("not reached")

    async def _connected(self) -> asyncpg.Connection:
        if self._con is None or self._con.is_closed():
            try:
                con = await self._dialled()
                con.add_log_listener(self._warning)  # which it may refuse: it can have broken since
            except POSTGRES_UNREACHED as error:
                raise cannot_connect(error, self._where) from error
            self._con, self._new = con, True
        return self._con

    @property
    def busy(self) -> asyncpg.Connection | None:
        """The connection, if a call is under way on it."""
        return self._con if self._sent is not None else None

    def is_new(self) -> bool:
        """Whether the connection was made since this was asked last."""
        new, self._new = self._new, False
        return new

    async def _dialled(self) -> asyncpg.Connection:
        """Dialling goes on when its caller gives up: the next one finds it further on, and does not begin again with a host
        that says nothing."""
        if self._dialling is None or _is_of_no_use(self._dialling):
            self._dialling = asyncio.ensure_future(self._dial())
            self._dialling.add_done_callback(_heard)
        dialling = self._dialling
        try:
            return await asyncio.shield(dialling)
        finally:
            if dialling.done():
                self._dialling = None

    def _warning(self, _: Any, message: Any) -> None:
        """A warning of class 01000 at a commit: the server was told to stop waiting for its standby."""
        if message.sqlstate == "01000" and message.severity_en == "WARNING":
            self._warned = True

    def _drop(self) -> None:
        con, self._con = self._con, None
        if con is not None and not con.is_closed():
            con.terminate()

    async def _stop_dialling(self) -> None:
        dialling, self._dialling = self._dialling, None
        if dialling is not None:
            dialling.cancel()
            with suppress(asyncio.CancelledError, *POSTGRES_UNREACHED):
                (await dialling).terminate()

    @property
    def is_open(self) -> bool:
        return self._con is not None

    def is_idle(self, before: float) -> bool:
        """Whether the connection is open and no call has used it since this time of the monotonic clock."""
        return self.is_open and not self._turn.locked() and self._used_at < before

    async def close(self) -> None:
        """Let what is under way end, then hang up. The next call connects again."""
        async with self._turn:
            await self._stop_dialling()
            con, self._con = self._con, None
            if con is not None and not con.is_closed():
                try:
                    await con.close(timeout=1)
                except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    con.terminate()


def _is_of_no_use(dialling: asyncio.Future[asyncpg.Connection]) -> bool:
    """Whether it has failed, or the connection that it made was closed since."""
    if not dialling.done():
        return False
    return dialling.cancelled() or dialling.exception() is not None or dialling.result().is_closed()


def _heard(under_way: asyncio.Future[Any]) -> None:
    """Its caller is gone, so the error is dropped."""
    if not under_way.cancelled():
        under_way.exception()
