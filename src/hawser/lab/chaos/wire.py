"""A TCP proxy of our own on loopback: what speaks through it can be slowed, cut, left without a reply, or swallowed."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

CHUNK_BYTES: Final = 65_536
CHUNKS_HELD_BACK: Final = 256
"""Chunks that one direction of a connection may hold back: then its sender has to wait."""

PROXY_OBEYS_WITHIN_S: Final = 10.0
"""Seconds that the proxy's thread may take to do as it is told."""

_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER of no time at all: a close is a reset."""


class Wire:
    """A way to a server, with a port of its own. Use as a context manager, or `start` and `stop` it.

    The proxy lives in a thread, so what it is told takes effect while the caller does something else; each order has been
    carried out when its call returns. `told` counts what was done.
    """

    def __init__(self, port: int, host: str = "127.0.0.1", *, seed: int = 0) -> None:
        self.target = (host, port)
        self.port = 0
        self.told: Counter[str] = Counter()
        self.latency, self.jitter = 0.0, 0.0
        self.swallows = False
        self._dice = random.Random(seed)  # noqa: S311  # an experiment is to be repeated, not kept secret
        self._losing, self._losing_of = 0, b""
        self._talks: set[_Talk] = set()
        self._cutting: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="hawser-wire", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Take connections; `port` says where."""
        self._thread.start()
        self._order(self._listen)

    def stop(self) -> None:
        """Reset what is open, and end for good."""
        asyncio.run_coroutine_threadsafe(self._hang_up(), self._loop).result(PROXY_OBEYS_WITHIN_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PROXY_OBEYS_WITHIN_S)
        self._loop.close()

    def url(self, url: str) -> str:
        """The same address as this one of the target, but through here."""
        host, port = self.target
        return url.replace(f"{host}:{port}", f"127.0.0.1:{self.port}", 1)

    # Orders.

    def slow(self, latency: float, jitter: float = 0.0) -> None:
        """From now on every byte takes so many seconds, give or take the jitter, each way; their order stays."""

        def order() -> None:
            self.latency, self.jitter = latency, jitter

        self._order(order)

    def cut(self) -> None:
        """Reset all connections, on both sides."""
        self._order(self._cut)

    def cut_every(self, seconds: float) -> None:
        """Reset all connections now and again, until healed."""

        async def keep_cutting() -> None:
            while True:
                await asyncio.sleep(seconds)
                self._cut()

        def order() -> None:
            self._stop_cutting()
            self._cutting = self._loop.create_task(keep_cutting())

        self._order(order)

    def lose_reply(self, times: int = 1, *, of: bytes = b"") -> None:
        """Let the next request through, and so many in all, drop what the server answers, then reset the connection.

        With `of`, only requests that contain these bytes count.
        """

        def order() -> None:
            self._losing, self._losing_of = times, of

        self._order(order)

    def swallow(self) -> None:
        """A black hole: connections stay open and new ones are taken, but no byte arrives, either way."""

        def order() -> None:
            self.swallows = True

        self._order(order)

    def heal(self) -> None:
        """As if nothing had been ordered. Connections that have lost bytes are reset: they cannot be right again."""

        def order() -> None:
            self.latency = self.jitter = 0.0
            self.swallows, self._losing = False, 0
            self._stop_cutting()
            for talk in [talk for talk in self._talks if talk.has_gaps]:
                talk.reset()

        self._order(order)

    def _order(self, order: Callable[[], object]) -> None:
        async def carry_out() -> None:
            answer = order()
            if asyncio.iscoroutine(answer):
                await answer

        asyncio.run_coroutine_threadsafe(carry_out(), self._loop).result(PROXY_OBEYS_WITHIN_S)

    # In the thread.

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.told["connections"] += 1
        talk = _Talk(self, reader, writer)
        self._talks.add(talk)
        try:
            await talk.run()
        finally:
            self._talks.discard(talk)

    def _cut(self) -> None:
        for talk in list(self._talks):
            self.told["cut"] += 1
            talk.reset()

    def _stop_cutting(self) -> None:
        if self._cutting is not None:
            self._cutting.cancel()
            self._cutting = None

    def delay(self) -> float:
        """Seconds that the next bytes take."""
        if not self.latency:
            return 0.0
        return max(0.0, self.latency + self._dice.uniform(-self.jitter, self.jitter))

    def loses_reply_of(self, request: bytes) -> bool:
        """Whether this is a request whose reply is to get lost; it counts as one."""
        if not self._losing or self._losing_of not in request:
            return False
        self._losing -= 1
        return True

    async def _hang_up(self) -> None:
        self._stop_cutting()
        self._server.close()
        for talk in list(self._talks):
            talk.reset()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if others:
            await asyncio.wait(others, timeout=1)
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class _Talk:
    """One client and the server, and the bytes between them."""

    def __init__(self, wire: Wire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.wire = wire
        self.has_gaps = False
        self._client = (reader, writer)
        self._writers = [writer]
        self._waits_for_lost_reply = False

    async def run(self) -> None:
        with suppress(OSError):
            server = await self._reach()
            if server is not None:
                await asyncio.gather(
                    self._carry(self._client[0], server[1], self._request), self._carry(server[0], self._client[1], self._reply)
                )
        for writer in self._writers:
            writer.close()

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """A connection to the server; None in a black hole, which swallows what the client sends."""
        if self.wire.swallows:
            self.has_gaps = True
            while chunk := await self._client[0].read(CHUNK_BYTES):
                self._lost(chunk)
            return None
        try:
            reader, writer = await asyncio.open_connection(*self.wire.target)
        except OSError:
            self.wire.told["refused"] += 1
            self.reset()
            return None
        self._writers.append(writer)
        return None if self._client[1].is_closing() else (reader, writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Callable[[bytes], bool]) -> None:
        """One direction, to its end: bytes in order, each no earlier than its time."""
        way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_HELD_BACK)
        sending = asyncio.ensure_future(self._send(way, writer))
        try:
            while chunk := await reader.read(CHUNK_BYTES):
                if passes(chunk):
                    await way.put((self._now() + self.wire.delay(), chunk))
        finally:
            await way.put((self._now(), b""))
            await sending

    async def _send(self, way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        chunk = b"to begin with"
        while chunk:
            due, chunk = await way.get()
            if (early := due - self._now()) > 0:
                await asyncio.sleep(early)
            if self.wire.swallows:
                self._lost(chunk)
            elif not writer.is_closing():
                with suppress(OSError):
                    writer.write(chunk)
                    await writer.drain()
        if not self.wire.swallows and not writer.is_closing():
            with suppress(OSError):
                writer.write_eof()

    def _request(self, chunk: bytes) -> bool:
        if self.wire.swallows:
            self._lost(chunk)
            return False
        if self.wire.loses_reply_of(chunk):
            self._waits_for_lost_reply = True
        return True

    def _reply(self, chunk: bytes) -> bool:
        if self.wire.swallows:
            self._lost(chunk)
            return False
        if self._waits_for_lost_reply:
            self.wire.told["replies lost"] += 1
            self.reset()
            return False
        return True

    def _lost(self, chunk: bytes) -> None:
        self.has_gaps = True
        self.wire.told["bytes swallowed"] += len(chunk)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def reset(self) -> None:
        """End both sides at once, with a reset instead of a farewell."""
        for writer in self._writers:
            raw = writer.get_extra_info("socket")
            with suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
