"""Dead jobs that an older release left behind get their groups; its workers may go on beside."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hawser.outcome import Dead, Failure
from hawser.store import Actor, Filter, Retention, Settlement, Share, Store
from hawser.stores.postgres import migrate
from hawser.stores.postgres.server import SESSION_SETTINGS
from hawser.stores.sqlite import SqliteStore
from hawser.stores.sqlite import migrate as sqlite_migrate
from hawser.testing import ManualClock
from hawser.upkeep import pruner
from hawser.upkeep.pruner import Pruner
from hawser.value.fingerprint import Group, fingerprint
from hawser.value.ids import new_id
from tests.postgres import new_schema, postgres, server, versions, with_schema
from tests.stores.test_migrations import OldWorker, a_job

SIGN = Actor("test")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def groups(store: Store) -> tuple[list[tuple[str, int]], int]:
    found = await store.dead_groups()
    return [(group.fingerprint, group.count) for group in found.groups], found.ungrouped


async def test_a_file_of_version_3_gets_its_groups(tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch):
    path, now = tmp_path / "old.db", clock.now()
    ids = [new_id() for _ in range(5)]
    with closing(sqlite3.connect(path, isolation_level=None)) as con:
        con.execute(sqlite_migrate.CREATE_META)
        for step in sqlite_migrate.migrations():
            if step.version < 4:
                con.executescript(step.script)
        con.execute("insert into hawser_meta (name, value) values ('schema', '3')")
        for n, id in enumerate(ids):
            con.execute(
                "insert into hawser_job (id, task, queue, body, priority, state, lane, run_at, enqueued_at, attempt, "
                "max_attempts, timeout, lease, finished_at) values (?, 'work', 'default', '{}', 5, ?, 1, ?, ?, 1, 1, 300, 1, ?)",
                (id, "cancelled" if n == 4 else "dead", now, now, now),
            )
            con.execute(
                "insert into hawser_attempt values (last_insert_rowid(), 1, 1, 'w', 1, 2, 'failed', ?, null)", (f"E: {n}",)
            )
        con.execute("insert into hawser_depth (queue, task, priority, dead, cancelled) values ('default', 'work', 5, 4, 1)")
    store = SqliteStore(path, clock=clock)
    try:
        await store.open()
        assert await groups(store) == ([], 4)
        await store.requeue([ids[0]], SIGN)
        assert await groups(store) == ([], 3)
        monkeypatch.setattr(pruner, "PRUNED_PER_STEP", 2)
        upkeep = Pruner(store, Retention(), {})
        assert await upkeep.turn() == pruner.BETWEEN_PRUNES_S
        assert await groups(store) == ([(fingerprint("E: 9"), 2)], 1)
        assert await upkeep.turn() > 1
        assert await groups(store) == ([(fingerprint("E: 9"), 3)], 0)
        assert await store.group_dead(10) == 0
        found = await store.find(Filter(group=Group("work", fingerprint("E: 9"))))
        assert [job.id for job in found.jobs] == ids[3:0:-1]
        await store.discard([ids[1]], SIGN)
        assert await groups(store) == ([(fingerprint("E: 9"), 2)], 0)
    finally:
        await store.close()


@pytest.fixture(params=versions())
async def old(request: pytest.FixtureRequest, clock: ManualClock) -> Any:
    """A store whose schema is version 1, and a worker of that release."""
    store = postgres(with_schema(server(request.param), new_schema()), clock=clock)
    con = await asyncpg.connect(store.address.dsn, server_settings=dict(SESSION_SETTINGS))
    await migrate.migrate(con, store.address.schema, migrate.migrations()[:1])
    yield store, OldWorker(store, con)
    await store.close()
    await con.execute(f"drop schema {store.address.schema} cascade")
    await con.close()


async def test_workers_of_version_1_may_go_on_beside_the_groups(old: Any, clock: ManualClock):
    store, worker = old
    await worker.enqueue(*(a_job(max_attempts=1) for _ in range(4)))
    await store.open()
    runs = await store.claim([Share("default")], 10, "w", 60)
    await store.settle([Settlement(run.id, run.lease, Dead(Failure("E: 1"))) for run in runs[:2]])
    assert await groups(store) == ([(fingerprint("E: 9"), 2)], 0)
    for run in runs[2:]:
        dying = [run.id], [run.lease], [False], ["dead"], [3], [0], [1], [0], [None], ["dead"], ["E: 2"], [None], [1]
        assert [tuple(row) for row in await worker.rows("leave", store.server.given, False, *dying)] == [(1,)]
    assert await groups(store) == ([(fingerprint("E: 9"), 2)], 2)
    assert await store.group_dead(1) == 1
    assert await store.group_dead(10) == 1
    assert await groups(store) == ([(fingerprint("E: 9"), 4)], 0)
    clock.advance(100)
    [(lane,)] = await worker._con.fetch(f"select id from {store.address.schema}.lane")
    await worker.rows("prune_failed", store.server.given, [lane], ["dead"], [50_000_000], 3)
    assert await groups(store) == ([(fingerprint("E: 9"), 1)], 0)
    await store.prune(Retention(dead=50), {}, 10)
    assert await groups(store) == ([], 0)
