"""uvicorn's faster protocol for HTTP, with what a server of ours knows of each connection, and with limits."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hawser.api.coalescing_transport import Joined
from hawser.api.connections import Connections
from hawser.api.keyless import CONNECTION
from hawser.api.problem import PROBLEM_MEDIA_TYPE, Problem


class HttpConnection:
    """What is found out once for all requests of a connection."""

    __slots__ = ("own",)

    def __init__(self) -> None:
        self.own: bool | None = None
        """Whether a process of our own user is the other end; None until it was asked for."""


class Protocol(HttpToolsProtocol):
    """Answers in one write. Cuts off who sends too large a head, or takes too long over it.

    The parser keeps a head, and the trailers of a body, until they are complete, and copies all of it for each piece that comes.
    So bytes that complete nothing are counted. A request that comes in one piece starts no timer.
    """

    def __init__(self, connections: Connections, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connection = HttpConnection()
        self._connections = connections
        self._limits = connections.limits
        self._asked = False
        """A head was complete."""
        self._between = True
        """No request is under way: the next that comes is a head."""
        self._moved = False
        """This piece completed a head, some of a body, or a request."""
        self._piece = 0
        self._pending = 0
        """Bytes since something was completed."""
        self._timer: asyncio.TimerHandle | None = None
        self._problem: Problem | None = None
        """Why this connection is refused."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(Joined(transport, self.loop))  # type: ignore[arg-type]  # all that is needed of one
        refusal = self._connections.enter(self)
        if refusal is None:
            self._start_timer()
        else:
            self._refuse(refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.leave(self)
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._problem is not None:
            return
        self._unset_keepalive_if_required()
        self._moved, self._piece = False, len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._unsupported_upgrade_warning()
        except httptools.HttpParserError:
            if self._problem is None:
                self._connections.tell("bad", self, "sent what is not HTTP/1.1, and was cut off")
            self._refuse(self._problem or Problem(400, "this is not HTTP/1.1; the connection is closed"))
            return
        self._pending = 0 if self._moved else self._pending + len(data)
        if self._pending > self._limits.head:
            self._refuse(self._too_large(f"more than {self._limits.head:,} bytes"))
        elif self._between:
            if not self._moved:
                self._start_timer()
            elif self.cycle is not None and self.cycle.response_complete:
                self._await_the_next()
        elif self.cycle.response_complete:
            # The body goes on although its request has been answered.
            self._start_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[CONNECTION] = self._connection  # type: ignore[typeddict-unknown-key]  # ours

    def on_headers_complete(self) -> None:
        self._moved = True
        if self._timer is not None:
            self._stop_timer()
        if not self._asked:
            self._asked = True
            self._connections.asks(self)
        if len(self.headers) > self._limits.headers:
            raise self._too_large(f"more than {self._limits.headers} headers")
        if self._pending + self._piece > self._limits.head and self._size() > self._limits.head:
            raise self._too_large(f"more than {self._limits.head:,} bytes")
        self._between = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._moved = self._between = True
        if self._timer is not None:
            self._stop_timer()
        super().on_message_complete()

    def _await_the_next(self) -> None:
        """The request ended after its answer, which began the time for another one: what came since has stopped that."""
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def give_way(self) -> None:
        self.transport.abort()

    def _size(self) -> int:
        """Of a head; more than that may have come with it."""
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _too_large(self, what: str) -> Problem:
        """Noted, because the parser says of an error in its callbacks only that there was one."""
        self._connections.tell("large", self, f"sent a head of {what}, and was cut off")
        self._problem = Problem(431, f"the head of the request has {what}; send less, or send it in the body")
        return self._problem

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self._limits.within, self._too_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        self._connections.tell("slow", self, f"did not finish its request within {self._limits.within:g} s, and was cut off")
        self._refuse(Problem(408, f"the head of the request did not come within {self._limits.within:g} s"))

    def _refuse(self, problem: Problem) -> None:
        """Answer, if that is still to be done, and close."""
        self._problem = problem
        self._stop_timer()
        if self.transport.is_closing():
            return
        # Of one that said nothing at all, as of a browser that connects ahead, nothing was asked.
        silent = problem.status == HTTPStatus.REQUEST_TIMEOUT and not self._pending
        if not silent and self._may_answer():
            self.transport.write(_written(problem))
        self.transport.close()

    def _may_answer(self) -> bool:
        """No answer to an earlier request is under way, and none to this one has begun."""
        if self.cycle is None:
            return True
        return self.cycle.response_complete if self._between else not self.cycle.response_started


def _written(problem: Problem) -> bytes:
    body = msgspec.json.encode(problem.document())
    head = {"content-type": PROBLEM_MEDIA_TYPE, "content-length": f"{len(body)}", **problem.headers, "connection": "close"}
    lines = [
        f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}",
        *(f"{name}: {value}" for name, value in head.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body
