"""Bulk operations survive the server that runs them: two real servers of one store, one of them killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hawser import Hawser, State
from hawser.api.operation import BulkRunner, OperationRun
from hawser.job import new_job
from hawser.outcome import Dead, Failure
from hawser.store import BulkPlan, BulkState, Filter, Settlement, Share, Store
from hawser.stores.memory import MemoryStore
from hawser.testing.fault import Fault
from hawser.testing.faults import FaultyStore
from hawser.value.ids import new_id
from tests.api.conftest import make_app, new_store
from tests.api.processes import Served

JOBS = 16
SOONER = """
import hawser.store
hawser.store.BULK_SILENCE = 2.0
import hawser.api.bulk
hawser.api.bulk._AT_ONCE_WITHIN_S = 0.1
"""
"""An operation counts as interrupted after two seconds, and goes on behind its answer after a tenth of one."""

DEAD = Filter(state=State.DEAD)


@pytest.fixture(params=["sqlite", "postgres"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Hawser, Served, Served]]:
    """An app, and two servers of its store."""
    url = await new_store(request.param, tmp_path)
    app = make_app(url)
    servers = []
    try:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            servers.append(Served(tmp_path / name, store=url, first=SOONER))
            await asyncio.to_thread(servers[-1].start)
        yield app, servers[0], servers[1]
    finally:
        for server in servers:
            server.end()
        await app.aclose()


async def dead_jobs(store: Store, count: int) -> list[str]:
    jobs = [new_job(task="work", body=b"{}") for _ in range(count)]
    await store.enqueue(jobs)
    runs = await store.claim([Share("default")], count, "w1", 60.0)
    await store.settle([Settlement(run.id, run.lease, Dead(Failure("no"))) for run in runs])
    return sorted(job.id for job in jobs)


async def begun(server: Served, rate: float) -> str:
    """A bulk requeue that goes on behind the answer."""
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        token = (await client.post("/dlq/requeue", json={"dry_run": True})).json()["token"]
        answer = await client.post("/dlq/requeue", json={"token": token, "rate": rate})
    assert answer.status_code == 202, answer.text
    id: str = answer.json()["id"]
    return id


async def seen(server: Served, id: str) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        shown: dict[str, Any] = (await client.get(f"/operations/{id}")).json()
    return shown


async def until(server: Served, id: str, state: str) -> dict[str, Any]:
    end = time.monotonic() + 60
    while (shown := await seen(server, id))["state"] != state:
        assert time.monotonic() < end, shown
        await asyncio.sleep(0.05)
    return shown


async def requeued(store: Store, id: str) -> list[str]:
    """The jobs that an operation requeued, each as often as that happened."""
    records = await store.audit(1_000, action="requeue")
    return sorted(job for record in records if record.operation == id for job in (record.ids or (record.target,) * record.count))


async def test_another_server_goes_on_when_the_first_is_killed(pair: tuple[Hawser, Served, Served]):
    app, first, other = pair
    store = await app.store()
    jobs = await dead_jobs(store, JOBS)
    id = await begun(first, rate=8)
    before = await seen(other, id)
    assert before["state"] == "running"
    first.kill()
    assert 0 < before["done"] < JOBS
    after = await until(other, id, "done")
    assert (after["done"], after["skipped"]) == (JOBS, 0)
    assert await requeued(store, id) == jobs
    other.wait_for(f"going on with the operation {id}")


async def test_another_server_goes_on_at_once_when_the_first_is_told_to_end(pair: tuple[Hawser, Served, Served]):
    app, first, other = pair
    store = await app.store()
    jobs = await dead_jobs(store, JOBS)
    id = await begun(first, rate=8)
    assert await asyncio.to_thread(first.stop) == 0
    after = await until(other, id, "done")
    assert after["done"] == JOBS
    assert await requeued(store, id) == jobs


async def test_any_server_stops_an_operation(pair: tuple[Hawser, Served, Served]):
    app, first, other = pair
    store = await app.store()
    await dead_jobs(store, 3)
    id = await begun(first, rate=0.01)
    async with httpx.AsyncClient(base_url=other.url, timeout=30) as client:
        assert [each["id"] for each in (await client.get("/operations")).json()["operations"]] == [id]
        stopped = (await client.post(f"/operations/{id}/stop")).json()
        assert (stopped["state"], stopped["done"]) == ("stopped", 1)
        [record] = (await client.get("/audit?action=stop_operation")).json()["audit"]
        assert record["target"] == f"operation:{id}"
    assert (await seen(first, id))["state"] == "stopped"
    assert await asyncio.to_thread(first.stop) == 0
    assert (await store.stats()).dead == 2


# In this process, with a store that fails.


def a_plan(jobs: list[str], **fields: Any) -> BulkPlan:
    return BulkPlan(**{"action": "requeue", "filter": DEAD, "newest": jobs[-1], "rate": 1e6, "by": "test", **fields})


@pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.LOSE_REQUEST, Fault.LOSE_REPLY, Fault.DUPLICATE])
async def test_a_write_whose_answer_is_lost_is_made_once(fault: Fault):
    store = FaultyStore(MemoryStore())
    jobs = await dead_jobs(store, 150)
    started = await store.start_bulk(new_id(), a_plan(jobs), "here")
    store.next("step_bulk", fault, times=2)
    run = OperationRun(store, started, lambda job: False)
    run.start()
    await run.ended_within(30)
    assert (run.operation.state, run.operation.done, run.operation.skipped) == (BulkState.DONE, 150, 0)
    assert await requeued(store, started.id) == jobs


async def test_a_fault_of_ours_is_kept_with_the_operation():
    store = MemoryStore()
    jobs = await dead_jobs(store, 1)

    def broken(job: object) -> bool:
        raise KeyError("nonsense")

    run = OperationRun(store, await store.start_bulk(new_id(), a_plan(jobs), "here"), broken)
    run.start()
    await run.ended_within(30)
    known = await store.bulk(run.operation.id)
    assert known is not None
    assert (known.state, known.error) == (BulkState.FAILED, "KeyError: 'nonsense'")


async def test_a_server_that_goes_down_takes_nothing_over():
    store = MemoryStore()
    jobs = await dead_jobs(store, 2)
    operations = BulkRunner(lambda job: False)
    started = await store.start_bulk(new_id(), a_plan(jobs, rate=0.001), operations.owner)
    operations.run(store, started)
    await operations.stop()
    await operations.turn(store)
    [known] = await store.bulks()
    assert (known.state, known.turn, known.interrupted) == (BulkState.RUNNING, 1, True)
