"""Changes of single jobs over HTTP: another place, the end as dead, the runs of a dead worker."""

from datetime import UTC, datetime

import httpx
import pytest

from hawser import Hawser
from hawser.job import State
from hawser.store import Share, Store
from hawser.value.ids import new_id
from tests.api.conftest import fields, in_state


async def test_a_waiting_job_is_changed(client: httpx.AsyncClient, app: Hawser):
    id = await in_state(app, State.READY)
    body = {"queue": "other", "priority": 9, "run_at": "2031-01-02T03:04:05+00:00", "reason": "urgent"}
    assert (await client.patch(f"/jobs/{id}", json=body)).json() == {"id": id, "acted": "done"}
    job = await app.aget(id)
    assert (job.queue, job.priority, job.run_at) == ("other", 9, datetime(2031, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert (await client.patch(f"/jobs/{id}", json={"delay": 60})).status_code == 200
    assert (await client.post(f"/jobs/{id}/run-now")).json() == {"id": id, "acted": "done"}
    shown = (await client.get(f"/jobs/{id}")).json()
    assert shown["queue"] == "other"
    assert (await client.get("/stats?queue=other")).json()["due"] == 1


async def test_a_running_or_finished_job_is_not_changed(client: httpx.AsyncClient, app: Hawser):
    for state in (State.RUNNING, State.DONE, State.DEAD, State.CANCELLED):
        id = await in_state(app, state)
        for method, path in (("PATCH", ""), ("POST", "/run-now"), ("POST", "/dead-letter")):
            refused = await client.request(method, f"/jobs/{id}{path}", json={"priority": 1} if method == "PATCH" else {})
            assert refused.status_code == 409
            assert f"it is {state}; only a waiting job can be" in refused.json()["detail"]
    for method, path in (("PATCH", ""), ("POST", "/run-now"), ("POST", "/dead-letter")):
        body = {"priority": 1} if method == "PATCH" else {}
        assert (await client.request(method, f"/jobs/{new_id()}{path}", json=body)).status_code == 404


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "queue"),
        ({"reason": "why"}, "queue"),
        ({"priority": 10}, "priority"),
        ({"priority": "high"}, "priority"),
        ({"queue": "no such name"}, "queue"),
        ({"delay": -1}, "delay"),
        ({"delay": 5, "run_at": "2031-01-02T03:04:05Z"}, "run_at"),
        ({"run_at": "2031-01-02T03:04:05"}, "run_at"),
        ({"run_at": "1970-01-02T03:04:05Z"}, "run_at"),
        ({"timeout": 5}, "timeout"),
    ],
)
async def test_a_wrong_change_is_named_and_changes_nothing(client: httpx.AsyncClient, app: Hawser, body: object, named: str):
    id = await in_state(app, State.READY)
    before = await app.aget(id)
    refused = await client.patch(f"/jobs/{id}", json=body)
    assert (refused.status_code, fields(refused)) == (400, [named])
    assert await app.aget(id) == before


async def test_a_waiting_job_is_dead_lettered(client: httpx.AsyncClient, app: Hawser):
    id = await in_state(app, State.READY)
    assert (await client.post(f"/jobs/{id}/dead-letter", json={"reason": "poison"})).json() == {"id": id, "acted": "done"}
    assert ((await app.aget(id)).state, (await app.aget(id)).reason) == (State.DEAD, "poison")
    [listed] = (await client.get("/dlq")).json()["jobs"]
    assert listed["id"] == id


async def test_the_runs_of_a_dead_worker_are_taken_back(client: httpx.AsyncClient, app: Hawser, store: Store):
    id = await in_state(app, State.RUNNING)
    assert (await client.post("/workers/w2/reclaim")).json() == {"worker": "w2", "reclaimed": 0}
    assert (await client.post("/workers/w1/reclaim", json={"reason": "pulled the plug"})).json() == {
        "worker": "w1",
        "reclaimed": 1,
    }
    assert (await app.aget(id)).state is State.DEAD  # it had one attempt
    assert (await store.audit())[0].target == "worker:w1"
    assert (await client.post(f"/workers/{'x' * 257}/reclaim")).status_code == 400


async def test_a_batch_is_spread_over_time(client: httpx.AsyncClient, app: Hawser):
    jobs = [{"task": "send_email", "payload": {"to": "ann"}} for _ in range(3)]
    made = (await client.post("/jobs/batch", json={"jobs": jobs, "rate": "1/m"})).json()["jobs"]
    first, second, third = [(await app.aget(job["id"])).run_at for job in made]
    assert ((second - first).total_seconds(), (third - second).total_seconds()) == (60, 60)
    for rate in ("0/s", "fast", 5):
        wrong = await client.post("/jobs/batch", json={"jobs": jobs, "rate": rate})
        assert (wrong.status_code, fields(wrong)) == (400, ["rate"])
    slow = await client.post("/jobs/batch", json={"jobs": jobs * 200, "rate": "1/7d"})
    assert (slow.status_code, fields(slow)) == (400, ["rate"])


async def test_a_key_until_the_start_over_http(client: httpx.AsyncClient, store: Store):
    body = {"task": "send_email", "payload": {"to": "ann"}, "key": "k", "key_ttl": "start"}
    first = (await client.post("/jobs", json=body)).json()
    shown = (await client.get(f"/jobs/{first['id']}")).json()
    assert shown["key_ttl"] == "start"
    assert (await client.post("/jobs", json=body)).json()["created"] is False
    await store.claim([Share(shown["queue"])], 1, "w1", 60)
    assert (await client.post("/jobs", json=body)).json()["created"] is True
    wrong = await client.post("/jobs", json={**body, "key_ttl": "soon"})
    assert (wrong.status_code, fields(wrong)) == (400, ["key_ttl"])
