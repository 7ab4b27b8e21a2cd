"""Many jobs at once: dry run, token, rate, progress."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from hawser import Hawser, State
from hawser.job import new_job
from hawser.outcome import Dead, Failure
from hawser.store import Settlement, Share, Store
from tests.api.conftest import fields, in_state


async def dry(client: httpx.AsyncClient, path: str = "/dlq/requeue", **body) -> dict[str, Any]:
    response = await client.post(path, json={**body, "dry_run": True})
    assert response.status_code == 200, response.text
    counted: dict[str, Any] = response.json()
    return counted


async def test_what_was_counted_is_done(client: httpx.AsyncClient, app: Hawser, store: Store):
    dead = [await in_state(app, State.DEAD) for _ in range(3)]
    other = await in_state(app, State.DEAD, "anything")
    counted = await dry(client, filter={"task": "send_email"})
    assert (counted["count"], counted["exact"]) == (3, True)
    assert (await store.stats()).dead == 4
    done = await client.post("/dlq/requeue", json={"filter": {"task": "send_email"}, "rate": 1000, "token": counted["token"]})
    assert done.status_code == 200
    assert (done.json()["state"], done.json()["done"], done.json()["skipped"]) == ("done", 3, 0)
    assert {(await app.aget(id)).state for id in dead} == {State.READY}
    assert (await app.aget(other)).state is State.DEAD


async def test_the_real_call_needs_the_token_of_its_own_dry_run(client: httpx.AsyncClient, app: Hawser, store: Store):
    await in_state(app, State.DEAD)
    missing = await client.post("/dlq/requeue", json={"filter": {}})
    assert (missing.status_code, fields(missing)) == (400, ["token"])
    token = (await dry(client, filter={"task": "send_email"}))["token"]
    for path, filter in (
        ("/dlq/requeue", {}),
        ("/dlq/discard", {"task": "send_email"}),
        ("/jobs/cancel", {"task": "send_email"}),
    ):
        assert (await client.post(path, json={"filter": filter, "token": token})).status_code == 409
    assert (await client.post("/dlq/requeue", json={"filter": {"task": "send_email"}, "token": token[:-1]})).status_code == 409
    assert (await client.post("/dlq/requeue", json={"token": "nonsense"})).status_code == 409
    assert (await store.stats()).dead == 1


async def test_what_came_after_the_count_is_left_alone(client: httpx.AsyncClient, app: Hawser):
    old = await in_state(app, State.DEAD)
    token = (await dry(client))["token"]
    new = await in_state(app, State.DEAD)
    assert (await client.post("/dlq/requeue", json={"token": token})).json()["done"] == 1
    assert ((await app.aget(old)).state, (await app.aget(new)).state) == (State.READY, State.DEAD)


async def test_it_never_acts_on_more_than_were_counted(client: httpx.AsyncClient, app: Hawser, store: Store):
    """A job that is older than those counted may die meanwhile: then one of them stays."""
    waits = await in_state(app, State.READY, "charge")
    for _ in range(2):
        await in_state(app, State.DEAD)
    token = (await dry(client))["token"]
    [claimed] = (await client.post("/claims", json={})).json()["jobs"]
    assert claimed["id"] == waits
    await client.post("/settlements", json={"settlements": [{"id": waits, "lease": claimed["lease"], "outcome": "dead"}]})
    assert (await client.post("/dlq/requeue", json={"token": token, "confirm": True})).json()["done"] == 2
    assert (await store.stats()).dead == 1


async def test_one_is_tried_before_the_rest(client: httpx.AsyncClient, app: Hawser):
    first, second = [await in_state(app, State.DEAD) for _ in range(2)]
    token = (await dry(client))["token"]
    tried = (await client.post("/dlq/requeue", json={"token": token, "limit": 1})).json()
    assert (tried["state"], tried["done"]) == ("done", 1)
    assert ((await app.aget(first)).state, (await app.aget(second)).state) == (State.DEAD, State.READY)
    assert fields(await client.post("/dlq/requeue", json={"token": token, "limit": 0})) == ["limit"]


async def test_nothing_to_do_is_done(client: httpx.AsyncClient, app: Hawser):
    counted = await dry(client)
    assert counted["count"] == 0
    await in_state(app, State.DEAD)
    assert (await client.post("/dlq/requeue", json={"token": counted["token"]})).json()["done"] == 0


async def test_tasks_that_want_a_confirmation_are_skipped_without_one(client: httpx.AsyncClient, app: Hawser):
    await in_state(app, State.DEAD, "charge")
    first = (await client.post("/dlq/requeue", json={"token": (await dry(client))["token"]})).json()
    assert (first["done"], first["skipped"]) == (0, 1)
    again = await client.post("/dlq/requeue", json={"token": (await dry(client))["token"], "confirm": True})
    assert (again.json()["done"], again.json()["skipped"]) == (1, 0)


async def test_a_job_may_want_a_confirmation_though_its_task_is_not_of_this_app(client: httpx.AsyncClient, store: Store):
    await store.enqueue([new_job(task="of_another_app", body=b"{}", confirm_replay=True)])
    [claimed] = await store.claim([Share("default")], 1, "w1", 60.0)
    await store.settle([Settlement(claimed.id, claimed.lease, Dead(Failure("no")))])
    first = (await client.post("/dlq/requeue", json={"token": (await dry(client))["token"]})).json()
    assert (first["done"], first["skipped"]) == (0, 1)
    again = await client.post("/dlq/requeue", json={"token": (await dry(client))["token"], "confirm": True})
    assert (again.json()["done"], again.json()["skipped"]) == (1, 0)


async def test_a_replay_is_spread_over_a_time(client: httpx.AsyncClient, app: Hawser, store: Store, monkeypatch):
    monkeypatch.setattr("hawser.api.operation._BATCH", 2)
    dead = [await in_state(app, State.DEAD) for _ in range(5)]
    done = await client.post("/dlq/requeue", json={"token": (await dry(client))["token"], "spread": 500})
    assert (done.status_code, done.json()["state"], done.json()["done"]) == (200, "done", 5)
    times = [(await app.aget(id)).run_at for id in reversed(dead)]  # the newest first
    assert [round((time - times[0]).total_seconds()) for time in times] == [0, 100, 200, 300, 400]


@pytest.mark.parametrize("path", ["/dlq/discard", "/jobs/cancel"])
async def test_only_a_requeue_is_spread(client: httpx.AsyncClient, path: str):
    token = (await dry(client, path))["token"]
    refused = await client.post(path, json={"token": token, "spread": 60})
    assert (refused.status_code, fields(refused)) == (400, ["spread"])


async def test_a_slow_one_goes_on_behind_and_can_be_stopped(client: httpx.AsyncClient, app: Hawser, store: Store, monkeypatch):
    monkeypatch.setattr("hawser.api.bulk._AT_ONCE_WITHIN_S", 0.05)
    for _ in range(3):
        await in_state(app, State.DEAD)
    begun = await client.post("/dlq/requeue", json={"token": (await dry(client))["token"], "rate": 0.001})
    assert begun.status_code == 202
    id = begun.json()["id"]
    while (now := (await client.get(f"/operations/{id}")).json())["done"] < 1:
        await asyncio.sleep(0)
    assert (now["state"], now["done"]) == ("running", 1)
    assert [each["id"] for each in (await client.get("/operations")).json()["operations"]] == [id]
    stopped = (await client.post(f"/operations/{id}/stop")).json()
    assert (stopped["state"], stopped["done"]) == ("stopped", 1)
    again = (await client.post(f"/operations/{id}/stop")).json()
    assert again["state"] == "stopped"
    [record] = (await client.get("/audit?action=stop_operation")).json()["audit"]
    assert (record["target"], record["by"]) == (f"operation:{id}", "local")
    assert (await store.stats()).dead == 2
    assert (await client.get("/operations/none")).status_code == 404


async def test_waiting_jobs_are_cancelled_by_filter(client: httpx.AsyncClient, app: Hawser, store: Store):
    for n in range(4):
        await app.aenqueue("send_email", {"to": "a"}, tags=["old"] if n % 2 else [])
    token = (await dry(client, "/jobs/cancel", filter={"tag": "old"}))["token"]
    done = await client.post("/jobs/cancel", json={"filter": {"tag": "old"}, "token": token, "reason": "outdated"})
    assert done.json()["done"] == 2
    assert ((await store.stats()).ready, (await store.stats()).cancelled) == (2, 2)


async def test_the_audit_has_the_filter_the_jobs_and_the_operation(client: httpx.AsyncClient, app: Hawser):
    dead = [await in_state(app, State.DEAD) for _ in range(3)]
    filter = {"task": "send_email", "since": "2020-01-01T00:00:00Z"}
    token = (await dry(client, filter=filter))["token"]
    done = await client.post("/dlq/requeue", json={"filter": filter, "token": token, "rate": 1000, "reason": "mended"})
    [record] = (await client.get("/audit?action=requeue&by=local")).json()["audit"]
    assert (record["target"], record["count"], record["reason"]) == ("jobs", 3, "mended")
    assert record["filter"] == {"state": "dead", **filter}
    assert (sorted(record["ids"]), record["operation"]) == (sorted(dead), done.json()["id"])
    assert (await client.get("/audit?by=loca")).json()["audit"] == []
    await client.post(f"/jobs/{dead[0]}/cancel", json={})
    [record] = (await client.get("/audit?action=cancel")).json()["audit"]
    assert (record["target"], record["ids"], record["filter"], record["operation"]) == (dead[0], [], None, None)


async def test_the_audit_names_the_group(client: httpx.AsyncClient, app: Hawser):
    await in_state(app, State.DEAD)
    [group] = (await client.get("/dlq/groups")).json()["groups"]
    filter = {"group": group["id"]}
    token = (await dry(client, filter=filter))["token"]
    assert (await client.post("/dlq/requeue", json={"filter": filter, "token": token})).json()["filter"]["group"] == group["id"]
    [record] = (await client.get("/audit?action=requeue")).json()["audit"]
    assert record["filter"] == {"state": "dead", "group": group["id"]}


async def test_all_that_wait_get_another_queue_and_priority(client: httpx.AsyncClient, app: Hawser, store: Store):
    dead = await in_state(app, State.DEAD)
    waiting, other = [await in_state(app, State.READY) for _ in range(3)], await in_state(app, State.READY, "anything")
    filter = {"task": "send_email"}
    counted = await dry(client, "/jobs/change", filter=filter)
    assert (counted["count"], counted["exact"]) == (3, True)
    body = {"filter": filter, "token": counted["token"], "queue": "slow", "priority": 9, "rate": 1000, "reason": "a crowd"}
    done = await client.post("/jobs/change", json=body)
    assert (done.status_code, done.json()["action"], done.json()["state"], done.json()["done"]) == (200, "change", "done", 3)
    found = [await app.aget(id) for id in waiting]
    assert {(job.queue, job.priority) for job in found} == {("slow", 9)}
    assert {(await app.aget(id)).queue for id in (other, dead)}.isdisjoint({"slow"})
    [record] = await store.audit(action="change")
    assert (record.count, record.reason, record.operation) == (3, "a crowd", done.json()["id"])


async def test_a_change_of_all_names_what_it_changes(client: httpx.AsyncClient, app: Hawser):
    await in_state(app, State.READY)
    token = (await dry(client, "/jobs/change"))["token"]
    nothing = await client.post("/jobs/change", json={"token": token})
    assert (nothing.status_code, fields(nothing)) == (400, ["queue"])
    for wrong in ({"priority": 10}, {"queue": "a b"}):
        assert (await client.post("/jobs/change", json={"token": token, **wrong})).status_code == 400
    assert (await client.post("/jobs/cancel", json={"token": token})).status_code == 409
    assert (await client.post("/jobs/change", json={"token": token, "priority": 1, "spread": 5})).status_code == 400


async def test_all_that_were_cancelled_run_again(client: httpx.AsyncClient, app: Hawser, store: Store):
    dead = await in_state(app, State.DEAD)
    cancelled = [await in_state(app, State.READY) for _ in range(2)]
    for id in cancelled:
        await app.acancel(id)
    counted = await dry(client, "/jobs/retry", state="cancelled")
    assert counted["count"] == 2
    body = {"token": counted["token"], "rate": 1000}
    assert (await client.post("/jobs/retry", json=body)).status_code == 409, "it was counted for those that were cancelled"
    done = await client.post("/jobs/retry", json={**body, "state": "cancelled"})
    assert (done.json()["done"], done.json()["filter"]) == (2, {"state": "cancelled"})
    assert {(await app.aget(id)).state for id in cancelled} == {State.READY}
    assert (await app.aget(dead)).state is State.DEAD
    token = (await dry(client, "/jobs/retry"))["token"]
    assert (await client.post("/jobs/retry", json={"token": token})).json()["done"] == 1
