"""What `ctx.transaction` is given: targets of the wrong kind are named, with what to give instead."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import django.db
import psycopg
import psycopg2.extensions
import psycopg2.pool
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncResult

from hawser.errors import ConfigError
from hawser.handler.own_transaction import opened, opened_async


def bare(kind: Any) -> Any:
    """One without a server: it is only looked at."""
    return kind.__new__(kind)


SYNC: dict[type, str] = {
    psycopg2.pool.ThreadedConnectionPool: "pool.getconn()",
    psycopg2.extensions.cursor: "cursor.connection",
    psycopg.Cursor: "cursor.connection",
    sqlalchemy.CursorResult: "give an engine, a connection, a session, or a maker of sessions",
    django.db.ConnectionHandler: "connections[alias]",
}
ASYNC: dict[type, str] = {
    psycopg.AsyncCursor: "cursor.connection",
    AsyncResult: "give an engine, a connection, a session, or a maker of sessions",
}


@pytest.mark.parametrize("kind", SYNC)
def test_what_begins_no_transaction_is_named_with_what_to_give(kind: type):
    with pytest.raises(ConfigError) as caught:
        opened(bare(kind))
    assert f"no transaction can be begun on {kind.__module__}.{kind.__qualname__}; " in str(caught.value)
    assert SYNC[kind] in str(caught.value)


@pytest.mark.parametrize("kind", ASYNC)
async def test_the_same_of_asynchronous_drivers(kind: type):
    with pytest.raises(ConfigError) as caught:
        opened_async(bare(kind))
    assert "no transaction can be begun on " in str(caught.value)
    assert ASYNC[kind] in str(caught.value)


def test_a_cursor_of_sqlite3_is_named():
    with closing(sqlite3.connect(":memory:")) as con, pytest.raises(ConfigError, match=r"of a cursor: cursor\.connection"):
        opened(con.cursor())
