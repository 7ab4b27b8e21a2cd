"""What it costs to settle a job in the handler's own transaction: statements there, calls of the store. Counted, not timed."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from hawser import Context, Hawser
from hawser.handler.run_control import InlineRun
from hawser.store import Settled, Share
from hawser.testing.contract.making import a_job, done, take, take_one
from tests.stores.test_postgres_transaction import dsn
from tests.stores.test_step_round_trips import Trips, asks_of_types, trips
from tests.worker.test_breaker import url_of

__all__ = ["trips"]


@pytest.fixture(params=["sqlite", "postgres"])
async def app(request: pytest.FixtureRequest, tmp_path: Path, trips: Trips) -> AsyncIterator[Hawser]:
    app = Hawser(await url_of(request.param, tmp_path))
    await app.aopen()
    yield app
    await app.aclose()
    await asyncio.to_thread(app.close)


async def contexts(app: Hawser, trips: Trips, count: int) -> list[Context]:
    """Runs of so many jobs. Nothing is counted so far."""

    @app.task
    def pay(ctx: Context) -> None: ...

    await app.aenqueue_many([pay.job() for _ in range(count)])
    runs = await (await app.store()).claim([Share("default")], count, "w1", 30)
    trips.seen.clear()
    return [pay.new_context(run, InlineRun()) for run in runs]


@pytest.mark.parametrize("app", ["postgres"], indirect=True)
async def test_on_postgresql_it_is_one_statement_more(app: Hawser, trips: Trips):
    asked: list[str] = []
    con = await asyncpg.connect(dsn(str(app.store_url)))
    con.add_query_logger(lambda query: None if asks_of_types(query.query) else asked.append(query.query))
    async with con.transaction():
        await con.execute("select 1")
    await asyncio.sleep(0)  # what was asked is told a turn later
    alone = len(asked)
    assert alone == 3, "begin, the handler's own statement, commit"
    for ctx in await contexts(app, trips, 2):
        asked.clear()
        trips.seen.clear()  # the first of a process asks whether there is a table for today
        async with ctx.transaction(con) as own:
            await own.execute("select 1")
        await asyncio.sleep(0)
        assert len(asked) == alone + 1, asked
    assert trips.seen.total() == 0, "nothing is asked on connections of the worker's"
    await con.close()


@pytest.mark.parametrize("app", ["postgres"], indirect=True)
async def test_jobs_that_follow_are_one_statement_behind_it(app: Hawser, trips: Trips):
    @app.task
    def after() -> None: ...

    asked: list[str] = []
    con = await asyncpg.connect(dsn(str(app.store_url)))
    con.add_query_logger(lambda query: None if asks_of_types(query.query) else asked.append(query.query))
    for ctx in await contexts(app, trips, 2):
        asked.clear()
        ctx.enqueue(after.job(), after.job())
        async with ctx.transaction(con):
            pass
        await asyncio.sleep(0)
    assert len(asked) == 4, asked
    await con.close()


@pytest.mark.parametrize("app", ["postgres"], indirect=True)
async def test_so_it_is_in_a_plain_handler(app: Hawser, trips: Trips):
    asked: list[Any] = []

    class Counting(psycopg.Cursor[Any]):
        def execute(self, query: Any, *rest: Any, **options: Any) -> Any:
            asked.append(query)
            return super().execute(query, *rest, **options)

    first, second = await contexts(app, trips, 2)

    def run(ctx: Context) -> None:
        asked.clear()
        trips.seen.clear()
        with psycopg.connect(dsn(str(app.store_url)), cursor_factory=Counting) as con, ctx.transaction(con) as own:
            own.execute("select 1")

    await asyncio.to_thread(run, first)
    await asyncio.to_thread(run, second)
    assert len(asked) == 2, asked
    assert trips.seen.total() == 0


@pytest.mark.parametrize("app", ["sqlite"], indirect=True)
async def test_on_sqlite_neither_writer_nor_reader_is_asked(app: Hawser, trips: Trips, tmp_path: Path):
    [ctx] = await contexts(app, trips, 1)

    def run() -> None:
        with closing(sqlite3.connect(tmp_path / "jobs.db")) as con, ctx.transaction(con):
            pass

    await asyncio.to_thread(run)
    assert trips.seen.total() == 0


@pytest.mark.parametrize("app", ["postgres"], indirect=True)
async def test_an_end_that_releases_a_job_tells_others_by_the_same_commit(app: Hawser, trips: Trips):
    """The end, a look for who began to wait at the same moment, the release with a word to other processes, and a last look."""
    store = await app.store()
    for _ in range(2):
        first = a_job()
        await store.enqueue([first, a_job(task="next", queue="later").after(first.id)])
        run = await take_one(store)
        trips.seen.clear()
        [answer] = await store.settle([done(run)])
        assert answer.said is Settled.SETTLED
        await asyncio.sleep(0)
        asked = sorted(trips.seen.elements())
        [claimed] = await take(store, queue="later")
        await store.settle([done(claimed)])
    assert len(asked) == 4, asked
    assert sum("pg_notify" in each for each in asked) == 2, "the release, and the last look"
