"""The file as one process has it open."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hawser.clock import Clock, Watch
from hawser.errors import StoreUnavailable
from hawser.store import Durability
from hawser.stores.sqlite.checkpointer import Checkpointer
from hawser.stores.sqlite.connection import connect, explain, is_busy, prepare_file
from hawser.stores.sqlite.fork import Guarded, check_fork
from hawser.stores.sqlite.migrate import is_current, migrate
from hawser.stores.sqlite.place import Place
from hawser.stores.sqlite.reader import Reader
from hawser.stores.sqlite.turn import TURN_RETRY_EVERY_S, Turn, give_back, turn_of
from hawser.stores.sqlite.watch import LogWatch
from hawser.stores.sqlite.writer import Writer


class OpenFile:
    """A turn between processes, a writer, a reader, and a watch on what other processes write."""

    def __init__(
        self,
        path: Path,
        *,
        durability: Durability,
        timeout: float,
        clock: Clock,
        watched: Watch,
        sql: Mapping[str, str],
        done: Callable[[], None],
    ) -> None:
        check_fork(path)
        prepare_file(path)
        self._path = path
        self._timeout = timeout
        self._turn: Turn | None = None
        self._guarded: list[Guarded] = []
        make = partial(connect, path, durability, timeout)
        place = Place(path)
        try:
            writing = self._guard(make)
            with writing as con:
                current = is_current(con)
            self._turn = turn = turn_of(path)
            if not current:
                self._migrate(writing, turn)
            with writing as con:
                # The log is moved into the file by a helper, or between transactions, not inside a caller's commit.
                con.execute("pragma wal_autocheckpoint = 0")
                # It waits for other programs by itself, without keeping the turn.
                con.execute("pragma busy_timeout = 0")
                place.know_log()
            self._watching = self._guard(partial(make, read_only=True))
            self.reader = Reader(self._guard(partial(make, read_only=True)), place, clock, sql)
            self.watch = LogWatch(place.log, self._version)
            self._checkpointer = Checkpointer(self._guard(make))
            self.writer = Writer(
                writing,
                place,
                turn,
                # It gives up on a program that is not ours before its callers do: then nothing was written, for sure.
                patience=timeout / 2,
                # For the writer's thread alone: two that read it at once would look like a step back.
                clock=watched,
                sql=sql,
                checkpointer=self._checkpointer,
                done=done,
            )
        except sqlite3.Error as error:
            self._let_go()
            raise explain(error, path) from error
        except BaseException:
            self._let_go()
            raise

    def _migrate(self, writing: Guarded, turn: Turn) -> None:
        """In our turn, which a file whose schema is current never waits for."""
        end = time.monotonic() + self._timeout
        while True:
            if not turn.take_within(max(0.0, end - time.monotonic())):
                raise StoreUnavailable(
                    f"another process has been making the schema for {self._timeout:g} s; see which one, and try again"
                )
            try:
                with writing as con:
                    _migrate_now(con)
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                if time.monotonic() >= end:
                    raise StoreUnavailable(
                        f"the tables of this version are not in {str(self._path)!r} yet, and a transaction that is open there "
                        "keeps us from making them; nothing was written: if it is yours, call app.open() before it begins"
                    ) from error
            else:
                return
            finally:
                turn.leave()
            time.sleep(TURN_RETRY_EVERY_S)

    def _guard(self, make: Callable[[], sqlite3.Connection]) -> Guarded:
        guarded = Guarded(self._path, make)
        self._guarded.append(guarded)
        return guarded

    def _version(self) -> Any:
        """Changes when any process commits a write."""
        with self._watching as con:
            return con.execute("pragma data_version").fetchone()

    def close(self) -> None:
        self.reader.close()
        self._checkpointer.close()
        self.writer.close(self._timeout, self._let_go)

    def _let_go(self) -> None:
        for guarded in self._guarded:
            guarded.close()
        if self._turn is not None:
            give_back(self._turn)


def _migrate_now(con: sqlite3.Connection) -> None:
    """Without waiting for SQLite's own lock."""
    con.execute("pragma busy_timeout = 0")
    con.execute("pragma journal_mode = wal")
    con.execute("begin immediate")
    try:
        migrate(con)
        con.execute("commit")
    except BaseException:
        con.execute("rollback")
        raise
