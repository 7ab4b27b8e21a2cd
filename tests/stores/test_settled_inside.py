"""What goes on behind a job that is settled in a transaction of its handler's own: batches, jobs that wait, places of limits."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import asyncpg
import pytest

from hawser import Hawser
from hawser.batch import BatchState, NewBatch, new_batch
from hawser.job import Claimed, NewJob
from hawser.limit import Limit
from hawser.store import Settled, Settlement, Store, Target
from hawser.stores import make_store
from hawser.stores.postgres import PostgresStore
from hawser.testing.contract.making import SIGN, a_job, done, take, take_one
from tests.postgres import emptied, own_schema, server, versions, with_schema
from tests.stores.test_postgres_settling import app, by_asyncpg, url
from tests.stores.test_postgres_transaction import dsn
from tests.stores.test_step_inside import shop

__all__ = ["app", "shop", "url"]  # fixtures

Inside = Callable[[Settlement], Awaitable[None]]
"""Settles in a transaction of its own, and commits."""


@pytest.fixture(params=["sqlite", "postgres"])
async def opened(request, tmp_path) -> AsyncIterator[tuple[Any, Inside]]:
    path = tmp_path / "jobs.db"
    url = f"sqlite:///{path}"
    if request.param == "postgres":
        url = with_schema(server(versions()[-1]), f"{own_schema()}_inside")
        await emptied(url)
    store: Any = make_store(url)
    await store.open()

    async def on_sqlite(settlement: Settlement) -> None:
        prepared = await store.prepare_end(settlement)
        with closing(sqlite3.connect(path)) as con, con:
            con.execute("begin immediate")
            prepared.run(con)

    async def on_postgres(settlement: Settlement) -> None:
        prepared = await store.prepare_end(settlement)
        con = await asyncpg.connect(dsn(url))
        try:
            async with con.transaction():
                await prepared.arun(con)
        finally:
            await con.close()

    yield store, on_postgres if request.param == "postgres" else on_sqlite
    await store.close()


async def batch_of_one(store: Store) -> tuple[NewBatch, Claimed]:
    """A closed batch, and its last member, which runs."""
    batch = new_batch(name="b", then=a_job(task="then", queue="later"))
    await store.open_batch(batch)
    await store.enqueue([a_job(batch=batch.id)])
    await store.close_batch(batch.id)
    return batch, await take_one(store)


async def asked(store: Store, run: Claimed) -> None:
    """What a worker does when the handler has returned."""
    [answer] = await store.settle([done(run)])
    assert answer.said is Settled.REPEATED


async def released(store: Store) -> list[str]:
    return [job.task for job in await take(store, queue="later")]


async def test_the_last_member_releases_what_comes_after_its_batch(opened):
    store, inside = opened
    batch, run = await batch_of_one(store)
    await inside(done(run))
    await asked(store, run)
    found = await store.batch(batch.id)
    assert (found.state, found.done) == (BatchState.DONE, 1)
    assert await released(store) == ["then"]
    await asked(store, run)
    assert await released(store) == []


class RollsBackError(Exception):
    """What a handler may raise in its transaction."""


async def the_count_behind_a_rollback(store: Any, con: Any) -> None:
    """A member's end is counted by the commit that settles it, so a rollback leaves no count behind. `con` rolls back."""
    batch, run = await batch_of_one(store)
    prepared = await store.prepare_end(done(run))
    with pytest.raises(RollsBackError):
        await con(prepared)
    await store.go_on()
    found = await store.batch(batch.id)
    assert (found.state, found.done, found.running) == (BatchState.RUNNING, 0, 1)
    assert await released(store) == []
    [answer] = await store.settle([done(run)])
    assert answer.said is Settled.SETTLED
    found = await store.batch(batch.id)
    assert (found.state, found.done, found.running) == (BatchState.DONE, 1, 0)
    assert await released(store) == ["then"]


async def test_a_rollback_on_sqlite_leaves_no_end_counted(shop: tuple[Hawser, Path]):
    async def rolled_back(prepared: Any) -> None:
        with closing(sqlite3.connect(shop[1])) as con, con:
            con.execute("begin immediate")
            prepared.run(con)
            raise RollsBackError

    await the_count_behind_a_rollback(await shop[0].store(), rolled_back)


async def test_a_rollback_on_postgresql_leaves_no_end_counted(app: Hawser, url: str):
    async def rolled_back(prepared: Any) -> None:
        async with by_asyncpg(url) as con, con.transaction():
            await prepared.arun(con)
            raise RollsBackError

    await the_count_behind_a_rollback(await app.store(), rolled_back)


async def test_a_job_that_waits_is_released(opened):
    store, inside = opened
    first = a_job()
    await store.enqueue([first, a_job(task="next", queue="later").after(first)])
    run = await take_one(store)
    await inside(done(run))
    await asked(store, run)
    assert await released(store) == ["next"]


async def test_what_the_last_member_adds_keeps_its_batch_from_the_end(opened):
    store, inside = opened
    batch, run = await batch_of_one(store)
    more: NewJob = a_job(batch=batch.id)
    await inside(done(run, more))
    await asked(store, run)
    found = await store.batch(batch.id)
    assert (found.state, found.total, found.done, found.ended_at) == (BatchState.RUNNING, 2, 1, None)
    assert await released(store) == []
    await inside(done(last := await take_one(store)))
    await asked(store, last)
    assert await released(store) == ["then"]


async def test_claimers_hear_of_the_place_that_is_free(opened):
    store, inside = opened
    await store.set_limit(Target("task", "work"), Limit(running=1), SIGN)
    await store.enqueue([a_job(), a_job()])
    run = await take_one(store)
    await inside(done(run))
    if isinstance(store, PostgresStore):
        with mock.patch.object(store._settler, "_wake", return_value=[]) as told:
            await asked(store, run)
        told.assert_called_with({"room in default"})
    assert len(await take(store)) == 1
