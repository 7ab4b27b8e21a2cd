"""What a caller without a key may take of a server: bytes of a head, time for it, connections."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from hawser.api.connections import TELL_EVERY, ConnectionLimits, Connections
from tests.api.processes import Served, served

HASTY = """
from functools import partial
from hawser.api import serve
serve.ConnectionLimits = partial(serve.ConnectionLimits, within=2.0)
"""
HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served"), "--require-key") as server:
        yield server


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that gives two seconds for the head of a request in place of ten."""
    with served(tmp_path_factory.mktemp("hasty"), "--require-key", first=HASTY) as server:
        yield server


def connected(server: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def resident(server: Served) -> int:
    """Most memory that the server has had, in MiB."""
    assert server.process is not None
    [line] = [one for one in Path(f"/proc/{server.process.pid}/status").read_text().splitlines() if one.startswith("VmHWM")]
    return int(line.split()[1]) // 1024


def answer(caller: socket.socket) -> bytes:
    """All that comes until the server closes."""
    parts = []
    with suppress(ConnectionResetError):
        while part := caller.recv(65536):
            parts.append(part)
    return b"".join(parts)


@contextmanager
def asking(server: Served) -> Iterator[list[float]]:
    """Somebody who asks for /healthz all the time, and how long each answer took."""
    took: list[float] = []
    began, over = threading.Event(), threading.Event()

    def ask(client: httpx.Client) -> None:
        asked = time.monotonic()
        assert client.get(f"{server.url}/healthz").status_code == 200
        took.append(time.monotonic() - asked)
        began.set()

    def go_on() -> None:
        with httpx.Client(timeout=20) as client:
            while not over.is_set():
                ask(client)
                over.wait(0.01)
            ask(client)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        assert began.wait(20)
        yield took
    finally:
        over.set()
        thread.join(30)


def pour(caller: socket.socket, mebibytes: int) -> int:
    """Send so much, unless it is cut off; how much went out."""
    sent, piece = 0, b"x" * (1 << 20)
    with suppress(ConnectionResetError, BrokenPipeError):
        for _ in range(mebibytes):
            caller.sendall(piece)
            sent += len(piece)
    return sent >> 20


@pytest.mark.parametrize(
    "begins",
    [
        HEAD + b"X-Long: ",
        b"GET /healthz?",
        b"\r\n" * 20_000 + HEAD + b"X-Long: ",
        b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Long: ",
        b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;",
    ],
    ids=["header", "url", "after empty lines", "trailer", "chunk extension"],
)
def test_a_head_without_end_is_cut_off_early(server: Served, begins: bytes):
    before = resident(server)
    with asking(server) as took, connected(server) as caller:
        caller.sendall(begins)
        sent = pour(caller, 128)
    assert sent < 64, "cut off while it sends"
    assert resident(server) - before < 32
    assert max(took) < 2, "the others feel nothing"
    assert "sent a head of more than 32,768 bytes" in server.told()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"X: %s\r\n" % (b"x" * 32_000), b"200"),
        (b"X: %s\r\n" % (b"x" * 33_000), b"431"),
        (b"X: 1\r\n" * 99, b"200"),
        (b"X: 1\r\n" * 100, b"431"),
    ],
    ids=["large", "too large", "many", "too many"],
)
@pytest.mark.parametrize("pieces", [1, 7])
def test_a_head_has_a_size(server: Served, headers: bytes, status: bytes, pieces: int):
    request = HEAD + headers + b"Connection: close\r\n\r\n"
    if b"X: 1" in headers:
        request = request.replace(b"Connection: close\r\n", b"").replace(b"GET /healthz HTTP/1.1", b"GET /healthz HTTP/1.0")
    with connected(server) as caller:
        with suppress(ConnectionResetError, BrokenPipeError):
            for start in range(0, len(request), -(-len(request) // pieces)):
                caller.sendall(request[start : start + -(-len(request) // pieces)])
                time.sleep(0.01)  # so that it comes in pieces
        told = answer(caller)
    assert told.split(b" ")[1] == status
    if status == b"431":
        assert b"application/problem+json" in told
        assert b"the head of the request has more than" in told


def test_large_bodies_and_pipelined_requests_are_no_heads(server: Served):
    body = b" " * 200_000 + b"{}"
    first = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with connected(server) as caller:
        caller.sendall(first + HEAD + b"X: %s\r\n" % (b"x" * 20_000) + b"Connection: close\r\n\r\n")
        told = answer(caller)
    assert told.count(b"HTTP/1.1 401") == 1
    assert told.count(b"HTTP/1.1 200") == 1


def test_what_is_not_http_is_refused_as_ever(server: Served):
    with connected(server) as caller:
        caller.sendall(b"hello\r\n\r\n")
        assert answer(caller).startswith(b"HTTP/1.1 400 ")


def test_who_takes_too_long_is_cut_off_and_the_others_are_answered(hasty: Served):
    """Half a head, nothing at all, empty lines, and a body that drips on after its request was refused."""
    drip = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
    starts = [HEAD, b"", b"\r\n", drip]
    callers = [connected(hasty) for _ in range(300)]
    for index, caller in enumerate(callers):
        caller.sendall(starts[index % len(starts)])
    began = time.monotonic()
    left: dict[int, socket.socket] = dict(enumerate(callers))
    told: dict[int, bytes] = {}
    with asking(hasty) as took:
        while left and time.monotonic() < began + 20:
            for index, caller in tuple(left.items()):
                try:
                    caller.settimeout(0.001)
                    part = caller.recv(4096)
                    told[index] = told.get(index, b"") + part
                    if not part:
                        del left[index]
                except TimeoutError:
                    with suppress(OSError):
                        if index % len(starts) in (0, 3):
                            caller.sendall(b"x")  # slowly, but never silent
                except ConnectionResetError:
                    del left[index]
            time.sleep(0.2)
    for caller in callers:
        caller.close()
    assert not left, f"{len(left)} are still there after 20 s"
    assert max(took) < 2
    assert b" 408 " in told[0]
    assert told[1] == b"", "nothing was asked, nothing is answered"
    assert told[3].startswith(b"HTTP/1.1 401")
    assert hasty.told().count("did not finish its request within 2 s") == 1, "an attack does not fill the log"


def test_a_connection_may_idle_between_requests_and_is_not_cut_off_in_use(hasty: Served):
    """Longer than the time for a head, with a request now and then."""
    with connected(hasty) as caller:
        for _ in range(4):
            caller.sendall(HEAD + b"\r\n")
            assert caller.recv(4096).startswith(b"HTTP/1.1 200")
            time.sleep(0.75)  # four of them are longer than the time for a head


def test_a_body_that_is_too_large_is_answered_and_read_to_its_end(tmp_path: Path):
    """A caller, or a proxy, that still sends when the answer comes would see a broken connection if the server closed it."""
    size = 9_000_000
    head = f"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    with served(tmp_path) as server, connected(server) as caller:
        caller.sendall(head.encode())
        assert caller.recv(4096).startswith(b"HTTP/1.1 413 ")
        caller.sendall(b" " * size)
        caller.sendall(HEAD + b"Connection: close\r\n\r\n")
        assert b"HTTP/1.1 200 " in answer(caller)


@pytest.mark.parametrize("after", [b" " * 10, b" " * 10 + HEAD], ids=["nothing", "half of a request"])
def test_a_connection_ends_though_its_body_came_after_the_answer(tmp_path: Path, after: bytes):
    """Nobody has to show a key for that: it was open for as long as the caller liked."""
    with served(tmp_path, "--require-key", first=f"{HASTY}serve.IDLE_CONNECTION_S = 1\n") as server, connected(server) as caller:
        caller.sendall(b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
        assert caller.recv(4096).startswith(b"HTTP/1.1 401 ")
        caller.sendall(after)
        assert answer(caller).partition(b"\r\n")[0] in (b"", b"HTTP/1.1 408 Request Timeout")


def test_when_the_server_is_full_those_that_say_nothing_give_way(tmp_path: Path):
    with served(tmp_path, "--connections", "20") as server:
        kept = connected(server)
        kept.sendall(HEAD + b"\r\n")
        assert kept.recv(4096).startswith(b"HTTP/1.1 200")
        silent = [connected(server) for _ in range(60)]
        began = time.monotonic()
        for _ in range(5):
            assert httpx.get(f"{server.url}/healthz", timeout=5).status_code == 200
        assert time.monotonic() - began < 4
        kept.sendall(HEAD + b"\r\n")
        assert kept.recv(4096).startswith(b"HTTP/1.1 200"), "one that is in use stays"
        assert "had asked for nothing yet and was cut off: 20 connections are open" in server.told()
        for caller in (kept, *silent):
            caller.close()
        busy = [connected(server) for _ in range(20)]
        for caller in busy:
            caller.sendall(HEAD + b"\r\n")
            assert caller.recv(4096).startswith(b"HTTP/1.1 200")
        assert httpx.get(f"{server.url}/healthz", timeout=5).status_code == 503
        for caller in busy:
            caller.close()


class FromHost:
    def __init__(self, host: str | None) -> None:
        self.client = None if host is None else (host, 4711)
        self.gone = False

    def give_way(self) -> None:
        self.gone = True


@pytest.mark.parametrize(
    ("hosts", "let_in"),
    [
        (["192.0.2.1"] * 5, 3),
        (["192.0.2.1", "::ffff:192.0.2.1"] * 2, 3),
        (["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8::4"], 3),
        (["2001:db8:0:1::1", "2001:db8:0:2::1", "2001:db8:0:3::1", "2001:db8:0:4::1"], 4),
        (["192.0.2.1", "192.0.2.2"] * 3, 6),
        (["127.0.0.1", "::1", "::ffff:127.0.0.1"] * 3, 9),
        (["10.0.0.7", "10.1.0.1", "::ffff:10.0.0.7"] * 3, 9),
        ([None] * 9, 9),
    ],
)
def test_one_address_has_so_many_connections(hosts: list[str | None], let_in: int):
    connections = Connections(ConnectionLimits(per_address=3), ["10.0.0.7", "10.1.0.0/16"])
    callers = [FromHost(host) for host in hosts]
    refused = [caller for caller in callers if (problem := connections.enter(caller)) and problem.status == 429]
    assert len(callers) - len(refused) == len(connections) == let_in
    for caller in callers:
        for _ in range(2):
            connections.leave(caller)
    assert len(connections) == 0
    assert not connections._counts
    assert connections.enter(callers[0]) is None, "there is room again"


def test_the_log_says_each_kind_once_a_minute(caplog: pytest.LogCaptureFixture):
    now = 0.0
    connections = Connections(ConnectionLimits(per_address=1, total=3), clock=lambda: now)
    with caplog.at_level(logging.WARNING, "hawser.api"):
        for _ in range(100):
            connections.enter(FromHost("192.0.2.1"))
        now = TELL_EVERY
        connections.enter(FromHost("192.0.2.1"))
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "192.0.2.1 has 1 connections open already: refused",
        "192.0.2.1 has 1 connections open already: refused (98 more since this was last said)",
    ]


def test_the_limit_of_open_files_is_heeded(monkeypatch: pytest.MonkeyPatch):
    import resource

    from hawser.api.connections import room

    allowed = [(256, 256)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: allowed[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, now: allowed.append(now))
    assert room(10_000) == 192
    allowed[:] = [(1024, 4096)]
    assert room(10_000) == 4096 - 256
    assert allowed[-1] == (4096, 4096)
    allowed[:] = [(1024, resource.RLIM_INFINITY)]
    assert room(10_000) == 10_000
    assert allowed[-1] == (10_256, resource.RLIM_INFINITY)
