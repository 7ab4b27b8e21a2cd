"""`/events`: hints, coalesced, to everybody who listens."""

from __future__ import annotations

import asyncio

import pytest

from hawser import Hawser, State
from hawser.api.events import SELDOM_EVERY, STREAM_LASTS_S, Pulse
from hawser.api.identity import LOCAL, Identity
from hawser.api.server import Api
from hawser.schedule.rule import Every, text_of
from hawser.schedule.schedule import Definition, create
from hawser.store import Actor, Beat, BulkPlan, Filter, Store, Target
from hawser.stores.memory import MemoryStore
from hawser.testing import Fault, FaultyStore
from hawser.testing.clock import ManualClock
from hawser.value.ids import new_id
from tests.api.conftest import in_state


async def anybody(identity: Identity, store: Store) -> None:
    """Every key stays good."""


async def chunk(stream) -> bytes:
    return await asyncio.wait_for(anext(stream), 10)


async def test_a_change_is_told_once_to_everybody(app: Hawser, store: Store):
    stopping = asyncio.Event()
    pulse = Pulse(stopping, anybody, ManualClock(), every=0.01)
    streams = [pulse.listen(store, pulse.enter(LOCAL)) for _ in range(2)]
    assert [await chunk(stream) for stream in streams] == [b"retry: 3000\n\n"] * 2
    await pulse.look(store)
    for _ in range(5):
        await app.aenqueue("charge", {})
    told = [await chunk(stream) for stream in streams]
    assert told[0] == told[1]
    assert told[0].endswith(b'event: change\ndata: {"changed":["queues"],"queues":["default"]}\n\n')
    stopping.set()
    for stream in streams:
        await stream.aclose()
    assert pulse.listeners == 0


async def test_a_stream_ends_after_a_while(app: Hawser, store: Store):
    now = 0.0
    pulse = Pulse(asyncio.Event(), anybody, ManualClock(), every=0.01, clock=lambda: now)
    stream = pulse.listen(store, pulse.enter(LOCAL))
    await chunk(stream)
    await pulse.look(store)
    await app.aenqueue("charge", {})
    assert b"queues" in await chunk(stream)
    now = STREAM_LASTS_S
    assert [chunk async for chunk in stream] == []


async def test_what_changed_is_said(app: Hawser, store: Store):
    pulse = Pulse(asyncio.Event(), anybody, ManualClock())
    await pulse.look(store)
    await store.pause(Target("task", "charge"), Actor())
    await pulse.look(store)
    assert set(pulse._changed) == {"controls"}
    await in_state(app, State.DEAD)
    await pulse.look(store)
    assert set(pulse._changed) == {"controls", "queues"}


async def test_time_alone_is_told_when_a_worker_falls_silent_or_a_queue_behind(app: Hawser, store: Store, clock: ManualClock):
    await store.beat([Beat(worker="w1", host="h", pid=1, version="1", queues=("mail",), slots=1, running=0)])
    await in_state(app, State.READY)
    pulse = Pulse(asyncio.Event(), anybody, clock)
    told: list[set[str]] = []
    for seconds in (0, 5, 6, 10, 10, 30):
        clock.advance(seconds)
        pulse._changed.clear()
        await pulse.look(store)
        told.append(set(pulse._changed))
    assert told == [set(), set(), {"queues"}, set(), {"workers"}, {"queues"}]


async def test_a_store_that_stops_answering_is_told_once_and_so_is_its_return():
    store = FaultyStore(MemoryStore())
    pulse = Pulse(asyncio.Event(), anybody, ManualClock())
    numbers = []
    for away in (False, True, True, False, False):
        if away:
            store.next("queues", Fault.REFUSE)
        await pulse.look(store)
        numbers.append(pulse._number)
    assert numbers == [0, 1, 1, 2, 2]
    assert set(pulse._changed) == {"store"}


async def test_a_store_that_swallows_questions_counts_as_away(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hawser.api.events.LOOK_WITHIN_S", 0.0)
    store = FaultyStore(MemoryStore())
    store.next("queues", Fault.DELAY, delay=60.0)
    pulse = Pulse(asyncio.Event(), anybody, ManualClock())
    await pulse.look(store)
    assert set(pulse._changed) == {"store"}


async def test_a_stream_without_news_tells_that_it_lives(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hawser.api.events.ALIVE_EVERY_S", 0.01)
    pulse = Pulse(asyncio.Event(), anybody, ManualClock(), every=0.01)
    stream = pulse.listen(store, pulse.enter(LOCAL))
    await chunk(stream)
    assert await chunk(stream) == b"event: alive\ndata: {}\n\n"
    await stream.aclose()


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


async def test_schedules_and_operations_are_told_within_some_looks(app: Hawser, store: Store, clock: ManualClock):
    pulse = Pulse(asyncio.Event(), anybody, clock)
    await pulse.look(store)

    async def told() -> set[str]:
        pulse._changed.clear()
        for _ in range(SELDOM_EVERY):
            await pulse.look(store)
        return set(pulse._changed)

    assert await told() == set()
    await store.fire([create(Definition(name="s", rule_text=text_of(Every(minutes=5)), task="charge", queue="q"), clock.now())])
    assert await told() == {"schedules"}
    started = await store.start_bulk(
        new_id(), BulkPlan(action="cancel", filter=Filter(), newest="", rate=1.0, by="ann"), "host:1"
    )
    assert await told() == {"operations"}
    await store.stop_bulk(started.id, Actor("ann"))
    assert await told() == {"operations"}


async def test_a_reader_that_comes_again_is_told_what_it_missed(app: Hawser, store: Store):
    stopping = asyncio.Event()
    pulse = Pulse(stopping, anybody, ManualClock(), every=0.01)
    stays = pulse.listen(store, pulse.enter(LOCAL))
    await chunk(stays)
    await pulse.look(store)
    await app.aenqueue("charge", {})
    first = await chunk(stays)
    id = first.partition(b"\n")[0].removeprefix(b"id: ")
    await app.apause(queue="mail")
    while b"controls" not in await chunk(stays):
        pass
    comes = pulse.listen(store, pulse.enter(LOCAL), id)
    await chunk(comes)
    missed = await chunk(comes)
    assert b'"changed":["controls"' in missed
    assert b"operations" not in missed
    for other in (b"0-1", b"1", b"", id + b"x"):
        stranger = pulse.listen(store, pulse.enter(LOCAL), other)
        await chunk(stranger)
        assert b'{"changed":["controls","operations","queues","schedules","workers"],"queues":[]}' in await chunk(stranger)
        await stranger.aclose()
    stopping.set()
    for stream in (stays, comes):
        await stream.aclose()


async def test_changes_while_nobody_listened_are_not_known(app: Hawser, store: Store):
    pulse = Pulse(asyncio.Event(), anybody, ManualClock(), every=0.01)
    stream = pulse.listen(store, pulse.enter(LOCAL))
    await chunk(stream)
    await pulse.look(store)
    await app.aenqueue("charge", {})
    id = (await chunk(stream)).partition(b"\n")[0].removeprefix(b"id: ")
    await stream.aclose()
    assert pulse._looking is not None
    await pulse._looking
    again = pulse.listen(store, pulse.enter(LOCAL), id)
    await chunk(again)
    assert b"operations" in await chunk(again)
    await again.aclose()
