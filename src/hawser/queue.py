"""The pull API: a queue that anybody may take from, one delivery at a time, with a visibility timeout.

`JobQueue` speaks the words of its field: a delivery is a claim, the visibility timeout is the lease, ack and nack are settles.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Self, TypeVar

import msgspec

from hawser.clock import MAX_DELAY, Clock
from hawser.config import Config
from hawser.connection import Connection
from hawser.errors import ConfigError, FieldError, InvalidJob
from hawser.ids import new_id
from hawser.job import MAX_ATTEMPTS, Claimed, NewJob, State, name_fault, text_fault
from hawser.outcome import Done, Failed, Failure, Outcome
from hawser.payload import MAX_PAYLOAD, to_json
from hawser.store import MAX_LEASE, LeaseRef, LeaseStatus, Settled, Settlement, Share
from hawser.stores import make_store

T = TypeVar("T")

TASK: Final = "job"
"""The task name that pulled jobs carry: no handler is registered for them."""

_RECLAIMED_AT_ONCE: Final = 100
"""Run-out deliveries that one dequeue takes back: more than one, so that they cannot pile up."""


class Delivery(msgspec.Struct, frozen=True):
    """A job in the hands of a consumer, until its visibility timeout."""

    job_id: str
    payload: Any
    delivery_count: int
    """How many times it was handed out, this time included."""
    lease: int
    """Fences `ack` and `nack`: those of an earlier delivery change nothing."""


class JobQueue:
    """A queue with at-least-once delivery. Safe to share between threads; with a store URL, between processes.

    A job that is not acked within its visibility timeout becomes visible again. After `max_deliveries` deliveries it is a
    dead letter instead. An idempotency key makes no second job for `idempotency_ttl` seconds after the first.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        queue: str = "default",
        default_visibility_timeout: float = 30.0,
        idempotency_ttl: float = 300.0,
        max_deliveries: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        if fault := name_fault(queue):
            raise ConfigError(f"queue: {fault}")
        if not 0 <= idempotency_ttl <= MAX_DELAY:
            raise ConfigError(f"idempotency_ttl: {idempotency_ttl!r} is not a time from 0 s to 10 years")
        if max_deliveries is not None and not 1 <= max_deliveries <= MAX_ATTEMPTS:
            raise ConfigError(f"max_deliveries: {max_deliveries!r} is not a whole number from 1, or None for no end")
        self._visible_after = _lease("default_visibility_timeout", default_visibility_timeout)
        self._ttl = idempotency_ttl
        self._max = max_deliveries or MAX_ATTEMPTS
        self._queue = queue
        self._shares = (Share(queue),)
        self._consumer = f"pull-{os.getpid()}"
        url = url or "memory://"
        self._connection = Connection(lambda: make_store(url, clock=clock), Config(store=url))
        self._call(self._connection.ready())

    def enqueue(self, payload: Any, idempotency_key: str | None = None) -> str:
        """Add a job, durably before it returns, and return its id; with a key that is held, the id of the job that holds it."""
        [id] = self.enqueue_many((payload,), idempotency_key=idempotency_key)
        return id

    def enqueue_many(self, payloads: Sequence[Any], *, idempotency_key: str | None = None) -> list[str]:
        """Add jobs, all or none."""
        if idempotency_key is not None:
            if fault := text_fault(idempotency_key, 512):
                raise InvalidJob(FieldError("idempotency_key", fault))
            if len(payloads) != 1:
                raise InvalidJob(FieldError("idempotency_key", f"one key for {len(payloads)} jobs; enqueue them one by one"))
        jobs = [
            NewJob(
                id=new_id(),
                task=TASK,
                body=to_json("payload", payload, MAX_PAYLOAD),
                queue=self._queue,
                max_attempts=self._max,
                timeout=MAX_LEASE,
                key=idempotency_key,
                key_ttl=self._ttl if idempotency_key is not None else 0.0,
            )
            for payload in payloads
        ]
        return [handle.id for handle in self._connection.put(jobs)]

    def dequeue(self, visibility_timeout: float | None = None) -> Delivery | None:
        """The next visible job, hidden from others for so many seconds; None when nothing is visible."""
        lease_for = self._visible_after if visibility_timeout is None else _lease("visibility_timeout", visibility_timeout)
        claimed = self._call(self._next(lease_for))
        if not claimed:
            return None
        [job] = claimed
        return Delivery(job.id, job.payload, job.attempt, job.lease)

    async def _next(self, lease_for: float) -> list[Claimed]:
        store = await self._connection.ready()
        await store.reclaim(_RECLAIMED_AT_ONCE)
        return await store.claim(self._shares, 1, self._consumer, lease_for)

    def ack(self, job: Delivery | str) -> bool:
        """The job is done and goes away. False, and nothing changes, when the delivery is over.

        Given an id, whatever delivery is current is acked; given the delivery itself, only that one.
        """
        return self._call(self._settle(job, Done()))

    def nack(self, job: Delivery | str, requeue_delay: float = 0) -> bool:
        """The job failed: visible again after so many seconds, or a dead letter after `max_deliveries`. False as for `ack`."""
        if not 0 <= requeue_delay <= MAX_DELAY:
            raise InvalidJob(FieldError("requeue_delay", f"{requeue_delay!r} is not a time from 0 s to 10 years"))
        return self._call(self._settle(job, Failed(Failure("the consumer gave it back"), requeue_delay)))

    def extend(self, job: Delivery, visibility_timeout: float | None = None) -> bool:
        """Hide the job for so many seconds from now on; False, and nothing changes, when the delivery is over."""
        lease_for = self._visible_after if visibility_timeout is None else _lease("visibility_timeout", visibility_timeout)
        return self._call(self._extend(job, lease_for))

    async def _extend(self, job: Delivery, lease_for: float) -> bool:
        store = await self._connection.ready()
        [said] = await store.extend(self._consumer, (LeaseRef(job.job_id, job.lease),), lease_for)
        return said is not LeaseStatus.LOST

    async def _settle(self, job: Delivery | str, outcome: Outcome) -> bool:
        store = await self._connection.ready()
        if isinstance(job, Delivery):
            id, lease = job.job_id, job.lease
        else:
            found = await store.get(job)
            if found is None or found.state is not State.RUNNING or found.queue != self._queue:
                return False
            id, lease = found.id, found.lease
        [said] = await store.settle((Settlement(id, lease, outcome, keep=False),))
        return said is Settled.SETTLED

    def stats(self) -> dict[str, int]:
        """How many jobs are visible and in flight, and how many idempotency keys are held."""
        return self._call(self._counted())

    async def _counted(self) -> dict[str, int]:
        store = await self._connection.ready()
        while len(await store.reclaim(_RECLAIMED_AT_ONCE)) == _RECLAIMED_AT_ONCE:
            pass
        stats = await store.stats(self._queue)
        return {"visible": stats.due, "in_flight": stats.running, "dedup_keys": stats.keys}

    def close(self) -> None:
        """Let go of the store."""
        self._connection.close()

    def _call(self, coro: Coroutine[Any, Any, T]) -> T:
        return self._connection.door.call(coro)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lease(name: str, seconds: float) -> float:
    if not 0 < seconds <= MAX_LEASE:
        raise InvalidJob(FieldError(name, f"{seconds!r} is not a time above 0 s and up to {MAX_LEASE:g} s"))
    return seconds
