"""A store that an older release has made, with jobs and keys in it, opened by this one; and workers of that release beside it.

The old store is made by the first of today's migrations: `tests/unit/test_migrations.py` holds that they are as they landed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hawser.clock import to_us
from hawser.job import FOREVER, NewJob
from hawser.outcome import Done
from hawser.store import Actor, Retention, SettleAnswer, Settled, Settlement, Share, Store
from hawser.stores.postgres import PostgresStore, migrate
from hawser.stores.postgres.enqueue_arguments import EnqueueArguments, made_on
from hawser.stores.postgres.server import SESSION_SETTINGS, in_schema
from hawser.stores.sqlite import SqliteStore
from hawser.stores.sqlite import migrate as sqlite_migrate
from hawser.stores.statements import load
from hawser.testing import ManualClock
from hawser.testing.contract.making import said
from hawser.value.ids import new_id
from tests.postgres import new_schema, postgres, server, versions, with_schema

OLD_POSTGRES = load("tests.stores.version_1", "postgres.sql")
OLD_SQLITE = load("tests.stores.version_1", "sqlite.sql")


@pytest.fixture
def clock():
    return ManualClock()


def a_job(key: str | None = None, **fields: Any) -> NewJob:
    return NewJob(**{"task": "work", "body": b"{}", "key": key, **fields})


async def holders(store: Store, *keys: str, task: str = "work") -> list[str | None]:
    """The jobs that hold these keys for a task. Who asks gets no key: each job is cancelled at once."""
    found: list[str | None] = []
    for key in keys:
        job = a_job(key, task=task, delay=1_000_000)
        [answer] = await store.enqueue([job])
        found.append(None if answer.created else answer.id)
        if answer.created:
            await store.cancel([job.id], Actor("test"))
    return found


async def finish(store: Store) -> list[SettleAnswer]:
    runs = await store.claim([Share("default")], 100, "w", 60)
    return await store.settle([Settlement(run.id, run.lease, Done()) for run in runs])


# SQLite.


def a_file_of_version_1(path: Path, now: int) -> dict[str, str]:
    """Live, held and orphaned keys; gives the ids of the jobs that hold them."""
    ids = {name: new_id() for name in ("live", "window", "ever", "orphan")}
    ttls = {"window": 60.0, "ever": FOREVER}
    with closing(sqlite3.connect(path, isolation_level=None)) as con:
        con.execute(sqlite_migrate.CREATE_META)
        con.executescript(sqlite_migrate.migrations()[0].script)
        con.execute("insert into hawser_meta (name, value) values ('schema', '1')")
        for name in ("live", "window", "ever"):
            row = (
                ids[name],
                "work",
                "default",
                b"{}",
                5,
                0,
                now,
                now,
                5,
                300.0,
                name,
                ttls.get(name, 0.0),
                None,
                None,
                0,
                None,
                None,
            )
            con.execute(OLD_SQLITE["add"], row)
        con.execute(OLD_SQLITE["move"], ("default", "work", 5, 3, 0, 0, 0, 0, 0, 0))
        con.execute(OLD_SQLITE["move"], ("default", "other", 5, 0, 0, 0, 0, 1, 0, 0))
        for name, id in ids.items():
            until = now + 60_000_000 if name in ("window", "orphan") else None
            con.execute(OLD_SQLITE["hold_key"], {"queue": "default", "key": name, "job_id": id, "until": until})
        con.execute(OLD_SQLITE["count_keys"], {"queue": "default", "keys": len(ids)})
    return ids


async def test_a_file_of_version_1_keeps_its_keys_each_for_the_task_of_its_job(tmp_path, clock):
    ids = a_file_of_version_1(tmp_path / "old.db", clock.now())
    store = SqliteStore(tmp_path / "old.db", clock=clock)
    await store.open()
    try:
        assert (await store.stats("default")).keys == 5  # the orphan's window goes on for both tasks
        assert await holders(store, *ids) == list(ids.values())
        assert await holders(store, *ids, task="other") == [None, None, None, ids["orphan"]]
        assert said(await finish(store)) == [Settled.SETTLED] * 3
        assert await holders(store, *ids) == [None, *list(ids.values())[1:]]
        clock.advance(61)
        assert await store.prune(Retention(), {}, 100) == 0
        assert await holders(store, *ids) == [None, None, ids["ever"], None]
        assert (await store.stats("default")).keys == 1
    finally:
        await store.close()


# PostgreSQL.


class OldWorker:
    """Speaks to the database as the release did whose schema was version 1."""

    def __init__(self, store: PostgresStore, con: asyncpg.Connection) -> None:
        self._store = store
        self._con = con

    async def rows(self, name: str, *arguments: Any) -> list[Any]:
        found: list[Any] = await self._con.fetch(in_schema(OLD_POSTGRES[name], self._store.address.schema), *arguments)
        return found

    async def enqueue(self, *jobs: NewJob) -> list[str]:
        """The ids of the jobs that stand for them."""
        names = {(job.queue, job.task, job.priority) for job in jobs}
        await self.rows("make_lanes", *(list(column) for column in zip(*names, strict=True)))
        found = await self._con.fetch(f"select queue, task, priority, id from {self._store.address.schema}.lane")
        lanes = {tuple(name): id for *name, id in found}
        batch = EnqueueArguments(jobs, [lanes[job.queue, job.task, job.priority] for job in jobs])
        others = await self.rows("enqueue", *self._arguments(jobs, [lanes[job.queue, job.task, job.priority] for job in jobs]))
        return [answer.id for answer in batch.answers([tuple(row) for row in others])]

    def _arguments(self, jobs: Sequence[NewJob], lanes: Sequence[int]) -> tuple[Any, ...]:
        return (
            *(self._store.server.given, made_on(job.id for job in jobs), [job.id for job in jobs], lanes),
            *([job.body for job in jobs], None, [to_us(job.delay) for job in jobs], None, None),
            *([job.key for job in jobs], [float(job.key_ttl) for job in jobs], None, None, None, None, None),
            *(False, False, None, None),
        )

    async def finish(self, *runs: Any) -> None:
        asked = [run.id for run in runs], [run.lease for run in runs], None, None
        assert [tuple(row) for row in await self.rows("finish", self._store.server.given, *asked)] == [(None,)]


@pytest.fixture(params=versions())
async def old(request, clock):
    """A store whose schema is version 1, and a worker of that release."""
    store = postgres(with_schema(server(request.param), new_schema()), clock=clock)
    con = await asyncpg.connect(store.address.dsn, server_settings=dict(SESSION_SETTINGS))
    await migrate.migrate(con, store.address.schema, migrate.migrations()[:1])
    yield store, OldWorker(store, con)
    await store.close()
    await con.execute(f"drop schema {store.address.schema} cascade")
    await con.close()


async def test_a_database_of_version_1_keeps_its_keys_each_for_the_task_of_its_job(old, clock):
    store, worker = old
    jobs = {"live": a_job("live"), "window": a_job("window", key_ttl=60), "ever": a_job("ever", key_ttl=FOREVER)}
    await worker.enqueue(*jobs.values())
    ids = {name: job.id for name, job in jobs.items()}
    await store.open()
    assert (await store.stats("default")).keys == 3
    assert await holders(store, *ids) == list(ids.values())
    assert await holders(store, *ids, task="other") == [None, None, None]
    assert said(await finish(store)) == [Settled.SETTLED] * 3
    assert await holders(store, *ids) == [None, ids["window"], ids["ever"]]
    clock.advance(61)
    assert await store.prune(Retention(), {}, 100) == 0
    assert await holders(store, *ids) == [None, None, ids["ever"]]
    assert (await store.stats("default")).keys == 1


async def test_a_worker_of_version_1_goes_on_when_the_schema_is_new(old, clock):
    """It enqueues by the new rule, frees what ends, and takes no key of another task along."""
    store, worker = old
    first = a_job("k")
    assert await worker.enqueue(first) == [first.id]
    await store.open()
    again, theirs = a_job("k"), a_job("k", task="other", delay=1_000)
    window, mine = a_job("w", key_ttl=60), a_job("w", task="other", delay=1_000)
    assert await worker.enqueue(again, theirs, window, mine) == [first.id, theirs.id, window.id, mine.id]
    runs = await store.claim([Share("default")], 10, "w", 60)
    assert {run.id for run in runs} == {first.id, window.id}
    await worker.finish(*runs)
    assert await holders(store, "k", "w") == [None, window.id]
    assert await holders(store, "k", "w", task="other") == [theirs.id, mine.id]
    clock.advance(61)
    await worker.rows("sweep_keys", store.server.given, 100)
    assert await worker.rows("keys_over", clock.now()) == []
    assert await holders(store, "k", "w", task="other") == [theirs.id, mine.id]
    await worker.rows("cancel", store.server.given, [theirs.id, mine.id], None)
    assert await holders(store, "k", "w") + await holders(store, "k", "w", task="other") == [None] * 4


async def test_a_window_that_a_worker_of_version_1_leaves_behind_is_free_when_its_job_is_over(old, clock):
    store, worker = old
    await store.open()
    job = a_job("w", key_ttl=60)
    await worker.enqueue(job)
    clock.advance(200)
    await store.prune(Retention(), {}, 100)
    assert await holders(store, "w") == [job.id]
    await worker.finish(*await store.claim([Share("default")], 10, "w", 60))
    assert await holders(store, "w") == [None]
