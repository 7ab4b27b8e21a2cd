"""Enqueueing in a transaction of the caller's own: the job exists exactly if that transaction commits."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol, Unpack

from hawser.client.new_event import NewEvent, new_event
from hawser.client.portal import Portal
from hawser.handle import Handle
from hawser.job import NewJob
from hawser.store import EVENT_KEPT, Emitted, Enqueued
from hawser.task_options import JobOptions


class PreparedEnqueue(Protocol):
    """Jobs that a store has prepared to be written by the caller's connection."""

    def run(self, con: Any) -> list[Enqueued]: ...

    async def arun(self, con: Any) -> list[Enqueued]: ...


class PreparedEmit(Protocol):
    """An event that a store has prepared to be written by the caller's connection."""

    def run(self, con: Any) -> Emitted: ...

    async def arun(self, con: Any) -> Emitted: ...


class Inside:
    """Where jobs go that belong to the caller's transaction. The store prepares them, the caller's connection writes them."""

    def __init__(
        self,
        prepare: Callable[[Sequence[NewJob]], Coroutine[Any, Any, PreparedEnqueue]],
        portal: Portal,
        max_payload: int,
        transaction: object,
        handles: Callable[[Sequence[NewJob], Sequence[Enqueued]], list[Handle[Any]]],
    ) -> None:
        self.max_payload = max_payload
        self._prepare = prepare
        self._portal = portal
        self._transaction = transaction
        self._handles = handles

    def put(self, jobs: Sequence[NewJob]) -> list[Handle[Any]]:
        if not jobs:
            return []
        return self._handles(jobs, self._portal.call(self._prepare(jobs)).run(self._transaction))

    async def aput(self, jobs: Sequence[NewJob]) -> list[Handle[Any]]:
        if not jobs:
            return []
        return self._handles(jobs, await (await self._prepare(jobs)).arun(self._transaction))

    def inside(self, transaction: object) -> Inside:
        return Inside(self._prepare, self._portal, self.max_payload, transaction, self._handles)


class EventsInside:
    """Where events go that belong to the caller's transaction."""

    def __init__(
        self, prepare: Callable[[NewEvent], Coroutine[Any, Any, PreparedEmit]], portal: Portal, transaction: object
    ) -> None:
        self._prepare = prepare
        self._portal = portal
        self._transaction = transaction

    def emit(self, event: NewEvent) -> Emitted:
        return self._portal.call(self._prepare(event)).run(self._transaction)

    async def aemit(self, event: NewEvent) -> Emitted:
        return await (await self._prepare(event)).arun(self._transaction)


class Transaction:
    """An app's enqueues and events in one transaction of the caller's own."""

    def __init__(
        self,
        inside: Inside,
        events: EventsInside,
        make: Callable[[str, Mapping[str, Any] | None, JobOptions], NewJob],
        check: Callable[[Iterable[NewJob]], list[NewJob]],
    ) -> None:
        self._inside = inside
        self._events = events
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

    def emit(self, name: str, body: Any = None, *, keep: float | timedelta = EVENT_KEPT) -> Emitted:
        """As `app.emit`, on a synchronous connection: jobs hear of it exactly if the transaction commits."""
        return self._events.emit(new_event(name, body, keep))

    async def aemit(self, name: str, body: Any = None, *, keep: float | timedelta = EVENT_KEPT) -> Emitted:
        """As `app.aemit`, on an asynchronous connection: jobs hear of it exactly if the transaction commits."""
        return await self._events.aemit(new_event(name, body, keep))
