"""A place under a limit that a dead worker held: those who wait for one are told by whoever takes it back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from hawser.job import new_job
from hawser.limit import Limit
from hawser.outcome import Failed, Failure
from hawser.store import Actor, Settlement, Share, Target
from hawser.stores.postgres import PostgresStore
from hawser.testing import ManualClock
from tests.postgres import new_schema, postgres, server, versions, with_schema


@pytest.fixture(params=versions())
async def url(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    url = with_schema(server(request.param), new_schema())
    yield url
    store = postgres(url)
    await store.open()
    await store.server.connection("operate").rows(f"drop schema {store.address.schema} cascade")
    await store.close()


@pytest.mark.parametrize("way", ["reclaimed", "settled by its supervisor"])
async def test_who_takes_back_the_run_of_a_dead_worker_tells_of_the_place(url: str, way: str):
    """A reclaim told nobody, and a supervisor only of limits that were there when it looked last: it claims nothing. Others found
    the place at their next look, up to a second later."""
    clock = ManualClock()
    worker, other = postgres(url, clock=clock), postgres(url, clock=clock)
    for store in (worker, other):
        await store.open()
    await other.stats(None)  # the lanes and limits that it knows are of before
    await _ended_by_other(worker, other)
    await worker.set_limit(Target("task", "sync"), Limit(running=1), Actor("test"))
    await worker.enqueue([new_job(task="sync", body=b"{}") for _ in range(2)])
    [run] = await worker.claim([Share("default")], 2, "dead", 10.0)
    con, heard = await asyncpg.connect(worker.address.dsn), asyncio.Queue[str]()
    await con.add_listener(f"{worker.address.schema}.wake", lambda *told: heard.put_nowait(told[-1]))
    if way == "reclaimed":
        clock.advance(11)
        [lost] = await other.reclaim(10)
        assert lost.id == run.id
    else:
        crashed = Failed(Failure("the worker process was killed"), 1.0, lost=True)
        await other.settle([Settlement(run.id, run.lease, crashed)])
    async with asyncio.timeout(10):
        assert await heard.get() == "room in default"
    assert len(await worker.claim([Share("default")], 2, "w", 10.0)) == 1
    await con.close()
    for store in (worker, other):
        await store.close()


async def _ended_by_other(worker: PostgresStore, other: PostgresStore) -> None:
    """So that it knows the lane of the task."""
    await worker.enqueue([new_job(task="sync", body=b"{}")])
    [run] = await worker.claim([Share("default")], 1, "dead", 10.0)
    await other.settle([Settlement(run.id, run.lease, Failed(Failure("no"), 3_600.0))])
