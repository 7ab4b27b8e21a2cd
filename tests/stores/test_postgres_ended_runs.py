"""A run that ends makes room at once under limits, whatever the server's clock says and however late its transaction commits."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from hawser.job import NewJob
from hawser.limit import Limit
from hawser.outcome import Done
from hawser.store import Actor, Leave, Retention, Settlement, Share, Target
from hawser.stores.postgres import PostgresStore
from tests.postgres import emptied, own_schema, postgres, server, versions, with_schema

HOUR_US = 3_600_000_000
QUEUES = [Share("default")]
LIMITS = {"task": (None, Limit(running=2)), "group": ("a", Limit(running=2)), "each": ("a", Limit(running=2, per_group=True))}


@pytest.fixture(params=versions())
async def store(request: pytest.FixtureRequest) -> AsyncIterator[PostgresStore]:
    url = with_schema(server(request.param), own_schema())
    await emptied(url)
    store = postgres(url)
    await store.open()
    yield store
    await store.close()


@pytest.fixture(params=LIMITS)
async def full(request: pytest.FixtureRequest, store: PostgresStore) -> list[Settlement]:
    """The two runs that a limit lets run; four more jobs wait."""
    group, limit = LIMITS[request.param]
    await store.set_limit(Target("task", "t"), limit, Actor("test"))
    await store.enqueue([NewJob(task="t", body=b"{}", group=group) for _ in range(6)])
    runs = await store.claim(QUEUES, 10, "w", 60)
    assert len(runs) == 2
    return [Settlement(run.id, run.lease, Done(), keep=False) for run in runs]


async def test_the_clock_was_set_back_while_the_limit_was_full(store: PostgresStore, full: list[Settlement]) -> None:
    schema = store.address.schema
    await store.server.connection("operate").rows(f"update {schema}.meter set folded_at = folded_at + {HOUR_US}")
    await store.settle(full[:1])
    assert await store._claims.due_in(["default"], Leave()) == 0
    assert len(await store.claim(QUEUES, 10, "w", 60)) == 1
    await store.settle(full[1:])
    assert len(await store.claim(QUEUES, 10, "w", 60)) == 1


async def test_a_run_ends_in_a_transaction_that_lasts_while_others_end(store: PostgresStore, full: list[Settlement]) -> None:
    schema = store.address.schema
    con = await asyncpg.connect(store.address.dsn)
    try:
        transaction = con.transaction()
        await transaction.start()
        await con.execute(f"delete from {schema}.job where id = $1", full[0].id)
        await con.execute(f"update {schema}.freed set at = at - {HOUR_US}")
        for settled in full[1:]:
            await store.settle([settled])
            assert len(await store.claim(QUEUES, 10, "w", 60)) == 1
        assert await store.claim(QUEUES, 10, "w", 60) == []
        await transaction.commit()
    finally:
        await con.close()
    assert len(await store.claim(QUEUES, 10, "w", 60)) == 1
    assert await store.claim(QUEUES, 10, "w", 60) == []


@pytest.mark.parametrize("ends", ["before the limit", "after the limit", "after a prune"])
async def test_what_ended_under_a_limit_that_is_gone_is_forgotten(
    store: PostgresStore, full: list[Settlement], ends: str
) -> None:
    """Nobody adds it up any longer, and another limit of the task has another number."""
    task = Target("task", "t")
    if ends == "before the limit":
        await store.settle(full)
    await store.set_limit(task, None, Actor("test"))
    if ends == "after a prune":
        await store.prune(Retention(), {}, 100)
    if ends != "before the limit":
        await store.settle(full)
    assert await told(store) > 0
    await store.set_limit(task, Limit(running=3), Actor("test"))
    assert len(await store.claim(QUEUES, 10, "w", 60)) == 3
    await store.prune(Retention(), {}, 100)
    assert await told(store) == 0
    assert await store.claim(QUEUES, 10, "w", 60) == []


async def told(store: PostgresStore) -> int:
    """Rows of runs that have ended and were not added up."""
    return int(await store.server.connection("read").value(f"select count(*) from {store.address.schema}.freed", writing=False))
