"""Claims and settlements on PostgreSQL do not wait for upkeep, which has a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hawser.job import NewJob, State
from hawser.limit import Limit
from hawser.outcome import Done
from hawser.store import Actor, Retention, Settlement, Share, Target
from hawser.stores.postgres import PostgresStore, limits
from hawser.testing.clock import ManualClock
from tests.postgres import emptied, own_schema, postgres, server, versions, with_schema


@pytest.fixture(params=versions())
async def url(request):
    url = with_schema(server(request.param), own_schema())
    await emptied(url)
    return url


@asynccontextmanager
async def during_upkeep(store: PostgresStore) -> AsyncIterator[None]:
    """Upkeep has its connection, and does not end meanwhile."""
    upkeep = asyncio.create_task(store.server.connection("operate").rows("select pg_sleep(3)"))
    await asyncio.sleep(0)
    try:
        yield
        assert not upkeep.done()
    finally:
        await upkeep


async def test_a_settlement_that_releases_a_job_waits_for_no_upkeep(url):
    upstream = NewJob(task="t", body=b"{}")
    waiter = NewJob(task="t", body=b"{}", queue="later").after(upstream)
    store = postgres(url)
    await store.open()
    try:
        await store.enqueue([upstream, waiter])
        [run] = await store.claim([Share("default")], 1, "w", 600)
        async with during_upkeep(store):
            await store.settle([Settlement(run.id, run.lease, Done())])
            assert [each.id for each in await store.claim([Share("later")], 1, "w", 60)] == [waiter.id]
    finally:
        await store.close()


async def test_a_claim_that_cancels_jobs_that_are_too_late_waits_for_no_upkeep(url):
    late, other = NewJob(task="t", body=b"{}", expires=1), NewJob(task="t", body=b"{}")
    clock = ManualClock()
    store = postgres(url, clock=clock)
    await store.open()
    try:
        await store.enqueue([late, other])
        clock.advance(2)
        async with during_upkeep(store):
            assert [each.id for each in await store.claim([Share("default")], 2, "w", 60)] == [other.id]
            job = await store.get(late.id)
            assert job is not None
            assert job.state is State.CANCELLED
    finally:
        await store.close()


async def test_a_prune_looks_at_some_groups_of_limits_only(url, monkeypatch):
    monkeypatch.setattr(limits, "GROUPS_PER_STATEMENT", 10)
    store = postgres(url)
    await store.open()
    try:
        await store.set_limit(Target("task", "t"), Limit(rate="10/d", per_group=True), Actor("test"))
        line, schema = store.server.connection("operate"), store.address.schema
        started = (
            f"insert into {schema}.group_meter (limit_id, group_name, slot, slots)"
            f" select id, $1 || n, $2 * ({schema}.now(null) / width), array_fill(1, array[16]) from {schema}.limited"
            " cross join generate_series(1, 30) as n"
        )
        await line.rows(started, "counts", 1)
        await line.rows(started, "idle", 0)
        left = f"select count(*) filter (where slot > 0), count(*) filter (where slot = 0) from {schema}.group_meter"
        await store.prune(Retention(), {}, 100)
        assert [tuple(row) for row in await line.rows(left)] == [(30, 30)], "it looked at ten, which count"
        for _ in range(7):
            await store.prune(Retention(), {}, 100)
        assert [tuple(row) for row in await line.rows(left)] == [(30, 0)]
    finally:
        await store.close()
