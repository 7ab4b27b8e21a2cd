"""What one key, one producer and one queue may take: jobs a second, queues, attempts, jobs that wait."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from hawser import Hawser
from hawser.api.depths import DEPTHS_FRESH_FOR_S, DepthGuard
from hawser.errors import QueueFull
from hawser.job import NewJob
from hawser.limit import Limit
from hawser.outcome import Done
from hawser.store import Actor, Settlement, Share, Store, Target
from hawser.store.api_key import Role
from hawser.stores.memory import MemoryStore
from hawser.testing import Fault, FaultyStore
from hawser.value.ids import new_id
from tests.api.conftest import bearer, client_of, fields

MANY = {"jobs": [{"task": "charge"}] * 1_000}


@pytest.fixture
async def closed(app: Hawser, store: Store) -> AsyncIterator[httpx.AsyncClient]:
    api = app.asgi(upkeep=False)
    async with client_of(api) as client:
        yield client
    await api.stop()


async def test_a_rate_counts_jobs_and_a_batch_leaves_a_debt(closed: httpx.AsyncClient, store: Store):
    header, calm = await bearer(store, Role.PRODUCER, rate=2), await bearer(store, Role.PRODUCER)
    assert (await closed.post("/jobs/batch", json=MANY, headers=header)).status_code == 201
    for path, body in (("/jobs/batch", MANY), ("/jobs", {"task": "charge"})):
        refused = await closed.post(path, json=body, headers=header)
        assert refused.status_code == 429
        assert 490 < int(refused.headers["retry-after"]) <= 500
    assert (await store.stats()).ready == 1_000
    assert (await closed.post("/jobs", json={"task": "charge"}, headers=calm)).status_code == 201


async def test_a_producer_may_be_held_to_queues(closed: httpx.AsyncClient, store: Store, app: Hawser):
    header = await bearer(store, Role.PRODUCER, queues=("mail",))
    mail = {"task": "send_email", "payload": {"to": "a"}}
    made = await closed.post("/jobs", json=mail, headers=header)
    assert made.status_code == 201
    for body in ({"task": "charge"}, {**mail, "queue": "default"}):
        refused = await closed.post("/jobs", json=body, headers=header)
        assert (refused.status_code, fields(refused)) == (403, ["queue"])
    batch = await closed.post("/jobs/batch", json={"jobs": [mail, {"task": "charge"}]}, headers=header)
    assert (batch.status_code, fields(batch)) == (403, ["jobs[1].queue"])
    assert (await closed.get(f"/jobs/{made.json()['id']}", headers=header)).status_code == 200
    other = await app.aenqueue("charge", {})
    assert (await closed.get(f"/jobs/{other.id}", headers=header)).status_code == 403


async def test_a_worker_may_be_held_to_queues(closed: httpx.AsyncClient, store: Store, app: Hawser):
    header = await bearer(store, Role.WORKER, queues=("mail",))
    await app.aenqueue("charge", {})
    assert (await closed.post("/claims", json={"queues": ["mail"]}, headers=header)).json() == {"jobs": []}
    for queues in (["default"], ["mail", "default"]):
        assert (await closed.post("/claims", json={"queues": queues}, headers=header)).status_code == 403
    assert (await store.stats()).running == 0


@pytest.mark.parametrize("most", [100, 7, 1_000])
async def test_attempts_over_http_have_an_end(app: Hawser, store: Store, most: int):
    api = app.asgi(upkeep=False, open=True) if most == 100 else app.asgi(upkeep=False, open=True, max_attempts=most)
    async with client_of(api) as client:
        assert (await client.post("/jobs", json={"task": "charge", "max_attempts": most})).status_code == 201
        refused = await client.post("/jobs", json={"task": "charge", "max_attempts": most + 1})
        assert (refused.status_code, fields(refused)) == (400, ["max_attempts"])
        described = (await client.get("/openapi.json")).json()
    assert described["components"]["schemas"]["JobIn"]["properties"]["max_attempts"]["maximum"] == most


async def test_a_queue_without_a_limit_has_one_over_http(app: Hawser, store: Store):
    await store.set_limit(Target("queue", "mail"), Limit(max_depth=3), Actor())
    api = app.asgi(upkeep=False, open=True, max_waiting=2)
    async with client_of(api) as client:

        async def put(count: int, task: str = "charge") -> int:
            payload = {"to": "a"} if task == "send_email" else {}
            answer = await client.post("/jobs/batch", json={"jobs": [{"task": task, "payload": payload}] * count})
            if answer.status_code == 429:
                assert answer.headers["retry-after"] == "5"
                assert "of at most" in answer.json()["detail"]
            return answer.status_code

        assert [await put(1), await put(2), await put(1), await put(1)] == [201, 429, 201, 429]
        assert [await put(3, "send_email"), await put(1, "send_email")] == [201, 429], "its own limit goes before"
    assert (await store.stats("default")).ready == 2
    assert (await store.stats("mail")).ready == 3


class Watch:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_room_that_workers_made_is_seen_at_once_and_figures_are_read_seldom():
    store, watch = FaultyStore(MemoryStore()), Watch()
    depths, job = DepthGuard(2, watch), NewJob(task="a", queue="q", body=b"{}")
    for _ in range(2):
        await depths.check(store, [job])
        await store.enqueue([NewJob(task="a", queue="q", body=b"{}")])
    assert store.calls["queues"] == 1
    with pytest.raises(QueueFull):
        await depths.check(store, [job])
    [claimed] = await store.claim([Share("q")], 1, "w", 10.0)
    await store.settle([Settlement(claimed.id, claimed.lease, Done())])
    watch.now += 1
    await depths.check(store, [job])
    watch.now += DEPTHS_FRESH_FOR_S + 0.1
    store.next("queues", Fault.REFUSE)
    await DepthGuard(9, watch).check(MemoryStore(), [job])
    assert store.calls["queues"] == 2


async def test_a_run_belongs_to_the_key_that_claimed_it(app: Hawser, store: Store):
    """Also on another server, and after a restart: it stands in the store."""
    first, second = app.asgi(upkeep=False), app.asgi(upkeep=False)
    mine, other = await bearer(store, Role.WORKER), await bearer(store, Role.WORKER)
    id = (await app.aenqueue("charge", {})).id
    async with client_of(first) as here, client_of(second) as there:
        claim = {"queues": ["default"], "worker": "w#1"}
        [job] = (await here.post("/claims", json=claim, headers=mine)).json()["jobs"]
        lease = {"id": id, "lease": job["lease"]}
        extend = {"leases": [{**lease, "progress": 1}], "lease_for": 30}
        end = {"settlements": [{**lease, "outcome": "dead", "error": "stolen"}, {"id": new_id(), "lease": 1, "outcome": "done"}]}
        for client in (here, there):
            before = await store.get(id)
            assert (await client.post("/extensions", json=extend, headers=other)).json() == {"results": ["lease_lost"]}
            assert (await client.post("/settlements", json=end, headers=other)).json() == {"results": ["lease_lost"] * 2}
            assert await store.get(id) == before
        for client in (here, there):
            assert (await client.post("/extensions", json=extend, headers=mine)).json() == {"results": ["held"]}
        done = {"settlements": [{**lease, "outcome": "done"}]}
        for client in (there, here):
            assert (await client.post("/settlements", json=done, headers=mine)).json() == {"results": ["settled"]}
            assert (await client.post("/settlements", json=done, headers=other)).json() == {"results": ["lease_lost"]}


async def test_no_key_settles_the_run_of_a_worker_process(closed: httpx.AsyncClient, store: Store, app: Hawser):
    id = (await app.aenqueue("charge", {})).id
    [claimed] = await store.claim([Share("default")], 1, "host-1", 60.0)
    end = {"settlements": [{"id": id, "lease": claimed.lease, "outcome": "done"}]}
    header = await bearer(store, Role.ADMIN)
    assert (await closed.post("/settlements", json=end, headers=header)).json() == {"results": ["lease_lost"]}


async def test_a_repeat_is_answered_though_the_queue_is_full(app: Hawser, store: Store):
    api = app.asgi(upkeep=False, open=True, max_waiting=1)
    async with client_of(api) as client:
        body = {"task": "charge", "id": new_id()}
        key = {"idempotency-key": "k1"}
        first = await client.post("/jobs", json=body, headers=key)
        assert first.status_code == 201
        assert (await client.post("/jobs", json={"task": "charge"})).status_code == 429
        for headers in (key, {}):
            again = await client.post("/jobs", json=body, headers=headers)
            assert (again.status_code, again.json()["id"], again.json()["created"]) == (200, body["id"], False)
        again = await client.post("/jobs/batch", json={"jobs": [body]})
        assert again.status_code == 200
        other = await client.post("/jobs", json={"task": "charge", "payload": {"order": 1}}, headers=key)
        assert other.status_code == 409, "the wrong use of a key is told, and not that the queue is full"
        assert (await client.post("/jobs", json={"task": "charge"}, headers={"idempotency-key": "k2"})).status_code == 429
    assert (await store.stats("default")).ready == 1


async def test_a_limit_of_a_queue_is_shown_with_what_runs_and_waits_whatever_it_limits(
    closed: httpx.AsyncClient, app: Hawser, store: Store
):
    header = await bearer(store, Role.ADMIN)
    await closed.put("/admin/limits/queues/default", json={"rate": "9/s"}, headers=header)
    await closed.put("/admin/limits/tasks/charge", json={"rate": "9/s"}, headers=header)
    told = [(record.target, record.filter) for record in await store.audit(action="set_limit")]
    assert told == [("task:charge", {"rate": "9/s"}), ("queue:default", {"rate": "9/s"})]
    for _ in range(3):
        await app.aenqueue("charge", {})
    await store.claim([Share("default")], 1, "w#1", 60.0)
    shown = (await closed.get("/admin/limits", headers=header)).json()["limits"]
    assert {(each["kind"], each["waiting"]) for each in shown} == {("queue", 2), ("task", None)}
    assert [each["running"] for each in shown if each["kind"] == "queue"] == [1]


async def test_a_limit_per_group_is_set_shown_and_judged(closed: httpx.AsyncClient, store: Store):
    header = await bearer(store, Role.ADMIN)
    told = {"running": 1, "rate": "9/s", "per_group": True, "ordered": True}
    assert (await closed.put("/admin/limits/tasks/charge", json=told, headers=header)).status_code == 200
    [shown] = (await closed.get("/admin/limits", headers=header)).json()["limits"]
    assert (shown["max_running"], shown["rate"], shown["per_group"], shown["ordered"]) == (1, "9/s", True, True)
    assert (shown["shut"], shown["shut_groups"]) == (False, 0)
    [use] = await store.limits()
    for path, body, field in (
        ("tasks/charge", {"running": 2, "per_group": True, "ordered": True}, "ordered"),
        ("tasks/charge", {"running": 1, "ordered": True}, "ordered"),
        ("tasks/charge", {"per_group": True}, "per_group"),
        ("tasks/charge", {"running": 1, "per_group": "yes"}, "per_group"),
        ("queues/mail", {"running": 1, "per_group": True}, "per_group"),
    ):
        refused = await closed.put(f"/admin/limits/{path}", json=body, headers=header)
        assert (refused.status_code, fields(refused)) == (400, [field]), (path, body)
    assert await store.limits() == [use]
