"""Indexes of a new version on PostgreSQL: made beside those who write, on every part, also after one was given up."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta

import asyncpg
import pytest

from hawser.errors import StoreUnavailable
from hawser.stores.postgres import migrate
from hawser.stores.postgres.server import SESSION_SETTINGS
from hawser.stores.schema import migrations_in
from tests.postgres import new_schema, postgres, server, versions, with_schema

BEFORE = 11
"""The version before groups, whose indexes are on tables that may be large."""

DAYS = (20_000, 20_001)
WAITING = """
select count(*) from pg_stat_activity
where query like 'create index concurrently%' || $1 || '%' and wait_event_type = 'Lock'"""
TIMEOUT = 2
PAST_THE_DEADLINE = timedelta(seconds=TIMEOUT + 0.5)
VALID = """
select c.relname, i.indisvalid from pg_index as i join pg_class as c on c.oid = i.indexrelid
join pg_namespace as n on n.oid = c.relnamespace where n.nspname = $1 and c.relname like '%group_id'"""


def test_indexes_on_tables_that_may_be_large_are_made_beside_those_who_write():
    """But for the first version, which makes the tables, and the fourth, whose indexes are of a column that it adds."""
    plain = re.compile(r"create (?:unique )?index (?!concurrently if not exists)(\w+) on hawser\.(?:job|done|failed)\b")
    steps = migrations_in("hawser.stores.postgres")
    assert {step.version: names for step in steps if (names := plain.findall(step.script)) and step.version not in (1, 4)} == {}


@pytest.fixture(params=versions())
async def old(request):
    """A database of the version before, with two days of done jobs, and a session of a worker."""
    store = postgres(with_schema(server(request.param), new_schema()) + f"&timeout={TIMEOUT}")
    con = await asyncpg.connect(store.address.dsn, server_settings=dict(SESSION_SETTINGS))
    schema = store.address.schema
    await migrate.migrate(con, schema, migrate.migrations()[:BEFORE])
    for day in DAYS:
        await con.execute(
            f"create table {schema}.done_{day} (like {schema}.done including defaults);"
            f"alter table {schema}.done attach partition {schema}.done_{day} for values from ({day}) to ({day + 1});"
        )
    await put(con, schema, DAYS[0])
    yield store, con
    await store.close()
    await con.execute(f"drop schema {schema} cascade")
    await con.close()


async def put(con: asyncpg.Connection, schema: str, day: int) -> None:
    columns = await con.fetch(
        "select attname, atttypid::regtype::text from pg_attribute where attrelid = $1::regclass and attnum > 0 and attnotnull",
        f"{schema}.done",
    )
    some = {"uuid": "gen_random_uuid()", "text": "'x'", "text[]": "'{}'", "bytea": "''", "boolean": "false"}
    names, values = zip(*((name, str(day) if name == "day" else some.get(kind, "0")) for name, kind in columns), strict=True)
    await con.execute(f"insert into {schema}.done ({', '.join(names)}) overriding system value values ({', '.join(values)})")


async def all_valid(con: asyncpg.Connection, schema: str) -> set[str]:
    found: dict[str, bool] = {row[0]: row[1] for row in await con.fetch(VALID, schema)}
    assert all(found.values()), found
    return set(found)


async def test_every_day_has_the_index_and_so_has_one_that_is_made_later(old):
    store, con = old
    await store.open()
    found = await all_valid(con, store.address.schema)
    assert {"job_group_id", "failed_group_id", "done_group_id", *(f"done_{day}_group_id" for day in DAYS)} <= found
    parts = "select count(*) from pg_inherits where inhparent = to_regclass($1)"
    schema = store.address.schema
    assert await con.fetchval(parts, f"{schema}.done") == await con.fetchval(parts, f"{schema}.done_group_id")


async def test_writers_go_on_while_an_index_waits_for_an_older_transaction(old):
    store, con = old
    schema = store.address.schema
    writer = await asyncpg.connect(store.address.dsn)
    try:
        transaction = con.transaction(isolation="repeatable_read")
        await transaction.start()
        await con.fetchval("select txid_current()")
        opening = asyncio.create_task(store.open())
        async with asyncio.timeout(20):
            while not await writer.fetchval(WAITING, schema):
                await asyncio.sleep(0.01)
        async with asyncio.timeout(5):
            await put(writer, schema, DAYS[0])
            await writer.execute(f"update {schema}.job set attempt = 1")
        # The deadline of a call passes: a migration takes as long as it takes.
        async with asyncio.timeout(30):
            while not await writer.fetchval(f"{WAITING} and now() - query_start > $2", schema, PAST_THE_DEADLINE):
                await asyncio.sleep(0.05)
        assert not opening.done()
        await transaction.commit()
        async with asyncio.timeout(30):
            await opening
    finally:
        await writer.close()
    await all_valid(con, schema)


async def test_an_index_that_was_given_up_half_made_is_made_anew(old):
    store, con = old
    schema = store.address.schema
    other = await asyncpg.connect(store.address.dsn)
    try:
        transaction = con.transaction(isolation="repeatable_read")
        await transaction.start()
        await con.fetchval("select txid_current()")
        await other.execute("set statement_timeout = '300ms'")
        with pytest.raises(asyncpg.QueryCanceledError):
            await other.execute(f"create index concurrently done_{DAYS[0]}_group_id on {schema}.done_{DAYS[0]} (group_name, id)")
        await transaction.rollback()
    finally:
        await other.close()
    assert not dict(await con.fetch(VALID, schema))[f"done_{DAYS[0]}_group_id"]
    await store.open()
    await all_valid(con, schema)


async def test_what_would_be_run_names_each_day(old):
    store, con = old
    schema = store.address.schema
    said = "\n".join((await migrate.schema_in(con, schema)).statements)
    assert f"create index concurrently done_{DAYS[0]}_group_id on {schema}.done_{DAYS[0]} " in said
    assert f"alter index {schema}.done_group_id attach partition {schema}.done_{DAYS[1]}_group_id" in said
    await con.execute(f"drop schema {schema} cascade; create schema {schema}")
    statements = (await migrate.schema_in(con, schema)).statements
    assert not [text for text in statements if "concurrently" in text and "\n" not in text]
    for statement in statements:
        await con.execute(statement)
    assert (await migrate.schema_in(con, schema)).current


async def test_one_who_finds_another_at_it_waits_for_a_limited_time(old):
    store, con = old
    schema = store.address.schema
    await con.execute(f"select pg_advisory_lock(hashtext('{schema}.migrate'))")
    other = await asyncpg.connect(store.address.dsn)
    try:
        with pytest.raises(StoreUnavailable, match=r"has been changing the schema for 0\.3 s; wait until it is done"):
            await migrate.migrate(other, schema, within=0.3)
    finally:
        await other.close()
        await con.execute("select pg_advisory_unlock_all()")
