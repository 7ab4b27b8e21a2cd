"""Bad input for limits, groups, debounce and expiry: each names its field before anything is written, the same on every store, in
Python and over HTTP."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest

from hawser import Breaker, ConfigError, Hawser, InvalidJob, Limit
from hawser.errors import HawserError
from hawser.store import Filter, Store
from tests.api.conftest import client_of, fields, make_app, new_store
from tests.redis_servers import kinds, own_store, shared

LONG = "g" * 129


class Case(NamedTuple):
    """What is asked in Python (a method, what it is given), the field at fault, and the same over HTTP."""

    call: str
    given: dict[str, Any]
    field: str
    path: str
    body: dict[str, Any]
    status: int = 400


EMAIL = {"task": "send_email", "payload": {"to": "ann"}}

CASES = {
    "a rate that is none": Case(
        "set_limit", {"task": "charge", "rate": "fast"}, "rate", "/admin/limits/tasks/charge", {"rate": "fast"}
    ),
    "a rate of none": Case("set_limit", {"task": "charge", "rate": "0/s"}, "rate", "/admin/limits/tasks/charge", {"rate": "0/s"}),
    "a rate over a month": Case(
        "set_limit", {"queue": "mail", "rate": "5/30d"}, "rate", "/admin/limits/queues/mail", {"rate": "5/30d"}
    ),
    "a limit of 0": Case("set_limit", {"task": "charge", "running": 0}, "running", "/admin/limits/tasks/charge", {"running": 0}),
    "a limit below 0": Case(
        "set_limit", {"queue": "mail", "running": -1}, "running", "/admin/limits/queues/mail", {"running": -1}
    ),
    "a limit on an unknown task": Case(
        "set_limit", {"task": "chrage", "running": 1}, "task", "/admin/limits/tasks/chrage", {"running": 1}, 404
    ),
    "a limit of a million millions": Case(
        "set_limit", {"queue": "mail", "running": 10**12}, "running", "/admin/limits/queues/mail", {"running": 10**12}
    ),
    "a depth below 0": Case(
        "set_limit", {"queue": "mail", "max_depth": -1}, "max_depth", "/admin/limits/queues/mail", {"max_depth": -1}
    ),
    "an order without a limit of 1": Case(
        "set_limit",
        {"task": "charge", "running": 2, "per_group": True, "ordered": True},
        "ordered",
        "/admin/limits/tasks/charge",
        {"running": 2, "per_group": True, "ordered": True},
    ),
    "a depth of a task": Case(
        "set_limit", {"task": "charge", "max_depth": 5}, "max_depth", "/admin/limits/tasks/charge", {"max_depth": 5}
    ),
    "a group that is too long": Case("enqueue", {"group": LONG}, "group", "/jobs", {**EMAIL, "group": LONG}),
    "an empty group": Case("enqueue", {"group": ""}, "group", "/jobs", {**EMAIL, "group": ""}),
    "a group that is no text": Case("enqueue", {"group": 5}, "group", "/jobs", {**EMAIL, "group": 5}),
    "a weight of a group that is too long": Case(
        "set_weight",
        {"queue": "mail", "group": LONG, "weight": 2},
        "group",
        f"/queues/mail/groups/{LONG}",
        {"weight": 2},
    ),
    "debounce without a key": Case("enqueue", {"debounce": 5}, "debounce", "/jobs", {**EMAIL, "debounce": 5}),
    "at_most below debounce": Case(
        "enqueue",
        {"key": "k", "debounce": 5, "at_most": 1},
        "at_most",
        "/jobs",
        {**EMAIL, "key": "k", "debounce": 5, "at_most": 1},
    ),
    "an expiry in the past": Case("enqueue", {"expires": -1}, "expires", "/jobs", {**EMAIL, "expires": -1}),
    "an expiry before the due time": Case(
        "enqueue", {"expires": 5, "delay": 60}, "expires", "/jobs", {**EMAIL, "expires": 5, "delay": 60}
    ),
}


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Hawser]:
    url = own_store(shared(kinds()[0])) if request.param == "redis" else await new_store(request.param, tmp_path)
    app = make_app(url)
    yield app
    await app.aclose()


@pytest.fixture
async def client(app: Hawser, store: Store) -> AsyncIterator[httpx.AsyncClient]:
    api = app.asgi(upkeep=False, open=True)
    async with client_of(api) as client:
        yield client
    await api.stop()


@pytest.fixture
async def store(app: Hawser) -> Store:
    return await app.store()


async def nothing_is_written(store: Store) -> bool:
    stats = await store.stats()
    jobs = stats.ready + stats.scheduled + stats.running + stats.done + stats.dead + stats.cancelled
    return not jobs and await store.limits() == [] and await store.weights() == [] and await store.audit() == []


SAME_WORDS: dict[str, tuple[Callable[[Hawser, str], Awaitable[object]], tuple[str, str, dict[str, Any]]]] = {
    "a weight of 0": (
        lambda app, job: app.aset_weight(queue="mail", group="acme", weight=0),
        ("PUT", "/queues/mail/groups/acme", {"weight": 0}),
    ),
    "a weight of 1,001": (
        lambda app, job: app.aset_weight(queue="mail", group="acme", weight=1_001),
        ("PUT", "/queues/mail/groups/acme", {"weight": 1_001}),
    ),
    "a pace that is none": (
        lambda app, job: app.aenqueue_many([app.tasks["charge"].job()], rate="fast"),
        ("POST", "/jobs/batch", {"jobs": [EMAIL], "rate": "fast"}),
    ),
    "a priority of 10": (lambda app, job: app.achange(job, priority=10), ("PATCH", "/jobs/{id}", {"priority": 10})),
    "a queue that is no name": (lambda app, job: app.achange(job, queue="a b"), ("PATCH", "/jobs/{id}", {"queue": "a b"})),
    "several into a queue that is no name": (
        lambda app, job: app.achange(job, queue="a b"),
        ("POST", "/jobs/selected", {"action": "change", "ids": ["{id}"], "queue": "a b"}),
    ),
    "a time before now": (lambda app, job: app.achange(job, delay=-1.0), ("PATCH", "/jobs/{id}", {"delay": -1})),
    "an ageing of 0": (lambda app, job: app.aset_policy("mail", ageing=0.0), ("PUT", "/queues/mail/policy", {"ageing": 0})),
    "attempts below 1": (
        lambda app, job: app.aset_policy("mail", max_attempts=0),
        ("PUT", "/queues/mail/policy", {"max_attempts": 0}),
    ),
    "a spread of no time": (
        lambda app, job: app.arequeue(group=f"charge:{'0' * 16}", spread=0.0),
        ("POST", "/dlq/requeue", {"spread": 0, "dry_run": True}),
    ),
    "a group of a type that cannot be text": (
        lambda app, job: app.aenqueue("sync", {"customer": [1]}),
        ("POST", "/jobs", {"task": "sync", "payload": {"customer": [1]}}),
    ),
}
"""What is asked in Python, and the same over HTTP."""


@pytest.mark.parametrize("name", SAME_WORDS)
async def test_over_http_it_is_said_in_the_words_of_python(name: str, app: Hawser, client: httpx.AsyncClient):
    @app.task(group="customer")
    def sync(customer: Any) -> None: ...

    in_python, (method, path, body) = SAME_WORDS[name]
    id = (await app.aenqueue("charge", {})).id
    before = await app.aget(id)
    with pytest.raises(HawserError) as refused:
        await in_python(app, id)
    filled = msgspec.json.decode(msgspec.json.encode(body).replace(b"{id}", id.encode()))
    answer = await client.request(method, path.format(id=id), json=filled)
    assert (answer.status_code, answer.json()["detail"]) == (400, str(refused.value))
    [error] = answer.json()["errors"]
    assert str(refused.value) == f"{error['field']}: {error['message']}"
    store = await app.store()
    assert (await store.find(Filter())).jobs == [before]
    assert (await store.weights(), await store.audit(), await store.policies()) == ([], [], {})


@pytest.mark.parametrize("name", CASES)
async def test_it_is_named_before_anything_is_written(name: str, app: Hawser, store: Store, client: httpx.AsyncClient):
    case = CASES[name]
    named = ("send_email", {"to": "ann"}) if case.call == "enqueue" else ()
    with pytest.raises(HawserError) as refused:
        await getattr(app, f"a{case.call}")(*named, **case.given)
    assert str(refused.value).startswith(f"{case.field}: "), refused.value
    assert isinstance(refused.value, InvalidJob if case.call == "enqueue" else ConfigError)
    answer = await (client.post if case.path == "/jobs" else client.put)(case.path, json=case.body)
    assert answer.status_code == case.status, answer.text
    if case.call == "set_limit" and "depth of a task" not in name:
        [error] = answer.json()["errors"]
        assert f"{error['field']}: {error['message']}" == answer.json()["detail"] == str(refused.value), "the words of Python"
    elif case.status == 400:
        assert case.field in fields(answer)[0], answer.text
    assert await nothing_is_written(store)


async def test_a_limit_on_a_queue_that_nobody_has_used_is_taken_with_a_warning(
    app: Hawser, store: Store, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING, "hawser.app"):
        await app.aset_limit(queue="mial", running=5)
    assert "queue 'mial' was not used so far" in caplog.text
    answer = await client.put("/admin/limits/queues/male", json={"running": 5})
    assert answer.status_code == 200
    assert "was not used so far" in answer.json()["warning"]
    assert [use.target.name for use in await store.limits()] == ["male", "mial"]


async def test_a_limit_per_group_of_a_task_that_names_none_is_taken_with_a_warning(
    app: Hawser, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING, "hawser.app"):
        await app.aset_limit(task="charge", running=1, per_group=True)
    assert "task 'charge' names no group: only its jobs that were given one with using(group=…) are counted." in caplog.text
    answer = await client.put("/admin/limits/tasks/charge", json={"running": 1, "per_group": True})
    assert "names no group" in answer.json()["warning"]


def test_what_code_declares_is_judged_where_it_is_declared():
    app = Hawser("memory://")
    for options, field in (
        ({"group": "nobody"}, "group: it has no parameter 'nobody'"),
        ({"group": 5}, "group: 5 is not the name of a parameter"),
        ({"limit": 5}, "limit: 5 is not a limit"),
        ({"limit": Limit()}, "limit: it says nothing"),
        ({"limit": Limit(running=1, per_group=True)}, "limit: per_group: the task names no group.*add group= with"),
        ({"breaker": 0.8}, "breaker: 0.8 is not a breaker"),
    ):
        with pytest.raises(ConfigError, match=field):
            app.task(name="bad", **options)(lambda customer: None)
    for make, field in (
        (lambda: Limit(rate="5/month"), "rate"),
        (lambda: Limit(running=0), "running"),
        (lambda: Limit(running=True), "running"),
        (lambda: Breaker(share=0), "share"),
        (lambda: Breaker(probe_every=0), "probe_every"),
    ):
        with pytest.raises(ConfigError, match=f"^{field}: "):
            make()


def test_a_group_of_a_type_that_cannot_be_text_is_named():
    app = Hawser("memory://")

    @app.task(group="customer")
    def sync(customer: Any) -> None: ...

    for wrong in ([1], {"a": 1}, 1.5, True):
        with pytest.raises(InvalidJob, match=r"^group: .* cannot be a group"):
            sync.enqueue(wrong)
    with pytest.raises(InvalidJob, match=r"^group: "):
        sync.enqueue(LONG)
    assert app.find().jobs == []
    app.close()
