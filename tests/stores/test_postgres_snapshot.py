"""What claims read while another transaction holds an old snapshot: then no version of a row that was ever written goes away."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import asyncpg
import pytest

from hawser.job import NewJob
from hawser.limit import Limit
from hawser.outcome import Done
from hawser.store import Actor, Settlement, Share, Target
from hawser.stores.postgres import PostgresStore
from hawser.testing.clock import ManualClock
from tests.postgres import emptied, own_schema, postgres, server, versions, with_schema

GROUPS = 10
ROUNDS = 60
SOME = 6
"""Rounds at the beginning and at the end that are compared."""

LIMITS = {
    "plain": None,
    "cap": Limit(running=1_000),
    "each": Limit(running=3, rate="1000/m", per_group=True),
    "ordered": Limit(running=1, per_group=True, ordered=True),
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=versions())
async def store(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncIterator[PostgresStore]:
    url = with_schema(server(request.param), own_schema())
    await emptied(url)
    store = postgres(url, clock=clock)
    await store.open()
    yield store
    await store.close()


class Watcher:
    """Another client, which holds an old snapshot; and what claims read meanwhile."""

    def __init__(self, store: PostgresStore, holder: asyncpg.Connection, reader: asyncpg.Connection) -> None:
        self._line = store.server.connection("claim")
        self._schema = store.address.schema
        self._holder = holder
        self._reader = reader

    async def hold(self) -> None:
        await self._holder.execute(f"begin isolation level repeatable read; select 1 from {self._schema}.job limit 1")

    async def entries(self) -> int:
        """Entries of indexes that sessions have read; those of versions that are gone among them."""
        await self._line.rows("select pg_stat_force_next_flush()")
        await self._reader.execute("select pg_stat_clear_snapshot()")
        asked = "select sum(idx_tup_read) from pg_stat_user_indexes where schemaname = $1"
        return int(await self._reader.fetchval(asked, self._schema))


@pytest.fixture
async def watcher(store: PostgresStore) -> AsyncIterator[Watcher]:
    holder, reader = [await asyncpg.connect(store.address.dsn) for _ in range(2)]
    yield Watcher(store, holder, reader)
    await holder.close()
    await reader.close()


def jobs(delay: float, groups: bool) -> list[NewJob]:
    """One of each group, and one without."""
    names = [f"g{n}" if groups else None for n in range(GROUPS)]
    return [NewJob(task="t", body=b"{}", group=name, delay=delay) for name in (*names, None)]


@pytest.mark.parametrize("delay", [0.0, 0.5], ids=["due", "later"])
@pytest.mark.parametrize(("groups", "limit"), [(False, "cap"), *((True, name) for name in LIMITS)], ids=str)
async def test_claims_read_no_more_with_every_job_that_was_done(
    store: PostgresStore, clock: ManualClock, watcher: Watcher, groups: bool, limit: str, delay: float
) -> None:
    if (said := LIMITS[limit]) is not None:
        await store.set_limit(Target("task", "t"), said, Actor("test"))
    reads, began = [], time.monotonic()
    for round_ in range(ROUNDS):
        await store.enqueue(jobs(delay, groups))
        # And as long as the round before took: a server's clock that stays behind ours is taken for one that was set back.
        clock.advance(1 + time.monotonic() - began)
        began = time.monotonic()
        before = await watcher.entries()
        runs = await store.claim([Share("default")], 100, "w", 60)
        reads.append(await watcher.entries() - before)
        assert len(runs) == GROUPS + 1
        await store.settle([Settlement(run.id, run.lease, Done(), keep=False, hint=run.hint) for run in runs])
        if not round_:
            await watcher.hold()
    first, last = sum(reads[SOME : 2 * SOME]), sum(reads[-SOME:])
    assert last < 1.5 * first, reads
