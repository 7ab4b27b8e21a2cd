"""A request that is sent again: by the id of its job, or by its Idempotency-Key."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import httpx
import pytest

from hawser import Hawser, IdConflict, InvalidJob
from hawser.api.server import Api
from hawser.outcome import Done
from hawser.store import REQUEST_KEPT, Retention, Settlement, Share, Store
from hawser.store.api_key import Role
from hawser.stores.memory import MemoryStore
from hawser.testing import Fault, FaultyStore
from hawser.testing.clock import ManualClock
from hawser.value.ids import new_id
from tests.api.conftest import bearer, client_of, fields, make_app
from tests.api.processes import served

MAIL = {"task": "send_email", "payload": {"to": "ann@example.com"}}
WRONG_IDS = (
    "846334f3-15ce-43be-8c3a-b0d9182b0d2e",  # version 4
    "01A1E641-8FA6-725D-8860-BF058827DA63",
    "01a1e6418fa672a18494f3170f2a9a15",
    "17",
    "",
)
KEY = {"Idempotency-Key": "5b3ff5f8"}


async def finish(store: Store, *, keep: bool = True) -> None:
    runs = await store.claim([Share("mail")], 100, "w1", 60)
    await store.settle([Settlement(run.id, run.lease, Done(), keep=keep) for run in runs])


async def test_a_repeated_id_makes_no_second_job_also_when_the_first_is_done(client: httpx.AsyncClient, store: Store):
    """With a key three requests made three jobs, once each was done."""
    id = new_id()
    answers = []
    for _ in range(3):
        answers.append(await client.post("/jobs", json={**MAIL, "id": id, "key": "welcome:42"}))
        await finish(store)
    assert [(answer.status_code, answer.json()["created"]) for answer in answers] == [(201, True), (200, False), (200, False)]
    assert {answer.json()["id"] for answer in answers} == {id}
    assert answers[2].json()["state"] == "done"
    assert (await store.stats()).done == 1


@pytest.mark.parametrize("id", WRONG_IDS)
async def test_an_id_of_another_form_is_refused(client: httpx.AsyncClient, store: Store, id: str):
    for path, body in (("/jobs", {**MAIL, "id": id}), ("/jobs/batch", {"jobs": [MAIL, {**MAIL, "id": id}]})):
        answer = await client.post(path, json=body)
        assert (answer.status_code, fields(answer)) == (400, ["id" if path == "/jobs" else "jobs[1].id"])
        assert "UUIDv7" in answer.text
    assert (await store.stats()).ready == 0


@pytest.mark.parametrize(
    "other", [{"payload": {"to": "bob"}}, {"queue": "other"}, {"task": "anything"}], ids=["payload", "queue", "task"]
)
async def test_an_id_of_another_job_is_a_conflict(client: httpx.AsyncClient, store: Store, other: dict[str, object]):
    id = (await client.post("/jobs", json=MAIL)).json()["id"]
    one = await client.post("/jobs", json={**MAIL, **other, "id": id})
    many = await client.post("/jobs/batch", json={"jobs": [MAIL, {**MAIL, **other, "id": id}]})
    assert [(answer.status_code, fields(answer)) for answer in (one, many)] == [(409, ["id"])] * 2
    assert (await store.stats()).ready == 1


async def test_the_same_payload_in_other_words_is_no_conflict(client: httpx.AsyncClient):
    id, payload = new_id(), {"to": "ann", "template": "x"}
    first = await client.post("/jobs", json={"task": "send_email", "payload": payload, "id": id})
    again = await client.post("/jobs", json={"id": id, "payload": dict(reversed(payload.items())), "task": "send_email"})
    assert (first.status_code, again.status_code) == (201, 200)


async def test_an_id_of_a_job_that_the_caller_may_not_see_tells_nothing_of_it(api: Api, app: Hawser, store: Store):
    secret = (await app.aenqueue("charge", {"order": 17})).id
    async with client_of(api, headers=await bearer(store, Role.PRODUCER, tasks=("send_email",))) as client:
        answer = await client.post("/jobs", json={**MAIL, "id": secret})
    assert answer.status_code == 409
    assert not any(word in answer.text for word in ("charge", "default", "order", "ready"))


async def test_a_producer_of_one_task_cannot_take_the_key_of_another(api: Api, app: Hawser, store: Store):
    async with client_of(api, headers=await bearer(store, Role.PRODUCER, tasks=("anything",))) as client:
        theirs = await client.post("/jobs", json={"task": "anything", "key": "17", "queue": "mail"})
    mine = await app.aenqueue("send_email", {"to": "ann"}, key="17")
    assert (theirs.status_code, mine.created) == (201, True)


async def test_a_repeated_request_makes_no_second_job(client: httpx.AsyncClient, store: Store):
    first = await client.post("/jobs", json=MAIL, headers=KEY)
    await finish(store, keep=False)
    again = await client.post("/jobs", json=MAIL, headers=KEY)
    assert (first.status_code, again.status_code) == (201, 200)
    assert (again.json()["id"], again.json()["created"]) == (first.json()["id"], False)
    assert (await store.stats()).ready == 0


async def test_a_repeated_batch_makes_no_second_jobs(client: httpx.AsyncClient, store: Store):
    body = {"jobs": [MAIL, {**MAIL, "delay": 60}, MAIL]}
    first = await client.post("/jobs/batch", json=body, headers=KEY)
    again = await client.post("/jobs/batch", json=body, headers=KEY)
    assert (first.status_code, again.status_code) == (201, 200)
    ids = [[job["id"] for job in answer.json()["jobs"]] for answer in (first, again)]
    assert ids[0] == ids[1]
    assert not any(job["created"] for job in again.json()["jobs"])
    stats = await store.stats()
    assert stats.ready + stats.scheduled == 3


async def test_another_body_under_the_same_key_is_a_conflict(client: httpx.AsyncClient, store: Store):
    await client.post("/jobs", json=MAIL, headers=KEY)
    other = await client.post("/jobs", json={**MAIL, "priority": 9}, headers=KEY)
    route = await client.post("/jobs/batch", json={"jobs": [MAIL]}, headers=KEY)
    assert [(answer.status_code, fields(answer)) for answer in (other, route)] == [(409, ["Idempotency-Key"])] * 2
    assert (await store.stats()).ready == 1


async def test_each_key_has_requests_of_its_own(api: Api, store: Store):
    ids = set()
    for header in [await bearer(store, Role.PRODUCER) for _ in range(2)]:
        async with client_of(api, headers={**header, **KEY}) as client:
            answers = [await client.post("/jobs", json=MAIL) for _ in range(2)]
            assert [answer.status_code for answer in answers] == [201, 200]
            ids |= {answer.json()["id"] for answer in answers}
    async with client_of(api) as client:
        ids.add((await client.post("/jobs", json=MAIL, headers=KEY)).json()["id"])
    assert len(ids) == 3


async def test_a_request_is_forgotten_after_a_day_when_its_job_is_gone(
    client: httpx.AsyncClient, store: Store, clock: ManualClock
):
    first = await client.post("/jobs", json=MAIL, headers=KEY)
    await finish(store, keep=False)
    clock.advance(REQUEST_KEPT - 1)
    await store.prune(Retention(), {}, 100)
    assert (await client.post("/jobs", json=MAIL, headers=KEY)).json()["id"] == first.json()["id"]
    clock.advance(2)
    later = await client.post("/jobs", json={**MAIL, "priority": 9}, headers=KEY)
    assert later.status_code == 201


@pytest.mark.parametrize("key", ["", " ", "x" * 256, "\u00e9", "a\tb"])
async def test_a_wrong_idempotency_key_is_refused(client: httpx.AsyncClient, store: Store, key: str):
    answer = await client.post("/jobs", json=MAIL, headers={b"Idempotency-Key": key.encode("latin-1")})
    assert (answer.status_code, fields(answer)) == (400, ["Idempotency-Key"])
    assert (await store.stats()).ready == 0


@pytest.mark.parametrize("by", ["id", "Idempotency-Key"])
async def test_after_a_lost_answer_the_repeat_makes_no_second_job(clock: ManualClock, by: str):
    faulty = FaultyStore(MemoryStore(clock=clock))
    body, headers = ({**MAIL, "id": new_id()}, {}) if by == "id" else (MAIL, KEY)
    async with client_of(make_app(faulty).asgi(open=True, upkeep=False)) as client:
        faulty.next("enqueue", Fault.LOSE_REPLY, times=3)
        lost = await client.post("/jobs", json=body, headers=headers)
        assert lost.status_code == 503
        assert "same id or Idempotency-Key" in lost.json()["detail"]
        await finish(faulty)
        again = await client.post("/jobs", json=body, headers=headers)
        assert (again.status_code, again.json()["created"], again.json()["state"]) == (200, False, "done")


async def test_fifty_requests_at_once_with_one_key_make_one_job(tmp_path: Path):
    with served(tmp_path) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
            answers = await asyncio.gather(*(client.post("/jobs", json=MAIL, headers=KEY) for _ in range(50)))
            stats = (await client.get("/stats")).json()
    assert sorted(answer.status_code for answer in answers) == [200] * 49 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert stats["ready"] == 1


async def test_an_id_of_the_callers_own_in_python(app: Hawser, store: Store):
    mail, id = app.tasks["send_email"], new_id()
    first = await mail.using(id=id).aenqueue("ann@example.com")
    again = await app.aenqueue("send_email", {"to": "ann@example.com"}, id=id)
    assert (first.id, first.created, again.id, again.created) == (id, True, id, False)
    assert mail.using(id=id).job("ann@example.com").id == id
    assert mail.using(id=id).using(priority=9).job("ann@example.com").id == id
    with pytest.raises(IdConflict, match=id):
        await mail.using(id=id).aenqueue("bob@example.com")
    with pytest.raises(IdConflict):
        await app.aenqueue_many([mail.job("ann"), mail.using(id=id).job("bob")])
    with pytest.raises(InvalidJob, match="UUIDv7"):
        mail.using(id=str(uuid.uuid4()))
    assert mail.job("ann").id != mail.job("ann").id
    assert (await store.stats()).ready == 1
