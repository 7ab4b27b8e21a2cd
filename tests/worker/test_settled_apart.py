"""Isolated handlers that settle their jobs in transactions of their own: the child has the connection, the worker the lease."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from hawser import Hawser, State
from hawser.job import new_job
from tests.postgres import emptied, own_schema, server, versions, with_schema
from tests.stores.test_postgres_transaction import dsn
from tests.worker.conftest import ended, until
from tests.worker.processes import Fleet, eventually, fleet

TABLE = f"paid_apart_{os.getpid()}"


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_kill_between_the_settlement_and_its_commit_leaves_neither_rows_nor_done(tmp_path: Path, kind: str):
    with fleet(tmp_path) as ships:
        rows = await prepared(ships, kind)
        app = Hawser(ships.url)
        await app.aopen()
        await asyncio.to_thread(ships.start, app="tests.worker.paying_apart:app")
        [answer] = await (await app.store()).enqueue([new_job(task=f"pay_on_{kind}", body=b"{}", max_attempts=3)])
        id = answer.id
        # The second run waits until we have looked.
        await asyncio.to_thread(eventually, lambda: [start.attempt for start in ships.starts(id)] == [1, 2], 60)
        assert [at.attempt for at in ships.starts(id, "commit")] == [1], "the settlement was written, and COMMIT was not"
        job = await until(lambda job: job.state is State.RUNNING, app, id)
        assert (await rows(), job.attempt, len(job.errors)) == ([], 2, 1)
        (tmp_path / "looked").touch()
        job = await ended(app, id, 60)
        assert (job.state, job.attempt, await rows()) == (State.DONE, 2, ["attempt 2"])
        assert [at.attempt for at in ships.starts(id, "commit")] == [1, 2]
        await app.aclose()


async def prepared(ships: Fleet, kind: str) -> Callable[[], Awaitable[list[str]]]:
    """A store of that kind with a table of the handlers' own; what reads that table."""
    ships.environ["HAWSER_TEST_TABLE"] = str(os.getpid())
    if kind == "sqlite":
        file = ships.environ["HAWSER_TEST_FILE"] = str(ships.folder / "jobs.db")
        async with Hawser(ships.url):
            pass
        with closing(sqlite3.connect(file)) as con:
            con.execute(f"create table {TABLE} (said text)")

        async def of_sqlite() -> list[str]:
            with closing(sqlite3.connect(file)) as con:
                return [said for (said,) in con.execute(f"select said from {TABLE}")]

        return of_sqlite
    ships.url = ships.environ["HAWSER_STORE"] = with_schema(server(versions()[-1]), f"{own_schema()}_apart")
    await emptied(ships.url)
    where = ships.environ["HAWSER_TEST_DSN"] = dsn(ships.url)

    async def asked(statement: str) -> list[str]:
        con = await asyncpg.connect(where)
        try:
            return [said for (said,) in await con.fetch(statement)]
        finally:
            await con.close()

    await asked(f"drop table if exists {TABLE}")
    await asked(f"create table {TABLE} (said text)")
    return lambda: asked(f"select said from {TABLE}")
