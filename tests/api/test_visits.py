"""What a server logs of its callers: refusals always, every request when it is told to."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from hawser import Hawser
from hawser.api.problem import Problem
from hawser.api.visits import REFUSALS_LOGGED, Visits
from hawser.store import Actor, Store
from hawser.store.api_key import Role, issue
from tests.api.conftest import client_of, make_app
from tests.api.processes import served

SCOPE = {"method": "GET", "client": ("10.0.0.7", 1)}
NO = Problem(403, "no")


@pytest.fixture
def app() -> Hawser:
    return make_app("memory://")


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def lines(caplog: pytest.LogCaptureFixture, logger: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == logger]


async def test_who_was_refused_is_logged(app: Hawser, store: Store, caplog: pytest.LogCaptureFixture):
    key, text = issue("billing", (Role.PRODUCER,), tasks=("charge",))
    revoked, old = issue("gone", (Role.ADMIN,))
    await store.put_api_key(key, None, Actor())
    api = app.asgi(upkeep=False)
    async with client_of(api, "10.0.0.7") as client:
        ours = {"authorization": f"Bearer {text}"}
        assert (await client.get("/stats")).status_code == 401
        assert (await client.get("/jobs?token=sesame", headers={"authorization": f"Bearer {old}"})).status_code == 401
        assert (await client.get("/audit", headers=ours)).status_code == 403
        enqueue = {"task": "send_email", "payload": {"to": "a"}}
        assert (await client.post("/jobs", json=enqueue, headers=ours)).status_code == 403
        assert (await client.get("/nothing", headers=ours)).status_code == 404
    await api.stop()
    told = lines(caplog, "hawser.api")
    assert [line.partition(" reason=")[0] for line in told] == [
        "request refused: method=GET route=/stats status=401 by=- address=10.0.0.7",
        f"request refused: method=GET route=/jobs status=401 by=unknown:{revoked.id} address=10.0.0.7",
        f"request refused: method=GET route=/audit status=403 by=billing:{key.id} address=10.0.0.7",
        f"request refused: method=POST route=/jobs status=403 by=billing:{key.id} address=10.0.0.7",
    ]
    assert "one of the roles" in told[2]
    for secret in (text.split("_")[2], old.split("_")[2], "sesame"):
        assert secret not in "".join(told)
    assert lines(caplog, "hawser.access") == []


async def test_a_flood_of_refusals_fills_no_log(caplog: pytest.LogCaptureFixture):
    now = 0.0
    visits = Visits(access_log=False, clock=lambda: now)
    for _ in range(REFUSALS_LOGGED + 15):
        visits.refused(SCOPE, None, NO, None)
    assert len(lines(caplog, "hawser.api")) == REFUSALS_LOGGED
    now = 1.0
    visits.refused(SCOPE, None, NO, "ann")
    last = lines(caplog, "hawser.api")[REFUSALS_LOGGED:]
    assert last[0] == "request refused: 15 more with 401 or 403"
    assert ["by=ann" in line for line in last] == [False, True]
    visits.flush()
    assert len(lines(caplog, "hawser.api")) == REFUSALS_LOGGED + 2


async def test_the_end_of_a_flood_is_counted_too(caplog: pytest.LogCaptureFixture):
    visits = Visits(access_log=False, clock=lambda: 0.0, period=0.01)
    for _ in range(REFUSALS_LOGGED + 1):
        visits.refused(SCOPE, None, NO, None)
    end = time.monotonic() + 10
    while len(lines(caplog, "hawser.api")) == REFUSALS_LOGGED:
        assert time.monotonic() < end
        await asyncio.sleep(0.005)
    assert lines(caplog, "hawser.api")[-1] == "request refused: 1 more with 401 or 403"


async def test_every_request_is_logged_when_switched_on(app: Hawser, store: Store, caplog: pytest.LogCaptureFixture):
    key, text = issue("billing", (Role.VIEWER,), rate=3)
    await store.put_api_key(key, None, Actor())
    api = app.asgi(upkeep=False, access_log=True)
    async with client_of(api, "10.0.0.7") as client:
        ours = {"authorization": f"Bearer {text}"}
        await client.get("/jobs/01900000-0000-7000-8000-000000000000", headers=ours)
        await client.get("/jobs?tag=secret", headers=ours)
        await client.get("/audit", headers=ours)
        await client.get("/stats", headers=ours)
        await client.get("/secret?secret=1", headers=ours)
        await client.get("/healthz")
    await api.stop()
    told = lines(caplog, "hawser.access")
    assert [re.sub(r" ms=\d+\.\d$", "", line) for line in told] == [
        f"method=GET route=/jobs/{{id}} status=404 by=billing:{key.id} address=10.0.0.7",
        f"method=GET route=/jobs status=200 by=billing:{key.id} address=10.0.0.7",
        f"method=GET route=/audit status=403 by=billing:{key.id} address=10.0.0.7",
        f"method=GET route=/stats status=429 by=billing:{key.id} address=10.0.0.7",
        "method=GET route=- status=404 by=- address=10.0.0.7",
        "method=GET route=/healthz status=200 by=- address=10.0.0.7",
    ]
    assert "secret" not in "".join(told)


async def test_a_caller_that_hangs_up_is_logged(app: Hawser, store: Store, caplog: pytest.LogCaptureFixture):
    api = app.asgi(upkeep=False, open=True, access_log=True)

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(_: object) -> None:
        raise AssertionError("nobody is there")

    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": "/jobs",
        "query_string": b"",
        "headers": [],
        "client": None,
    }
    await api(scope, receive, send)
    await api.stop()
    [line] = lines(caplog, "hawser.access")
    assert line.startswith("method=POST route=/jobs status=- by=local address=- ms=")


def test_a_line_stays_a_line_whatever_it_says(caplog: pytest.LogCaptureFixture):
    visits = Visits(access_log=True)
    hostile = 'a\nb\x1b[31m "c" status=200 \\ \u202e' + "x" * 1000
    visits.ended({"method": "GET", "client": None}, None, 200, 0.001, hostile)
    [line] = lines(caplog, "hawser.access")
    assert line.isprintable()
    assert r'by="a\nb\x1b[31m \"c\" status=200 \\ \u202exxx' in line
    assert len(line) < 300


def test_the_command_line_switches_it_on(tmp_path: Path):
    with served(tmp_path, "--access-log") as server:
        httpx.get(f"{server.url}/stats?token=sesame")
        server.wait_for("hawser.access: method=GET route=/stats status=200 by=local address=127.0.0.1 ms=")
        assert "sesame" not in server.told()
