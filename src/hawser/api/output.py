"""`/jobs/{id}/output` and `/jobs/{id}/stream`: what the runs of a job write."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta, Raw

from hawser.api.bodies import In, Out
from hawser.api.call import Answer, Call, NoBody, Stream
from hawser.api.events import ALIVE_EVERY_S, HINTS_EVERY_S, STREAM_LASTS_S, StreamListener
from hawser.api.jobs import seen
from hawser.api.problem import Problem
from hawser.errors import StoreError
from hawser.job import Job
from hawser.store import MAX_CHUNKS, OUTPUT_READ, Chunk

if TYPE_CHECKING:
    from hawser.store import Store

_FRESH: Final = 0.8
"""Of the time between two looks: a read that is no older serves the other streams of a job, too."""

Number = Annotated[int, Meta(ge=0, le=MAX_CHUNKS)]


class ChunkView(Out):
    """A chunk of a job's output. Another lease than that of the chunk before: another run went on."""

    number: int
    value: Raw
    at: datetime
    lease: int
    attempt: int


class OutputOut(Out):
    """The output of a job, from the chunk that was asked for on. Go on with `after` set to the last number, until none come."""

    chunks: list[ChunkView]


class OutputQuery(In):
    """Behind which chunk."""

    after: Number = 0


StreamQuery: Final = msgspec.defstruct("StreamQuery", [("from", Number, 1)], bases=(In,), kw_only=True, module=__name__)
"""From which chunk on. A class cannot write a field of that name."""
StreamQuery.__doc__ = "From which chunk on. A reader that comes again says it with the header Last-Event-ID."


class OutputRead(NamedTuple):
    """What a stream is told next."""

    job: Job | None
    chunks: list[Chunk]


class OutputReads:
    """Outputs as they were read a moment ago, so that many streams of one job cost one read."""

    def __init__(self, every: float = HINTS_EVERY_S) -> None:
        self.every = every
        self._reads: dict[tuple[str, int], asyncio.Future[OutputRead]] = {}

    async def get(self, store: Store, id: str, behind: int) -> OutputRead:
        """The job, and its chunks behind that number, as they were less than a look ago."""
        key = id, behind
        if key not in self._reads:
            self._reads[key] = asyncio.ensure_future(_read(store, id, behind))
            asyncio.get_running_loop().call_later(_FRESH * self.every, self._reads.pop, key, None)
        return await asyncio.shield(self._reads[key])


async def _read(store: Store, id: str, behind: int) -> OutputRead:
    # The job first: what is read afterwards is all that a job which has ended will ever have.
    job = await store.get(id)
    return OutputRead(job, await store.output(id, behind))


async def show(call: Call[NoBody, OutputQuery]) -> Answer:
    """What the runs of a job have written, in order."""
    job = await seen(call)
    return Answer(OutputOut([_view(chunk) for chunk in await call.store.output(job.id, call.query.after)]))


async def stream(call: Call[NoBody, Any]) -> Stream:
    """A stream of what the runs of a job write, which ends with the job. The id of each event is the number of its chunk."""
    await seen(call)
    listener = call.api.pulse.enter(call.identity)
    return Stream(_events(call, listener), lambda: call.api.pulse.leave(listener))


def _behind(call: Call[NoBody, Any]) -> int:
    told = call.headers.get(b"last-event-id", b"").decode("latin-1")
    if re.fullmatch(r"[0-9]{1,9}", told):
        return int(told)
    return max(0, int(getattr(call.query, "from")) - 1)


async def _events(call: Call[NoBody, Any], listener: StreamListener) -> AsyncGenerator[bytes]:
    api, id, behind = call.api, call.path["id"], _behind(call)
    end, said_at = time.monotonic() + STREAM_LASTS_S, time.monotonic()
    try:
        yield b"retry: 3000\n\n"
        while time.monotonic() < end and not api.stopping.is_set():
            chunks: list[Chunk] = []
            end_of: list[Any] = []
            try:
                await api.gate.admit_again(call.identity, call.store)
                job, chunks = await api.output_reads.get(call.store, id, behind)
                end_of = [] if job is not None and not job.state.finished else [None if job is None else job.state]
            except Problem:
                return  # its key is no longer good
            except StoreError:
                pass  # there is nothing to tell before the store is back
            for chunk in chunks:
                behind = chunk.number
                yield b"id: %d\nevent: chunk\ndata: %s\n\n" % (behind, msgspec.json.encode(_view(chunk)))
            if chunks:
                said_at = time.monotonic()
            if len(chunks) == OUTPUT_READ:
                continue
            if end_of:
                yield b"event: end\ndata: %s\n\n" % msgspec.json.encode({"state": end_of[0]})
                return
            if time.monotonic() - said_at >= ALIVE_EVERY_S:
                said_at = time.monotonic()
                yield b": alive\n\n"
            with suppress(TimeoutError):
                async with asyncio.timeout(api.output_reads.every):
                    await api.stopping.wait()
    finally:
        api.pulse.leave(listener)


def _view(chunk: Chunk) -> ChunkView:
    return ChunkView(chunk.number, Raw(chunk.body), chunk.at, chunk.lease, chunk.attempt)
