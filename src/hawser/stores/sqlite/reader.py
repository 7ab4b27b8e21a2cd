"""The one reader of a process: it never waits for the writer, and the writer never for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from hawser.clock import Clock
from hawser.stores.sqlite.connection import explain
from hawser.stores.sqlite.fork import Guarded
from hawser.stores.sqlite.place import Place
from hawser.stores.sqlite.queries import Snapshot

T = TypeVar("T")


class Reader:
    """A thread with a connection that only reads, one read transaction at a time."""

    def __init__(self, con: Guarded, place: Place, clock: Clock, sql: Mapping[str, str]) -> None:
        self._con = con
        self._place = place
        self._clock = clock
        self._sql = sql
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hawser-sqlite-reader")

    def submit(self, work: Callable[[Snapshot], T]) -> Future[T]:
        return self._thread.submit(self._read, work)

    def _read(self, work: Callable[[Snapshot], T]) -> T:
        self._place.check()
        try:
            with self._con as con:
                con.execute("begin")
                try:
                    return work(Snapshot(con, self._clock.now(), self._sql))
                finally:
                    con.execute("rollback")
        except sqlite3.Error as error:
            raise explain(error, self._con.path) from error

    def close(self) -> None:
        self._thread.shutdown()
