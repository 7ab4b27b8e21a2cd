"""A call of the store: hands work to the writer or a reader of the file, and waits for the answer."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from hawser.clock import Clock, SystemClock
from hawser.clock import Watch as ClockWatch
from hawser.errors import ConfigError, OutcomeUnknown, StoreUnavailable
from hawser.store import (
    Durability,
)
from hawser.stores.sqlite.file import OpenFile
from hawser.stores.sqlite.fork import renew_in_children
from hawser.stores.sqlite.queries import Snapshot
from hawser.stores.sqlite.tx import SQL, Tx
from hawser.stores.wakeup import Wakeups

T = TypeVar("T")

OLDEST_SQLITE = (3, 38, 0)
"""The first SQLite that has `->>` and RETURNING."""


ENQUEUE_TIMEOUT = 5.0
"""Seconds that an enqueue waits for the file unless told otherwise: often a request waits with it."""


class FileCalls:
    """The file that this process has open, and how long a call waits for it."""

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Clock | None = None,
        durability: Durability = "durable",
        timeout: float = 30.0,
        enqueue_timeout: float | None = None,
        sql: Mapping[str, str] = SQL,
    ) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise ConfigError(f"store: SQLite {sqlite3.sqlite_version} is too old; Hawser needs 3.38 or newer")
        self.durability: Durability = durability
        self._path = Path(path)
        self._clock = clock or SystemClock()
        self._watch = ClockWatch(self._clock)
        self._timeout = timeout
        self._enqueue_timeout = min(timeout, ENQUEUE_TIMEOUT) if enqueue_timeout is None else enqueue_timeout
        self._sql = sql
        self._opening = threading.Lock()
        self._open: OpenFile | None = None
        self._left_behind: list[OpenFile] = []
        self._bell = Wakeups()
        self._claims = 0
        self._cut_after = 0
        renew_in_children(self)

    async def open(self) -> None:
        if self._open is None:
            await asyncio.to_thread(self._opened)

    async def close(self) -> None:
        with self._opening:
            opened, self._open = self._open, None
        if opened is not None:
            await asyncio.to_thread(opened.close)

    def _opened(self) -> OpenFile:
        with self._opening:
            if self._open is None:
                self._open = OpenFile(
                    self._path,
                    durability=self.durability,
                    timeout=self._timeout,
                    clock=self._clock,
                    watched=self._watch,
                    sql=self._sql,
                    done=self._bell.ring,
                )
                self._claims = 0
                self._cut_after = 0
            return self._open

    def forked(self) -> None:
        """A child opens the file anew. Its threads are gone, and any lock may have been held by one of them."""
        self._opening = threading.Lock()
        self._bell = Wakeups()
        if self._open is not None:
            # Kept, not freed: an event loop of the parent may know its descriptors.
            self._left_behind.append(self._open)
            self._open = None

    async def _write(self, work: Callable[[Tx], T], within: float | None = None, hint: str = "try again") -> T:
        if self._open is None:
            await asyncio.to_thread(self._opened)
        return await self._answer(self._opened().writer.submit(work), within or self._timeout, hint)

    async def _read(self, work: Callable[[Snapshot], T]) -> T:
        if self._open is None:
            await asyncio.to_thread(self._opened)
        return await self._answer(self._opened().reader.submit(work), self._timeout)

    async def _answer(self, future: Future[T], within: float, hint: str = "try again") -> T:
        """Wait for it until our time is up. Work that was not begun by then is withdrawn, so nothing was written."""
        answer = asyncio.wrap_future(future)
        try:
            done, _ = await asyncio.wait((answer,), timeout=within)
        except asyncio.CancelledError:
            # The caller is gone: the work is not written later, and closing does not wait for it.
            future.cancel()
            raise
        return answer.result() if done else self._in_time(future, within, hint)

    def _in_time(self, future: Future[T], within: float, hint: str) -> T:
        """The answer, when our time is up. Work that was not begun is withdrawn."""
        if future.done():
            return future.result()
        if future.cancel():
            raise StoreUnavailable(
                f"{str(self._path)!r} was held by another connection for {within:g} s; nothing was written: {hint}"
            )
        raise OutcomeUnknown(f"{str(self._path)!r} did not answer within {within:g} s; repeat with the same ids")
