"""`/events`: hints, coalesced, to everybody who listens."""

from __future__ import annotations

import asyncio

from hawser import Hawser, State
from hawser.api.events import LASTS, Pulse
from hawser.api.identity import LOCAL, Identity
from hawser.api.server import Api
from hawser.store import Store, Target
from tests.api.conftest import in_state


async def anybody(identity: Identity, store: Store) -> None:
    """Every key stays good."""


async def chunk(stream) -> bytes:
    return await asyncio.wait_for(anext(stream), 10)


async def test_a_change_is_told_once_to_everybody(app: Hawser, store: Store):
    stopping = asyncio.Event()
    pulse = Pulse(stopping, anybody, every=0.01)
    streams = [pulse.listen(store, pulse.enter(LOCAL)) for _ in range(2)]
    assert [await chunk(stream) for stream in streams] == [b"retry: 3000\n\n"] * 2
    await pulse.look(store)
    for _ in range(5):
        await app.aenqueue("charge", {})
    told = [await chunk(stream) for stream in streams]
    assert told[0] == told[1]
    assert told[0].endswith(b'event: change\ndata: {"changed":["queues"]}\n\n')
    stopping.set()
    for stream in streams:
        await stream.aclose()
    assert pulse.listeners == 0


async def test_a_stream_ends_after_a_while(app: Hawser, store: Store):
    now = 0.0
    pulse = Pulse(asyncio.Event(), anybody, every=0.01, clock=lambda: now)
    stream = pulse.listen(store, pulse.enter(LOCAL))
    await chunk(stream)
    await pulse.look(store)
    await app.aenqueue("charge", {})
    assert b"queues" in await chunk(stream)
    now = LASTS
    assert [chunk async for chunk in stream] == []


async def test_what_changed_is_said(app: Hawser, store: Store):
    pulse = Pulse(asyncio.Event(), anybody)
    await pulse.look(store)
    from hawser.store import Actor

    await store.pause(Target("task", "charge"), Actor())
    await pulse.look(store)
    assert set(pulse._changed) == {"controls"}
    await in_state(app, State.DEAD)
    await pulse.look(store)
    assert set(pulse._changed) == {"controls", "queues"}


async def test_a_stream_ends_with_the_server_and_with_its_reader(app: Hawser, api: Api):
    hung_up = asyncio.Event()
    sent: list[bytes] = []
    messages = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive():
        if messages:
            return messages.pop()
        await hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message.get("body", b""))

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/events",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    reading = asyncio.ensure_future(api(scope, receive, send))
    while b"retry: 3000\n\n" not in sent:
        await asyncio.sleep(0)
    assert api.pulse.listeners == 1
    hung_up.set()
    await asyncio.wait_for(reading, 5)
    assert api.pulse.listeners == 0

    hung_up.clear()
    messages.append({"type": "http.request", "body": b"", "more_body": False})
    reading = asyncio.ensure_future(api(scope, receive, send))
    while not api.pulse.listeners:
        await asyncio.sleep(0)
    api.stopping.set()
    await asyncio.wait_for(reading, 5)
