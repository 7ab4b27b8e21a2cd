"""Enqueue: calls that come while one is under way go together in the next, each all or none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from hawser.batcher import Batcher
from hawser.errors import HawserError, IdConflict, QueueFull, RequestConflict, StoreUnavailable
from hawser.job import NewJob
from hawser.store import Enqueued, RequestKey
from hawser.stores.circles import CIRCLE, CROWDED, CircleFound
from hawser.stores.debounce import Debouncing, any_debounced
from hawser.stores.dedup import Stands, is_same
from hawser.stores.dependencies import any_waits, check_order, unknown
from hawser.stores.redis.batches import no_batch
from hawser.stores.redis.codec import packed_job, raw, text
from hawser.stores.redis.server import Server
from hawser.stores.redis.server_connection import Argument

JOBS_PER_SCRIPT: Final = 1_000
"""Jobs of several calls that go in one script: about 10 ms of the server."""

_REFUSALS: Final = (b"full", b"conflict", b"differs", b"reused", b"unknown", b"batch", b"circle", b"crowd")

_CREATED: Final = [b"created"]


class _EnqueueCall(NamedTuple):
    """One call that waits for its answer."""

    jobs: Sequence[NewJob]
    request: RequestKey | None
    packed: list[bytes]
    same: bytes
    """Ids whose payload was found to be equal, although it is written differently."""
    answer: asyncio.Future[list[Enqueued]]


class Enqueuer:
    """The enqueues of one process on one event loop."""

    def __init__(self, server: Server, ring: Callable[[], None]) -> None:
        self._server = server
        self._ring = ring
        self._waiting: Batcher[_EnqueueCall] = Batcher(JOBS_PER_SCRIPT, size=lambda call: len(call.jobs))
        self._writing: asyncio.Task[None] | None = None

    async def put(self, jobs: Sequence[NewJob], request: RequestKey | None) -> list[Enqueued]:
        if not jobs and request is None:
            return []
        if any_waits(jobs):
            check_order(jobs)
        if any_debounced(jobs):
            debouncing = Debouncing(jobs, lambda _: None, 0)
            return debouncing.answers(await self._put(debouncing.jobs, request))
        return await self._put(jobs, request)

    async def _put(self, jobs: Sequence[NewJob], request: RequestKey | None) -> list[Enqueued]:
        packed = [packed_job(job) for job in jobs]
        same = b""
        while True:
            answer: asyncio.Future[list[Enqueued]] = asyncio.get_running_loop().create_future()
            self._waiting.add(_EnqueueCall(jobs, request, packed, same, answer))
            if self._writing is None or self._writing.done():
                self._writing = asyncio.ensure_future(self._write())
            try:
                return await answer
            except _Differs as found:
                same += b"".join(raw(id) for id in found.check(jobs))

    async def made(self, jobs: Sequence[NewJob], request: RequestKey | None) -> bool:
        name = b"" if request is None else _name(request)
        return bool(await self._server.look("made", name, *(raw(job.id) for job in jobs)))

    async def _write(self) -> None:
        while self._waiting:
            await self._send(self._waiting.take())

    async def _send(self, calls: list[_EnqueueCall]) -> None:
        try:
            said = await self._server.run("enqueue", *_arguments(calls), connection="enqueue")
        except HawserError as error:
            for call in calls:
                _refuse(call.answer, error)
            return
        except BaseException as error:
            for call in calls:
                _refuse(call.answer, StoreUnavailable("the store was closed; nothing was written"))
            if not isinstance(error, asyncio.CancelledError):
                raise
            return
        for call, words in zip(calls, said, strict=True):
            if words and words[0] in _REFUSALS:
                _refuse(call.answer, _refusal(call, words))
            elif not call.answer.done():
                created = words == _CREATED
                call.answer.set_result(_all_created(call.jobs) if created else [_enqueued(word) for word in words])
        self._ring()

    async def close(self) -> None:
        """Let what was begun end."""
        if self._writing is not None:
            await asyncio.wait((self._writing,))


def _all_created(jobs: Sequence[NewJob]) -> list[Enqueued]:
    return [Enqueued(text(raw(job.id)), created=True, replaced=False) for job in jobs]


def _enqueued(word: bytes) -> Enqueued:
    return Enqueued(text(word[1:]), created=word[:1] == b"1", replaced=word[:1] == b"2")


class _Differs(HawserError):
    """The store has an id with a payload that is written differently; nothing was written."""

    def __init__(self, found: dict[str, bytes]) -> None:
        self.found = found

    def check(self, jobs: Sequence[NewJob]) -> list[str]:
        """The ids whose payloads are equal; `IdConflict` when one is not."""
        for job in jobs:
            body = self.found.get(job.id)
            if body is not None and not is_same(job, Stands(job.task, job.queue, body)):
                raise IdConflict(job.id)
        return list(self.found)


def _arguments(calls: Sequence[_EnqueueCall]) -> list[Argument]:
    arguments: list[Argument] = []
    for call in calls:
        request = call.request
        name = b"" if request is None else request.digest.ljust(32, b"\0")[:32] + _name(request)
        arguments += [len(call.jobs), name, call.same, *call.packed]
    return arguments


def _name(request: RequestKey) -> bytes:
    return f"{request.caller}\0{request.key}".encode()


def _refusal(call: _EnqueueCall, words: Sequence[Any]) -> HawserError:
    match words[0]:
        case b"full":
            return QueueFull(words[1].decode(), int(words[2]), int(words[3]))
        case b"unknown":
            return unknown([text(id) for id in words[1:]])
        case b"batch":
            return no_batch(words)
        case b"circle":
            return CircleFound(text(words[1]), CIRCLE, text(words[2])).refusal()
        case b"crowd":
            return CircleFound(text(words[1]), CROWDED).refusal()
        case b"conflict":
            return IdConflict(text(words[1]))
        case b"differs":
            return _Differs({text(id): body for id, body in zip(words[1::2], words[2::2], strict=True)})
        case _:
            assert call.request is not None
            return RequestConflict(call.request.key)


def _refuse(answer: asyncio.Future[Any], error: HawserError) -> None:
    if not answer.done():
        answer.set_exception(error)
