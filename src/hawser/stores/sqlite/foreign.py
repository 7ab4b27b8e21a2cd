"""Enqueueing in a transaction of the user's own: on a sqlite3 connection to the store's file.

The job is visible exactly from that transaction's commit on, and never when it is rolled back.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from hawser.clock import Clock
from hawser.errors import ConfigError, HawserError, LeaseLost, StoreUnavailable
from hawser.job import NewJob
from hawser.store import Emitted, Enqueued, NewOutput, NewStep, Settled, Settlement
from hawser.stores.sqlite import enqueue as work
from hawser.stores.sqlite import output as outputs
from hawser.stores.sqlite import steps, waits
from hawser.stores.sqlite.batches import fold
from hawser.stores.sqlite.connection import explain
from hawser.stores.sqlite.settle import settle
from hawser.stores.sqlite.tx import Tx

T = TypeVar("T")

OPEN_FOR: Final = 5.0
"""Seconds for which a handler's transaction may be open, if a third of its lease is no less: others cannot write meanwhile."""


class PreparedEnqueue:
    """Jobs on their way into the caller's transaction. All of them are written there, or none."""

    def __init__(self, path: Path, clock: Clock, sql: Mapping[str, str], jobs: Sequence[NewJob]) -> None:
        self._path = path
        self._clock = clock
        self._sql = sql
        self._jobs = jobs

    def run(self, con: Any) -> list[Enqueued]:
        return self.write(con, lambda tx: work.enqueue(tx, self._jobs))

    def write(self, con: Any, what: Callable[[Tx], T]) -> T:
        """Some work in the caller's transaction, all of it or none."""
        own = _of_driver(con)
        if own is None:
            raise ConfigError(
                f"inside: {_name(con)} is not a connection that Hawser can enqueue on here; give one of sqlite3, of "
                "SQLAlchemy or Django to the store's file"
            )
        con = own
        try:
            with _plain(con):
                self.check_file(con)
                with _begun(con), _together(con):
                    # A write at once, though of nothing: it waits its turn. One that comes after a read is refused instead.
                    con.execute(self._sql["begin_to_write"])
                    tx = Tx(con, self._clock.now(), self._sql)
                    answer = what(tx)
                    fold(tx)
                    tx.flush()
                    return answer
        except sqlite3.Error as error:
            raise _explained(error, self._path) from error

    async def arun(self, con: Any) -> list[Enqueued]:
        raise ConfigError(f"inside: {_name(con)} is synchronous; use enqueue")

    def check_file(self, con: sqlite3.Connection) -> None:
        """Only a transaction on the one file is atomic: one that spans attached files is not, in WAL mode."""
        [file] = [file for _, name, file in con.execute("pragma database_list") if name == "main"]
        if not file or not os.path.samefile(file, self._path):
            raise ConfigError(
                f"inside: the connection is to {file or 'a database in memory'!r}, the jobs are in {str(self._path)!r}; "
                "connect to the store's own file, and keep your tables there"
            )


class PreparedEmit:
    """An event on its way into the caller's transaction. As many of those who wait for it as one transaction wakes are
    woken there, the others within a second of the commit."""

    def __init__(self, path: Path, clock: Clock, sql: Mapping[str, str], event: tuple[str, bytes, float]) -> None:
        self._transaction = PreparedEnqueue(path, clock, sql, ())
        self._event = event

    def run(self, con: Any) -> Emitted:
        return self._transaction.write(con, lambda tx: waits.emit(tx, *self._event)[0])

    async def arun(self, con: Any) -> Emitted:
        raise ConfigError(f"inside: {_name(con)} is synchronous; use emit")


class PreparedEnd:
    """A settlement on its way into the transaction of the handler. It is its last statement."""

    def __init__(
        self, path: Path, clock: Clock, sql: Mapping[str, str], settlement: Settlement, output: NewOutput | None = None
    ) -> None:
        self._transaction = PreparedEnqueue(path, clock, sql, ())
        self._path = path
        self._clock = clock
        self._sql = sql
        self._id = settlement.id
        self._settlement = settlement
        self._output = output

    def begin(self, con: Any) -> float | None:
        """At once the only writer, also where SQLAlchemy or Django would begin with the first write: a transaction that reads
        first may be refused when it wants to write. It may be open for so many seconds: no lease is extended meanwhile."""
        with self._on(con) as own:
            if not own.in_transaction:
                own.execute("begin immediate")
            lease = own.execute(self._sql["leased_for"], (self._id,)).fetchone()
        return OPEN_FOR if lease is None else min(OPEN_FOR, lease[0] / 1_000_000 / 3)

    async def abegin(self, con: Any) -> None:
        raise self._not_here(con)

    def run(self, con: Any) -> None:
        with self._on(con) as own:
            tx = Tx(own, self._clock.now(), self._sql)
            if not self._written(tx):
                raise LeaseLost("transaction: the lease of this run is gone, so nothing of it is written")
            fold(tx)
            tx.flush()

    @contextmanager
    def _on(self, con: Any) -> Iterator[sqlite3.Connection]:
        """The driver's own connection, to the store's file."""
        own = _of_driver(con)
        if own is None:
            raise self._not_here(con)
        try:
            with _plain(own):
                self._transaction.check_file(own)
                yield own
        except sqlite3.Error as error:
            raise _explained(error, self._path) from error

    def _written(self, tx: Tx) -> bool:
        """Whether the run stood."""
        if self._output is not None:
            outputs.write(tx, [self._output])
        [answer] = settle(tx, [self._settlement])
        return answer.said is Settled.SETTLED

    async def arun(self, con: Any) -> None:
        raise self._not_here(con)

    def _not_here(self, con: Any) -> ConfigError:
        return ConfigError(
            f"transaction: {_name(con)} is no connection of sqlite3, and the jobs are in {str(self._path)!r}; give one of "
            "sqlite3, or a synchronous one of SQLAlchemy or Django to that file, in a plain `def` handler"
        )


class PreparedStep(PreparedEnd):
    """A step on its way into the transaction of the handler. It is its last statement."""

    def __init__(self, path: Path, clock: Clock, sql: Mapping[str, str], step: NewStep) -> None:
        self._transaction = PreparedEnqueue(path, clock, sql, ())
        self._path = path
        self._clock = clock
        self._sql = sql
        self._id = step.id
        self._step = step

    def _written(self, tx: Tx) -> bool:
        return steps.record_once(tx, self._step)


def _of_driver(con: Any) -> sqlite3.Connection | None:
    """The connection of sqlite3 itself, also under one of SQLAlchemy or Django; None where there is none."""
    package = type(con).__module__.partition(".")[0]
    if package == "django" and hasattr(con, "ensure_connection"):
        con.ensure_connection()
        con = con.connection
    elif package == "sqlalchemy" or hasattr(con, "get_bind"):
        bound = con.connection() if hasattr(con, "get_bind") else con
        con = getattr(getattr(bound, "connection", None), "dbapi_connection", None)
    return con if isinstance(con, sqlite3.Connection) else None


@contextmanager
def _plain(con: sqlite3.Connection) -> Iterator[None]:
    """Rows come as plain tuples meanwhile, with any row factory."""
    liked = con.row_factory, con.text_factory
    con.row_factory, con.text_factory = None, str
    try:
        yield
    finally:
        con.row_factory, con.text_factory = liked


@contextmanager
def _begun(con: sqlite3.Connection) -> Iterator[None]:
    """Inside of a transaction: the one that is open, or one that is begun as the connection would at its next write."""
    if con.in_transaction:
        yield
        return
    if con.isolation_level is None or getattr(con, "autocommit", None) is True:
        raise ConfigError(
            "inside: no transaction is open, and this connection commits every statement at once; "
            "begin one first, with connection.execute('begin immediate')"
        )
    con.execute("begin immediate")
    try:
        yield
    except BaseException:
        con.rollback()
        raise


@contextmanager
def _together(con: sqlite3.Connection) -> Iterator[None]:
    """What fails leaves nothing of ours behind; the rest of the transaction stands."""
    con.execute("savepoint hawser_enqueue")
    try:
        yield
    except BaseException:
        if con.in_transaction:
            con.execute("rollback to hawser_enqueue")
            con.execute("release hawser_enqueue")
        raise
    con.execute("release hawser_enqueue")


def _explained(error: sqlite3.Error, path: Path) -> HawserError:
    if isinstance(error, sqlite3.ProgrammingError):
        # It is closed, or belongs to another thread.
        return ConfigError(f"inside: {error}")
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return StoreUnavailable(
            "your transaction has read before another one wrote, so it may not write any more; nothing was written: "
            "roll it back, and begin it again with 'begin immediate'"
        )
    return explain(error, path)


def _name(con: object) -> str:
    return f"{type(con).__module__}.{type(con).__qualname__}"
