"""Enqueueing in a transaction of the user's own: on a connection of asyncpg, psycopg, SQLAlchemy or Django.

The job is visible exactly from that transaction's commit on, and never when it is rolled back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hawser.errors import ConfigError, QueueFull
from hawser.job import NewJob
from hawser.store import Enqueued
from hawser.stores.postgres.directory import Directory
from hawser.stores.postgres.enqueue import Pieces, Rows
from hawser.stores.postgres.server import Server
from hawser.stores.postgres.trouble import AGAIN, NO_LANE, QUEUE_FULL, lanes_forgotten, queue_full

_NUMBERED = re.compile(r"\$\d+")


class Visit:
    """Jobs on their way into somebody's transaction. The lanes are there already: making them is not part of it."""

    def __init__(self, server: Server, directory: Directory, jobs: Sequence[NewJob], lanes: Sequence[int]) -> None:
        self._statement = server.sql["enqueue"]
        self._where = server.address.where
        self._directory = directory
        # As few statements as can be: on a connection that commits each by itself, one is all or none.
        self._pieces = Pieces(jobs, lanes, most=max(1, len(jobs)))
        wake = sorted({job.queue for job in jobs}) if server.address.listen else []
        self._asked = [batch.arguments(server.given, late=True, wake=wake) for batch in self._pieces.batches]

    def run(self, con: Any) -> list[Enqueued]:
        """Write them on a synchronous connection."""
        execute = _synchronous(con)
        said = []
        for asked in self._asked:
            try:
                said.append(execute(self._statement, asked))
            except Exception as error:
                self._explain(error)
                raise
        return self._pieces.answers(said)

    async def arun(self, con: Any) -> list[Enqueued]:
        """Write them on an asynchronous connection."""
        execute = _asynchronous(con)
        said = []
        for asked in self._asked:
            try:
                said.append(await execute(self._statement, asked))
            except Exception as error:
                self._explain(error)
                raise
        return self._pieces.answers(said)

    def _explain(self, error: Exception) -> None:
        """Our function refused. The driver says so in its own words; the transaction is spoilt, as after any error."""
        root = getattr(error, "orig", None) or error
        root = getattr(root, "__cause__", None) if not _state(root) else root
        if root is not None and _state(root) == QUEUE_FULL:
            detail = getattr(root, "detail", None) or getattr(getattr(root, "diag", None), "message_detail", None)
            full: QueueFull = queue_full(str(detail))
            raise full from error
        if root is not None and _state(root) in (NO_LANE, *AGAIN):
            self._directory.forget()
        if root is not None and _state(root) == NO_LANE:
            raise lanes_forgotten(self._where) from error


async def visit(server: Server, directory: Directory, jobs: Sequence[NewJob]) -> Visit:
    """Make what the jobs need outside of the transaction: nobody else should wait for its end."""
    lanes = await directory.make({(job.queue, job.task, job.priority) for job in jobs}, server.line("enqueue"))
    return Visit(server, directory, jobs, [lanes[job.queue, job.task, job.priority] for job in jobs])


def _state(error: Any) -> str | None:
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)


def _synchronous(con: Any) -> Any:
    """How a statement is run on this connection."""
    family = _family(con)
    if family == "sqlalchemy" and not _is_async(con):
        bound = con.connection() if hasattr(con, "get_bind") else con
        return lambda statement, asked: bound.exec_driver_sql(_as_format(statement), tuple(asked)).fetchall()
    if family in ("psycopg", "psycopg2", "django") and not _is_async(con):
        return lambda statement, asked: _by_cursor(con, _as_format(statement), asked)
    if family in ("asyncpg", "psycopg", "sqlalchemy"):
        raise ConfigError(f"inside: {_name(con)} is asynchronous; use aenqueue")
    raise _unknown(con)


def _asynchronous(con: Any) -> Any:
    family = _family(con)
    if family == "asyncpg":
        return lambda statement, asked: con.fetch(statement, *asked)
    if family == "psycopg" and _is_async(con):
        return lambda statement, asked: _by_async_cursor(con, _as_format(statement), asked)
    if family == "sqlalchemy" and _is_async(con):
        return lambda statement, asked: _by_async_engine(con, statement, asked)
    if family in ("psycopg", "psycopg2", "sqlalchemy", "django"):
        raise ConfigError(f"inside: {_name(con)} is synchronous; use enqueue")
    raise _unknown(con)


def _by_cursor(con: Any, statement: str, asked: Sequence[Any]) -> Rows:
    with con.cursor() as cursor:
        cursor.execute(statement, asked)
        rows: Rows = cursor.fetchall()
        return rows


async def _by_async_cursor(con: Any, statement: str, asked: Sequence[Any]) -> Rows:
    async with con.cursor() as cursor:
        await cursor.execute(statement, asked)
        rows: Rows = await cursor.fetchall()
        return rows


async def _by_async_engine(con: Any, statement: str, asked: Sequence[Any]) -> Rows:
    bound = await con.connection() if hasattr(con, "get_bind") else con
    text = statement if bound.dialect.driver == "asyncpg" else _as_format(statement)
    rows: Rows = (await bound.exec_driver_sql(text, tuple(asked))).fetchall()
    return rows


def _family(con: Any) -> str:
    """The package that the connection comes from, also when another wraps it."""
    for kind in type(con).__mro__:
        family = kind.__module__.partition(".")[0]
        if family in ("asyncpg", "psycopg", "psycopg2", "sqlalchemy", "django"):
            return family
    return type(con).__module__


def _is_async(con: Any) -> bool:
    return "Async" in type(con).__name__ or any("Async" in kind.__name__ for kind in type(con).__mro__)


def _as_format(statement: str) -> str:
    """The statement as drivers want it that count no arguments: ours stand in their order, each once."""
    return _NUMBERED.sub("%s", statement.replace("%", "%%"))


def _name(con: Any) -> str:
    return f"{type(con).__module__}.{type(con).__qualname__}"


def _unknown(con: Any) -> ConfigError:
    return ConfigError(
        f"inside: {_name(con)} is no connection that Hawser can enqueue on; give one of asyncpg, psycopg, SQLAlchemy or Django"
    )
