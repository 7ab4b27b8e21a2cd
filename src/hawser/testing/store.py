"""The store of an app under test: memory, with enqueues inside a transaction, and enqueues that run their jobs at once."""

from __future__ import annotations

import threading
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from hawser.client.portal import Portal
from hawser.clock import Clock
from hawser.job import NewJob
from hawser.store import Enqueued, RequestKey
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
        runner, caller = self.at_once
        answers = await super().enqueue([msgspec.structs.replace(job, delay=0.0, run_at=None) for job in jobs], request)
        for answer in answers:
            if answer.created:
                turn = runner.this(answer.id)
                await caller.adrive(turn) if not self.portal.marked else caller.drive(turn)
        return answers

    async def visit(self, jobs: Sequence[NewJob]) -> Prepared:
        """Enqueueing inside a transaction: the caller's connection is not used."""
        return Prepared(self, jobs)


class Prepared:
    """Jobs that a caller's connection would write; here the store does, when it is told to."""

    def __init__(self, store: StoreUnderTest, jobs: Sequence[NewJob]) -> None:
        self._store = store
        self._jobs = jobs

    def run(self, con: Any) -> list[Enqueued]:  # noqa: ARG002  # any connection will do
        return self._store.portal.call(self._store.enqueue(self._jobs))

    async def arun(self, con: Any) -> list[Enqueued]:  # noqa: ARG002  # as above
        return await self._store.enqueue(self._jobs)


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
