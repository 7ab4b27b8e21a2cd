"""The proxy that faults of the wire are made with: before an echo, and before a real PostgreSQL."""

from __future__ import annotations

import asyncio
import random
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from hawser.errors import OutcomeUnknown, StoreUnavailable
from hawser.job import NewJob
from hawser.lab.chaos.plan import Plan
from hawser.lab.chaos.wire import Wire
from hawser.lab.cluster import Cluster
from hawser.store import Filter, Share
from hawser.stores.postgres import PostgresStore
from tests.postgres import postgres

BUSY = 1.0
"""Seconds by which a busy machine may be late. Without a deadline a call into a black hole waits for minutes."""


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        try:
            while said := self.request.recv(65_536):
                self.server.heard += said  # type: ignore[attr-defined]
                self.request.sendall(said)
        except OSError:
            pass


@pytest.fixture
def echo() -> Iterator[socketserver.ThreadingTCPServer]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        server.heard = b""  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join(30)


@pytest.fixture
def wire(echo) -> Iterator[Wire]:
    with Wire(echo.server_address[1]) as wire:
        yield wire


@contextmanager
def caller(wire: Wire) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", wire.port), timeout=5) as caller:
        yield caller


def ask(caller: socket.socket, said: bytes) -> bytes:
    caller.sendall(said)
    heard = b""
    while len(heard) < len(said):
        more = caller.recv(65_536)
        if not more:
            break
        heard += more
    return heard


def stay_connected(wire: Wire) -> None:
    with caller(wire) as client:
        while ask(client, b"1"):
            pass


def test_bytes_pass_both_ways_in_order_and_so_does_a_farewell(wire):
    said = bytes(range(256)) * 4_000
    with caller(wire) as client:
        sending = threading.Thread(target=client.sendall, args=(said,))
        sending.start()
        heard = b""
        while len(heard) < len(said):
            heard += client.recv(65_536)
        sending.join(30)
        assert heard == said
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    assert wire.told == {"connections": 1}


def test_latency_holds_each_way_and_keeps_the_order(wire):
    wire.slow(0.05, jitter=0.02)
    with caller(wire) as client:
        began = time.monotonic()
        assert ask(client, b"ab") == b"ab"
        took = time.monotonic() - began
        assert 0.06 <= took < 1
        for letter in b"abcdefgh":
            client.sendall(bytes([letter]))
        heard = b""
        while len(heard) < 8:
            heard += client.recv(8)
        assert heard == b"abcdefgh"
        wire.heal()
        began = time.monotonic()
        assert ask(client, b"ab") == b"ab"
        assert time.monotonic() - began < 0.05


def test_a_cut_resets_every_connection_and_new_ones_pass(wire):
    with caller(wire) as one, caller(wire) as two:
        assert ask(one, b"1") == ask(two, b"1") == b"1"
        wire.cut()
        for client in (one, two):
            with pytest.raises(ConnectionResetError):
                client.recv(1)
    with caller(wire) as client:
        assert ask(client, b"again") == b"again"
    assert wire.told["cut"] == 2


def test_cuts_go_on_until_they_are_healed(wire):
    wire.cut_every(0.05)
    for _ in range(3):
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            stay_connected(wire)
    wire.heal()
    cuts = wire.told["cut"]
    with caller(wire) as client:
        assert ask(client, b"1") == b"1"
        client.settimeout(0.15)
        with pytest.raises(TimeoutError):
            client.recv(1)
    assert wire.told["cut"] == cuts


def test_a_reply_is_lost_after_the_request_has_arrived(wire, echo):
    with caller(wire) as client:
        assert ask(client, b"before") == b"before"
        wire.lose_reply()
        client.sendall(b"request")
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    assert echo.heard == b"beforerequest"
    with caller(wire) as client:
        assert ask(client, b"after") == b"after"
    assert wire.told["replies lost"] == 1


def test_only_the_reply_of_the_request_that_was_meant_is_lost(wire, echo):
    wire.lose_reply(of=b"commit")
    with caller(wire) as client:
        assert ask(client, b"begin") == b"begin"
        client.sendall(b"commit")
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    assert echo.heard == b"begincommit"


def test_a_black_hole_keeps_connections_open_and_lets_no_byte_pass(wire, echo):
    with caller(wire) as old:
        assert ask(old, b"before") == b"before"
        wire.swallow()
        with caller(wire) as new:
            for client in (old, new):
                client.settimeout(0.1)
                client.sendall(b"hello?")
                with pytest.raises(TimeoutError):
                    client.recv(1)
            wire.heal()
            for client in (old, new):
                client.settimeout(5)
                with pytest.raises(ConnectionResetError):
                    client.recv(1)
    assert echo.heard == b"before"
    assert wire.told["bytes swallowed"] == 12
    with caller(wire) as client:
        assert ask(client, b"after") == b"after"


def test_a_server_that_is_not_there_is_a_connection_that_breaks():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with Wire(port) as wire:
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            stay_connected(wire)
        assert wire.told["refused"] == 1


def test_nothing_is_left_when_it_ends(echo):
    before = threading.active_count()
    with Wire(echo.server_address[1]) as wire, caller(wire) as client:
        assert ask(client, b"1") == b"1"
        wire.swallow()
        wire.cut_every(10)
    assert not any(thread.name == "hawser-wire" for thread in threading.enumerate())
    assert threading.active_count() <= before + 1, "the echo's own thread may end a moment later"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", wire.port), timeout=1)


# Before a real server.


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@asynccontextmanager
async def through(wire: Wire, cluster: Cluster, settings: str = "") -> Any:
    store = postgres(f"{wire.url(cluster.tcp_url)}?{settings}")
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def job() -> NewJob:
    return NewJob(task="work", body=b"{}")


async def known(store: PostgresStore, one: NewJob) -> int:
    found, after = [], None
    while True:
        page = await store.find(Filter(), after, 1_000)
        found += [job.id for job in page.jobs]
        after = page.next
        if after is None:
            return found.count(one.id)


async def test_an_enqueue_whose_reply_is_lost_is_unknown_and_repeats_to_one_job(cluster):
    with Wire(cluster.port) as wire:
        async with through(wire, cluster) as store, postgres_store(cluster) as other:
            await store.enqueue([job()])
            for _ in range(5):
                one = job()
                wire.lose_reply()
                with pytest.raises(OutcomeUnknown, match="repeat with the same ids"):
                    await store.enqueue([one])
                assert await known(other, one) == 1, "the server had it before the reply got lost"
                [answer] = await store.enqueue([one])
                assert answer.id == one.id
                assert not answer.created
                assert await known(other, one) == 1
        assert wire.told["replies lost"] == 5


async def test_a_claim_whose_reply_is_lost_is_free_again_when_its_lease_is_over(cluster):
    with Wire(cluster.port) as wire:
        async with through(wire, cluster) as store:
            await drained(store)
            one = job()
            await store.enqueue([one])
            wire.lose_reply(of=b"")
            with pytest.raises((OutcomeUnknown, StoreUnavailable)):
                await store.claim([Share("default")], 1, "w", 0.5)
            wire.heal()
            async with asyncio.timeout(10):
                while not (again := await store.claim([Share("default")], 1, "w", 5)):
                    await store.reclaim(10)
            assert [claimed.id for claimed in again] == [one.id]


async def test_in_a_black_hole_every_call_ends_by_its_deadline(cluster):
    timeout = 0.5
    with Wire(cluster.port) as wire:
        async with through(wire, cluster, f"timeout={timeout}&connect_timeout={timeout}") as store:
            await store.enqueue([job()])
            await store.claim([Share("default")], 1, "w", 5)
            wire.swallow()
            calls = {
                "enqueue": lambda: store.enqueue([job()]),
                "claim": lambda: store.claim([Share("default")], 1, "w", 5),
                "stats": lambda: store.stats("default"),
                "find": lambda: store.find(Filter()),
                "reclaim": lambda: store.reclaim(10),
                "pauses": store.pauses,
            }
            # The first call loses its connection, the second finds none.
            for name, call in [*calls.items(), *calls.items()]:
                began = time.monotonic()
                with pytest.raises((OutcomeUnknown, StoreUnavailable)):
                    await call()
                assert time.monotonic() - began < timeout * 1.1 + BUSY, name
            wire.heal()
            await store.enqueue([job()])


async def test_a_producer_gets_through_a_plan_of_every_fault(cluster):
    with Wire(cluster.port) as wire:
        async with through(wire, cluster, "timeout=2&connect_timeout=2") as store:

            def black_hole(_: random.Random) -> None:
                wire.swallow()
                time.sleep(0.2)  # how long the hole is there, by the plan
                wire.heal()

            faults = {
                "cut": (1, lambda _: wire.cut()),
                "lost reply": (1, lambda _: wire.lose_reply()),
                "black hole": (1, black_hole),
            }
            plan = Plan(faults, seed=2, every=(0.02, 0.1))
            playing = asyncio.create_task(asyncio.to_thread(plan.run, times=15))
            jobs = []
            while not playing.done():
                jobs.append(job())
                async with asyncio.timeout(20):
                    while not await is_accepted(store, jobs[-1]):
                        await asyncio.sleep(0.01)
            made = await playing
            wire.heal()
            assert len(made) == 3
            assert wire.told["cut"] >= made["cut"]
            for one in jobs:
                assert await known(store, one) == 1


async def is_accepted(store: PostgresStore, one: NewJob) -> bool:
    try:
        await store.enqueue([one])
    except (OutcomeUnknown, StoreUnavailable):
        return False
    return True


@asynccontextmanager
async def postgres_store(cluster: Cluster) -> Any:
    store = postgres(cluster.url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def drained(store: PostgresStore) -> None:
    while await store.claim([Share("default")], 1_000, "w", 3_600):
        pass
