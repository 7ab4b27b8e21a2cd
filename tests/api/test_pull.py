"""`/claims`, `/settlements`, `/extensions`: the worker's side."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from hawser import Hawser, JobQueue, State
from hawser.api.pull_workers import PullWorkers
from hawser.api.server import Api
from hawser.store import Store
from hawser.testing.clock import ManualClock
from hawser.value.ids import new_id
from tests.api.conftest import client_of, fields, in_state

ID = new_id()


async def taken(client: httpx.AsyncClient, app: Hawser, task: str = "charge", **options) -> dict[str, Any]:
    """One job, claimed over HTTP."""
    await app.aenqueue(task, {}, **options)
    response = await client.post("/claims", json={"worker": "w1", "lease_for": 30})
    assert response.status_code == 200
    job: dict[str, Any]
    [job] = response.json()["jobs"]
    return job


async def settle(client: httpx.AsyncClient, job: dict[str, Any], outcome: str, **fields) -> list[str]:
    one = {"id": job["id"], "lease": job["lease"], "outcome": outcome, **fields}
    response = await client.post("/settlements", json={"settlements": [one]})
    assert response.status_code == 200, response.text
    results: list[str] = response.json()["results"]
    return results


async def test_a_claim_gives_what_a_worker_needs(client: httpx.AsyncClient, app: Hawser):
    id = (await app.aenqueue("charge", {"order": 7})).id
    response = await client.post("/claims", json={"queues": ["default"], "limit": 10, "lease_for": 30, "worker": "w1"})
    assert response.json() == {
        "jobs": [{"id": id, "task": "charge", "queue": "default", "payload": {"order": 7}, "attempt": 1, "lease": 1}]
    }
    job = await app.aget(id)
    assert (job.state, job.worker) == (State.RUNNING, "w1")
    assert (await client.post("/claims", json={})).json() == {"jobs": []}


async def test_queues_are_taken_in_their_order(client: httpx.AsyncClient, app: Hawser):
    for queue in ("low", "high", "low"):
        await app.aenqueue("charge", {}, queue=queue)
    response = await client.post("/claims", json={"queues": ["high", "low"], "limit": 2})
    assert [job["queue"] for job in response.json()["jobs"]] == ["high", "low"]


@pytest.mark.parametrize(
    ("said", "state", "error"),
    [
        ({"outcome": "done", "result": {"sum": 3}}, State.DONE, None),
        ({"outcome": "retry", "error": "down", "after": 5}, State.READY, "down"),
        ({"outcome": "dead", "error": "no such order"}, State.DEAD, "no such order"),
        ({"outcome": "dead"}, State.DEAD, "the worker did not say why"),
        ({"outcome": "snooze", "after": 5}, State.READY, None),
        ({"outcome": "release"}, State.READY, None),
    ],
)
async def test_every_outcome_is_written(
    client: httpx.AsyncClient, app: Hawser, said: dict[str, Any], state: State, error: str | None
):
    job = await taken(client, app)
    assert await settle(client, job, **said) == ["settled"]
    now = await app.aget(job["id"])
    assert (now.state, now.errors[-1].error if now.errors else None) == (state, error)
    assert now.result == said.get("result")
    assert now.attempt == (0 if said["outcome"] in ("snooze", "release") else 1)


async def test_a_retry_without_a_time_waits_as_its_task_says(client: httpx.AsyncClient, app: Hawser, clock: ManualClock):
    job = await taken(client, app)
    assert await settle(client, job, "retry", error="down") == ["settled"]
    assert (await client.post("/claims", json={})).json()["jobs"] == []
    clock.advance(31)  # the first wait of the default backoff is at most 30 s
    assert len((await client.post("/claims", json={})).json()["jobs"]) == 1


async def test_a_stale_lease_changes_nothing(client: httpx.AsyncClient, app: Hawser, store: Store, clock: ManualClock):
    old = await taken(client, app)
    clock.advance(31)
    await store.reclaim(10)
    [new] = (await client.post("/claims", json={"lease_for": 30})).json()["jobs"]
    assert new["lease"] > old["lease"]
    assert await settle(client, old, "done") == ["lease_lost"]
    leases = [{"id": old["id"], "lease": old["lease"]}, {"id": new["id"], "lease": new["lease"]}]
    extended = await client.post("/extensions", json={"leases": leases, "lease_for": 30})
    assert extended.json() == {"results": ["lease_lost", "held"]}
    assert (await app.aget(old["id"])).state is State.RUNNING
    assert await settle(client, new, "done") == ["settled"]
    assert await settle(client, new, "done") == ["settled"], "a repetition, whose first answer got lost"
    assert await settle(client, {"id": new_id(), "lease": 1}, "done") == ["lease_lost"]


async def test_an_extension_tells_of_a_wish_to_stop_and_keeps_progress(client: httpx.AsyncClient, app: Hawser):
    job = await taken(client, app)
    lease = {"id": job["id"], "lease": job["lease"], "progress": {"made": 3}}
    assert (await client.post("/extensions", json={"leases": [lease]})).json() == {"results": ["held"]}
    assert (await app.aget(job["id"])).progress == {"made": 3}
    await app.acancel(job["id"])
    assert (await client.post("/extensions", json={"leases": [lease]})).json() == {"results": ["cancel_asked"]}


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/claims", {"queues": []}, ["queues"]),
        ("/claims", {"queues": ["a", "a"]}, ["queues"]),
        ("/claims", {"queues": ["a b"]}, ["queues[0]"]),
        ("/claims", {"limit": 0}, ["limit"]),
        ("/claims", {"limit": 1001}, ["limit"]),
        ("/claims", {"lease_for": 0}, ["lease_for"]),
        ("/claims", {"lease_for": 86401}, ["lease_for"]),
        ("/claims", {"wait": 61}, ["wait"]),
        ("/claims", {"worker": "a\0b"}, ["worker"]),
        ("/settlements", {"settlements": [{"id": ID, "lease": 1, "outcome": "ok"}]}, ["settlements[0].outcome"]),
        ("/settlements", {"settlements": [{"id": ID, "lease": 1, "outcome": "snooze"}]}, ["settlements[0].after"]),
        ("/settlements", {"settlements": [{"id": ID, "lease": 1, "outcome": "done", "error": "e"}]}, ["settlements[0].error"]),
        ("/settlements", {"settlements": [{"id": ID, "lease": 1, "outcome": "retry", "after": -1}]}, ["settlements[0].after"]),
        ("/settlements", {"settlements": [{"id": "x", "lease": 1, "outcome": "done"}]}, ["settlements[0].id"]),
        ("/extensions", {"leases": [{"id": "x", "lease": 1}]}, ["leases[0].id"]),
        ("/extensions", {"leases": []}, ["leases"]),
    ],
)
async def test_what_does_not_fit_is_refused_by_name(client: httpx.AsyncClient, path: str, body: dict[str, Any], named: list[str]):
    response = await client.post(path, json=body)
    assert (response.status_code, fields(response)) == (400, named)


async def test_one_wrong_settlement_and_none_is_written(client: httpx.AsyncClient, app: Hawser):
    job = await taken(client, app)
    good = {"id": job["id"], "lease": job["lease"], "outcome": "done"}
    bad = {**good, "result": "x" * 300_000}
    response = await client.post("/settlements", json={"settlements": [good, bad]})
    assert (response.status_code, fields(response)) == (400, ["settlements[1].result"])
    assert (await app.aget(job["id"])).state is State.RUNNING


async def test_a_claim_waits_for_a_job(client: httpx.AsyncClient, app: Hawser):
    waiting = asyncio.ensure_future(client.post("/claims", json={"wait": 30}))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    id = (await app.aenqueue("charge", {})).id
    response = await asyncio.wait_for(waiting, 10)
    assert [job["id"] for job in response.json()["jobs"]] == [id]


async def test_a_server_that_stops_lets_nobody_wait(client: httpx.AsyncClient, api: Api):
    waiting = asyncio.ensure_future(client.post("/claims", json={"wait": 60}))
    for _ in range(20):
        await asyncio.sleep(0)
    api.stopping.set()
    assert (await asyncio.wait_for(waiting, 10)).json() == {"jobs": []}


async def test_a_job_claimed_for_nobody_goes_back(app: Hawser, api: Api):
    """The caller hung up while it waited: its job must not lie under a lease that nobody holds."""
    hang_up, begun = asyncio.Event(), asyncio.Event()
    sent: list[dict[str, Any]] = []
    messages = [{"type": "http.request", "body": b'{"wait": 30}', "more_body": False}]

    async def receive():
        if messages:
            return messages.pop()
        begun.set()
        await hang_up.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/claims",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    store = await app.store()
    asked = store.claim

    async def claim(*args, **kwargs):
        """The caller hangs up while the claim that finds the job is under way."""
        jobs = await asked(*args, **kwargs)
        if jobs:
            hang_up.set()
            for _ in range(5):
                await asyncio.sleep(0)
        return jobs

    store.claim = claim  # type: ignore[method-assign]  # as the hand of fate
    serving = asyncio.ensure_future(api(scope, receive, send))
    await begun.wait()
    id = (await app.aenqueue("charge", {})).id
    await asyncio.wait_for(serving, 10)
    job = await app.aget(id)
    assert (job.state, job.attempt, job.lease, job.returned) == (State.READY, 0, 1, 1)


async def test_a_lease_that_ran_out_settles_and_extends_until_it_is_taken_back(
    client: httpx.AsyncClient, app: Hawser, store: Store, clock: ManualClock
):
    for _ in range(3):
        await app.aenqueue("charge", {})
    one, two, three = (await client.post("/claims", json={"limit": 3, "lease_for": 10})).json()["jobs"]
    clock.advance(11)
    assert await settle(client, one, "done") == ["settled"]
    lease = {"id": two["id"], "lease": two["lease"], "progress": 50}
    answer = await client.post("/extensions", json={"leases": [lease], "lease_for": 10})
    assert answer.json()["results"] == ["held"]
    assert [run.id for run in await store.reclaim(10)] == [three["id"]]
    assert await settle(client, three, "done") == ["lease_lost"]


async def test_leases_of_http_workers_are_taken_back(app: Hawser, clock: ManualClock):
    """No other worker need be there: the server itself looks after leases that ran out."""
    api = app.asgi(open=True)
    async with client_of(api) as client:
        await in_state(app, State.RUNNING, "charge")
        clock.advance(61)
        await client.get("/stats")
        end = asyncio.get_running_loop().time() + 10
        while (await app.astats()).running:
            assert asyncio.get_running_loop().time() < end
            await asyncio.sleep(0.05)
    await api.stop()


class Watch:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_workers_over_http_are_seen(client: httpx.AsyncClient, api: Api, app: Hawser, store: Store):
    api.pull_workers = PullWorkers(watch := Watch())
    one, _ = [(await app.aenqueue("charge", {})).id for _ in range(2)]
    jobs = (await client.post("/claims", json={"worker": "w1", "limit": 5, "lease_for": 30})).json()["jobs"]
    await client.post("/claims", json={"worker": "w2", "queues": ["mail", "js"]})
    await api.pull_workers.turn(store)
    seen = {worker["worker"]: worker for worker in (await client.get("/workers")).json()["workers"]}
    assert [seen["w1"][field] for field in ("running", "slots", "queues", "host")] == [2, 5, ["default"], "http:local"]
    assert (seen["w2"]["running"], seen["w2"]["queues"]) == (0, ["mail", "js"])
    [first] = [job for job in jobs if job["id"] == one]
    await settle(client, first, "done")
    await api.pull_workers.turn(store)
    assert [seen.beat.running for seen in await store.workers() if seen.beat.worker == "w1"] == [1]
    watch.now += 20
    await client.post("/extensions", json={"leases": [{"id": job["id"], "lease": job["lease"]} for job in jobs], "lease_for": 30})
    watch.now += 20
    assert (await spoken_for(api, store)) == ["w1"], "it holds a lease; the other was not heard of"
    watch.now += 20
    assert (await spoken_for(api, store)) == []


async def spoken_for(api: Api, store: Store) -> list[str]:
    """The workers for which the server gives a sign of life now."""
    told: list[str] = []

    async def beat(beats, gone=()):
        told.extend(beat.worker for beat in beats)

    right, store.beat = store.beat, beat  # type: ignore[method-assign]  # only to listen
    await api.pull_workers.turn(store)
    store.beat = right  # type: ignore[method-assign]
    return told


@pytest.mark.parametrize("payload", [{"any": ["thing"]}, [1, 2], "text", 7, None])
async def test_a_free_payload_is_enqueued_and_taken(client: httpx.AsyncClient, payload: Any):
    """Its task is called `job`, as that of `JobQueue`, and no app has to register it."""
    sent = await client.post("/jobs", json={"task": "job", "payload": payload, "queue": "parcels"})
    assert sent.status_code == 201, sent.text
    [job] = (await client.post("/claims", json={"queues": ["parcels"]})).json()["jobs"]
    assert (job["id"], job["task"], job["payload"]) == (sent.json()["id"], "job", payload)
    assert await settle(client, job, "done") == ["settled"]


@pytest.mark.parametrize("app", ["sqlite", "postgres"], indirect=True)  # the memory store is of one process and not shared by URL
async def test_a_job_queue_and_callers_over_http_share_a_queue(client: httpx.AsyncClient, app: Hawser, clock: ManualClock):
    queue = await asyncio.to_thread(JobQueue, app.store_url, queue="parcels", clock=clock)
    sent = await client.post("/jobs", json={"task": "job", "payload": {"parcel": 1}, "queue": "parcels"})
    delivery = await asyncio.to_thread(queue.dequeue)
    assert delivery is not None
    assert (delivery.job_id, delivery.payload) == (sent.json()["id"], {"parcel": 1})
    assert (await client.post("/claims", json={"queues": ["parcels"]})).json()["jobs"] == []
    assert await asyncio.to_thread(queue.ack, delivery)

    id = await asyncio.to_thread(queue.enqueue, [2, "parcels"])
    [job] = (await client.post("/claims", json={"queues": ["parcels"]})).json()["jobs"]
    assert (job["id"], job["task"], job["payload"]) == (id, "job", [2, "parcels"])
    assert await asyncio.to_thread(queue.dequeue) is None
    assert await settle(client, job, "done") == ["settled"]
    await asyncio.to_thread(queue.close)


async def test_a_free_payload_is_still_judged(client: httpx.AsyncClient):
    sent = await client.post("/jobs", json={"task": "job", "payload": "x" * 70_000})
    assert sent.status_code in (400, 413)
    sent = await client.post("/jobs", json={"task": "job", "payload": 1, "priority": 11})
    assert (sent.status_code, fields(sent)) == (400, ["priority"])
