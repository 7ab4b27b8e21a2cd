"""Connections of other drivers: how a statement is run there, and whether a transaction is open."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hawser.errors import ConfigError
from hawser.stores.postgres.enqueue_arguments import Rows

_NUMBERED = re.compile(r"\$\d+")
_IDLE = 0
"""What libpq calls the state of a connection on which no transaction is open."""

_BEGIN = {
    "asyncpg": "async with connection.transaction():",
    "psycopg": "with connection.transaction():",
    "psycopg2": "connection.autocommit = False",
    "sqlalchemy": "engine.begin()",
    "django": "with transaction.atomic():",
}


def synchronous(con: Any) -> Any:
    """How a statement is run on this connection."""
    family = _family(con)
    if family not in _BEGIN:
        raise _unknown(con)
    _check_kind(con, family)
    if family == "asyncpg" or _is_async(con):
        raise ConfigError(f"inside: {_name(con)} is asynchronous; use aenqueue")
    if family == "sqlalchemy":
        bound = con.connection() if hasattr(con, "get_bind") else con
        _check_open(con, family, commits_at_once=_autocommit(bound.connection.dbapi_connection))
        return lambda statement, asked: bound.exec_driver_sql(_as_format(statement), tuple(asked)).fetchall()
    _check_open(con, family, commits_at_once=_commits_at_once(con, family))
    return lambda statement, asked: _by_cursor(con, _as_format(statement), asked)


def asynchronous(con: Any) -> Any:
    family = _family(con)
    if family not in _BEGIN:
        raise _unknown(con)
    _check_kind(con, family)
    if family == "asyncpg":
        _check_open(con, family, commits_at_once=not con.is_in_transaction())
        return lambda statement, asked: con.fetch(statement, *asked)
    if not _is_async(con):
        raise ConfigError(f"inside: {_name(con)} is synchronous; use enqueue")
    if family == "psycopg":
        _check_open(con, family, commits_at_once=_commits_at_once(con, family))
        return lambda statement, asked: _by_async_cursor(con, _as_format(statement), asked)
    return lambda statement, asked: _by_async_engine(con, statement, asked)


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
    _check_open(con, "sqlalchemy", commits_at_once=_autocommit((await bound.get_raw_connection()).dbapi_connection))
    text = statement if bound.dialect.driver == "asyncpg" else _as_format(statement)
    rows: Rows = (await bound.exec_driver_sql(text, tuple(asked))).fetchall()
    return rows


def _check_kind(con: Any, family: str) -> None:
    """Pools, engines and cursors can run statements too, but not in the transaction that the caller means."""
    has = {"asyncpg": ("is_in_transaction",), "sqlalchemy": ("exec_driver_sql", "get_bind")}.get(family, ("cursor",))
    if not any(hasattr(con, each) for each in has):
        raise ConfigError(f"inside: {_name(con)} is not a connection; give the one on which your transaction is open")


def _check_open(con: Any, family: str, *, commits_at_once: bool) -> None:
    if commits_at_once:
        raise ConfigError(
            f"inside: no transaction is open on this {_name(con)}, so that each statement is committed at once; "
            f"begin one first ({_BEGIN[family]}), or enqueue without inside()"
        )


def _commits_at_once(con: Any, family: str) -> bool:
    if family == "django":
        return bool(con.get_autocommit())
    status = con.info.transaction_status if family == "psycopg" else con.get_transaction_status()
    return bool(con.autocommit and status == _IDLE)


def _autocommit(con: Any) -> bool:
    """Of the driver's connection under one of SQLAlchemy, which begins a transaction by itself unless told otherwise."""
    return bool(getattr(con, "autocommit", False))


def _family(con: Any) -> str:
    """The package that the connection comes from, also when another wraps it."""
    for kind in type(con).__mro__:
        family = kind.__module__.partition(".")[0]
        if family in _BEGIN:
            return family
    return type(con).__module__


def _is_async(con: Any) -> bool:
    return "Async" in type(con).__name__ or any("Async" in kind.__name__ for kind in type(con).__mro__)


def _as_format(statement: str) -> str:
    """The statement for drivers whose placeholders have no numbers: ours stand in order, each once."""
    return _NUMBERED.sub("%s", statement.replace("%", "%%"))


def _name(con: Any) -> str:
    return f"{type(con).__module__}.{type(con).__qualname__}"


def _unknown(con: Any) -> ConfigError:
    return ConfigError(
        f"inside: {_name(con)} is not a connection that Hawser can enqueue on; give one of asyncpg, psycopg, SQLAlchemy or Django"
    )
