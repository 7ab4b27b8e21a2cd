"""A store that the first release has made, with audit records in it, opened by this one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from hawser.store import Actor, Store, Target
from hawser.stores.postgres import migrate
from hawser.stores.postgres.server import in_schema
from hawser.stores.sqlite import SqliteStore
from hawser.stores.sqlite import migrate as sqlite_migrate
from tests.postgres import new_schema, postgres, server, versions, with_schema

OLD = "insert into {} (at, by, action, target, count, reason) values (1, 'ann', 'cancel', 'jobs', 2, null)"
"""As the first release notes an action."""


async def found(store: Store) -> list[tuple[str, tuple[str, ...], object]]:
    return [(record.action, record.ids, record.filter) for record in await store.audit()]


async def test_a_file_keeps_its_records(tmp_path: Path):
    path = tmp_path / "old.db"
    old = OLD.format("hawser_audit")
    with closing(sqlite3.connect(path, isolation_level=None)) as con:
        con.execute(sqlite_migrate.CREATE_META)
        con.executescript(sqlite_migrate.migrations()[0].script)
        con.execute("insert into hawser_meta (name, value) values ('schema', '1')")
        con.execute(old)
        store = SqliteStore(path)
        await store.open()
        try:
            await store.pause(Target("queue", "mail"), Actor("bob", None, {"queue": "mail"}))
            con.execute(old)
            assert await found(store) == [("cancel", (), None), ("pause", (), {"queue": "mail"}), ("cancel", (), None)]
        finally:
            await store.close()


@pytest.mark.parametrize("version", versions())
async def test_a_server_keeps_its_records_and_takes_those_of_older_workers(version: str):
    store = postgres(with_schema(server(version), new_schema()))
    schema = store.address.schema
    con = await asyncpg.connect(store.address.dsn)
    try:
        await migrate.migrate(con, schema, migrate.migrations()[:1])
        await con.execute(in_schema(OLD.format("hawser.audit"), schema))
        await store.open()
        try:
            await store.pause(Target("queue", "mail"), Actor("bob", None, {"queue": "mail"}))
            await con.execute(in_schema(OLD.format("hawser.audit"), schema))
            assert await found(store) == [("cancel", (), None), ("pause", (), {"queue": "mail"}), ("cancel", (), None)]
        finally:
            await store.close()
    finally:
        await con.close()
