"""An app with its API, on the memory store and on SQLite, in a long run on PostgreSQL besides; and keys for every role."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from hawser import Hawser
from hawser.api.server import Api
from hawser.job import State
from hawser.outcome import Cancelled, Dead, Done, Failure, Outcome
from hawser.store import Actor, Settlement, Share, Store
from hawser.store.api_key import Role, issue
from hawser.testing.clock import ManualClock
from tests.postgres import emptied, own_schema, server, versions, with_schema
from tests.redis_servers import own_store, shared
from tests.repetition import over

Call = Callable[..., Awaitable[httpx.Response]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


# What the API asks of a store is the contract's, and test_openapi.py asks all of the API on PostgreSQL.
@pytest.fixture(params=over(["memory", "sqlite"], ["postgres"]))
async def app(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Hawser:
    return make_app(await new_store(request.param, tmp_path), clock)


async def new_store(kind: str, folder: Path) -> str:
    """The URL of an empty store of that kind."""
    match kind:
        case "sqlite":
            return f"sqlite:///{folder}/jobs.db"
        case "postgres":
            url = with_schema(server(versions()[0]), own_schema())
            await emptied(url)
            return url
        case "redis":
            return own_store(shared("valkey"))
        case _:
            return "memory://"


def make_app(url: str | Store, clock: ManualClock | None = None) -> Hawser:
    app = Hawser(url, clock=clock)

    @app.task(queue="mail", max_attempts=3, index=["template"])
    async def send_email(to: str, template: str = "welcome") -> None: ...

    @app.task(confirm_replay=True)
    def charge(order: int = 0) -> None: ...

    @app.task
    def anything(**values: Any) -> None: ...

    return app


@pytest.fixture
async def store(app: Hawser) -> AsyncIterator[Store]:
    yield await app.store()
    await app.aclose()


@pytest.fixture
async def api(app: Hawser, store: Store) -> AsyncIterator[Api]:
    """Without upkeep: nothing happens behind a test's back. Open to everybody: who may come in is tested elsewhere."""
    api = app.asgi(upkeep=False, open=True)
    yield api
    await api.stop()


def client_of(api: Api, peer: str = "127.0.0.1", **options: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(api, client=(peer, 4711))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", **options)


@pytest.fixture
async def client(api: Api) -> AsyncIterator[httpx.AsyncClient]:
    """A caller without a key."""
    async with client_of(api) as client:
        yield client


async def bearer(store: Store, *roles: Role, **limits: Any) -> dict[str, str]:
    """The header of a new key with these roles and limits."""
    key, text = issue("test", roles, **limits)
    await store.put_api_key(key, None, Actor())
    return {"authorization": f"Bearer {text}"}


async def in_state(app: Hawser, state: State, task: str = "send_email", error: str = "ValueError: no") -> str:
    """A job in that state; nothing else may be due in its queue."""
    payload = {"to": "ann"} if task == "send_email" else {}
    id = (await app.aenqueue(task, payload, max_attempts=1)).id
    store = await app.store()
    if state is State.READY:
        return id
    [claimed] = await store.claim([Share(app.tasks[task].template.queue)], 1, "w1", 60.0)
    assert claimed.id == id
    outcomes: dict[State, Outcome] = {
        State.DONE: Done(b'{"sent":true}'),
        State.DEAD: Dead(Failure(error, f"Traceback\n  {error}")),
        State.CANCELLED: Cancelled("not wanted"),
    }
    if state is not State.RUNNING:
        await store.settle([Settlement(id, claimed.lease, outcomes[state])])
    return id


def fields(response: httpx.Response) -> list[str]:
    """The fields that a problem names."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    assert response.json()["status"] == response.status_code
    return [error["field"] for error in response.json().get("errors", [])]
