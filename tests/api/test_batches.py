"""Batches over HTTP: a producer opens, fills and closes one; an operator looks, closes and cancels."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from hawser import Hawser
from hawser.job import State
from hawser.outcome import Done
from hawser.store import Settlement, Share, Store
from hawser.store.api_key import Role
from hawser.value.ids import new_id
from tests.api.conftest import bearer, client_of, fields

MAIL = {"task": "send_email", "payload": {"to": "a@example.com"}}
REPORT = {"task": "charge", "payload": {"order": 1}}


async def opened(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/batches", json={"name": "import-42", **body})
    assert answer.status_code == 201, answer.text
    batch: dict[str, Any] = answer.json()
    return batch


async def end_all(store: Store, queue: str) -> None:
    runs = await store.claim([Share(queue)], 10, "w1", 30)
    await store.settle([Settlement(run.id, run.lease, Done()) for run in runs])


async def test_a_producer_opens_fills_and_closes_a_batch(client: httpx.AsyncClient, app: Hawser, store: Store):
    batch = await opened(client, then=REPORT, on_dead=REPORT)
    id = batch["id"]
    assert (batch["created"], batch["state"], batch["closed"], batch["total"]) == (True, "open", False, 0)
    assert (await app.aget(batch["then"])).held
    one = await client.post("/jobs", json={**MAIL, "batch": id})
    many = await client.post("/jobs/batch", json={"jobs": [{**MAIL, "batch": id}] * 2})
    assert (one.status_code, many.status_code) == (201, 201)
    assert (await client.get(f"/batches/{id}")).json()["waiting"] == 3
    await end_all(store, "mail")
    shown = (await client.get(f"/batches/{id}")).json()
    assert (shown["state"], shown["done"], shown["ended_at"]) == ("open", 3, None)
    assert (await client.post(f"/batches/{id}/close")).json() == {"changed": True}
    assert (await client.post(f"/batches/{id}/close", json={})).json() == {"changed": False}
    shown = (await client.get(f"/batches/{id}")).json()
    assert (shown["state"], shown["total"], shown["waiting"]) == ("done", 3, 0)
    then, alert = await app.aget(batch["then"]), await app.aget(batch["on_dead"])
    assert (then.state, then.held, alert.state) == (State.READY, False, State.CANCELLED)
    late = await client.post("/jobs", json={**MAIL, "batch": id})
    assert (late.status_code, fields(late)) == (400, ["batch"])


async def test_the_same_batch_sent_again_is_not_opened_twice(client: httpx.AsyncClient, store: Store):
    id = new_id()
    first = await opened(client, id=id, then=REPORT)
    again = await client.post("/batches", json={"name": "import-42", "id": id, "then": REPORT})
    assert (again.status_code, again.json()["created"], again.json()["then"]) == (200, False, first["then"])
    assert (await store.stats()).held == 1
    assert len((await client.get("/batches")).json()["batches"]) == 1


async def test_the_id_of_another_job_is_refused(client: httpx.AsyncClient, store: Store):
    job = (await client.post("/jobs", json=REPORT)).json()["id"]
    answer = await client.post("/batches", json={"name": "a", "then": {**MAIL, "id": job}})
    assert (answer.status_code, fields(answer)) == (409, ["id"]), answer.text
    assert (await store.batches()).batches == []


async def test_batches_are_listed_by_state_and_in_pages(client: httpx.AsyncClient):
    ids = [(await opened(client, name=f"b{number}"))["id"] for number in range(5)]
    await client.post(f"/batches/{ids[0]}/close")
    assert [each["id"] for each in (await client.get("/batches?state=done")).json()["batches"]] == [ids[0]]
    seen, after = [], ""
    while True:
        page = (await client.get(f"/batches?limit=2&after={after}")).json()
        seen += [each["id"] for each in page["batches"]]
        after = page["next"]
        if after is None:
            break
    assert seen == ids[::-1]
    for wrong in ("state=late", "limit=0", "limit=501", "after=x", "colour=red"):
        answer = await client.get(f"/batches?{wrong}")
        assert (answer.status_code, fields(answer)) == (400, [wrong.partition("=")[0]]), wrong


async def test_a_cancelled_batch_cancels_its_jobs(client: httpx.AsyncClient, app: Hawser):
    outer = await opened(client, name="outer")
    inner = await opened(client, name="inner", parent=outer["id"])
    job = (await client.post("/jobs", json={**MAIL, "batch": inner["id"]})).json()["id"]
    assert (await client.post(f"/batches/{outer['id']}/cancel", json={"reason": "wrong file"})).json() == {"changed": True}
    assert (await app.aget(job)).state is State.CANCELLED
    shown = (await client.get(f"/batches/{outer['id']}")).json()
    assert (shown["state"], shown["cancel_asked"], shown["reason"]) == ("cancelled", True, "wrong file")
    assert (await client.post(f"/batches/{outer['id']}/cancel")).status_code == 409


async def test_the_jobs_of_a_batch_are_found(client: httpx.AsyncClient, app: Hawser):
    id = (await opened(client))["id"]
    member = (await client.post("/jobs", json={**MAIL, "batch": id})).json()["id"]
    await client.post("/jobs", json=MAIL)
    [line] = (await client.get(f"/jobs?batch={id}")).json()["jobs"]
    assert (line["id"], line["batch"]) == (member, id)
    assert (await client.get(f"/jobs/{member}")).json()["batch"] == id
    assert member in (await client.get(f"/jobs/export.csv?batch={id}")).text
    await app.adead_letter(member)
    assert [each["id"] for each in (await client.get(f"/dlq?batch={id}")).json()["jobs"]] == [member]
    token = await client.post("/dlq/requeue", json={"dry_run": True, "filter": {"batch": id}})
    assert token.json()["count"] == 1
    assert fields(await client.get("/jobs?batch=x")) == ["batch"]


@pytest.mark.parametrize("call", ["GET /batches/{}", "POST /batches/{}/close", "POST /batches/{}/cancel"])
@pytest.mark.parametrize("id", ["x", "%00", "0190a000-0000-7000-8000-00000000000b", "é" * 50])
async def test_an_unknown_batch_is_not_found(client: httpx.AsyncClient, call: str, id: str):
    method, path = call.format(id).split(" ")
    assert (await client.request(method, path)).status_code == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * 129}, "name"),
        ({"name": "a\x00b"}, "name"),
        ({"name": 5}, "name"),
        ({"name": "a", "id": "x"}, "id"),
        ({"name": "a", "parent": "x"}, "parent"),
        ({"name": "a", "parent": new_id()}, "parent"),
        ({"name": "a", "colour": 1}, "colour"),
        ({"name": "a", "then": "charge"}, "then"),
        ({"name": "a", "then": {}}, "then.task"),
        ({"name": "a", "then": {"task": "nobody"}}, "then.task"),
        ({"name": "a", "on_dead": {**REPORT, "colour": 1}}, "on_dead.colour"),
        ({"name": "a", "on_dead": {**REPORT, "key": "k"}}, "on_dead"),
        ({"name": "a", "on_success": {**REPORT, "after": [new_id()]}}, "on_success"),
        ({"name": "a", "then": {"task": "send_email", "payload": {"to": 5}}}, "then.payload.to"),
        ({"name": "a", "then": {**REPORT, "batch": new_id()}}, "batch"),
    ],
)
async def test_a_wrong_batch_is_refused_by_field_and_writes_nothing(
    client: httpx.AsyncClient, store: Store, body: dict[str, Any], field: str
):
    answer = await client.post("/batches", json=body)
    assert answer.status_code == 400, answer.text
    assert field in " ".join(fields(answer)), answer.text
    assert (await store.batches()).batches == []
    assert (await store.stats()).held == 0


async def test_a_wrong_batch_of_a_job_is_refused(client: httpx.AsyncClient, store: Store):
    for batch in ("x", new_id(), 5, None):
        answer = await client.post("/jobs", json={**MAIL, "batch": batch})
        assert (answer.status_code, fields(answer)) == (400, ["batch"]), answer.text
    id = (await opened(client))["id"]
    both = await client.post("/jobs", json={**MAIL, "batch": id, "after": [id]})
    assert both.status_code == 400
    assert (await store.stats("mail")).ready == 0


async def test_a_key_for_some_tasks_has_batches_of_those(app: Hawser, store: Store):
    api = app.asgi(require_key=True, upkeep=False)
    mine, theirs = await bearer(store, Role.PRODUCER, tasks=["send_email"]), await bearer(store, Role.PRODUCER)
    async with client_of(api) as client:
        refused = await client.post("/batches", json={"name": "a", "then": REPORT}, headers=mine)
        assert refused.status_code == 403
        own = await client.post("/batches", json={"name": "a", "then": MAIL}, headers=mine)
        assert own.status_code == 201
        other = await client.post("/batches", json={"name": "b", "then": REPORT}, headers=theirs)
        assert other.status_code == 201, other.text
        id = other.json()["id"]
        assert (await client.get(f"/batches/{id}", headers=mine)).status_code == 403
        assert (await client.post(f"/batches/{id}/close", headers=mine)).status_code == 403
        inside = await client.post("/batches", json={"name": "c", "parent": id}, headers=mine)
        assert inside.status_code == 403
        assert (await client.get(f"/batches/{own.json()['id']}", headers=mine)).status_code == 200
        closed = await client.post(f"/batches/{own.json()['id']}/close", headers=mine)
        assert closed.json() == {"changed": True}
        told = [record.action for record in await store.audit()]
        assert "close_batch" not in told, "a producer ends what it began"
    await api.stop()


async def test_jobs_that_a_batch_releases_count_for_the_depth_of_their_queue(app: Hawser, store: Store):
    api = app.asgi(open=True, upkeep=False, max_waiting=1)
    async with client_of(api) as client:
        id = new_id()
        assert (await client.post("/batches", json={"name": "a", "id": id, "then": REPORT})).status_code == 201
        assert (await client.post("/batches", json={"name": "b", "then": REPORT})).status_code == 429
        assert (await client.post("/batches", json={"name": "a", "id": id, "then": REPORT})).status_code == 200
    await api.stop()


async def test_a_job_that_waits_for_what_its_batch_releases_is_refused(client: httpx.AsyncClient, store: Store):
    batch = await opened(client, then=REPORT)
    for behind in (batch["then"], batch["id"]):
        answer = await client.post("/jobs", json={**MAIL, "batch": batch["id"], "after": [behind]})
        assert answer.status_code == 400, answer.text
    answer = await client.post("/jobs/batch", json={"jobs": [MAIL, {**MAIL, "batch": batch["id"], "after": [batch["then"]]}]})
    assert (answer.status_code, fields(answer)) == (400, ["after"])
    assert "neither would ever start; leave one of the two out" in answer.text
    assert (await store.stats()).ready + (await store.stats()).held == 1
