"""What a claim reads beside a crowd that may not run: no more than without it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import asyncpg
import pytest

from hawser.job import NewJob
from hawser.limit import Limit
from hawser.store import Actor, Share, Store, Target
from hawser.stores import make_store
from hawser.stores.postgres import PostgresStore
from hawser.stores.sqlite import connection
from tests.postgres import emptied, own_schema, server, versions, with_schema

QUEUES = [Share("default")]
FEW, MANY = 20, 1_000

Reads = Callable[[], Awaitable[int]]
"""How much the store has read so far."""


@contextmanager
def steps_of_sqlite(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    """Tens of instructions of SQLite's machine, over all connections that are made meanwhile."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    class Counted(connection.OwnedConnection):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.set_progress_handler(step, 10)

    async def read() -> int:
        return steps

    monkeypatch.setattr(connection, "OwnedConnection", Counted)
    yield read


@asynccontextmanager
async def entries_of_postgres(store: Store) -> AsyncIterator[Reads]:
    """Entries of indexes that the session of claims has read."""
    own = cast("PostgresStore", store)
    reader = await asyncpg.connect(own.address.dsn)

    async def read() -> int:
        await own.server.connection("claim").rows("select pg_stat_force_next_flush()")
        await reader.execute("select pg_stat_clear_snapshot()")
        asked = "select sum(idx_tup_read) from pg_stat_user_indexes where schemaname = $1"
        return int(await reader.fetchval(asked, own.address.schema))

    yield read
    await reader.close()


class Crowd(NamedTuple):
    """What keeps the jobs of a crowd back."""

    groups: bool
    breaker: bool = False

    def running(self, crowd: int) -> int:
        if self.breaker:
            return 0
        return crowd if self.groups else 1


CROWDS = [Crowd(groups=False), Crowd(groups=True), Crowd(groups=False, breaker=True), Crowd(groups=True, breaker=True)]


async def read_beside(store: Store, reads: Reads, crowd: int, kind: Crowd) -> int:
    """How much ten claims of others read beside a crowd."""
    groups = kind.groups
    if kind.breaker:
        await store.open_breaker("shut", Actor("test"))
    else:
        await store.set_limit(Target("task", "shut"), Limit(running=1, per_group=groups), Actor("test"))
    jobs = [NewJob(task="shut", body=b"{}", group=f"g{n}" if groups else None) for n in range(crowd) for _ in range(2)]
    await store.enqueue(jobs)
    running = 0
    while runs := await store.claim(QUEUES, 1_000, "w", 600):
        running += len(runs)
    assert running == kind.running(crowd)
    await store.enqueue([NewJob(task="free", body=b"{}", group="free" if groups else None) for _ in range(50)])
    assert len(await store.claim(QUEUES, 5, "w", 600)) == 5
    before = await reads()
    for _ in range(9):
        assert {run.task for run in await store.claim(QUEUES, 5, "w", 600)} == {"free"}
    return await reads() - before


async def test_claims_on_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with steps_of_sqlite(monkeypatch) as reads:
        for kind in CROWDS:
            found = []
            for crowd in (FEW, MANY):
                store = make_store(f"sqlite:///{tmp_path}/{kind.groups}-{kind.breaker}-{crowd}.db")
                await store.open()
                found.append(await read_beside(store, reads, crowd, kind))
                await store.close()
            assert 0 < found[1] < 1.2 * found[0], (kind, found)


@pytest.mark.parametrize("version", versions())
async def test_claims_on_postgres(version: str) -> None:
    for kind in CROWDS:
        found = []
        for crowd in (FEW, MANY):
            url = with_schema(server(version), own_schema())
            await emptied(url)
            store = make_store(url)
            await store.open()
            async with entries_of_postgres(store) as reads:
                found.append(await read_beside(store, reads, crowd, kind))
            await store.close()
        assert 0 < found[1] < 1.2 * found[0] + 20, (kind, found)
