"""Callers without a key who take what they can of a server: connections and memory."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path

import httpx

from tests.api.processes import Served, served
from tests.drills.case import Case, Seen

HALF = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: "
CALLERS = 300
PLACES = 150
"""Connections that the server may have: fewer than there are callers."""
HEADER = 128
"""MiB."""
PATIENCE = 2.0
"""Seconds in which everybody else must be answered."""


def half_open_connections(folder: Path) -> Seen:
    """Half of a request each, a byte now and then, and again when cut off: first with room for all, then without."""
    texts, held = [], True
    for places in (10_000, PLACES):
        with served(folder, "--connections", str(places)) as server:
            before = len(server.told())
            cut, took, failed = _besieged(server, 13 if places > CALLERS else 4)
            lines = server.told()[before:].count("cut off")
        held = held and cut >= CALLERS and not failed and max(took) < PATIENCE and 1 <= lines <= 2
        texts.append(
            f"{places:,} places: {cut} cut off, {len(took)} others asked, {failed} not answered, slowest {max(took):.2f} s, "
            f"{lines} lines in the log"
        )
    return Seen(held, "; ".join(texts))


def _besieged(server: Served, seconds: float) -> tuple[int, list[float], int]:
    callers = [_half_open(server) for _ in range(CALLERS)]
    took: list[float] = []
    cut = failed = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for index, caller in enumerate(callers):
            if not _goes_on(caller):
                caller.close()
                callers[index] = _half_open(server)
                cut += 1
        began = time.monotonic()
        try:
            failed += httpx.get(f"{server.url}/healthz", timeout=5).status_code != 200
        except httpx.TransportError:
            failed += 1
        took.append(time.monotonic() - began)
    for caller in callers:
        caller.close()
    return cut, took, failed


def _half_open(server: Served) -> socket.socket:
    caller = socket.create_connection(("127.0.0.1", server.port), timeout=5)
    caller.setblocking(False)
    with suppress(OSError):
        caller.send(HALF)
    return caller


def _goes_on(caller: socket.socket) -> bool:
    """Send one byte more, unless the server has answered or hung up."""
    try:
        caller.recv(4096)
    except BlockingIOError:
        with suppress(OSError):
            caller.send(b"x")
        return True
    except OSError:
        return False
    return False


def endless_header(folder: Path) -> Seen:
    with served(folder) as server:
        before, sent, piece = _memory(server), 0, b"x" * (1 << 20)
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as caller, suppress(OSError):
            caller.sendall(HALF)
            for _ in range(HEADER):
                caller.sendall(piece)
                sent += 1
        began = time.monotonic()
        status = httpx.get(f"{server.url}/healthz", timeout=30).status_code
        took, grown = time.monotonic() - began, _memory(server) - before
    held = sent < HEADER // 2 and status == 200 and took < PATIENCE and grown < 32
    return Seen(held, f"cut off after {sent} MiB, memory grew by {grown} MiB at most, /healthz {status} after {took:.2f} s")


def _memory(server: Served) -> int:
    """Most that the server has had, in MiB."""
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


CASES = (
    Case(
        "half-open-connections",
        "any",
        f"{CALLERS} connections send half of a request, byte by byte, and come again when they are cut off",
        "they are cut off within 10 s, or at once when the server is full; all others are answered within 2 s; the log says so",
        half_open_connections,
    ),
    Case(
        "endless-header",
        "any",
        f"a header of {HEADER} MiB without a key",
        "it is cut off early, memory stays, /healthz answers within 2 s",
        endless_header,
    ),
)
