"""`/jobs/{id}/events`: the progress of one job and its end, for a page that shows a bar."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hawser.api.call import Call, NoBody, NoQuery, Stream
from hawser.api.events import ALIVE_EVERY_S, HINTS_EVERY_S, STREAM_LASTS_S, StreamListener
from hawser.api.jobs import seen
from hawser.api.problem import Problem
from hawser.errors import StoreError
from hawser.job import Job

if TYPE_CHECKING:
    from hawser.store import Store

_FRESH: Final = 0.8
"""Of the time between two looks: a read that is no older serves another stream of the same job."""


async def job_events(call: Call[NoBody, NoQuery]) -> Stream:
    """A stream of one job's state and progress, which ends with the job."""
    await seen(call)
    listener = call.api.pulse.enter(call.identity)
    return Stream(_chunks(call, listener), lambda: call.api.pulse.leave(listener))


class JobReads:
    """Jobs as they were read a moment ago, so that many streams of one job cost one read."""

    def __init__(self, every: float = HINTS_EVERY_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.every = every
        self._clock = clock
        self._reads: dict[str, tuple[float, asyncio.Future[Job | None]]] = {}

    async def get(self, store: Store, id: str) -> Job | None:
        """The job as it was less than a look ago."""
        now = self._clock()
        for old in [old for old, (at, _) in self._reads.items() if at <= now - self.every]:
            del self._reads[old]
        if id not in self._reads or self._reads[id][0] <= now - _FRESH * self.every:
            self._reads[id] = now, asyncio.ensure_future(store.get(id))
        return await asyncio.shield(self._reads[id][1])


async def _chunks(call: Call[NoBody, NoQuery], listener: StreamListener) -> AsyncGenerator[bytes]:
    api, id = call.api, call.path["id"]
    end, told, said_at = time.monotonic() + STREAM_LASTS_S, None, time.monotonic()
    try:
        yield b"retry: 3000\n\n"
        while time.monotonic() < end and not api.stopping.is_set():
            try:
                await api.gate.admit_again(call.identity, call.store)
                job = await api.job_reads.get(call.store, id)
            except Problem:
                return  # its key is no longer good
            except StoreError:
                job = told  # there is nothing to tell before the store is back
            if job is None:
                yield _event("end", {"state": None})
                return
            if told is None or _progress(job) != _progress(told):
                yield _event("progress", _progress(job))
                said_at = time.monotonic()
            if job.state.finished:
                yield _event("end", _ended(job))
                return
            told = job
            if time.monotonic() - said_at >= ALIVE_EVERY_S:
                said_at = time.monotonic()
                yield b": alive\n\n"
            with suppress(TimeoutError):
                async with asyncio.timeout(api.job_reads.every):
                    await api.stopping.wait()
    finally:
        api.pulse.leave(listener)


def _event(name: str, data: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))


def _raw(body: bytes | None) -> msgspec.Raw | None:
    return None if body is None else msgspec.Raw(body)


def _progress(job: Job) -> dict[str, Any]:
    return {"state": job.state, "attempt": job.attempt, "progress": _raw(job.progress_body)}


def _ended(job: Job) -> dict[str, Any]:
    error = job.errors[-1].error if job.errors and job.state == "dead" else job.reason
    return {"state": job.state, "result": _raw(job.result_body), "error": error}
