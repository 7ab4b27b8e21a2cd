"""A transaction of the handler's own database, opened here so that it also settles the job: its rows, the fence and "done" in one
commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, Final

from hawser.errors import ConfigError

_IDLE: Final = 0
"""What libpq calls the state of a connection on which no transaction is open."""


_NEEDED: Final = {
    "asyncpg": (("acquire", "is_in_transaction"), "give a pool, or a connection"),
    "psycopg_pool": (("connection",), "give the pool"),
    "psycopg": (("info",), "give a pool or a connection; of a cursor: cursor.connection"),
    "psycopg2": (("get_transaction_status",), "give a connection; of a pool: pool.getconn(), of a cursor: cursor.connection"),
    "sqlalchemy": (("begin",), "give an engine, a connection, a session, or a maker of sessions"),
    "django": (("in_atomic_block",), "give one connection: django.db.connection, or connections[alias]"),
    "sqlite3": (("in_transaction",), "give a connection; of a cursor: cursor.connection"),
}
"""By package what a target must have, any of these, and what to give where it has not."""


def is_async(target: Any) -> bool:
    """Whether the pool, engine, session or connection is of an asynchronous driver."""
    kinds = [kind.__name__.lower() for kind in type(target).__mro__]
    return family(target) == "asyncpg" or any(kind.startswith("async") for kind in kinds)


def family(target: Any) -> str:
    """The package that the target comes from, also when another wraps it."""
    for kind in type(target).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in _NEEDED:
            return package
    return ""


def _checked_family(target: Any) -> str:
    """The package, of a target on which a transaction can be begun."""
    found = family(target)
    if not found:
        raise _unknown(target)
    needed, next_step = _NEEDED[found]
    if not any(hasattr(target, each) for each in needed):
        raise ConfigError(f"transaction: no transaction can be begun on {_name(target)}; {next_step}")
    return found


def opened(target: Any) -> AbstractContextManager[Any]:
    """Begin a transaction, commit it at the end, or roll it back after an error. The value is the connection or session."""
    found = _checked_family(target)
    if is_async(target):
        raise ConfigError(f"transaction: {_name(target)} is asynchronous; use `async with`, in an async handler")
    match found:
        case "sqlite3":
            return _sqlite3(target)
        case "psycopg_pool":
            return _pooled(target)
        case "psycopg":
            return _psycopg(target)
        case "psycopg2":
            return _psycopg2(target)
        case "sqlalchemy":
            return _begun(target)
        case "django":
            return _django(target)
        case _:
            raise _unknown(target)


def opened_async(target: Any) -> AbstractAsyncContextManager[Any]:
    """The same, of an asynchronous driver."""
    match _checked_family(target):
        case "asyncpg":
            return _asyncpg(target)
        case ("psycopg_pool" | "psycopg" | "sqlalchemy") as kind if is_async(target):
            return {"psycopg_pool": _pooled_async, "psycopg": _psycopg_async, "sqlalchemy": _begun_async}[kind](target)
        case _:
            raise ConfigError(f"transaction: {_name(target)} is synchronous; use `with`, in a plain `def` handler")


@asynccontextmanager
async def _asyncpg(target: Any) -> AsyncIterator[Any]:
    if hasattr(target, "acquire"):
        async with target.acquire() as con, con.transaction():
            yield con
        return
    _refuse_open(target, is_open=target.is_in_transaction())
    async with target.transaction():
        yield target


@asynccontextmanager
async def _pooled_async(target: Any) -> AsyncIterator[Any]:
    async with target.connection() as con, con.transaction():
        yield con


@asynccontextmanager
async def _psycopg_async(target: Any) -> AsyncIterator[Any]:
    _refuse_open(target, is_open=target.info.transaction_status != _IDLE)
    async with target.transaction():
        yield target


@asynccontextmanager
async def _begun_async(target: Any) -> AsyncIterator[Any]:
    _refuse_open(target, is_open=_is_in_transaction(target))
    async with target.begin() as begun:
        yield target if _is_connection(target) else begun


@contextmanager
def _pooled(target: Any) -> Iterator[Any]:
    with target.connection() as con, con.transaction():
        yield con


@contextmanager
def _psycopg(target: Any) -> Iterator[Any]:
    _refuse_open(target, is_open=target.info.transaction_status != _IDLE)
    with target.transaction():
        yield target


@contextmanager
def _psycopg2(target: Any) -> Iterator[Any]:
    _refuse_open(target, is_open=target.get_transaction_status() != _IDLE)
    if target.autocommit:
        raise ConfigError("transaction: this connection of psycopg2 commits every statement at once; set autocommit = False")
    with target:
        yield target


@contextmanager
def _begun(target: Any) -> Iterator[Any]:
    _refuse_open(target, is_open=_is_in_transaction(target))
    with target.begin() as begun:
        yield target if _is_connection(target) else begun


@contextmanager
def _django(target: Any) -> Iterator[Any]:
    _refuse_open(target, is_open=target.in_atomic_block or not target.get_autocommit())
    target.set_autocommit(False)
    try:
        try:
            yield target
        except BaseException:
            target.rollback()
            raise
        target.commit()
    finally:
        target.set_autocommit(True)


@contextmanager
def _sqlite3(target: Any) -> Iterator[Any]:
    _refuse_open(target, is_open=target.in_transaction)
    # At once the only writer: a transaction that reads first may be refused when it wants to write.
    target.execute("begin immediate")
    try:
        yield target
    except BaseException:
        target.rollback()
        raise
    target.commit()


def _is_in_transaction(target: Any) -> bool:
    """Of SQLAlchemy: engines and makers of sessions have none."""
    return bool(target.in_transaction()) if hasattr(target, "in_transaction") else False


def _is_connection(target: Any) -> bool:
    """Whether statements run on the target itself: on a connection or a session, but not on an engine or a maker of sessions."""
    return hasattr(target, "in_transaction")


def _refuse_open(target: Any, *, is_open: bool) -> None:
    if is_open:
        raise ConfigError(
            f"transaction: a transaction is open on this {_name(target)} already, so its end would not settle the job; "
            "give one without, or commit first"
        )


def _unknown(target: Any) -> ConfigError:
    return ConfigError(
        f"transaction: {_name(target)} is not known here; give a pool or connection of asyncpg or psycopg, an engine, session or "
        "connection of SQLAlchemy, a connection of Django or of sqlite3"
    )


def _name(target: Any) -> str:
    return f"{type(target).__module__}.{type(target).__qualname__}"
