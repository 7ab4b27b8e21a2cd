"""What a worker and its isolated child processes say to each other: length-prefixed msgpack over a socket pair."""

from __future__ import annotations

import struct
from typing import Any, Final, Protocol

import msgspec

from hawser.job import Claimed, NewJob
from hawser.outcome import Outcome
from hawser.policy import QueuePolicy

_LENGTH: Final = struct.Struct("!I")


class Order(msgspec.Struct, frozen=True, tag=True):
    """Run this job."""

    job: Claimed
    memory_limit: int | None = None
    policy: QueuePolicy | None = None
    """What the job's queue says; the child has its own task, which goes before it."""


class CancelOrder(msgspec.Struct, frozen=True, tag=True):
    """Ask the handler to stop."""


class DrainOrder(msgspec.Struct, frozen=True, tag=True):
    """The worker is to end: a handler with steps hands its job back before the next one."""


class Progress(msgspec.Struct, frozen=True, tag=True):
    """The progress that the handler reported."""

    body: bytes


class Written(msgspec.Struct, frozen=True, tag=True):
    """A chunk of the handler's output."""

    body: bytes


class Extend(msgspec.Struct, frozen=True, tag=True):
    """The handler wants a longer lease."""

    seconds: float | None


class IsolateReady(msgspec.Struct, frozen=True, tag=True):
    """The child has the app and waits for orders."""


class Broken(msgspec.Struct, frozen=True, tag=True):
    """The child could not load the app."""

    error: str


class Over(msgspec.Struct, frozen=True, tag=True):
    """The handler ended."""

    outcome: Outcome
    then: tuple[NewJob, ...] = ()
    misfit: str | None = None
    """Why the payload does not fit: nothing of the handler was run."""
    stepped: bool = False
    """Whether the run has recorded a step."""
    doubtful: bool = False
    """Whether it may have settled the job in a transaction of its own, whose end is not known."""


Message = Order | CancelOrder | DrainOrder | Progress | Written | Extend | IsolateReady | Broken | Over

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


class Readable(Protocol):
    async def readexactly(self, n: int, /) -> bytes: ...


def packed(message: Message) -> bytes:
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


async def received(stream: Readable) -> Message:
    """The next message; `IncompleteReadError` when the other side is gone."""
    [length] = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
    message: Message = _decode(await stream.readexactly(length))
    return message


def read(sock: Any) -> Message | None:
    """The next message, waited for; None when the other side is gone."""
    head = _exactly(sock, _LENGTH.size)
    body = _exactly(sock, _LENGTH.unpack(head)[0]) if head else None
    return _decode(body) if body else None


def _exactly(sock: Any, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        part = sock.recv(count - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)
