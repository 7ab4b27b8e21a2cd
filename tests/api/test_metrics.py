"""`/metrics` and `/history`."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

from hawser import Hawser, State
from hawser.api.pull_workers import PullWorkers
from hawser.api.server import Api
from hawser.api.totals import Totals
from hawser.job import NewJob
from hawser.limit import Limit
from hawser.store import Actor, Beat, Share, Store, Target
from hawser.store.rollup import Measured, bucket_of
from hawser.stores.memory import MemoryStore
from hawser.telemetry.meter import Readings
from hawser.testing import Fault, FaultyStore
from hawser.testing.clock import ManualClock
from tests.api.conftest import client_of, in_state, make_app


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Values by name and sorted labels."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_metrics_of_the_store_and_of_the_server(client: httpx.AsyncClient, app: Hawser, store: Store, clock: ManualClock):
    await store.beat([Beat(worker="w1", host="h", pid=1, version="1", queues=(), slots=1, running=0)])
    await in_state(app, State.DEAD)
    for key in ("k", "k"):
        await client.post("/jobs", json={"task": "send_email", "payload": {"to": "a"}, "priority": 7, "key": key})
    await client.post("/jobs", json={"task": "nothing"})
    await store.pause(Target("task", "charge"), Actor())
    await store.set_limit(Target("queue", "mail"), Limit(rate="5/h"), Actor())
    await client.post("/batches", json={"name": "import"})
    clock.advance(12)
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = samples(response.text)
    assert found["hawser_store_up",] == 1
    assert (found["hawser_jobs", "mail", "dead"], found["hawser_jobs", "mail", "ready"]) == (1, 1)
    assert found["hawser_waiting_jobs", "7", "mail", "send_email"] == 1
    assert found["hawser_oldest_due_seconds", "7", "mail"] == 12
    assert found["hawser_workers",] == 1
    assert found["hawser_store_failovers",] == 0
    assert found["hawser_paused", "task", "charge"] == 1
    assert (found["hawser_batches", "open"], found["hawser_batches", "running"]) == (1, 0)
    assert (found["hawser_limit_running", "queue", "mail"], found["hawser_limit_shut", "queue", "mail"]) == (0, 0)
    assert found["hawser_enqueued_total", "mail", "send_email"] == 1
    assert found["hawser_deduplicated_total", "mail", "send_email"] == 1
    assert found["hawser_enqueue_seconds_count",] == 2
    assert found["hawser_http_requests_total", "POST", "/jobs", "201"] == 1
    assert found["hawser_http_requests_total", "POST", "/jobs", "200"] == 1
    assert found["hawser_http_requests_total", "POST", "/jobs", "400"] == 1
    assert found["hawser_http_request_seconds_count", "POST", "/jobs"] == 3
    assert found["hawser_events_per_second", "enqueued", "mail"] > 0
    clock.advance(60)
    assert samples((await client.get("/metrics")).text)["hawser_workers",] == 0


async def test_what_http_workers_claim_and_settle_is_counted(
    client: httpx.AsyncClient, app: Hawser, api: Api, clock: ManualClock
):
    api.pull_workers = PullWorkers()
    for _ in range(3):
        await app.aenqueue("charge", {})
    jobs = (await client.post("/claims", json={"limit": 3, "lease_for": 60})).json()["jobs"]
    api.pull_workers.settles([jobs[1]["id"]])  # as if another server had given it out
    settled = [{"id": job["id"], "lease": job["lease"], "outcome": "done"} for job in jobs[:2]]
    stale = {"id": jobs[2]["id"], "lease": 0, "outcome": "done"}
    for _ in range(2):
        await client.post("/settlements", json={"settlements": [*settled, stale]})
    found = samples((await client.get("/metrics")).text)
    assert found["hawser_claimed_total", "default", "charge"] == 3
    assert found["hawser_claim_seconds_count",] == 1
    assert found["hawser_settled_total", "done", "default", "charge"] == 2, "a repeated one is no other"
    assert found["hawser_run_seconds_count", "default", "charge"] == 1
    assert found["hawser_stale_settlements_total",] == 2


async def test_a_store_that_is_away_is_told_and_the_rest_is_shown(clock: ManualClock):
    faulty = FaultyStore(MemoryStore(clock=clock))
    async with client_of(make_app(faulty).asgi(open=True, upkeep=False)) as client:
        await client.post("/jobs", json={"task": "charge"})
        faulty.next("queues", Fault.REFUSE)
        found = samples((await client.get("/metrics")).text)
        assert found["hawser_store_up",] == 0
        assert found["hawser_enqueued_total", "default", "charge"] == 1


async def test_history_minute_by_minute(client: httpx.AsyncClient, app: Hawser, store: Store, clock: ManualClock):
    await in_state(app, State.DEAD)
    await store.measure([Measured("mail", "send_email", "run", bucket_of(0.7), 100)])
    clock.advance(60)
    await in_state(app, State.READY, "charge")
    history = (await client.get("/history?minutes=3")).json()
    minutes = history["minutes"]
    assert minutes[-1]["minute"] <= history["at"]
    assert len(minutes) == 3
    assert [minute["counts"]["enqueued"] for minute in minutes] == [0, 1, 1]
    assert minutes[1]["counts"]["dead"] == 1
    assert minutes[1]["run"]["count"] == 100
    assert 0.5 < minutes[1]["run"]["p50"] < minutes[1]["run"]["p99"] <= 1.0
    assert minutes[2]["run"] == {"count": 0, "p50": None, "p95": None, "p99": None}
    mail = (await client.get("/history?minutes=2&queue=mail&task=send_email")).json()["minutes"]
    assert [minute["counts"]["enqueued"] for minute in mail] == [1, 0]
    assert (await client.get("/history?minutes=0")).status_code == 400
    assert (await client.get("/history?minutes=10081")).status_code == 400


async def test_reclaims_of_the_server_are_counted(app: Hawser, clock: ManualClock):
    import asyncio

    api = app.asgi(open=True)
    async with client_of(api) as client:
        await in_state(app, State.RUNNING, "charge")
        clock.advance(61)
        end = asyncio.get_running_loop().time() + 10
        while ("hawser_reclaimed_total", "dead", "default", "charge") not in samples((await client.get("/metrics")).text):
            assert asyncio.get_running_loop().time() < end
            await asyncio.sleep(0.05)
    await api.stop()


async def test_counters_of_the_store_count_all_producers_and_start_at_zero(
    client: httpx.AsyncClient, app: Hawser, clock: ManualClock
):
    await app.aenqueue("charge", {})
    await client.get("/metrics")  # the server starts: what happened before is not its own
    assert samples((await client.get("/metrics")).text)["hawser_enqueued_total", "default", "charge"] == 0
    for _ in range(2):
        await app.aenqueue("charge", {})  # not over HTTP
    clock.advance(600)  # nobody scraped for ten minutes
    await app.aenqueue("charge", {})
    await in_state(app, State.DEAD)
    found = samples((await client.get("/metrics")).text)
    assert found["hawser_enqueued_total", "default", "charge"] == 3
    assert (found["hawser_dead_total", "mail", "send_email"], found["hawser_dead_total", "default", "charge"]) == (1, 0)
    clock.advance(3600)
    await in_state(app, State.DEAD)
    assert samples((await client.get("/metrics")).text)["hawser_dead_total", "mail", "send_email"] == 2


async def test_scrapes_at_once_count_nothing_twice(app: Hawser, store: Store, clock: ManualClock):
    import asyncio

    totals = Totals(clock)
    await totals.read(store)
    for _ in range(5):
        await app.aenqueue("charge", {})
        await asyncio.gather(*(totals.read(store) for _ in range(8)))
        clock.advance(25)
    readings = Readings()
    totals.add_to(readings)
    assert readings.counts["hawser_enqueued_total"] == {("default", "charge"): 5}


async def test_limits_and_breakers_that_keep_jobs_back_are_told(client: httpx.AsyncClient, store: Store):
    await store.set_limit(Target("task", "charge"), Limit(running=1), Actor())
    await store.set_limit(Target("task", "sync"), Limit(running=1, per_group=True), Actor())
    await store.enqueue([NewJob(task="charge", body=b"{}") for _ in range(2)])
    await store.enqueue([NewJob(task="sync", body=b"{}", group=group) for group in "aabbc"])
    await store.open_breaker("mail", Actor())
    assert len(await store.claim([Share("default")], 10, "w", 60)) == 4
    found = samples((await client.get("/metrics")).text)
    assert (found["hawser_limit_running", "task", "charge"], found["hawser_limit_shut", "task", "charge"]) == (1, 1)
    assert (found["hawser_limit_shut", "task", "sync"], found["hawser_limit_shut_groups", "sync"]) == (0, 2)
    assert found["hawser_breaker_open", "mail"] == 1
    await store.close_breaker("mail", Actor())
    assert ("hawser_breaker_open", "mail") not in samples((await client.get("/metrics")).text)
