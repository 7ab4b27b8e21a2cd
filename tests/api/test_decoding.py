"""Hostile JSON: refused with 4xx, and nothing written; the same on every store."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hawser import Hawser
from hawser.api.server import Api
from hawser.store import Store
from tests.api.conftest import client_of, fields

JSON = {"content-type": "application/json"}


def job(payload: str) -> bytes:
    return b'{"task": "anything", "payload": %s}' % payload.encode("utf-8", "surrogatepass")


HOSTILE = {
    "depth of 10,000": job('{"x": ' + "[" * 10_000 + "]" * 10_000 + "}"),
    "depth of 65": job('{"x": ' + "[" * 64 + "]" * 64 + "}"),
    "an open depth of 100,000": b"[" * 100_000,
    "the same key twice": job('{"x": 1, "x": 2}'),
    "the same key twice, written otherwise": job('{"x": 1, "\\u0078": 2}'),
    "the same field twice": b'{"task": "anything", "task": "charge"}',
    "the same key twice, deep down": job('{"x": [{"y": {"z": 1, "z": 1}}]}'),
    "1e400": job('{"x": 1e400}'),
    "-1e400": job('{"x": -1e400}'),
    "NaN": job('{"x": NaN}'),
    "Infinity": job('{"x": -Infinity}'),
    "NUL": job('{"x": "a\\u0000b"}'),
    "NUL in a key": job('{"a\\u0000b": 1}'),
    "a raw NUL": job('{"x": "a\0b"}'),
    "a raw control character": job('{"x": "a\nb"}'),
    "a lone surrogate": job('{"x": "\\ud800"}'),
    "a lone surrogate in a key": job('{"\\udfff": 1}'),
    "a raw surrogate": job('{"x": "\ud800"}'),
    "2**64": job('{"x": 18446744073709551616}'),
    "-2**63-1": job('{"x": -9223372036854775809}'),
    "an integer of 5,000 digits": job('{"x": ' + "9" * 5_000 + "}"),
    "not UTF-8": b'{"task": "anything", "payload": {"x": "\xff"}}',
    "a byte order mark": b"\xef\xbb\xbf" + job("{}"),
    "UTF-16": job("{}").decode().encode("utf-16"),
    "a trailing comma": job('{"x": 1,}'),
    "a comment": job('{"x": 1} /* hi */'),
    "two documents": job("{}") + job("{}"),
    "single quotes": b"{'task': 'anything'}",
    "leading zeros": job('{"x": 01}'),
    "nothing": b" ",
    "null": b"null",
    "a list": b"[]",
    "a text": b'"task"',
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_json_is_refused_and_nothing_is_written(client: httpx.AsyncClient, store: Store, name: str):
    for path, body in (("/jobs", HOSTILE[name]), ("/jobs/batch", b'{"jobs": [%s]}' % HOSTILE[name])):
        response = await client.post(path, content=body, headers=JSON)
        assert 400 <= response.status_code < 500, response.text
        fields(response)
    assert (await store.stats()).ready == 0


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_results_are_refused(client: httpx.AsyncClient, app: Hawser, name: str):
    await app.aenqueue("charge", {})
    [claimed] = (await client.post("/claims", json={})).json()["jobs"]
    if not HOSTILE[name].startswith(b'{"task": "anything", "payload"'):
        return
    result = HOSTILE[name].removeprefix(b'{"task": "anything", "payload": ')[:-1]
    one = b'{"id": "%s", "lease": %d, "outcome": "done", "result": %s}' % (claimed["id"].encode(), claimed["lease"], result)
    response = await client.post("/settlements", content=b'{"settlements": [%s]}' % one, headers=JSON)
    assert 400 <= response.status_code < 500, response.text
    assert (await app.aget(claimed["id"])).state == "running"


async def test_what_is_odd_but_right_is_taken(client: httpx.AsyncClient):
    fine = (
        '{"x": "\\ud83d\\ude00", "y": null, "z": [[[]]], "n": -0, "e": 1E+2, "m": 18446744073709551615}',
        '{"x": ' + "[" * 63 + "]" * 63 + "}",
        '{"x": "[[[[" , "q": "\\"{\\"" }',
        '{"": 1, " ": 2}',
    )
    for payload in fine:
        response = await client.post("/jobs", content=job(payload), headers=JSON)
        assert response.status_code == 201, response.text
        shown = await client.get(f"/jobs/{response.json()['id']}")
        assert shown.json()["payload"] == json.loads(payload)


async def test_a_body_has_a_size(app: Hawser, store: Store):
    api = app.asgi(open=True, upkeep=False, max_body=100, max_batch_body=200)
    async with client_of(api) as client:
        body = b'{"task": "charge"}'
        assert (await client.post("/jobs", content=body.ljust(100), headers=JSON)).status_code == 201
        assert (await client.post("/jobs", content=body.ljust(101), headers=JSON)).status_code == 413
        batch = b'{"jobs": [{"task": "charge"}]}'
        assert (await client.post("/jobs/batch", content=batch.ljust(200), headers=JSON)).status_code == 201
        assert (await client.post("/jobs/batch", content=batch.ljust(201), headers=JSON)).status_code == 413

        huge = {**JSON, "content-length": "9" * 5_000}
        assert (await client.post("/jobs", content=b"{}", headers=huge)).status_code == 413

        async def unannounced() -> AsyncIterator[bytes]:
            for _ in range(30):
                yield b" " * 10

        assert (await client.post("/jobs", content=unannounced(), headers=JSON)).status_code == 413
    assert (await store.stats()).ready == 2


async def test_what_takes_no_body_is_given_none(client: httpx.AsyncClient):
    assert (await client.request("GET", "/stats", content=b'{"queue": "mail"}')).status_code == 400
    assert (await client.request("GET", "/stats", content=b"{}")).status_code == 200
    assert (await client.get("/workers?x=1")).status_code == 400
    assert (await client.post("/jobs?task=charge", content=b"{}")).status_code == 400


async def test_hostile_words_come_back_harmless(client: httpx.AsyncClient):
    """No header, log line or page is made of what a caller sent."""
    hostile = "<img src=x onerror=alert(1)>\r\nSet-Cookie: a=b\x1b[31m"
    response = await client.post("/jobs", json={"task": hostile, "payload": {}})
    assert response.status_code == 400
    assert "set-cookie" not in response.headers
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "\r" not in response.json()["detail"]
    assert "\x1b" not in response.text
    wild = await client.get("/jobs/" + "%0d%0aSet-Cookie:%20a=b")
    assert wild.status_code == 404
    assert "set-cookie" not in wild.headers


KNOWN = ["task", "type", "payload", "queue", "priority", "delay", "run_at", "key", "key_ttl", "tags", "timeout", "max_attempts"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["anything", "charge", "forever"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
BODIES = (
    st.binary(max_size=200)
    | st.dictionaries(st.sampled_from(KNOWN) | st.text(), VALUES, max_size=6).map(lambda value: json.dumps(value).encode())
    | st.text(alphabet='{}[]",:\\u0123456789eE+-.truefalsn task', max_size=80).map(lambda text: text.encode("utf-8", "replace"))
)


@pytest.mark.parametrize("app", ["memory"], indirect=True)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=BODIES)
async def test_any_body_is_taken_whole_or_refused_whole(api: Api, store: Store, body: bytes):
    before = (await store.stats()).ready + (await store.stats()).scheduled
    async with client_of(api) as client:
        response = await client.post("/jobs", content=body, headers=JSON)
    after = (await store.stats()).ready + (await store.stats()).scheduled
    assert response.status_code in (200, 201, 400, 413), response.text
    assert after - before == (response.status_code == 201)
