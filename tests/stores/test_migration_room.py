"""The migration that makes room: no running worker waits for it, and it waits for what holds the tables."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from hawser.job import NewJob
from hawser.outcome import Dead, Done, Failure, Outcome
from hawser.store import Actor, Settlement, Share
from hawser.stores.dependencies import FAR
from hawser.stores.postgres import migrate
from hawser.stores.postgres.server import SESSION_SETTINGS
from hawser.stores.sqlite import SqliteStore
from hawser.stores.sqlite import migrate as sqlite_migrate
from tests.postgres import new_schema, postgres, server, versions, with_schema

ROOM = {"group_name", "expires_at", "batch", "packed"}
BEFORE = 7
"""The version before it."""

BATCH = UUID("0190a000-0000-7000-8000-00000000000b")


def of_the_version_before(path: Path) -> None:
    with closing(sqlite3.connect(path)) as con:
        con.execute("pragma journal_mode = wal")
        con.execute(sqlite_migrate.CREATE_META)
        for step in sqlite_migrate.migrations()[:BEFORE]:
            con.executescript(step.script)
        con.execute("insert into hawser_meta (name, value) values ('schema', ?)", (str(BEFORE),))
        con.execute(
            "insert into hawser_job (id, task, queue, body, priority, state, lane, run_at, enqueued_at, max_attempts, timeout)"
            " values ('0190a000-0000-7000-8000-000000000000', 't', 'default', '{}', 5, 'ready', 0, 1, 1, 5, 300)"
        )
        con.execute("insert into hawser_depth (queue, task, priority, fresh) values ('default', 't', 5, 1)")
        con.commit()


async def test_a_file_of_the_version_before_has_room_and_its_jobs(tmp_path: Path):
    path = tmp_path / "jobs.db"
    of_the_version_before(path)
    store = SqliteStore(path)
    await store.open()
    try:
        [run] = await store.claim([Share("default")], 10, "w", 60)
        await store.settle([Settlement(run.id, run.lease, Done())])
        job = await store.get(run.id)
        assert job is not None
        assert job.state == "done"
    finally:
        await store.close()
    with closing(sqlite3.connect(path)) as con:
        found = {row[1] for row in con.execute("pragma table_info(hawser_job)")}
    assert ROOM | {"line"} <= found


@pytest.fixture(params=versions())
async def old(request):
    """The address of a database whose schema is of the version before, and a session of a worker."""
    store = postgres(with_schema(server(request.param), new_schema()))
    con = await asyncpg.connect(store.address.dsn, server_settings=dict(SESSION_SETTINGS))
    await migrate.migrate(con, store.address.schema, migrate.migrations()[:BEFORE])
    yield store, con
    await store.close()
    await con.execute(f"drop schema {store.address.schema} cascade")
    await con.close()


async def test_a_database_of_the_version_before_has_room_in_all_its_tables(old):
    store, con = old
    await store.open()
    for table in ("job", "done", "failed"):
        found = await con.fetch(
            "select attname from pg_attribute where attrelid = $1::regclass and attnum > 0", f"{store.address.schema}.{table}"
        )
        assert {row[0] for row in found} >= ROOM


async def test_what_has_room_goes_along_when_a_job_ends_and_is_requeued(old):
    store, con = old
    await store.open()
    schema = store.address.schema
    done, dead = NewJob(task="t", body=b"{}"), NewJob(task="t", body=b"{}")
    await store.enqueue([done, dead])
    await con.execute(f"update {schema}.job set group_name = 'acme', expires_at = {FAR}, batch = '{BATCH}', packed = 'x'")
    room = "select group_name, expires_at, batch, packed from {}.{} where id = $1"
    runs = {run.id: run for run in await store.claim([Share("default")], 10, "w", 60)}
    outcomes: dict[str, Outcome] = {done.id: Done(), dead.id: Dead(Failure("no"))}
    await store.settle([Settlement(id, run.lease, outcomes[id]) for id, run in runs.items()])
    expected = ("acme", FAR, BATCH, b"x")
    assert tuple(await con.fetchrow(room.format(schema, "done"), done.id)) == expected
    assert tuple(await con.fetchrow(room.format(schema, "failed"), dead.id)) == expected
    await store.requeue([dead.id], Actor("test"))
    # A requeued job does not expire.
    assert tuple(await con.fetchrow(room.format(schema, "job"), dead.id)) == ("acme", None, BATCH, b"x")


async def test_an_open_transaction_holds_up_the_migration_and_not_the_workers(old, caplog):
    store, con = old
    schema = store.address.schema
    worker = await asyncpg.connect(store.address.dsn)
    try:
        transaction = con.transaction()
        await transaction.start()
        await con.execute(f"insert into {schema}.meta (name, value) values ('x', 'y')")
        await con.execute(f"lock table {schema}.job in row exclusive mode")
        opening = asyncio.create_task(store.open())
        async with asyncio.timeout(20):
            while "waits for a transaction" not in caplog.text:
                await worker.execute(f"select count(*) from {schema}.job")
                await asyncio.sleep(0.01)
        async with asyncio.timeout(5):
            await worker.execute(f"update {schema}.job set attempt = 1")
        assert not opening.done()
        await transaction.rollback()
        async with asyncio.timeout(20):
            await opening
    finally:
        await worker.close()
    assert await migrate.version_of(con, schema) == migrate.migrations()[-1].version
