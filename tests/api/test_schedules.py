"""Schedules and policies over HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from hawser import Every, Fixed, Hawser, State
from hawser.policy import QueuePolicy
from hawser.schedule.rule import text_of
from hawser.schedule.schedule import Definition, create
from hawser.store import Filter, Store
from hawser.store.api_key import Role
from hawser.testing.clock import ManualClock
from tests.api.conftest import bearer, client_of, fields

DAILY = {"kind": "cron", "expression": "30 2 * * *", "tz": "Europe/Berlin"}
BODY = {"task": "send_email", "rule": DAILY, "payload": {"to": "ann"}}


async def test_a_schedule_is_made_and_shown(client: httpx.AsyncClient, app: Hawser):
    made = await client.put("/schedules/report", json=BODY)
    assert made.status_code == 201
    shown = (await client.get("/schedules/report")).json()
    assert shown == made.json()
    assert (shown["name"], shown["task"], shown["queue"], shown["payload"]) == ("report", "send_email", "mail", {"to": "ann"})
    assert (shown["state"], shown["declared"], shown["last_job"]) == ("active", False, None)
    assert shown["rule"]["expression"] == "30 2 * * *"
    assert shown["words"] == "At 02:30 every day (Europe/Berlin)"
    assert len(shown["ticks"]) == 5
    assert all("T02:30:00+0" in tick for tick in shown["ticks"])
    assert (await app.schedules.aget("report")).rule.missed == "once"
    assert (await client.get("/schedules/nobody")).status_code == 404


async def test_a_schedule_is_replaced_whole(client: httpx.AsyncClient, app: Hawser):
    await client.put("/schedules/s", json={"task": "charge", "rule": DAILY, "payload": {"order": 7}})
    other = await client.put("/schedules/s", json={"task": "charge", "rule": {"kind": "every", "minutes": 5, "overlap": "skip"}})
    assert (other.status_code, other.json()["words"], other.json()["payload"]) == (200, "Every 5 minutes", {})
    assert (await app.schedules.aget("s")).rule == Every(minutes=5, overlap="skip")
    taken = await client.put("/schedules/s", json=BODY)
    assert (taken.status_code, "runs task 'charge'" in taken.json()["detail"]) == (409, True)


async def test_a_schedule_has_a_queue_and_a_priority_of_its_own(client: httpx.AsyncClient, app: Hawser):
    body = {"task": "charge", "rule": DAILY}
    made = await client.put("/schedules/s", json={**body, "queue": "night", "priority": 2})
    assert (made.status_code, made.json()["queue"], made.json()["priority"]) == (201, "night", 2)
    ran = (await client.post("/schedules/s/run")).json()["job_id"]
    job = await app.aget(ran)
    assert (job.queue, job.priority) == ("night", 2)
    moved = (await client.put("/schedules/s", json={**body, "queue": "day", "priority": 9})).json()
    assert (moved["queue"], moved["priority"]) == ("day", 9)
    template = app.tasks["charge"].template
    back = (await client.put("/schedules/s", json=body)).json()
    assert (back["queue"], back["priority"]) == (template.queue, template.priority)
    for wrong in ({"queue": "a b"}, {"priority": 10}, {"priority": -1}, {"priority": "high"}):
        refused = await client.put("/schedules/s", json={**body, **wrong})
        assert (refused.status_code, fields(refused)) == (400, list(wrong))


async def test_schedules_come_in_pages(client: httpx.AsyncClient):
    for name in ("b", "c", "a"):
        await client.put(f"/schedules/{name}", json=BODY)
    first = (await client.get("/schedules?limit=2")).json()
    assert ([each["name"] for each in first["schedules"]], first["next"]) == (["a", "b"], "b")
    rest = (await client.get("/schedules?limit=2&after=b")).json()
    assert ([each["name"] for each in rest["schedules"]], rest["next"]) == (["c"], None)


async def test_a_schedule_is_paused_and_resumed(client: httpx.AsyncClient):
    await client.put("/schedules/s", json=BODY)
    assert (await client.post("/schedules/s/resume")).status_code == 409
    paused = (await client.post("/schedules/s/pause", json={"reason": "the mail server is down"})).json()
    assert (paused["state"], paused["next_tick"], paused["ticks"]) == ("paused", None, [])
    assert (paused["pause"]["by"], paused["pause"]["reason"]) == ("local", "the mail server is down")
    assert len((await client.get("/schedules/s/ticks?count=3")).json()["ticks"]) == 3
    assert (await client.post("/schedules/s/resume")).json()["state"] == "active"


async def test_a_schedule_is_run_now(client: httpx.AsyncClient, store: Store):
    await client.put("/schedules/s", json=BODY)
    ran = await client.post("/schedules/s/run", json={"reason": "asked for"})
    assert ran.status_code == 201
    [job] = (await store.find(Filter(schedule="s"))).jobs
    assert (ran.json(), job.state, job.queue) == ({"name": "s", "job_id": job.id}, State.READY, "mail")
    shown = (await client.get("/schedules/s")).json()
    assert (shown["last_job_id"], shown["last_job"]["id"], shown["last_job"]["state"]) == (job.id, job.id, "ready")


async def test_a_tick_is_skipped(client: httpx.AsyncClient):
    made = (await client.put("/schedules/s", json=BODY)).json()
    skipped = (await client.post("/schedules/s/skip")).json()
    assert (skipped["next_tick"], skipped["skipped"], skipped["ticks"][:4]) == (
        skipped["next_tick"],
        1,
        made["ticks"][1:],
    )


async def test_a_schedule_is_deleted_and_its_jobs_stay(client: httpx.AsyncClient, store: Store):
    await client.put("/schedules/s", json=BODY)
    await client.post("/schedules/s/run")
    assert (await client.delete("/schedules/s?reason=over")).json() == {"name": "s"}
    assert (await client.delete("/schedules/s")).status_code == 404
    assert len((await store.find(Filter(schedule="s"))).jobs) == 1


async def test_a_schedule_of_the_code_is_changed_there(client: httpx.AsyncClient, store: Store, clock: ManualClock):
    nightly = Definition(name="nightly", rule_text=text_of(Every(days=1)), task="send_email")
    await store.fire([create(nightly, clock.now(), declared=True)])
    for response in (await client.put("/schedules/nightly", json=BODY), await client.delete("/schedules/nightly")):
        assert response.status_code == 409
        assert "declared in code" in response.json()["detail"]
    assert (await client.post("/schedules/nightly/pause")).json()["state"] == "paused"


async def test_a_rule_that_nobody_here_can_follow_is_shown_as_it_is_written(
    client: httpx.AsyncClient, store: Store, clock: ManualClock
):
    odd = create(Definition(name="odd", rule_text=text_of(Every(days=1)), task="send_email"), clock.now())
    text = '{"kind":"moon","phase":"full"}'
    standing = replace(odd.schedule, definition=replace(odd.schedule.definition, rule_text=text), error="no such rule")
    await store.fire([replace(odd, schedule=standing)])
    [line] = (await client.get("/schedules")).json()["schedules"]
    assert (line["words"], line["rule"]["phase"], line["error"]) == (text, "full", "no such rule")
    assert (await client.get("/schedules/odd")).json()["ticks"] == []
    assert (await client.get("/schedules/odd/ticks")).status_code == 409
    assert (await client.get("/schedules/odd/past")).status_code == 409


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"rule": {"kind": "cron", "expression": "61 * * * *"}}, ["rule.expression"]),
    ({"rule": {"kind": "cron", "expression": "@dayly"}}, ["rule.expression"]),
    ({"rule": {**DAILY, "tz": "Europe/Berlim"}}, ["rule.tz"]),
    ({"rule": {**DAILY, "end": "2020-01-01T00:00:00Z", "start": "2021-01-01T00:00:00Z"}}, ["rule.end"]),
    ({"rule": {**DAILY, "start": "1970-01-01T00:00:00Z"}}, ["rule.start"]),
    ({"rule": {**DAILY, "missed": "never"}}, ["rule.missed"]),
    ({"rule": {**DAILY, "payload": {"to": "x"}}}, ["rule.payload"]),
    ({"rule": {"kind": "every"}}, ["rule"]),
    ({"rule": {"kind": "every", "minutes": -1}}, ["rule.minutes"]),
    ({"rule": {"kind": "moon"}}, ["rule.kind"]),
]


@pytest.mark.parametrize(("body", "named"), WRONG)
async def test_a_wrong_rule_is_refused_by_name(client: httpx.AsyncClient, store: Store, body: dict[str, Any], named: list[str]):
    for response in (await client.put("/schedules/s", json=BODY | body), await client.post("/ticks", json=body)):
        assert (response.status_code, fields(response)) == (400, named)
    assert await store.schedules() == []


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"task": "send_mail"}, ["task"]),
        ({"payload": {"to": 5}}, ["payload.to"]),
        ({"payload": {}}, ["payload.to"]),
        ({"payload": [1]}, ["payload"]),
        ({"queue": "no queue"}, ["queue"]),
    ],
)
async def test_a_wrong_schedule_is_refused_by_name(
    client: httpx.AsyncClient, store: Store, body: dict[str, Any], named: list[str]
):
    response = await client.put("/schedules/s", json=BODY | body)
    assert (response.status_code, fields(response)) == (400, named)
    assert (await client.put("/schedules/a%20b", json=BODY)).status_code == 400
    assert await store.schedules() == []


async def test_a_rule_is_tried_out(client: httpx.AsyncClient, store: Store):
    tried = (await client.post("/ticks", json={"rule": DAILY, "count": 2})).json()
    assert tried["words"] == "At 02:30 every day (Europe/Berlin)"
    assert len(tried["ticks"]) == 2
    assert await store.schedules() == []


@pytest.mark.parametrize("app", ["memory"], indirect=True)
async def test_a_key_schedules_and_runs_only_its_tasks(app: Hawser, store: Store):
    api = app.asgi(require_key=True, upkeep=False)
    header = await bearer(store, Role.ADMIN, tasks=("charge",))
    async with client_of(api, headers=await bearer(store, Role.ADMIN)) as anybody:
        assert (await anybody.put("/schedules/s", json=BODY)).status_code == 201
        assert (await anybody.put("/schedules/t", json=BODY, headers=header)).status_code == 403
        assert (await anybody.post("/schedules/s/run", headers=header)).status_code == 403
    assert (await store.find(Filter())).jobs == []


async def test_the_policy_of_a_queue_is_set_and_shown(client: httpx.AsyncClient, store: Store):
    policy = {"max_attempts": 9, "backoff": {"kind": "fixed", "every": 5}, "concurrency": 3, "ageing": 120}
    assert (await client.put("/queues/mail/policy", json={**policy, "reason": "why"})).json() == {"changed": True}
    assert (await store.policies())["mail"].backoff == Fixed(every=5)
    shown = (await client.get("/queues/mail")).json()["policy"]
    assert shown == {**policy, "backoff": {"kind": "fixed", "every": 5, "jitter": "full"}}
    added = {"kind": "linear", "step": 5, "cap": 60, "jitter": "added"}
    await client.put("/queues/other/policy", json={"backoff": added})
    assert (await client.get("/queues/other")).json()["policy"]["backoff"] == added
    await client.put("/queues/other/policy", json={})
    [listed] = (await client.get("/queues")).json()["queues"]
    assert listed["policy"] == shown
    await client.put("/queues/mail/policy", json={"max_attempts": 2})
    await client.put("/queues/strict/policy", json={"ageing": None})
    assert (await store.policies())["strict"] == QueuePolicy(ageing=None)
    shown = (await client.get("/queues/mail")).json()["policy"]
    assert shown == {"max_attempts": 2, "backoff": None, "concurrency": None, "ageing": 600}, "what is left out is no longer said"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"max_attempts": 0}, ["max_attempts"]),
        ({"concurrency": 10_001}, ["concurrency"]),
        ({"ageing": 0}, ["ageing"]),
        ({"ageing": "10m"}, ["ageing"]),
        ({"backoff": {"kind": "fixed", "base": 5}}, ["backoff.base"]),
        ({"backoff": {"kind": "fixed", "every": -5}}, ["backoff.every"]),
        ({"backoff": {"kind": "random"}}, ["backoff.kind"]),
        ({"attempts": 3}, ["attempts"]),
    ],
)
async def test_a_wrong_policy_is_refused_by_name(client: httpx.AsyncClient, store: Store, body: dict[str, Any], named: list[str]):
    response = await client.put("/queues/mail/policy", json=body)
    assert (response.status_code, fields(response)) == (400, named)
    assert await store.policies() == {}
