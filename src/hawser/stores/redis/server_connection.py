"""A connection for one kind of work, used by one call at a time, made when it is needed and again after it broke.

Every call has a deadline. A call that was sent is never cancelled, neither by its deadline nor with its caller: the connection
is dropped instead, for an answer that comes late would be taken for that of the next call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoScriptError

from hawser.errors import OutcomeUnknown, StoreUnavailable
from hawser.stores.redis.dial import Dialer
from hawser.stores.redis.errors import REDIS_UNREACHED, cannot_connect, explain, is_broken
from hawser.stores.redis.safety import Safety
from hawser.stores.redis.scripts import Script

Argument = str | bytes | int
Work = Callable[[AbstractConnection], Awaitable[Any]]

WAIT_SHARE: Final = 0.5
"""Of a call's time that it waits for replicas."""


class ServerConnection:
    """One connection of one event loop."""

    def __init__(self, dialer: Dialer, safety: Safety, timeout: float, replicas: int) -> None:
        self._dialer = dialer
        self._safety = safety
        self._where = safety.where
        self._timeout = timeout
        self._replicas = replicas
        self._turn = asyncio.Lock()
        self._con: AbstractConnection | None = None
        self._sent: asyncio.Task[Any] | None = None
        """The call that is under way at the server."""

    async def run(self, script: Script, prefix: str, arguments: list[Argument], *, writing: bool, adding: bool) -> Any:
        """Run a script. One that the server does not know did not run: it is sent in full then.

        One that adds jobs is not sent to a server that was found unsafe.
        """

        async def work(con: AbstractConnection) -> Any:
            try:
                return await self._asked(con, writing, "EVALSHA", script.sha, 1, prefix, *arguments)
            except NoScriptError:
                return await self._asked(con, writing, "EVAL", script.text, 1, prefix, *arguments)

        return await self._do(work, writing=writing, adding=adding)

    async def look_at_settings(self) -> None:
        """Find out whether the server may be trusted."""
        await self._do(self._safety.look, writing=False)

    async def ask(self, *command: Argument) -> Any:
        """Send a command that writes nothing."""
        return await self._do(lambda con: self._asked(con, False, *command), writing=False)

    async def _asked(self, con: AbstractConnection, writing: bool, *command: Argument) -> Any:
        await con.send_command(*command)
        if not (writing and self._replicas):
            return await con.read_response()
        await con.send_command("WAIT", self._replicas, round(self._timeout * WAIT_SHARE * 1000))
        refused: Exception | None = None
        answer = None
        try:
            answer = await con.read_response()
        except Exception as error:  # the answer to WAIT comes all the same, and must be read
            refused = error
            if is_broken(error):
                raise
        copies = await con.read_response()
        if refused is not None:
            raise refused
        if copies < self._replicas:
            raise OutcomeUnknown(
                f"{self._where} has the write, but {copies} of {self._replicas} replicas confirmed it in time; "
                "it is lost if the server fails now: repeat with the same ids"
            )
        return answer

    async def _do(self, work: Work, *, writing: bool, adding: bool = False) -> Any:
        under_way = asyncio.ensure_future(self._in_turn(work, writing=writing, adding=adding))
        try:
            done, _ = await asyncio.wait((under_way,), timeout=self._timeout)
        except asyncio.CancelledError:
            if self._sent is not under_way:
                under_way.cancel()
            under_way.add_done_callback(_heard)
            raise
        if done:
            return under_way.result()
        sent = self._sent is under_way
        under_way.cancel()
        under_way.add_done_callback(_heard)
        if not sent:
            raise StoreUnavailable(f"{self._where} was busy for {self._timeout:g} s; nothing was written: try again")
        if writing:
            raise OutcomeUnknown(f"{self._where} did not answer within {self._timeout:g} s; repeat with the same ids")
        raise StoreUnavailable(f"{self._where} did not answer within {self._timeout:g} s")

    async def _in_turn(self, work: Work, *, writing: bool, adding: bool) -> Any:
        async with self._turn:
            con = await self._connected()
            if writing and self._safety.is_old():
                await self._look(con)
            if adding:
                self._safety.check_may_add()
            self._sent = asyncio.current_task()
            try:
                return await work(con)
            except BaseException as error:
                if is_broken(error):
                    await self._drop()
                if not isinstance(error, Exception):
                    raise
                raise explain(error, self._where, writing=writing) from error
            finally:
                self._sent = None

    async def _connected(self) -> AbstractConnection:
        if self._con is not None and await self._is_gone(self._con):
            await self._drop()
        if self._con is None:
            try:
                self._con = await self._dialer.dial()
            except REDIS_UNREACHED as error:
                raise cannot_connect(error, self._where) from error
            await self._look(self._con)
        return self._con

    async def _look(self, con: AbstractConnection) -> None:
        """Look at the server's settings before anything is sent to it."""
        try:
            await self._safety.look(con)
        except BaseException as error:
            await self._drop()
            if not isinstance(error, Exception):
                raise
            raise explain(error, self._where, writing=False) from error

    async def _is_gone(self, con: AbstractConnection) -> bool:
        """Whether the server has hung up since the last call, or was replaced; nothing was sent yet, so a new one is no risk."""
        if not con.is_connected or not self._dialer.is_current(con):
            return True
        reader = con._reader  # noqa: SLF001  # the driver's own look costs a timer and a turn of the loop each time
        return reader is None or reader.at_eof()

    async def _drop(self) -> None:
        con, self._con = self._con, None
        if con is not None:
            with suppress(*REDIS_UNREACHED):
                await con.disconnect(nowait=True)

    async def close(self) -> None:
        """Let what is under way end, then hang up."""
        async with self._turn:
            con, self._con = self._con, None
            if con is not None:
                with suppress(*REDIS_UNREACHED):
                    await con.disconnect()


def _heard(under_way: asyncio.Future[Any]) -> None:
    """Its caller is gone, so the error is dropped."""
    if not under_way.cancelled():
        under_way.exception()
