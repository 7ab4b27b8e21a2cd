"""`/jobs`: enqueue, look, cancel, retry."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any, cast

import httpx
import pytest

from hawser import Every, Hawser, State
from hawser.api.server import Api
from hawser.clock import at
from hawser.limit import Limit
from hawser.outcome import Failed, Failure
from hawser.store import Actor, Beat, Page, Settlement, Share, Store, Target
from hawser.store.api_key import Role
from hawser.stores.memory import MemoryStore
from hawser.testing import Fault, FaultyStore
from hawser.testing.clock import ManualClock
from hawser.value.ids import new_id
from tests.api.conftest import bearer, client_of, fields, in_state, make_app

MAIL = {"task": "send_email", "payload": {"to": "ann@example.com"}}


async def test_states_that_stats_count_can_be_listed(client: httpx.AsyncClient, app: Hawser, store: Store):
    """Scheduled and retrying are ways to look at ready."""
    retrying = (await app.aenqueue("charge", {})).id
    [claimed] = await store.claim([Share("default")], 1, "w1", 60.0)
    await store.settle([Settlement(claimed.id, claimed.lease, Failed(Failure("no"), 60.0))])
    scheduled = (await app.aenqueue("charge", {}, delay=60)).id
    ready = (await app.aenqueue("charge", {})).id
    found = {
        state: [job["id"] for job in (await client.get(f"/jobs?state={state}")).json()["jobs"]]
        for state in ("scheduled", "retrying", "ready")
    }
    assert found == {"scheduled": [scheduled], "retrying": [retrying], "ready": [ready, scheduled, retrying]}
    stats = (await client.get("/stats")).json()
    assert (stats["scheduled"], stats["retrying"], stats["ready"]) == (1, 1, 1)


async def test_a_job_is_enqueued(client: httpx.AsyncClient, app: Hawser):
    response = await client.post("/jobs", json=MAIL)
    assert response.status_code == 201
    id = response.json()["id"]
    assert response.json() == {"id": id, "created": True, "replaced": False, "state": "ready"}
    job = await app.aget(id)
    assert (job.task, job.queue, job.payload, job.max_attempts) == ("send_email", "mail", {"to": "ann@example.com"}, 3)


async def test_every_option_reaches_the_job(client: httpx.AsyncClient, app: Hawser, clock: ManualClock):
    when = (at(clock.now()) + timedelta(hours=1)).astimezone(UTC)
    options = {
        "queue": "bulk",
        "priority": 9,
        "max_attempts": 7,
        "timeout": 12.5,
        "key": "k",
        "key_ttl": "forever",
        "tags": ["a", "b"],
    }
    made = await client.post("/jobs", json={**MAIL, **options, "run_at": when.isoformat()})
    job = await app.aget(made.json()["id"])
    assert (job.queue, job.priority, job.max_attempts, job.timeout, job.key, job.tags) == ("bulk", 9, 7, 12.5, "k", ("a", "b"))
    assert job.run_at == when
    assert job.key_ttl == float("inf")
    later = await client.post("/jobs", json={**MAIL, "delay": 60})
    assert (await app.aget(later.json()["id"])).run_at == at(clock.now()) + timedelta(seconds=60)


async def test_type_is_another_word_for_task(client: httpx.AsyncClient):
    assert (await client.post("/jobs", json={"type": "send_email", "payload": {"to": "a"}})).status_code == 201
    both = await client.post("/jobs", json={**MAIL, "type": "send_email"})
    assert (both.status_code, fields(both)) == (400, ["type"])
    none = await client.post("/jobs", json={"payload": {}})
    assert (none.status_code, fields(none)) == (400, ["task"])


async def test_a_second_job_with_the_key_is_the_first_one(client: httpx.AsyncClient, app: Hawser):
    first = await client.post("/jobs", json={**MAIL, "key": "welcome:42", "key_ttl": "forever"})
    again = await client.post("/jobs", json={**MAIL, "key": "welcome:42"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == {"id": first.json()["id"], "created": False, "replaced": False, "state": "ready"}
    await app.acancel(first.json()["id"])
    assert (await client.post("/jobs", json={**MAIL, "key": "welcome:42"})).json()["state"] == "cancelled"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"task": "send_mail", "payload": {}}, ["task"]),
        ({"task": "send_email"}, ["payload.to"]),
        ({"task": "send_email", "payload": {"to": 3, "cc": "x"}}, ["payload.to", "payload.cc"]),
        ({"task": "send_email", "payload": [1]}, ["payload"]),
        ({"task": "send_email", "payload": None}, ["payload"]),
        ({**MAIL, "priority": 10, "delay": -1, "queue": "a b"}, ["queue", "priority", "delay"]),
        ({**MAIL, "priority": True}, ["priority"]),
        ({**MAIL, "priority": "5"}, ["priority"]),
        ({**MAIL, "run_at": "2030-01-01T00:00:00"}, ["run_at"]),
        ({**MAIL, "run_at": 17}, ["run_at"]),
        ({**MAIL, "run_at": "2030-01-01T00:00:00Z", "delay": 5}, ["run_at"]),
        ({**MAIL, "key_ttl": 5}, ["key_ttl"]),
        ({**MAIL, "key": "a\0b"}, ["key"]),
        ({**MAIL, "key": ""}, ["key"]),
        ({**MAIL, "tags": ["x"] * 17}, ["tags"]),
        ({**MAIL, "max_attempts": 0, "timeout": 0}, ["max_attempts", "timeout"]),
        ({**MAIL, "id": "7"}, ["id"]),
        ({**MAIL, "state": "done"}, ["state"]),
        ({**MAIL, "attempt": 3}, ["attempt"]),
        ({**MAIL, "lease": 3}, ["lease"]),
        ({**MAIL, "parent_id": "7"}, ["parent_id"]),
    ],
)
async def test_what_does_not_fit_is_refused_by_name_and_nothing_is_written(client: httpx.AsyncClient, store: Store, body, named):
    response = await client.post("/jobs", json=body)
    assert (response.status_code, fields(response)) == (400, named)
    assert (await store.stats()).ready == 0


async def test_a_batch_is_all_or_none(client: httpx.AsyncClient, store: Store):
    good = await client.post("/jobs/batch", json={"jobs": [MAIL, {**MAIL, "key": "k"}, {**MAIL, "key": "k"}]})
    assert good.status_code == 201
    one, two, three = good.json()["jobs"]
    assert [one["created"], two["created"], three["created"]] == [True, True, False]
    assert two["id"] == three["id"]
    bad = await client.post("/jobs/batch", json={"jobs": [MAIL, {"task": "send_email", "payload": {"to": 5}}]})
    assert (bad.status_code, fields(bad)) == (400, ["jobs[1].payload.to"])
    typed = await client.post("/jobs/batch", json={"jobs": [MAIL, {**MAIL, "priority": "x"}]})
    assert typed.status_code == 400
    assert (await store.stats()).ready == 2
    known = await client.post("/jobs/batch", json={"jobs": [{**MAIL, "key": "k"}]})
    assert (known.status_code, known.json()["jobs"][0]["id"]) == (200, two["id"])


async def test_a_batch_has_a_size(client: httpx.AsyncClient, store: Store):
    assert (await client.post("/jobs/batch", json={"jobs": [MAIL] * 1000})).status_code == 201
    assert (await client.post("/jobs/batch", json={"jobs": [MAIL] * 1001})).status_code == 400
    assert (await client.post("/jobs/batch", json={"jobs": []})).status_code == 400
    assert (await store.stats()).ready == 1000


async def test_a_full_queue_asks_to_come_again(client: httpx.AsyncClient, store: Store):
    await store.set_limit(Target("queue", "mail"), Limit(max_depth=1), Actor())
    assert (await client.post("/jobs", json=MAIL)).status_code == 201
    full = await client.post("/jobs", json=MAIL)
    assert (full.status_code, full.headers["retry-after"]) == (429, "5")
    assert (await client.post("/jobs/batch", json={"jobs": [MAIL]})).status_code == 429
    assert (await store.stats()).ready == 1


async def test_a_payload_has_a_size(client: httpx.AsyncClient, store: Store):
    text = "x" * (64 * 1024 - len('{"text":""}'))
    assert (await client.post("/jobs", json={"task": "anything", "payload": {"text": text}})).status_code == 201
    over = await client.post("/jobs", json={"task": "anything", "payload": {"text": text + "x"}})
    assert (over.status_code, fields(over)) == (413, ["payload"])
    assert (await store.stats()).ready == 1


async def test_a_lost_answer_is_no_created_job(clock: ManualClock):
    """503 when the commit is unknown, never 201; the caller repeats with its key and gets one job."""
    faulty = FaultyStore(MemoryStore(clock=clock))
    async with client_of(make_app(faulty).asgi(open=True, upkeep=False)) as client:
        faulty.next("enqueue", Fault.LOSE_REPLY, times=3)
        lost = await client.post("/jobs", json={**MAIL, "key": "once"})
        assert lost.status_code == 503
        assert int(lost.headers["retry-after"]) >= 1
        again = await client.post("/jobs", json={**MAIL, "key": "once"})
        assert (again.status_code, again.json()["created"]) == (200, False)
        faulty.next("enqueue", Fault.REFUSE)
        assert (await client.post("/jobs", json=MAIL)).status_code == 503
        assert (await faulty.stats()).ready == 1


async def test_a_job_that_waits_says_why(client: httpx.AsyncClient, app: Hawser, store: Store):
    async def why(id: str, **options: Any) -> str | None:
        return cast("str | None", (await client.get(f"/jobs/{id}", **options)).json()["why"])

    waiting = await in_state(app, State.READY)
    assert await why(waiting) == "no living worker serves queue mail"
    await store.beat([Beat(worker="w", host="h", pid=1, version="1", queues=("mail",), slots=2, running=2)])
    other = await in_state(app, State.READY)
    turn = "waits for its turn: 1 other job of queue mail is due; all 2 slots of the workers that serve queue mail are busy"
    assert await why(waiting) == await why(other) == turn
    await client.post("/admin/queues/mail/pause", json={"reason": "smtp is down"})
    told = await why(waiting)
    assert told is not None
    assert told.startswith("queue mail is paused by local since ")
    assert told.endswith(": smtp is down")
    producer, viewer = await bearer(store, Role.PRODUCER), await bearer(store, Role.PRODUCER, Role.VIEWER)
    assert await why(waiting, headers=producer) is None
    assert await why(waiting, headers=viewer) == told
    for state in (State.RUNNING, State.DONE, State.DEAD, State.CANCELLED):
        assert await why(await in_state(app, state, "charge")) is None


async def test_a_job_is_shown_whole(client: httpx.AsyncClient, app: Hawser):
    id = await in_state(app, State.DEAD)
    job = (await client.get(f"/jobs/{id}")).json()
    assert (job["id"], job["state"], job["payload"], job["error"]) == (id, "dead", {"to": "ann"}, "ValueError: no")
    [attempt] = job["attempts"]
    assert (attempt["outcome"], attempt["worker"], attempt["traceback"]) == ("dead", "w1", "Traceback\n  ValueError: no")
    done = (await client.get(f"/jobs/{await in_state(app, State.DONE)}")).json()
    assert (done["state"], done["result"]) == ("done", {"sent": True})
    missing = await client.get(f"/jobs/{new_id()}")
    assert missing.status_code == 404


async def test_the_job_of_a_schedule_says_so(client: httpx.AsyncClient, app: Hawser):
    await in_state(app, State.READY)
    await app.schedules.acreate("nightly", "charge", Every(hours=1))
    made = await app.schedules.arun("nightly")
    [job] = (await client.get("/jobs?schedule=nightly")).json()["jobs"]
    assert (job["id"], job["schedule"], job["tick"], job["confirm_replay"]) == (made, "nightly", None, True)


async def test_numbers_come_back_to_the_last_digit(client: httpx.AsyncClient):
    text = b'{"task":"anything","payload":{"big":18446744073709551615,"low":-9223372036854775808,"f":0.1}}'
    made = await client.post("/jobs", content=text, headers={"content-type": "application/json"})
    shown = await client.get(f"/jobs/{made.json()['id']}")
    assert b'{"big":18446744073709551615,"low":-9223372036854775808,"f":0.1}' in shown.content


async def test_jobs_are_listed_by_filter_and_page(client: httpx.AsyncClient, app: Hawser):
    made = [(await client.post("/jobs", json={**MAIL, "tags": ["even"] if n % 2 == 0 else []})).json()["id"] for n in range(5)]
    other = await in_state(app, State.DONE, "charge")
    page = (await client.get("/jobs", params={"queue": "mail", "limit": 2})).json()
    assert [job["id"] for job in page["jobs"]] == made[:-3:-1]
    assert "attempts" not in page["jobs"][0]
    rest = (await client.get("/jobs", params={"queue": "mail", "after": page["next"], "limit": 500})).json()
    assert ([job["id"] for job in rest["jobs"]], rest["next"]) == (made[-3::-1], None)
    assert len((await client.get("/jobs?tag=even&state=&task=")).json()["jobs"]) == 3
    assert [job["id"] for job in (await client.get("/jobs?state=done")).json()["jobs"]] == [other]


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=x", "limit"),
        ("state=lost", "state"),
        ("colour=red", "colour"),
        ("since=yesterday", "since"),
        ("since=2030-01-01T00:00:00", "since"),
        ("queue=a&queue=b", "queue"),
        ("key=%00", "key"),
        ("queue=a%20b", "queue"),
        ("after=x", "after"),
        ("parent_id=x", "parent_id"),
        ("schedule=a%20b", "schedule"),
    ],
)
async def test_a_wrong_query_is_refused_by_name(client: httpx.AsyncClient, query: str, named: str):
    response = await client.get(f"/jobs?{query}")
    assert (response.status_code, fields(response)) == (400, [named])


async def test_a_word_that_is_none_of_the_known_ones_is_answered_with_all_of_them(client: httpx.AsyncClient):
    body = {"task": "charge", "rule": {"kind": "every", "minutes": 5, "missed": "foo"}}
    error = (await client.put("/schedules/s", json=body)).json()["errors"][0]
    assert error["field"] == "rule.missed"
    assert error["message"].startswith("'foo' is not one of them; known are ")
    assert set(error["message"].partition("known are ")[2].split(", ")) == {"skip", "once", "all"}
    error = (await client.get("/jobs?state=foo")).json()["errors"][0]
    assert error["field"] == "state"
    assert error["message"].startswith("'foo' is not one of them; known are ")
    assert set(error["message"].partition("known are ")[2].split(", ")) == {*State, "scheduled", "retrying", "held"}


async def test_cancel_and_retry(client: httpx.AsyncClient, app: Hawser, store: Store):
    id = await in_state(app, State.READY)
    cancelled = await client.post(f"/jobs/{id}/cancel", json={"reason": "not needed"})
    assert (cancelled.status_code, cancelled.json()) == (200, {"id": id, "acted": "done"})
    assert (await app.aget(id)).reason == "not needed"
    assert (await client.post(f"/jobs/{id}/cancel")).status_code == 409
    assert (await client.post(f"/jobs/{id}/retry")).json() == {"id": id, "acted": "done"}
    assert (await client.post(f"/jobs/{id}/retry")).status_code == 409
    assert (await client.post(f"/jobs/{new_id()}/cancel")).status_code == 404
    await store.cancel([id], Actor())
    running = await in_state(app, State.RUNNING)
    assert (await client.post(f"/jobs/{running}/cancel", json={})).json() == {"id": running, "acted": "asked"}
    assert [(record.by, record.action) for record in await store.audit()][-1] == ("local", "cancel")


async def test_a_replay_of_a_payment_wants_a_confirmation(client: httpx.AsyncClient, app: Hawser):
    id = await in_state(app, State.DEAD, "charge")
    refused = await client.post(f"/jobs/{id}/retry", json={})
    assert (refused.status_code, fields(refused)) == (409, ["confirm"])
    assert (await client.post(f"/dlq/{id}/requeue")).status_code == 409
    assert (await client.post(f"/dlq/{id}/requeue", json={"confirm": True})).status_code == 200


async def test_a_job_may_name_its_parent(client: httpx.AsyncClient, app: Hawser):
    parent = await in_state(app, State.DONE)
    child = (await client.post("/jobs", json={**MAIL, "parent_id": parent})).json()["id"]
    assert (await app.aget(child)).parent_id == parent
    assert [job["id"] for job in (await client.get(f"/jobs?parent_id={parent}")).json()["jobs"]] == [child]


async def test_reads_have_an_etag(client: httpx.AsyncClient, app: Hawser):
    id = await in_state(app, State.READY)
    first = await client.get(f"/jobs/{id}")
    same = await client.get(f"/jobs/{id}", headers={"if-none-match": first.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    await app.acancel(id)
    changed = await client.get(f"/jobs/{id}", headers={"if-none-match": first.headers["etag"]})
    assert changed.status_code == 200
    head = await client.head(f"/jobs/{id}")
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", changed.headers["etag"])


async def test_what_is_not_there_is_told(client: httpx.AsyncClient):
    assert (await client.get("/nothing")).status_code == 404
    wrong = await client.put("/jobs")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, POST")
    assert (await client.post("/jobs", content=b"task=x", headers={"content-type": "text/plain"})).status_code == 415


async def test_the_api_works_under_a_prefix(app: Hawser, api: Api):
    from starlette.applications import Starlette
    from starlette.routing import Mount

    outer = Starlette(routes=[Mount("/hawser", api)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(outer), base_url="http://localhost") as client:
        assert (await client.post("/hawser/jobs", json=MAIL)).status_code == 201
        assert (await client.get("/hawser/stats")).json()["ready"] == 1


async def test_a_search_that_finds_little_is_cut_and_says_where_to_go_on(
    client: httpx.AsyncClient, app: Hawser, store: Store, monkeypatch: pytest.MonkeyPatch
):
    id = await in_state(app, State.READY)
    looks: list[str | None] = []

    async def find(filter, after=None, limit=100):
        looks.append(after)
        return Page([], id)

    monkeypatch.setattr(store, "find", find)
    monkeypatch.setattr("hawser.api.listing.SEARCH_FOR_S", 0.0)
    page = (await client.get("/jobs?tag=rare")).json()
    assert (page["jobs"], page["next"]) == ([], id)
    assert looks == [None]


@pytest.mark.parametrize(
    ("field", "meant"),
    [
        ("idempotency_key", "did you mean 'key'?"),
        ("max_retries", "did you mean 'max_attempts'?"),
        ("delay_seconds", "did you mean 'delay'?"),
        ("eta", "did you mean 'run_at'?"),
        ("prioritee", "did you mean 'priority'?"),
        ("colour", "leave it out"),
    ],
)
async def test_an_unknown_field_says_which_one_may_be_meant(client: httpx.AsyncClient, field: str, meant: str):
    response = await client.post("/jobs", json={"task": "charge", field: 1})
    assert response.status_code == 400
    [error] = response.json()["errors"]
    assert (error["field"], error["message"]) == (field, f"there is no such field; {meant}")
    response = await client.post("/jobs/batch", json={"jobs": [{"task": "charge", field: 1}]})
    [error] = response.json()["errors"]
    assert error["message"] == f"there is no such field; {meant}"
    assert (await client.get("/jobs")).json()["jobs"] == []
