"""The database's functions: made and replaced by what the files in `functions/` have, beside migrations."""

from __future__ import annotations

import re

import asyncpg
import pytest

from hawser.job import DEFAULT_ATTEMPTS, DEFAULT_TIMEOUT, NewJob
from hawser.stores.columns import GIVEN, Column
from hawser.stores.postgres import migrate, stored_functions
from hawser.stores.postgres.server import in_schema
from hawser.stores.postgres.stored_functions import functions
from tests.postgres import new_schema, postgres, server, versions, with_schema

WRITTEN = {38: "34d424a45af25790"}
"""The last revision and the digest of its text. Was a function changed? Raise `REVISION`, and write both down here. Was a column
added? Then the revision has grown by itself: write both down here."""

OTHER = "create or replace function hawser.waiting(wanted text) returns bigint language sql stable as 'select 4711::bigint'"


@pytest.fixture(params=versions())
async def store(request):
    """A new store, open."""
    store = postgres(with_schema(server(request.param), new_schema()))
    await store.open()
    yield store
    await store.server.connection("operate").rows(f"drop schema {store.address.schema} cascade")
    await store.close()


async def waiting_after_another_open(store, written: str) -> int:
    """What the function `waiting` says, once it was changed, `written` was noted of the functions, and a store was opened."""
    schema = store.address.schema
    con = await asyncpg.connect(store.address.dsn)
    try:
        await con.execute(in_schema(OTHER, schema))
        await con.execute(f"comment on function {schema}.now(bigint) is '{written}'")
        await migrate.migrate(con, schema)
        found: int = await con.fetchval(f"select {schema}.waiting('default')")
        return found
    finally:
        await con.close()


async def test_other_functions_are_replaced(store):
    await store.enqueue([NewJob(task="t", body=b"{}")])
    ours = functions()
    assert await waiting_after_another_open(store, f"{ours.revision} {ours.digest}") == 4711, "the same content is left alone"
    assert await waiting_after_another_open(store, f"{ours.revision} other") == 1
    assert await waiting_after_another_open(store, f"{ours.revision - 1} {ours.digest}") == 1


async def test_the_functions_of_a_newer_release_stay(store):
    assert await waiting_after_another_open(store, f"{functions().revision + 1} other") == 4711


async def test_defaults_are_passed_in(store):
    plain = NewJob(task="t", body=b"{}")
    await store.enqueue([plain, NewJob(task="t", body=b"{}", timeout=9.0, max_attempts=2)])
    job = await store.get(plain.id)
    assert (job.timeout, job.max_attempts) == (DEFAULT_TIMEOUT, DEFAULT_ATTEMPTS)
    assert not re.search(rf"\b{DEFAULT_TIMEOUT:.0f}\b", functions().script)


async def test_what_would_be_run_is_shown(store):
    con = await asyncpg.connect(store.address.dsn)
    try:
        assert (await migrate.schema_in(con, store.address.schema)).current
        await con.execute(f"comment on function {store.address.schema}.now(bigint) is null")
        shown = await migrate.schema_in(con, store.address.schema)
        assert not shown.current
        assert "create or replace function" in shown.statements[0]
    finally:
        await con.close()


def test_a_changed_function_has_a_new_revision():
    ours = functions()
    assert {ours.revision: ours.digest} == WRITTEN


def test_one_column_more_is_a_new_revision(monkeypatch):
    before = functions().revision
    monkeypatch.setattr(stored_functions, "GIVEN", (*GIVEN, Column("note", "text")))
    assert functions().revision == before + 1
