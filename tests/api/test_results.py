"""Waiting for a job's end over HTTP, and its progress as a stream."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import msgspec

from hawser import Hawser, Retention, State
from hawser.api import events, job_events
from hawser.api.call import Call, NoBody, NoQuery
from hawser.api.identity import LOCAL
from hawser.api.job_events import JobReads
from hawser.api.server import Api
from hawser.outcome import Done
from hawser.store import LeaseRef, Settlement, Share, Store
from hawser.store.api_key import Role
from tests.api.conftest import bearer, client_of, fields, in_state


async def claimed(store: Store) -> Any:
    [job] = await store.claim([Share("mail")], 1, "w1", 60)
    return job


async def test_a_call_that_waits_is_answered_when_the_job_has_ended(app: Hawser, store: Store, client: httpx.AsyncClient):
    id = await in_state(app, State.READY)
    waiting = asyncio.ensure_future(client.get(f"/jobs/{id}?wait=30"))
    job = await claimed(store)
    await store.settle([Settlement(id, job.lease, Done(b'{"sent":true}'))])
    answer = (await asyncio.wait_for(waiting, 10)).json()
    assert (answer["state"], answer["result"]) == ("done", {"sent": True})
    assert (await client.get(f"/jobs/{id}?wait=30")).json()["state"] == "done", "at once"


async def test_a_call_that_waits_in_vain_shows_the_job_as_it_is(app: Hawser, client: httpx.AsyncClient):
    id = await in_state(app, State.RUNNING)
    answer = await client.get(f"/jobs/{id}?wait=1")
    assert (answer.status_code, answer.json()["state"]) == (200, "running")


async def test_what_is_no_time_to_wait_is_refused(app: Hawser, client: httpx.AsyncClient):
    id = await in_state(app, State.READY)
    for wait in ("-1", "61", "x"):
        answer = await client.get(f"/jobs/{id}?wait={wait}")
        assert (answer.status_code, fields(answer)) == (400, ["wait"])


async def test_a_task_that_keeps_nothing_cannot_be_waited_for(store: Store, app: Hawser, client: httpx.AsyncClient):
    app.task(name="brief", retention=Retention(done=0))(lambda: None)
    id = (await app.aenqueue("brief", {})).id
    answer = await client.get(f"/jobs/{id}?wait=5")
    assert fields(answer) == ["wait"]
    assert "not kept" in answer.text
    assert (await client.get(f"/jobs/{id}")).status_code == 200


async def test_a_producer_sees_only_what_is_its_own(app: Hawser, store: Store):
    api = app.asgi(upkeep=False)
    id = await in_state(app, State.READY, task="charge")
    key = await bearer(store, Role.PRODUCER, tasks=["send_email"])
    async with client_of(api, headers=key) as client:
        for path in (f"/jobs/{id}?wait=1", f"/jobs/{id}/events"):
            assert (await client.get(path)).status_code == 403
    await api.stop()


def call_of(api: Api, store: Store, id: str) -> Call[NoBody, NoQuery]:
    return Call(api, store, LOCAL, {"id": id}, NoQuery(), NoBody(), {"headers": []}, asyncio.Event())


def told(chunk: bytes) -> tuple[str, dict[str, Any]]:
    event, data = chunk.decode().strip().split("\n")
    return event.removeprefix("event: "), msgspec.json.decode(data.removeprefix("data: "))


async def test_progress_and_the_end_are_pushed(app: Hawser, store: Store, api: Api):
    api.job_reads = JobReads(every=0.01)
    id = await in_state(app, State.READY)
    stream = (await job_events.job_events(call_of(api, store, id))).chunks
    assert await anext(stream) == b"retry: 3000\n\n"
    assert told(await anext(stream)) == ("progress", {"state": "ready", "attempt": 0, "progress": None})
    job = await claimed(store)
    assert told(await anext(stream)) == ("progress", {"state": "running", "attempt": 1, "progress": None})
    await store.extend("w1", [LeaseRef(id, job.lease, b'{"done":5}')], 60)
    assert told(await anext(stream)) == ("progress", {"state": "running", "attempt": 1, "progress": {"done": 5}})
    await store.settle([Settlement(id, job.lease, Done(b'{"sent":true}'))])
    assert told(await anext(stream))[1]["state"] == "done"
    assert told(await anext(stream)) == ("end", {"state": "done", "result": {"sent": True}, "error": None})
    assert [chunk async for chunk in stream] == []
    assert api.pulse.listeners == 0


async def test_a_dead_job_ends_its_stream_with_its_error(app: Hawser, store: Store, api: Api):
    id = await in_state(app, State.DEAD)
    chunks = [chunk async for chunk in (await job_events.job_events(call_of(api, store, id))).chunks]
    assert told(chunks[-1]) == ("end", {"state": "dead", "result": None, "error": "ValueError: no"})


async def test_streams_of_jobs_count_among_all_streams(
    app: Hawser, store: Store, api: Api, client: httpx.AsyncClient, monkeypatch
):
    monkeypatch.setattr(events, "MAX_STREAMS", 1)
    id = await in_state(app, State.READY)
    await job_events.job_events(call_of(api, store, id))
    answer = await client.get(f"/jobs/{id}/events")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert (await client.get("/jobs/018f0000-0000-7000-8000-000000000000/events")).status_code == 404


async def test_many_streams_of_one_job_cost_one_read(app: Hawser, store: Store):
    reads = 0

    class Counting:
        async def get(self, id: str) -> None:
            nonlocal reads
            reads += 1
            await asyncio.sleep(0)

    jobs = JobReads(every=60)
    await asyncio.gather(*(jobs.get(Counting(), "a") for _ in range(100)))  # type: ignore[arg-type]
    assert reads == 1


async def test_a_job_may_wait_for_others(app: Hawser, store: Store, client: httpx.AsyncClient):
    upstream = await in_state(app, State.READY)
    sent = {"task": "send_email", "payload": {"to": "ann"}}
    answer = await client.post("/jobs", json={**sent, "after": [upstream]})
    shown = (await client.get(f"/jobs/{answer.json()['id']}")).json()
    assert (shown["held"], shown["why"]) == (True, f"waits for 1 of 1 jobs: {upstream} (ready)")
    assert [job["id"] for job in (await client.get("/jobs?state=held")).json()["jobs"]] == [answer.json()["id"]]
    assert (await client.get("/stats")).json()["held"] == 1
    for wrong in (["x"], ["018f0000-0000-7000-8000-000000000000"], "x"):
        refused = await client.post("/jobs", json={**sent, "after": wrong})
        assert refused.status_code == 400, refused.text
        assert fields(refused)[0].startswith("after")
