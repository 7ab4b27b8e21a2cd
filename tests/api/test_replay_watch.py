"""A replay that stops by itself: by the server, whoever looks."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from hawser import Hawser, State
from hawser.api.operation import OperationRun
from hawser.api.replay_watch import FIRST, ReplayWatch
from hawser.job import new_job
from hawser.outcome import Dead, Done, Failure
from hawser.store import BulkOperation, BulkPlan, BulkState, Filter, Settlement, Share, Store
from hawser.store.bulk import StopRule
from hawser.value.ids import new_id

DEAD = Filter(state=State.DEAD)


async def die(store: Store, count: int) -> str:
    """The newest of so many dead jobs."""
    jobs = [new_job(task="work", body=b"{}") for _ in range(count)]
    await store.enqueue(jobs)
    await settle(store, count, dies=lambda _: True)
    return max(job.id for job in jobs)


async def settle(store: Store, count: int, dies: Any) -> int:
    runs = await store.claim([Share("default")], count, "w1", 60.0)
    outcomes = [Dead(Failure("no")) if dies(number) else Done() for number in range(len(runs))]
    await store.settle([Settlement(run.id, run.lease, outcome) for run, outcome in zip(runs, outcomes, strict=True)])
    return len(runs)


async def replayed(store: Store, jobs: int, dies: Any, **rule: Any) -> BulkOperation:
    """A replay of all, while a worker ends what is due."""
    newest = await die(store, jobs)
    plan = BulkPlan(action="requeue", filter=DEAD, newest=newest, rate=10_000.0, by="ann", stop_if=StopRule(**rule))
    run = OperationRun(store, await store.start_bulk(new_id(), plan, "test"), lambda _: False)
    run.start()
    async with asyncio.timeout(30):
        while not run.over:
            await settle(store, 20, dies)
            await run.ended_within(0.05)
    found = await store.bulk(run.operation.id)
    assert found is not None
    return found


async def test_it_stops_when_too_many_die_again(store: Store):
    ended = await replayed(store, 300, dies=lambda _: True)
    assert (ended.state, ended.done) == (BulkState.STOPPED, FIRST)
    assert ended.error is not None
    assert "died again (100%)" in ended.error


async def test_it_goes_on_when_few_do(store: Store):
    ended = await replayed(store, 300, dies=lambda number: number % 20 == 0, dead_share=0.2)
    assert (ended.state, ended.done, ended.error) == (BulkState.DONE, 300, None)


async def test_it_waits_for_the_first_before_it_goes_on(store: Store):
    newest = await die(store, 120)
    plan = BulkPlan(action="requeue", filter=DEAD, newest=newest, rate=10_000.0, by="ann", stop_if=StopRule(least=5))
    run = OperationRun(store, await store.start_bulk(new_id(), plan, "test"), lambda _: False)
    run.start()
    await run.ended_within(1.5)
    assert (run.over, run.operation.done) == (False, FIRST)
    await settle(store, 5, dies=lambda _: False)
    await run.ended_within(10)
    assert (run.over, run.operation.done, run.operation.state) == (True, 120, BulkState.DONE)


async def test_nothing_is_judged_before_enough_have_ended(store: Store):
    watch = ReplayWatch(StopRule(dead_share=0.2, least=10), clock=iter(range(100)).__next__)
    newest = await die(store, 9)
    watch.began([job.id for job in (await store.find(DEAD)).jobs])
    assert await watch.verdict(store) is None
    watch.began([await die(store, 1)])
    assert "10 of the first 10" in str(await watch.verdict(store))
    assert newest


async def test_it_is_asked_for_over_http_and_shown(app: Hawser, store: Store, client: httpx.AsyncClient):
    await die(store, 3)
    rule = {"dead_share": 0.3, "least": 2}
    token = (await client.post("/dlq/requeue", json={"dry_run": True})).json()["token"]
    answer = await client.post("/dlq/requeue", json={"token": token, "rate": 1000, "stop_if": rule})
    assert (answer.status_code, answer.json()["stop_if"], answer.json()["error"]) == (200, rule, None)


@pytest.mark.parametrize("rule", [{"dead_share": 0}, {"dead_share": 1.5}, {"least": 0}, {"share": 0.2}])
async def test_a_wrong_rule_is_refused(client: httpx.AsyncClient, rule: dict[str, Any]):
    assert (await client.post("/dlq/requeue", json={"dry_run": True, "stop_if": rule})).status_code == 400


async def test_only_a_requeue_has_one(store: Store, client: httpx.AsyncClient):
    await die(store, 1)
    token = (await client.post("/dlq/discard", json={"dry_run": True})).json()["token"]
    answer = await client.post("/dlq/discard", json={"token": token, "stop_if": {}})
    assert (answer.status_code, "only a requeue" in answer.text) == (400, True)
