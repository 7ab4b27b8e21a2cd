"""Calls that stay open, claims that wait and streams: they end with their key, and one key cannot have them all."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from typing import Any

import pytest

from hawser import Hawser
from hawser.api import export
from hawser.api.events import MAX_PER_KEY, MAX_STREAMS, Pulse
from hawser.api.identity import LOCAL
from hawser.api.server import Api
from hawser.errors import StoreUnavailable
from hawser.store import Actor, Store
from hawser.store.api_key import Role
from hawser.testing.clock import ManualClock
from tests.api.conftest import bearer

WITHIN = 2.5
"""Seconds after which a revoked key is out: one is the promise, the rest is for a busy machine."""


class Open:
    """A call that stays open until the server ends it."""

    def __init__(self, api: Api, header: dict[str, str], method: str, path: str, body: Any = None, *, slow: bool = False) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.sent = b""
        self.began = asyncio.Event()
        self.left = asyncio.Event()
        self.whole = False
        """All of the answer was sent, to its end."""
        self.taken = asyncio.Semaphore(0)
        """How many more parts of the answer the caller takes; one that is slow takes them one by one."""
        self.slow = slow
        self._asked = [{"type": "http.request", "body": b"" if body is None else json.dumps(body).encode(), "more_body": False}]
        self.scope = {
            "type": "http",
            "method": method,
            "path": path.partition("?")[0],
            "query_string": path.partition("?")[2].encode(),
            "headers": [(b"host", b"localhost"), *((name.encode(), value.encode()) for name, value in header.items())],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        self.task = asyncio.ensure_future(api(self.scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._asked:
            return self._asked.pop()
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        elif self.slow:
            await self.taken.acquire()
        self.sent += message.get("body", b"")
        self.whole = message["type"] == "http.response.body" and not message.get("more_body", False)
        self.began.set()


@pytest.fixture
async def closed(app: Hawser, store: Store):
    api = app.asgi(upkeep=False)
    yield api
    await api.stop()


async def revoke(store: Store, header: dict[str, str]) -> None:
    await store.revoke_api_key(header["authorization"].split("_")[1], Actor())


async def ended(call: Open) -> float:
    """Seconds until it has ended."""
    began = time.monotonic()
    await asyncio.wait_for(asyncio.shield(call.task), 20)
    return time.monotonic() - began


async def test_a_revoked_key_ends_its_open_stream(closed: Api, store: Store):
    out, stays = await bearer(store, Role.VIEWER), await bearer(store, Role.VIEWER)
    first, second = (Open(closed, header, "GET", "/events") for header in (out, stays))
    for call in (first, second):
        await asyncio.wait_for(call.began.wait(), 10)
        assert call.status == 200
    await revoke(store, out)
    assert await ended(first) < WITHIN
    assert not second.task.done(), "another key is not touched"
    assert closed.pulse.listeners == 1
    second.left.set()
    await ended(second)
    assert closed.pulse.listeners == 0


async def test_a_revoked_key_gets_no_job_from_a_claim_that_waits(closed: Api, store: Store, app: Hawser):
    out, stays = await bearer(store, Role.WORKER), await bearer(store, Role.WORKER)
    first, second = (Open(closed, header, "POST", "/claims", {"wait": 30}) for header in (out, stays))
    await asyncio.sleep(0.3)  # until both wait: nothing tells of that
    await revoke(store, out)
    assert await ended(first) < WITHIN
    assert first.status == 401
    await app.aenqueue("charge", {})
    assert await ended(second) < WITHIN
    assert (second.status, len(json.loads(second.sent)["jobs"])) == (200, 1)


async def test_a_revoked_key_ends_a_call_that_waits_for_a_job(closed: Api, store: Store, app: Hawser):
    job = (await app.aenqueue("charge", {})).id
    out, stays = await bearer(store, Role.VIEWER), await bearer(store, Role.VIEWER)
    first, second = (Open(closed, header, "GET", f"/jobs/{job}?wait=30") for header in (out, stays))
    await asyncio.sleep(0.3)  # until both wait: nothing tells of that
    await revoke(store, out)
    assert await ended(first) < WITHIN
    assert first.status == 401
    assert not second.task.done(), "another key is not touched"
    await app.acancel(job)
    assert await ended(second) < WITHIN
    assert (second.status, json.loads(second.sent)["state"]) == (200, "cancelled")


async def refused(api: Api, header: dict[str, str]) -> bool:
    call = Open(api, header, "GET", "/me")
    await ended(call)
    return call.status == 401


async def test_a_revoked_key_cuts_the_file_that_is_being_sent(
    closed: Api, store: Store, app: Hawser, monkeypatch: pytest.MonkeyPatch
):
    """The connection is cut: a reader must not take the part for the whole."""
    monkeypatch.setattr(export, "_EXPORT_PAGE", 1)
    for _ in range(5):
        await app.aenqueue("charge", {})
    out, stays = await bearer(store, Role.VIEWER), await bearer(store, Role.VIEWER)
    first, second = (Open(closed, header, "GET", "/jobs/export.ndjson", slow=True) for header in (out, stays))
    for call in (first, second):
        await asyncio.wait_for(call.began.wait(), 10)
        call.taken.release()
    await revoke(store, out)
    while not await refused(closed, out):
        await asyncio.sleep(0.01)
    for call in (first, second):
        for _ in range(9):
            call.taken.release()
        await ended(call)
    assert second.whole
    assert second.sent.count(b"\n") == 5, "another key gets all of its file"
    assert not first.whole
    assert first.sent.count(b"\n") < 5
    assert closed.pulse.listeners == 0


async def test_a_file_that_is_being_sent_takes_the_place_of_a_stream(closed: Api, store: Store, app: Hawser):
    await app.aenqueue("charge", {})
    header = await bearer(store, Role.VIEWER)
    calls = [Open(closed, header, "GET", "/jobs/export.csv", slow=True) for _ in range(MAX_PER_KEY + 2)]
    for call in calls:
        await asyncio.wait_for(call.began.wait(), 20)
    assert Counter(call.status for call in calls) == {200: MAX_PER_KEY, 429: 2}
    for call in calls:
        call.slow = False
        for _ in range(9):
            call.taken.release()
        await ended(call)
    assert closed.pulse.listeners == 0


async def test_one_key_cannot_take_all_streams(closed: Api, store: Store):
    """All at once, so that none may be let in before the others are counted."""
    greedy, other = await bearer(store, Role.VIEWER), await bearer(store, Role.VIEWER)
    calls = [Open(closed, greedy, "GET", "/events") for _ in range(MAX_PER_KEY + 5)]
    for call in calls:
        await asyncio.wait_for(call.began.wait(), 20)
    assert Counter(call.status for call in calls) == {200: MAX_PER_KEY, 429: 5}
    refused = next(call for call in calls if call.status == 429)
    assert refused.headers[b"retry-after"] == b"5"
    assert b"streams open already" in refused.sent
    calls.append(Open(closed, other, "GET", "/events"))
    await asyncio.wait_for(calls[-1].began.wait(), 20)
    assert calls[-1].status == 200, "there is room for another key"
    for call in calls:
        call.left.set()
        await ended(call)
    assert closed.pulse.listeners == 0
    again = Open(closed, greedy, "GET", "/events")
    await asyncio.wait_for(again.began.wait(), 20)
    assert again.status == 200
    again.left.set()
    await ended(again)


async def test_all_streams_together_have_an_end(closed: Api, store: Store):
    entered = [closed.pulse.enter(LOCAL) for _ in range(MAX_STREAMS)]
    call = Open(closed, await bearer(store, Role.VIEWER), "GET", "/events")
    await ended(call)
    assert (call.status, call.headers[b"retry-after"]) == (503, b"5")
    for listener in entered:
        closed.pulse.leave(listener)


async def test_a_look_at_the_head_of_a_stream_takes_no_place(closed: Api, store: Store):
    header = await bearer(store, Role.VIEWER)
    for _ in range(MAX_PER_KEY + 1):
        call = Open(closed, header, "HEAD", "/events")
        await ended(call)
        assert call.status == 200
    assert closed.pulse.listeners == 0


async def test_many_open_calls_cost_one_reading_of_the_keys(app: Hawser, store: Store):
    reads = 0
    answer = store.api_keys

    async def counted() -> Any:
        nonlocal reads
        reads += 1
        return await answer()

    store.api_keys = counted  # type: ignore[method-assign]  # counts, and answers as ever
    api = app.asgi(upkeep=False)
    header = await bearer(store, Role.WORKER)
    calls = [Open(api, header, "POST", "/claims", {"wait": 2}) for _ in range(30)]
    for call in calls:
        await ended(call)
        assert call.status == 200
    assert reads <= 8, "about one in half a second, for all of them"
    await api.stop()


async def test_a_store_that_is_away_ends_no_stream(store: Store):
    asked = asyncio.Event()

    async def away(identity: object, store: Store) -> None:
        asked.set()
        raise StoreUnavailable("away")

    pulse = Pulse(stopping := asyncio.Event(), away, ManualClock(), every=0.01)
    stream = pulse.listen(store, pulse.enter(LOCAL))
    await anext(stream)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.wait_for(asked.wait(), 10)
    asked.clear()
    await asyncio.wait_for(asked.wait(), 10)
    assert not waiting.done()
    stopping.set()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(waiting, 10)
