"""Enqueueing in a transaction of the caller's own: the job exists exactly if that transaction commits."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol, Unpack

from hawser.client.portal import Portal
from hawser.handle import Handle
from hawser.job import NewJob
from hawser.store import Enqueued
from hawser.task_options import JobOptions


class Visit(Protocol):
    """Jobs that a store has prepared to be written by the caller's connection."""

    def run(self, con: Any) -> list[Enqueued]: ...

    async def arun(self, con: Any) -> list[Enqueued]: ...


class Inside:
    """Where jobs go that belong to the caller's transaction. The store prepares them, the caller's connection writes them."""

    def __init__(
        self,
        visit: Callable[[Sequence[NewJob]], Coroutine[Any, Any, Visit]],
        portal: Portal,
        max_payload: int,
        transaction: object,
        handles: Callable[[Sequence[NewJob], Sequence[Enqueued]], list[Handle[Any]]],
    ) -> None:
        self.max_payload = max_payload
        self._visit = visit
        self._portal = portal
        self._transaction = transaction
        self._handles = handles

    def put(self, jobs: Sequence[NewJob]) -> list[Handle[Any]]:
        if not jobs:
            return []
        return self._handles(jobs, self._portal.call(self._visit(jobs)).run(self._transaction))

    async def aput(self, jobs: Sequence[NewJob]) -> list[Handle[Any]]:
        if not jobs:
            return []
        return self._handles(jobs, await (await self._visit(jobs)).arun(self._transaction))

    def inside(self, transaction: object) -> Inside:
        return Inside(self._visit, self._portal, self.max_payload, transaction, self._handles)


class Transaction:
    """An app's enqueues in one transaction of the caller's own."""

    def __init__(
        self,
        inside: Inside,
        make: Callable[[str, Mapping[str, Any] | None, JobOptions], NewJob],
        check: Callable[[Iterable[NewJob]], list[NewJob]],
    ) -> None:
        self._inside = inside
        self._make = make
        self._check = check

    def enqueue(self, task: str, payload: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]) -> Handle[Any]:
        """As `app.enqueue`, on a synchronous connection."""
        return self._inside.put((self._make(task, payload, options),))[0]

    async def aenqueue(self, task: str, payload: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]) -> Handle[Any]:
        """As `app.aenqueue`, on an asynchronous connection."""
        return (await self._inside.aput((self._make(task, payload, options),)))[0]

    def enqueue_many(self, jobs: Iterable[NewJob]) -> list[Handle[Any]]:
        """As `app.enqueue_many`, on a synchronous connection."""
        return self._inside.put(self._check(jobs))

    async def aenqueue_many(self, jobs: Iterable[NewJob]) -> list[Handle[Any]]:
        """As `app.aenqueue_many`, on an asynchronous connection."""
        return await self._inside.aput(self._check(jobs))
