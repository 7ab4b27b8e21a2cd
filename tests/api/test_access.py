"""Who may do what: keys, roles on every route, rates, and callers without a key."""

from __future__ import annotations

import asyncio
import re

import httpx
import pytest

from hawser import Hawser, State
from hawser.api.identity import BELIEVED_FOR, KEY_USE_NOTE_EVERY_S, KEYS_FRESH_FOR_S, NEWS_AFTER, Gate
from hawser.api.keyless import Closed
from hawser.api.problem import Problem
from hawser.api.route import NO_KEY
from hawser.api.routes import ROUTES
from hawser.errors import StoreUnavailable
from hawser.store import Actor, Store
from hawser.store.api_key import Role, id_of, issue
from hawser.stores.memory import MemoryStore
from hawser.testing import Fault, FaultyStore
from hawser.testing.clock import ManualClock
from tests.api.conftest import bearer, client_of, in_state

ALLOWED = {
    "POST /jobs": "producer operator admin",
    "POST /jobs/batch": "producer operator admin",
    "GET /jobs": "viewer operator admin",
    "GET /jobs/counts": "viewer operator admin",
    "GET /jobs/strip": "viewer operator admin",
    "GET /system": "viewer operator admin",
    "GET /jobs/export.csv": "viewer operator admin",
    "GET /jobs/export.ndjson": "viewer operator admin",
    "GET /jobs/{id}": "producer viewer operator admin",
    "GET /jobs/{id}/events": "producer viewer operator admin",
    "GET /jobs/{id}/output": "producer viewer operator admin",
    "GET /jobs/{id}/stream": "producer viewer operator admin",
    "GET /jobs/{id}/steps": "producer viewer operator admin",
    "POST /events/{name}": "producer operator admin",
    "GET /events/{name}": "viewer operator admin",
    "PATCH /jobs/{id}": "operator admin",
    "POST /jobs/{id}/run-now": "operator admin",
    "POST /jobs/{id}/dead-letter": "operator admin",
    "POST /jobs/{id}/cancel": "operator admin",
    "POST /jobs/{id}/rewind": "operator admin",
    "POST /jobs/{id}/retry": "operator admin",
    "POST /jobs/cancel": "operator admin",
    "POST /jobs/retry": "operator admin",
    "POST /jobs/change": "operator admin",
    "POST /jobs/selected": "operator admin",
    "POST /batches": "producer operator admin",
    "GET /batches": "viewer operator admin",
    "GET /batches/{id}": "producer viewer operator admin",
    "POST /batches/{id}/close": "producer operator admin",
    "POST /batches/{id}/cancel": "operator admin",
    "POST /claims": "worker admin",
    "POST /settlements": "worker admin",
    "POST /extensions": "worker admin",
    "GET /dlq": "viewer operator admin",
    "GET /dlq/groups": "viewer operator admin",
    "POST /dlq/requeue": "operator admin",
    "POST /dlq/discard": "operator admin",
    "GET /dlq/{id}": "viewer operator admin",
    "POST /dlq/{id}/requeue": "operator admin",
    "POST /dlq/{id}/replay": "operator admin",
    "DELETE /dlq/{id}": "operator admin",
    "GET /operations": "viewer operator admin",
    "GET /operations/{id}": "viewer operator admin",
    "POST /operations/{id}/stop": "operator admin",
    "GET /queues": "viewer operator admin",
    "GET /queues/{queue}": "viewer operator admin",
    "GET /queues/{queue}/why": "viewer operator admin",
    "GET /admin/breakers": "viewer operator admin",
    "POST /admin/breakers/{task}/open": "operator admin",
    "POST /admin/breakers/{task}/close": "operator admin",
    "GET /queues/{queue}/groups": "viewer operator admin",
    "GET /admin/limits": "viewer operator admin",
    "PUT /admin/limits/queues/{queue}": "operator admin",
    "DELETE /admin/limits/queues/{queue}": "operator admin",
    "PUT /admin/limits/tasks/{task}": "operator admin",
    "DELETE /admin/limits/tasks/{task}": "operator admin",
    "PUT /queues/{queue}/groups/{group}": "operator admin",
    "PUT /queues/{queue}/policy": "admin",
    "POST /admin/queues/{queue}/pause": "operator admin",
    "POST /admin/queues/{queue}/resume": "operator admin",
    "GET /tasks": "producer viewer operator admin",
    "GET /tasks/stats": "viewer operator admin",
    "POST /admin/job-types/{task}/pause": "operator admin",
    "POST /admin/job-types/{task}/resume": "operator admin",
    "GET /schedules": "viewer operator admin",
    "GET /schedules/{schedule}": "viewer operator admin",
    "GET /schedules/{schedule}/ticks": "viewer operator admin",
    "GET /schedules/{schedule}/past": "viewer operator admin",
    "POST /ticks": "viewer operator admin",
    "PUT /schedules/{schedule}": "admin",
    "DELETE /schedules/{schedule}": "admin",
    "POST /schedules/{schedule}/pause": "operator admin",
    "POST /schedules/{schedule}/resume": "operator admin",
    "POST /schedules/{schedule}/skip": "operator admin",
    "POST /schedules/{schedule}/run": "operator admin",
    "GET /workers": "viewer operator admin",
    "POST /workers/{worker}/reclaim": "operator admin",
    "GET /overview": "viewer operator admin",
    "GET /stats": "viewer operator admin",
    "GET /history": "viewer operator admin",
    "GET /metrics": "viewer operator admin",
    "GET /audit": "operator admin",
    "GET /events": "viewer operator admin",
    "GET /me": "producer worker viewer operator admin",
    "POST /session": "producer worker viewer operator admin",
    "DELETE /session": "producer worker viewer operator admin",
    "GET /openapi.json": "producer worker viewer operator admin",
    "GET /healthz": "",
    "GET /readyz": "",
}
"""The table once more, written by hand: a route whose roles change fails here first."""


def test_every_route_has_its_roles_here():
    assert {route.name: route.roles for route in ROUTES} == {
        name: frozenset(Role(role) for role in roles.split()) for name, roles in ALLOWED.items()
    }


@pytest.fixture
async def closed(app: Hawser, store: Store):
    api = app.asgi(require_key=True, upkeep=False)
    async with client_of(api) as client:
        yield client
    await api.stop()


def request_of(name: str) -> tuple[str, str]:
    """A request for a route; with a body that is empty, so that it changes little whoever sends it."""
    method, path = name.split(" ")
    return method, re.sub(r"{\w+}", "none", path)


GUARDED = [name for name, roles in ALLOWED.items() if roles and name != "GET /events"]


@pytest.mark.parametrize("app", ["memory"], indirect=True)
@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("name", GUARDED)
async def test_a_role_may_what_the_table_says_and_nothing_else(closed: httpx.AsyncClient, store: Store, role: Role, name: str):
    response = await closed.request(*request_of(name), headers=await bearer(store, role))
    if role in ALLOWED[name].split():
        assert response.status_code in (200, 201, 400, 404)
    else:
        assert response.status_code == 403


@pytest.mark.parametrize("app", ["sqlite", "postgres", "redis"], indirect=True)
async def test_the_table_holds_on_every_store(closed: httpx.AsyncClient, store: Store):
    """All of it on one store: what one request has changed, the next ones find."""
    headers = {role: await bearer(store, role) for role in Role}
    wrong = []
    for name in GUARDED:
        for role, header in headers.items():
            status = (await closed.request(*request_of(name), headers=header)).status_code
            if status not in ((200, 201, 400, 404, 409) if role in ALLOWED[name].split() else (403,)):
                wrong.append((name, role, status))
    assert wrong == []


@pytest.mark.parametrize("app", ["memory"], indirect=True)
@pytest.mark.parametrize("role", [Role.PRODUCER, Role.WORKER])
async def test_a_stream_is_refused_like_the_rest(closed: httpx.AsyncClient, store: Store, role: Role):
    assert (await closed.get("/events", headers=await bearer(store, role))).status_code == 403


@pytest.mark.parametrize("app", ["memory"], indirect=True)
@pytest.mark.parametrize("name", ALLOWED)
async def test_without_a_key_everything_is_closed_but_health(closed: httpx.AsyncClient, name: str):
    response = await closed.request(*request_of(name))
    assert response.status_code == (401 if ALLOWED[name] else 200)
    assert ("www-authenticate" in response.headers) is bool(ALLOWED[name])


@pytest.mark.parametrize(
    "header", ["Bearer x", "Bearer", "Basic YTpi", "", "Bearer hawser_000000000000_00ffffffff", "Bearer \xff"]
)
async def test_a_wrong_key_is_nobody(closed: httpx.AsyncClient, header: str):
    response = await closed.get("/stats", headers={b"authorization": header.encode("latin-1")})
    assert response.status_code == 401


async def test_another_secret_with_the_same_public_part_is_nobody(closed: httpx.AsyncClient, store: Store):
    key, text = issue("a", (Role.ADMIN,))
    forged = text.replace(text.split("_")[2][:40], "0" * 40)
    import zlib

    bare = forged[:-8]
    forged = f"{bare}{zlib.crc32(bare.encode()):08x}"
    await store.put_api_key(key, None, Actor())
    assert id_of(forged) == key.id
    assert (await closed.get("/stats", headers={"authorization": f"Bearer {forged}"})).status_code == 401
    assert (await closed.get("/stats", headers={"authorization": f"bearer {text}"})).status_code == 200


async def test_a_key_may_enqueue_only_its_tasks(closed: httpx.AsyncClient, store: Store, app: Hawser):
    header = await bearer(store, Role.PRODUCER, tasks=("charge",))
    assert (await closed.post("/jobs", json={"task": "charge"}, headers=header)).status_code == 201
    mail = {"task": "send_email", "payload": {"to": "a"}}
    assert (await closed.post("/jobs", json=mail, headers=header)).status_code == 403
    assert (await closed.post("/jobs/batch", json={"jobs": [{"task": "charge"}, mail]}, headers=header)).status_code == 403
    assert (await store.stats()).ready == 1
    other = await in_state(app, State.READY)
    assert (await closed.get(f"/jobs/{other}", headers=header)).status_code == 403
    own = (await closed.post("/jobs", json={"task": "charge"}, headers=header)).json()["id"]
    assert (await closed.get(f"/jobs/{own}", headers=header)).status_code == 200


async def test_an_action_is_signed_by_its_key(closed: httpx.AsyncClient, store: Store):
    key, text = issue("billing", (Role.OPERATOR,))
    await store.put_api_key(key, None, Actor())
    body = {"reason": "the mail server is down"}
    paused = await closed.post("/admin/queues/mail/pause", json=body, headers={"authorization": f"Bearer {text}"})
    assert paused.status_code == 200
    [record, _] = await store.audit()
    assert (record.by, record.action, record.reason) == (f"billing:{key.id}", "pause", body["reason"])


class Watch:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


SCOPE = {"client": ("10.0.0.9", 1), "server": ("10.0.0.1", 80)}


async def admitted(gate: Gate, store: Store, header: dict[str, str]) -> int:
    try:
        await gate.admit(SCOPE, {b"authorization": header["authorization"].encode()}, store)
    except Problem as problem:
        return problem.status
    return 200


async def test_a_revoked_key_is_refused_within_a_second():
    store, watch = MemoryStore(), Watch()
    gate = Gate(Closed(), clock=watch)
    key, text = issue("a", (Role.ADMIN,))
    header = {"authorization": f"Bearer {text}"}
    await store.put_api_key(key, None, Actor())
    assert await admitted(gate, store, header) == 200
    await store.revoke_api_key(key.id, Actor())
    watch.now += BELIEVED_FOR + 0.01
    assert BELIEVED_FOR < 1
    assert await admitted(gate, store, header) == 401


async def test_keys_are_read_beside_the_requests_and_once_for_all():
    faulty, watch = FaultyStore(MemoryStore()), Watch()
    gate = Gate(Closed(), clock=watch)
    header = await bearer(faulty, Role.ADMIN)
    assert await asyncio.gather(*(admitted(gate, faulty, header) for _ in range(50))) == [200] * 50
    assert faulty.calls["api_keys"] == 1
    watch.now += KEYS_FRESH_FOR_S + 0.01
    faulty.next("api_keys", Fault.REFUSE)
    assert await asyncio.gather(*(admitted(gate, faulty, header) for _ in range(50))) == [200] * 50
    for _ in range(5):
        await asyncio.sleep(0)
    assert faulty.calls["api_keys"] == 2, "it failed beside, and nobody noticed"
    watch.now += BELIEVED_FOR
    faulty.next("api_keys", Fault.REFUSE)
    with pytest.raises(StoreUnavailable):
        await admitted(gate, faulty, header)
    assert await admitted(gate, faulty, header) == 200


async def test_a_key_made_just_now_is_good():
    store, watch = MemoryStore(), Watch()
    gate = Gate(Closed(), clock=watch)
    assert await admitted(gate, store, await bearer(store, Role.ADMIN)) == 200
    watch.now += NEWS_AFTER + 0.01
    assert await admitted(gate, store, await bearer(store, Role.ADMIN)) == 200


async def test_an_expired_key_is_refused_and_two_keys_of_a_service_are_good():
    clock, watch = ManualClock(), Watch()
    store = MemoryStore(clock=clock)
    gate = Gate(Closed(), clock=watch)
    old, new = issue("a", (Role.VIEWER,)), issue("a", (Role.VIEWER,))
    await store.put_api_key(old.key, 60.0, Actor())
    await store.put_api_key(new.key, None, Actor())
    both = [{"authorization": f"Bearer {issued.text}"} for issued in (old, new)]
    assert [await admitted(gate, store, header) for header in both] == [200, 200]
    clock.advance(61)
    watch.now += 1
    assert [await admitted(gate, store, header) for header in both] == [401, 200]


async def test_a_flood_of_one_key_is_refused_and_the_others_feel_nothing():
    store, watch = MemoryStore(), Watch()
    gate = Gate(Closed(), clock=watch)
    flood, calm = await bearer(store, Role.PRODUCER, rate=10), await bearer(store, Role.PRODUCER, rate=10)
    answers = [await admitted(gate, store, flood) for _ in range(30)]
    assert (answers.count(200), answers.count(429)) == (10, 20)
    assert [await admitted(gate, store, calm) for _ in range(5)] == [200] * 5
    watch.now += 0.5
    answers = [await admitted(gate, store, flood) for _ in range(10)]
    assert (answers.count(200), answers.count(429)) == (5, 5)


async def test_a_flood_is_told_when_to_come_again(closed: httpx.AsyncClient, store: Store):
    header = await bearer(store, Role.VIEWER, rate=0.1)
    assert (await closed.get("/stats", headers=header)).status_code == 200
    flooded = await closed.get("/stats", headers=header)
    assert (flooded.status_code, flooded.headers["retry-after"]) == (429, "10")


async def test_the_last_use_of_a_key_is_noted_now_and_then():
    store, watch = MemoryStore(), Watch()
    gate = Gate(Closed(), clock=watch)
    header = await bearer(store, Role.VIEWER)
    await admitted(gate, store, header)
    assert (await store.api_keys())[0].used_at is None
    watch.now += KEY_USE_NOTE_EVERY_S + 1
    await admitted(gate, store, header)
    assert (await store.api_keys())[0].used_at is not None


async def test_a_refresh_keeps_what_a_key_has_used_up():
    store, watch = MemoryStore(), Watch()
    gate = Gate(Closed(), clock=watch)
    header = await bearer(store, Role.VIEWER, rate=0.01)
    assert await admitted(gate, store, header) == 200
    watch.now += 1
    assert await admitted(gate, store, header) == 429


def test_a_key_has_enough_chance_and_says_nothing_of_itself():
    key, text = issue("a", (Role.VIEWER,))
    assert id_of(text) == key.id
    assert len(text.split("_")[2]) == 48
    assert text.split("_")[2] not in repr(key)
    assert id_of(text[:-1] + ("0" if text[-1] != "0" else "1")) is None
    assert len({issue("a", (Role.VIEWER,)).text for _ in range(1000)}) == 1000


def test_open_routes_are_those_of_health():
    assert [route.path for route in ROUTES if route.roles is NO_KEY] == ["/healthz", "/readyz"]
