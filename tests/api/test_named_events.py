"""Events over HTTP: the jobs that wait for them go on."""

import httpx

from hawser import Hawser
from hawser.outcome import Held
from hawser.store import Arrival, NewStep, Settlement, Share, Store
from hawser.store.api_key import Role
from tests.api.conftest import bearer, client_of


async def test_an_event_wakes_a_job(client: httpx.AsyncClient, app: Hawser, store: Store):
    job = (await client.post("/jobs", json={"task": "send_email", "payload": {"to": "a@example.com"}})).json()["id"]
    [run] = await store.claim([Share("mail")], 1, "w1", 30)
    await store.settle([Settlement(job, run.lease, Held("packed:42", event="packed:42", timeout=3600))])
    [step] = (await client.get(f"/jobs/{job}/steps")).json()["steps"]
    assert (step["kind"], step["event"], step["value"]) == ("wait", "packed:42", None)
    assert step["until"] > step["at"]
    shown = (await client.get(f"/jobs/{job}")).json()
    assert shown["why"].startswith("its handler waits for the event 'packed:42', since ")
    assert " UTC, until " in shown["why"]
    answer = await client.post("/events/packed:42", json={"body": {"parcels": 2}})
    assert answer.status_code == 201
    assert {**answer.json(), "at": ""} == {"name": "packed:42", "created": True, "at": "", "same": True}
    assert not (await app.aget(job)).held
    [step] = (await client.get(f"/jobs/{job}/steps")).json()["steps"]
    assert step["kind"] == "woken"


async def test_the_second_event_is_told(client: httpx.AsyncClient):
    assert (await client.post("/events/paid", json={})).status_code == 201
    again = await client.post("/events/paid", json={"body": None, "keep": 60})
    assert (again.status_code, again.json()["created"], again.json()["same"]) == (200, False, True)
    other = await client.post("/events/paid", json={"body": 1})
    assert (other.status_code, other.json()["same"]) == (200, False)
    event = (await client.get("/events/paid")).json()
    assert (event["name"], event["body"], event["at"]) == ("paid", None, other.json()["at"])
    assert (await client.get("/events/other")).status_code == 404


async def test_an_event_that_is_wrong_is_named(client: httpx.AsyncClient):
    for name, body, field in (
        ("x" * 300, {}, "name"),
        ("a", {"keep": 0}, "keep"),
        ("a", {"keep": "long"}, "keep"),
        ("a", {"body": "x" * 300_000}, "body"),
        ("a", {"colour": 1}, "colour"),
    ):
        answer = await client.post(f"/events/{name}", json=body)
        assert answer.status_code in (400, 413), answer.text
        assert field in answer.text
    assert (await client.get("/events/a")).status_code == 404


async def test_a_key_for_some_tasks_emits_no_events(app: Hawser, store: Store):
    api = app.asgi(require_key=True, upkeep=False)
    async with client_of(api) as closed:
        answer = await closed.post("/events/paid", json={}, headers=await bearer(store, Role.PRODUCER, tasks=["send_email"]))
    await api.stop()
    assert answer.status_code == 403
    assert "an event may concern jobs of any" in answer.json()["detail"]


async def test_metrics_tell_of_steps_and_events(client, store: Store):
    await client.get("/metrics")  # counters begin here
    job = (await client.post("/jobs", json={"task": "send_email", "payload": {"to": "a@example.com"}})).json()["id"]
    [run] = await store.claim([Share("mail")], 1, "w1", 30)
    await store.record_steps([NewStep(id=job, lease=run.lease, name="charge", value=b"1")])
    await store.settle([Settlement(job, run.lease, Held("packed", event="packed", timeout=None))])
    text = (await client.get("/metrics")).text
    assert "hawser_awaiting_jobs 1.0" in text
    assert 'hawser_jobs{queue="mail",state="held"} 1.0' in text
    for _ in range(2):
        await client.post("/events/packed", json={})
    await store.emit("by a producer of Python", b"1", 100.0)
    [run] = await store.claim([Share("mail")], 1, "w1", 30)
    await store.arrive(Arrival(id=job, lease=run.lease, name="packed", event="packed"))
    text = (await client.get("/metrics")).text
    assert "hawser_awaiting_jobs 0.0" in text
    assert 'hawser_steps_total{queue="mail",task="send_email"} 2.0' in text
    assert 'hawser_events_came_total{queue="mail",task="send_email"} 1.0' in text
    assert 'hawser_events_late_total{queue="mail",task="send_email"} 0.0' in text
    assert 'hawser_woken_total{queue="mail",task="send_email"} 1.0' in text
    assert "hawser_events_emitted_total 2.0" in text, "wherever they come from"
    assert 'queue=""' not in text
    await store.settle([Settlement(job, run.lease, Held("paid", event="paid", timeout=0.0))])
    [run] = await store.claim([Share("mail")], 1, "w1", 30)
    await store.arrive(Arrival(id=job, lease=run.lease, name="paid", event="paid"))
    text = (await client.get("/metrics")).text
    assert 'hawser_events_came_total{queue="mail",task="send_email"} 1.0' in text
    assert 'hawser_events_late_total{queue="mail",task="send_email"} 1.0' in text
    assert 'hawser_woken_total{queue="mail",task="send_email"} 2.0' in text
