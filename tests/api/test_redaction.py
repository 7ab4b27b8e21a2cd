"""Arguments that a task declares as redacted: in no answer of the API, but in the store and in claims of workers."""

from __future__ import annotations

import json
from enum import Enum

import httpx
import pytest

from hawser import ConfigError, Every, Hawser
from hawser.api.server import Api
from hawser.errors import InvalidJob
from hawser.job import State
from hawser.redaction import MASK
from hawser.store import Store
from hawser.store.api_key import Role
from tests.api.conftest import bearer, in_state, make_app

CARD = "4000123412341234"


class Brand(Enum):
    A = "a"


@pytest.fixture
def app(app: Hawser) -> Hawser:
    @app.task(redact=["card", "brand"], queue="pay", schedule={"collect": Every(days=1, payload={"card": CARD, "amount": 1})})
    def collect(card: str, amount: int = 0, brand: Brand = Brand.A) -> None: ...

    return app


async def dead(app: Hawser) -> str:
    handle = await app.aenqueue("collect", {"card": CARD, "amount": 12345678901234567890})
    await app.adead_letter(handle.id)
    return handle.id


async def test_no_answer_has_the_value(app: Hawser, client: httpx.AsyncClient):
    id = await dead(app)
    paths = ("jobs", "jobs?brief=1", f"jobs/{id}", "dlq", "dlq?brief=1", f"dlq/{id}", "jobs/export.csv", "jobs/export.ndjson")
    for path in paths:
        answer = await client.get(f"/{path}")
        assert answer.status_code == 200, answer.text
        assert CARD not in answer.text, path
    [line] = (await client.get("/jobs")).json()["jobs"]
    assert line["payload"] == {"card": MASK, "amount": 12345678901234567890}
    assert MASK in (await client.get("/jobs/export.csv")).text
    assert (await client.get("/tasks")).json()["tasks"][2]["redact"] == ["card", "brand"]


async def test_the_store_and_workers_have_it(app: Hawser, api: Api, store: Store):
    handle = await app.aenqueue("collect", {"card": CARD})
    transport = httpx.ASGITransport(api, client=("127.0.0.1", 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as worker:
        headers = await bearer(store, Role.WORKER)
        claimed = await worker.post("/claims", json={"worker": "w1", "queues": ["pay"]}, headers=headers)
    assert claimed.json()["jobs"][0]["payload"] == {"card": CARD}
    assert json.loads((await app.aget(handle.id)).body) == {"card": CARD}


async def test_a_replay_keeps_what_was_masked(app: Hawser, client: httpx.AsyncClient):
    id = await dead(app)
    answer = await client.post(f"/dlq/{id}/replay", json={"payload": {"card": MASK, "amount": 3}})
    assert answer.status_code == 201, answer.text
    assert json.loads((await app.aget(answer.json()["id"])).body) == {"card": CARD, "amount": 3}
    id = await dead(app)
    answer = await client.post(f"/dlq/{id}/replay", json={"payload": {"card": "other"}})
    assert json.loads((await app.aget(answer.json()["id"])).body) == {"card": "other"}


async def test_a_schedule_does_not_show_it_and_keeps_it(app: Hawser, client: httpx.AsyncClient):
    body = {"task": "collect", "rule": {"kind": "every", "days": 1}, "payload": {"card": CARD}}
    made = await client.put("/schedules/own", json=body)
    assert made.status_code == 201, made.text
    assert made.json()["payload"] == {"card": MASK}
    assert CARD not in (await client.get("/schedules")).text
    again = await client.put("/schedules/own", json=body | {"payload": made.json()["payload"]})
    assert again.status_code == 200, again.text
    assert json.loads((await app.schedules.aget("own")).definition.body) == {"card": CARD}


async def test_a_refusal_does_not_quote_it(app: Hawser, client: httpx.AsyncClient):
    answer = await client.post("/jobs", json={"task": "collect", "payload": {"card": "1", "brand": CARD}})
    assert answer.status_code == 400
    assert CARD not in answer.text
    assert answer.json()["errors"][0]["field"] == "payload.brand"
    with pytest.raises(InvalidJob) as error:
        await app.aenqueue("collect", {"card": "1", "brand": CARD})
    assert CARD not in str(error.value)


async def test_other_tasks_are_shown_in_full(app: Hawser, client: httpx.AsyncClient):
    id = await in_state(app, State.DEAD)
    assert (await client.get(f"/jobs/{id}")).json()["payload"] == {"to": "ann"}


def test_what_is_declared_is_judged():
    app = make_app("memory://")
    with pytest.raises(ConfigError, match=r"no parameter 'cord'.*card"):
        app.task(redact=["cord"])(lambda card: None)
    with pytest.raises(ConfigError, match="found or grouped by"):
        app.task(name="one", redact=["card"], index=["card"])(lambda card: None)
    with pytest.raises(ConfigError, match="is not a list"):
        app.task(name="two", redact="card")(lambda card: None)
