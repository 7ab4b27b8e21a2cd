"""The store of an app under test: memory, with enqueues inside a transaction, and enqueues that run their jobs at once."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from hawser.client.portal import Portal
from hawser.clock import Clock
from hawser.job import NewJob
from hawser.store import Acted, Actor, Emitted, Enqueued, RequestKey
from hawser.stores.memory import MemoryStore
from hawser.testing.runner import Caller, TaskRunner

T = TypeVar("T")


class StoreUnderTest(MemoryStore):
    """Jobs that a transaction would write are there at once, whether or not it commits."""

    def __init__(self, *, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.portal = MarkedPortal(self)
        self.at_once: tuple[TaskRunner, Caller] | None = None
        """Who runs each job as soon as it is enqueued, if that is wanted."""

    async def enqueue(self, jobs: Sequence[NewJob], request: RequestKey | None = None) -> list[Enqueued]:
        if self.at_once is None:
            return await super().enqueue(jobs, request)
        jobs = [msgspec.structs.replace(job, delay=0.0, run_at=None) for job in jobs]
        return await self._with_what_follows(
            super().enqueue(jobs, request), lambda answers: [answer.id for answer in answers if answer.created]
        )

    async def close_batch(self, id: str, actor: Actor | None = None) -> Acted:
        return await self._with_what_follows(super().close_batch(id, actor))

    async def cancel_batch(self, id: str, actor: Actor) -> Acted:
        return await self._with_what_follows(super().cancel_batch(id, actor))

    async def cancel(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return await self._with_what_follows(super().cancel(ids, actor))

    async def emit(self, name: str, body: bytes, keep: float) -> Emitted:
        return await self._with_what_follows(super().emit(name, body, keep))

    async def _with_what_follows(self, write: Awaitable[T], first: Callable[[T], list[str]] = lambda _: []) -> T:
        """Write, and if jobs run at once, run those that the answer names, and all that became ready by it."""
        if self.at_once is None:
            return await write
        runner, caller = self.at_once
        before = runner.ready()
        answer = await write
        turn = runner.at_once(first(answer), before)
        await caller.adrive(turn) if not self.portal.marked else caller.drive(turn)
        return answer

    async def prepare_enqueue(self, jobs: Sequence[NewJob]) -> Prepared[list[Enqueued]]:
        """Enqueueing inside a transaction: the caller's connection is not used."""
        return Prepared(self.portal, lambda: self.enqueue(jobs))

    async def prepare_emit(self, name: str, body: bytes, keep: float) -> Prepared[Emitted]:
        """An event inside a transaction: the caller's connection is not used."""
        return Prepared(self.portal, lambda: self.emit(name, body, keep))


class Prepared(Generic[T]):
    """What a caller's connection would write; here the store does, when it is told to."""

    def __init__(self, portal: Portal, write: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._portal = portal
        self._write = write

    def run(self, con: Any) -> T:  # noqa: ARG002  # any connection will do
        return self._portal.call(self._write())

    async def arun(self, con: Any) -> T:  # noqa: ARG002  # as above
        return await self._write()


class MarkedPortal(Portal):
    """Marks the thread while it drives a coroutine for a sync caller: that coroutine must not suspend."""

    def __init__(self, store: object) -> None:
        super().__init__(store)
        self._local = threading.local()

    @property
    def marked(self) -> bool:
        return getattr(self._local, "depth", 0) > 0

    def call(self, coro: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        depth = getattr(self._local, "depth", 0)
        self._local.depth = depth + 1
        try:
            return super().call(coro, timeout)
        finally:
            self._local.depth = depth
