"""Queues, tasks, workers, audit, health; and that every action leaves its record."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from hawser import Every, Hawser, State
from hawser.api.routes import ROUTES
from hawser.api.server import Api
from hawser.errors import ConfigError
from hawser.store import Beat, Store
from hawser.stores.memory import MemoryStore
from hawser.testing import Fault, FaultyStore
from hawser.value.ids import new_id
from tests.api.conftest import client_of, fields, in_state, make_app


async def test_stats_of_one_queue_and_of_all(client: httpx.AsyncClient, app: Hawser):
    await in_state(app, State.DEAD)
    await in_state(app, State.READY, "charge")
    mail, everything = (await client.get("/stats?queue=mail")).json(), (await client.get("/stats")).json()
    assert (mail["dead"], mail["ready"], everything["dead"], everything["ready"]) == (1, 0, 1, 1)
    assert everything["durability"] in ("durable", "relaxed")
    assert (everything["done_most"], everything["failovers"]) == (None, 0)
    asked = {"ready", "running", "scheduled", "retrying", "dead", "oldest_age_s", "attempts_p99", "rates"}
    assert asked <= everything.keys()
    assert (await client.get("/stats?queue=a%20b")).status_code == 400


async def test_queues_with_their_limits_and_pauses(client: httpx.AsyncClient, app: Hawser):
    await in_state(app, State.READY)
    assert (await client.put("/admin/limits/queues/mail", json={"max_depth": 7, "reason": "enough"})).json()["changed"]
    paused = await client.post("/admin/queues/mail/pause", json={"reason": "down", "until": "2100-01-01T00:00:00Z"})
    assert paused.json() == {"changed": True}
    [queue] = (await client.get("/queues")).json()["queues"]
    assert (queue["queue"], queue["ready"], queue["max_depth"], queue["paused"]) == ("mail", 1, 7, True)
    assert (queue["pause"]["reason"], queue["pause"]["by"], queue["pause"]["until"]) == ("down", "local", "2100-01-01T00:00:00Z")
    assert (await client.get("/queues/mail")).json() == queue | {"oldest_age_s": queue["oldest_age_s"]}
    assert (await client.post("/claims", json={"queues": ["mail"]})).json() == {"jobs": []}
    assert (await client.post("/admin/queues/mail/resume")).json() == {"changed": True}
    assert (await client.post("/admin/queues/mail/resume")).json() == {"changed": False}
    assert (await client.delete("/admin/limits/queues/mail")).status_code == 200
    assert (await client.get("/queues/mail")).json()["max_depth"] is None


async def test_queues_and_stats_tell_what_limits_a_queue(client: httpx.AsyncClient, app: Hawser):
    await in_state(app, State.READY)
    told = {"max_running": 4, "rate": "100/m", "max_depth": 7}
    assert (await client.put("/admin/limits/queues/mail", json={"running": 4, "rate": "100/m", "max_depth": 7})).json()["changed"]
    [queue] = (await client.get("/queues")).json()["queues"]
    for found in (queue, (await client.get("/queues/mail")).json(), (await client.get("/stats?queue=mail")).json()):
        assert {name: found[name] for name in told} == told
    for path in ("/stats", "/stats?queue=other", "/queues/other"):
        found = (await client.get(path)).json()
        assert {name: found[name] for name in told} == dict.fromkeys(told), path
    schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
    for name in ("QueueView", "StatsOut"):
        assert told.keys() <= schemas[name]["properties"].keys()


async def test_tasks_with_their_schemas_and_pauses(client: httpx.AsyncClient, app: Hawser):
    assert (await client.post("/admin/job-types/send_email/pause", json={})).status_code == 200
    tasks = {task["task"]: task for task in (await client.get("/tasks")).json()["tasks"]}
    assert set(tasks) == {"send_email", "charge", "anything"}
    assert tasks["send_email"]["payload_schema"] == {
        "type": "object",
        "properties": {"to": {"type": "string"}, "template": {"type": "string"}},
        "required": ["to"],
        "additionalProperties": False,
    }
    assert (tasks["send_email"]["pause"]["by"], tasks["charge"]["pause"]) == ("local", None)
    assert (await client.post("/admin/job-types/send_email/resume")).json() == {"changed": True}
    assert (await client.post("/admin/job-types/send_mail/pause")).status_code == 404


async def test_workers(client: httpx.AsyncClient, store: Store):
    await store.beat([Beat(worker="w1", host="h", pid=7, version="1", queues=("a",), slots=4, running=2)])
    [worker] = (await client.get("/workers")).json()["workers"]
    assert (worker["worker"], worker["pid"], worker["slots"], worker["running"], worker["queues"]) == ("w1", 7, 4, 2, ["a"])


async def test_an_instant_that_is_no_date_everywhere_is_refused(client: httpx.AsyncClient, store: Store):
    for year in ("0001-01-01T00:00:00Z", "1970-12-31T23:59:59Z", "9999-01-01T00:00:00-12:00"):
        paused = await client.post("/admin/queues/mail/pause", json={"until": year})
        assert (paused.status_code, fields(paused)) == (400, ["until"])
        found = await client.get("/jobs", params={"since": year})
        assert (found.status_code, fields(found)) == (400, ["since"])
        counted = await client.post("/dlq/requeue", json={"dry_run": True, "filter": {"until": year}})
        assert (counted.status_code, fields(counted)) == (400, ["until"])
    assert await store.pauses() == []


async def test_dead_letters(client: httpx.AsyncClient, app: Hawser):
    one, two = await in_state(app, State.DEAD), await in_state(app, State.DEAD)
    live = await in_state(app, State.READY)
    assert [job["id"] for job in (await client.get("/dlq")).json()["jobs"]] == [two, one]
    assert (await client.get(f"/dlq/{one}")).json()["attempts"][0]["error"] == "ValueError: no"
    assert (await client.get(f"/dlq/{live}")).status_code == 404
    assert (await client.post(f"/dlq/{one}/requeue")).json() == {"id": one, "acted": "done"}
    assert (await client.delete(f"/dlq/{two}?reason=told%20by%20phone")).json() == {"id": two, "acted": "done"}
    assert ((await app.aget(two)).state, (await app.aget(two)).reason) == (State.CANCELLED, "told by phone")
    assert (await client.delete(f"/dlq/{two}")).status_code == 409
    assert (await client.delete(f"/dlq/{new_id()}")).status_code == 404


async def test_a_dead_job_is_replayed_with_other_arguments(client: httpx.AsyncClient, app: Hawser):
    dead = await in_state(app, State.DEAD)
    wrong = await client.post(f"/dlq/{dead}/replay", json={"payload": {"to": 5}})
    assert (wrong.status_code, fields(wrong)) == (400, ["payload.to"])
    replayed = await client.post(f"/dlq/{dead}/replay", json={"payload": {"to": "bob"}})
    assert replayed.status_code == 201
    new = await app.aget(replayed.json()["id"])
    assert (new.parent_id, new.payload, replayed.json()["parent_id"]) == (dead, {"to": "bob"}, dead)
    assert (await client.post(f"/dlq/{dead}/replay", json={"payload": {"to": "bob"}})).status_code == 409


async def test_the_audit_comes_in_pages(client: httpx.AsyncClient):
    for number in range(5):
        await client.put("/admin/limits/queues/mail", json={"max_depth": number, "reason": f"r{number}"})
    reasons, after = [], ""
    while True:
        page = (await client.get(f"/audit?limit=2&after={after}")).json()
        reasons.append([record["reason"] for record in page["audit"]])
        after = page["next"]
        if after is None:
            break
    assert reasons == [["r4", "r3"], ["r2", "r1"], ["r0"]]


ACTIONS: dict[str, tuple[State | None, str, Any]] = {
    "PATCH /jobs/{id}": (State.READY, "change", {"priority": 9}),
    "POST /jobs/{id}/run-now": (State.READY, "change", {}),
    "POST /jobs/{id}/dead-letter": (State.READY, "dead_letter", {}),
    "POST /workers/{worker}/reclaim": (State.RUNNING, "reclaim_worker", {}),
    "POST /jobs/{id}/cancel": (State.READY, "cancel", {}),
    "POST /jobs/{id}/retry": (State.DEAD, "requeue", {}),
    "POST /jobs/{id}/rewind": (State.DEAD, "rewind", {"to": None}),
    "POST /batches/{id}/close": (None, "close_batch", {}),
    "POST /batches/{id}/cancel": (None, "cancel_batch", {}),
    "POST /dlq/{id}/requeue": (State.DEAD, "requeue", {}),
    "POST /dlq/{id}/replay": (State.DEAD, "replace", {"payload": {"to": "x"}}),
    "DELETE /dlq/{id}": (State.DEAD, "discard", None),
    "POST /admin/breakers/{task}/open": (None, "open_breaker", {}),
    "POST /admin/breakers/{task}/close": (None, "close_breaker", {}),
    "PUT /admin/limits/queues/{queue}": (None, "set_limit", {"max_depth": 5}),
    "DELETE /admin/limits/queues/{queue}": (None, "clear_limit", None),
    "PUT /admin/limits/tasks/{task}": (None, "set_limit", {"running": 5}),
    "DELETE /admin/limits/tasks/{task}": (None, "clear_limit", None),
    "POST /admin/queues/{queue}/pause": (None, "pause", {}),
    "POST /admin/queues/{queue}/resume": (None, "resume", {}),
    "POST /admin/job-types/{task}/pause": (None, "pause", {}),
    "POST /admin/job-types/{task}/resume": (None, "resume", {}),
    "PUT /queues/{queue}/groups/{group}": (None, "set_weight", {"weight": 3}),
    "PUT /queues/{queue}/policy": (None, "set_policy", {"max_attempts": 5}),
    "PUT /schedules/{schedule}": (None, "create_schedule", {"task": "charge", "rule": {"kind": "every", "hours": 1}}),
    "DELETE /schedules/{schedule}": (None, "delete_schedule", None),
    "POST /schedules/{schedule}/pause": (None, "pause_schedule", {}),
    "POST /schedules/{schedule}/resume": (None, "resume_schedule", {}),
    "POST /schedules/{schedule}/skip": (None, "skip_tick", {}),
    "POST /schedules/{schedule}/run": (None, "run_schedule", {}),
    "POST /jobs/selected": (State.READY, "cancel", {"action": "cancel"}),
    "POST /jobs/cancel": (State.READY, "cancel", "bulk"),
    "POST /jobs/retry": (State.DEAD, "requeue", "bulk"),
    "POST /jobs/change": (State.READY, "change", "bulk"),
    "POST /dlq/requeue": (State.DEAD, "requeue", "bulk"),
    "POST /dlq/discard": (State.DEAD, "discard", "bulk"),
}


def test_every_action_is_here():
    assert {route.name for route in ROUTES if route.acts} == set(ACTIONS)


@pytest.mark.parametrize("name", ACTIONS)
async def test_every_action_leaves_one_audit_record(client: httpx.AsyncClient, app: Hawser, store: Store, name: str):
    state, action, body = ACTIONS[name]
    id = await in_state(app, state) if state else ""
    if action.endswith("_batch"):
        id = (await client.post("/batches", json={"name": "import"})).json()["id"]
    method, path = name.split(" ")
    path = path.format(id=id, queue="mail", task="send_email", schedule="hourly", worker="w1", group="acme")
    if "{schedule}" in name and method != "PUT":
        await app.schedules.acreate("hourly", "charge", Every(hours=1))
    if action in ("resume", "resume_schedule"):
        await client.post(path.replace("resume", "pause"))
    if action == "close_breaker":
        await client.post(path.replace("close", "open"))
    if action == "clear_limit":
        await client.put(path, json={"running": 3})
    before = len(await store.audit())
    if body is None:
        response = await client.request(method, f"{path}?reason=why")
    elif body == "bulk":
        token = (await client.post(path, json={"dry_run": True})).json()["token"]
        assert len(await store.audit()) == before, "a dry run does nothing"
        response = await client.post(
            path, json={"token": token, "reason": "why", **({"priority": 9} if action == "change" else {})}
        )
    else:
        named = {"ids": [id]} if path == "/jobs/selected" else {}
        response = await client.request(method, path, json={**body, **named, "reason": "why"})
    assert response.status_code in (200, 201), response.text
    records = await store.audit()
    assert len(records) == before + 1
    assert (records[0].by, records[0].action, records[0].reason) == ("local", action, "why")
    told = (await client.get("/audit?limit=1")).json()["audit"]
    assert (told[0]["action"], told[0]["by"], told[0]["reason"]) == (action, "local", "why")


async def test_health_does_not_ask_the_store_and_readiness_does(clock):
    faulty = FaultyStore(MemoryStore(clock=clock))
    api = make_app(faulty).asgi(open=True, upkeep=False)
    async with client_of(api) as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert faulty.calls["limits"] == 0
        assert (await client.get("/readyz")).json()["status"] == "ready"
        faulty.next("limits", Fault.REFUSE)
        assert (await client.get("/readyz")).status_code == 503
        faulty.next("stats", Fault.REFUSE)
        assert (await client.get("/stats")).status_code == 503
        api.stopping.set()
        assert (await client.get("/readyz")).status_code == 503


async def test_a_fault_of_ours_tells_nothing_of_itself(client: httpx.AsyncClient, store: Store, caplog):
    async def broken(*args):
        raise RuntimeError("secret path /srv")

    store.workers = broken  # type: ignore[method-assign]  # a bug nobody foresaw
    response = await client.get("/workers")
    assert response.status_code == 500
    assert "secret" not in response.text
    assert "secret path" in caplog.text


async def test_a_request_has_a_deadline(app: Hawser, store: Store):
    async def slow(*args):
        import asyncio

        await asyncio.Event().wait()

    store.workers = slow  # type: ignore[method-assign]  # a store that hangs
    api = app.asgi(open=True, upkeep=False, deadline=0.05)
    async with client_of(api) as client:
        assert (await client.get("/workers")).status_code == 503
    await api.stop()


@pytest.mark.parametrize(
    ("settings", "field"),
    [({"max_body": 0}, "max_body"), ({"deadline": "soon"}, "deadline"), ({"max_wait": 61}, "max_wait"), ({"port": 80}, "port")],
)
def test_wrong_options_are_refused_by_name(settings: dict[str, Any], field: str):
    with pytest.raises(ConfigError, match=f"^{field}: "):
        make_app("memory://").asgi(**settings)


async def test_lifespan_opens_and_closes_the_store(app: Hawser):
    api = Api(app)
    messages = [{"type": "lifespan.shutdown"}, {"type": "lifespan.startup"}]
    sent: list[str] = []

    async def receive():
        return messages.pop()

    async def send(message):
        sent.append(message["type"])

    await api({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert api.stopping.is_set()
