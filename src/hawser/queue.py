"""The pull API: a queue that any consumer may take from, one delivery at a time, with a visibility timeout.

`JobQueue` speaks the words of its field: a delivery is a claim, the visibility timeout is the lease, ack and nack are settles.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Final, Self, TypeVar

import msgspec

from hawser.client.connection import Connection
from hawser.clock import MAX_DELAY, Clock, at, from_datetime
from hawser.config import Config
from hawser.errors import ConfigError, FieldError, InvalidJob, QueueClosed
from hawser.job import FREE_TASK, MAX_ATTEMPTS, Claimed, Job, NewJob, State
from hawser.outcome import Done, Failed, Failure, Outcome, Released
from hawser.store import (
    MAX_LEASE,
    MAX_PAGE,
    Acted,
    Actor,
    Filter,
    LeaseRef,
    LeaseStatus,
    Reclaimed,
    SettleAnswer,
    Settled,
    Settlement,
    Share,
    Store,
)
from hawser.stores import make_store
from hawser.value.ids import new_id
from hawser.value.job_time import is_number
from hawser.value.json_value import unchanged_json
from hawser.value.name import name_fault, text_fault
from hawser.value.payload import MAX_PAYLOAD

T = TypeVar("T")

_logger = logging.getLogger("hawser.queue")

_RECLAIMED_AT_ONCE: Final = 100
"""Run-out deliveries that one dequeue takes back: more than one, so that they cannot pile up."""

_AHEAD: Final = 0.01
"""Seconds by which a returned delivery is put before its old place: more than the time between two calls to the store."""


class Delivery(msgspec.Struct, frozen=True):
    """A job in the hands of a consumer, until its visibility timeout."""

    job_id: str
    payload: Any
    delivery_count: int
    """How many times it was handed out, this time included."""
    lease: int
    """Fences `ack` and `nack`: those of an earlier delivery change nothing."""
    enqueued_at: datetime


class JobQueue:
    """A queue with at-least-once delivery. Safe to share between threads; with a store URL, between processes.

    A job that is not acked within its visibility timeout becomes visible again. After `max_deliveries` deliveries it is a dead
    letter instead: see `dead`. An idempotency key makes no second job while the first is live, and for `idempotency_ttl`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        queue: str = "default",
        default_visibility_timeout: float = 30.0,
        idempotency_ttl: float = 300.0,
        max_deliveries: int | None = None,
        on_dead: Callable[[Delivery], object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`on_dead` is called with a delivery that was the last of its job, in the thread whose call found out: a nack, or the
        dequeue or stats after its visibility timeout."""
        if fault := name_fault(queue):
            raise ConfigError(f"queue: {fault}")
        if not (is_number(idempotency_ttl) and 0 <= idempotency_ttl <= MAX_DELAY):
            raise ConfigError(f"idempotency_ttl: {idempotency_ttl!r} is not a time from 0 s to 10 years")
        if max_deliveries is not None and not (type(max_deliveries) is int and 1 <= max_deliveries <= MAX_ATTEMPTS):
            raise ConfigError(f"max_deliveries: {max_deliveries!r} is not a whole number from 1, or None for no end")
        self._visible_after = _lease("default_visibility_timeout", default_visibility_timeout)
        self._ttl = idempotency_ttl
        self._max = max_deliveries or MAX_ATTEMPTS
        if on_dead is not None and not callable(on_dead):
            raise ConfigError(f"on_dead: {on_dead!r} is not a function that takes a delivery")
        self._on_dead = on_dead
        self._out: dict[str, Delivery] = {}
        """Deliveries that this object has handed out and that are not over, as far as it knows."""
        self._closed = False
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
        self._check_open()
        if idempotency_key is not None:
            if fault := text_fault(idempotency_key, 512):
                raise InvalidJob(FieldError("idempotency_key", fault))
            if len(payloads) != 1:
                raise InvalidJob(FieldError("idempotency_key", f"one key for {len(payloads)} jobs; enqueue them one by one"))
        jobs = [
            NewJob(
                id=new_id(),
                task=FREE_TASK,
                body=unchanged_json("payload", payload, MAX_PAYLOAD),
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
        self._check_open()
        claimed, died = self._call(self._next(lease_for))
        self._tell(died)
        if not claimed:
            return None
        [job] = claimed
        delivery = self._out[job.id] = Delivery(job.id, job.payload, job.attempt, job.lease, at(job.enqueued_at_us))
        return delivery

    async def _next(self, lease_for: float) -> tuple[list[Claimed], list[str]]:
        store = await self._connection.ready()
        died = self._died(await store.reclaim(_RECLAIMED_AT_ONCE))
        return await store.claim(self._shares, 1, self._consumer, lease_for), died

    def _died(self, runs: Sequence[Reclaimed]) -> list[str]:
        """The jobs of this queue whose last delivery ran out."""
        for run in runs:
            self._out.pop(run.id, None)
        return [run.id for run in runs if run.queue == self._queue and run.state is State.DEAD]

    def _tell(self, ids: Sequence[str]) -> None:
        for id in ids:
            self._out.pop(id, None)
            if self._on_dead is None or (job := self._call(self._get(id))) is None:
                continue
            try:
                self._on_dead(_delivery(job))
            except Exception:
                _logger.exception("on_dead failed for job %s", id)

    async def _get(self, id: str) -> Job | None:
        return await (await self._connection.ready()).get(id)

    def ack(self, job: Delivery | str) -> bool:
        """The job is done and goes away. False, and nothing changes, when the delivery is over: the job was acked or nacked, or
        its visibility timeout ended and it was delivered again, or is dead. A job that became visible again and was not
        delivered yet is done.

        Given an id, the current delivery is acked; given the delivery itself, only that one.
        """
        return self._settled(job, None) or (not self._closed and self._call(self._end_returned(job)))

    async def _end_returned(self, job: Delivery | str) -> bool:
        """End a job that became visible again and was not delivered since."""
        store = await self._connection.ready()
        if isinstance(job, Delivery):
            return await store.end_returned(LeaseRef(job.job_id, job.lease))
        found = await store.get(job)
        if found is None or found.state is not State.READY or found.queue != self._queue:
            return False
        return await store.end_returned(LeaseRef(found.id, found.lease - 1))

    def nack(self, job: Delivery | str, requeue_delay: float = 0) -> bool:
        """The job failed: visible again after so many seconds, or a dead letter after `max_deliveries`. False, and nothing
        changes, when the delivery is over, also when its visibility timeout ended and the job is visible again already.

        Without a delay it is the next to be delivered, before jobs that were enqueued later.
        """
        if not (is_number(requeue_delay) and 0 <= requeue_delay <= MAX_DELAY):
            raise InvalidJob(FieldError("requeue_delay", f"{requeue_delay!r} is not a time from 0 s to 10 years"))
        return self._settled(job, requeue_delay)

    def _settled(self, job: Delivery | str, again_after: float | None) -> bool:
        if self._closed:
            return False
        id = job.job_id if isinstance(job, Delivery) else job
        answer = self._call(self._settle(job, again_after))
        if answer is None or answer.said is not Settled.SETTLED:
            return False
        self._out.pop(id, None)
        if answer.state is State.DEAD:
            self._tell([id])
        return True

    def extend(self, job: Delivery, visibility_timeout: float | None = None) -> bool:
        """Hide the job for so many seconds from now on; False, and nothing changes, when the delivery is over."""
        lease_for = self._visible_after if visibility_timeout is None else _lease("visibility_timeout", visibility_timeout)
        if self._closed:
            return False
        return self._call(self._extend(job, lease_for))

    async def _extend(self, job: Delivery, lease_for: float) -> bool:
        store = await self._connection.ready()
        [said] = await store.extend(self._consumer, (LeaseRef(job.job_id, job.lease),), lease_for)
        return said is not LeaseStatus.LOST

    async def _settle(self, job: Delivery | str, again_after: float | None) -> SettleAnswer | None:
        store = await self._connection.ready()
        lease = job.lease if isinstance(job, Delivery) else 0
        found = None
        if again_after == 0 or not isinstance(job, Delivery):
            found = await store.get(job.job_id if isinstance(job, Delivery) else job)
            if found is None or found.state is not State.RUNNING or found.queue != self._queue:
                return None
            lease = lease or found.lease
        id = job.job_id if isinstance(job, Delivery) else job
        outcome: Outcome = Done()
        if again_after is not None:
            outcome = Failed(_GIVEN_BACK, again_after or await self._back(store, found))
        [answer] = await store.settle((Settlement(id, lease, outcome, keep=False),))
        return answer

    async def _back(self, store: Store, job: Job | None) -> float:
        """Seconds from now to a little before the time at which the job was due: its place in the queue."""
        assert job is not None
        now = (await store.due_schedules(0)).now
        return min(0.0, (from_datetime(job.run_at) - now) / 1_000_000 - _AHEAD)

    # Dead letters.

    def dead(self) -> list[Delivery]:
        """The jobs that used up their deliveries, the latest first; `delivery_count` says how many."""
        self._check_open()
        return self._call(self._dead())

    async def _dead(self) -> list[Delivery]:
        store = await self._connection.ready()
        found: list[Job] = []
        after = None
        while True:
            page = await store.find(Filter(state=State.DEAD, queue=self._queue, task=FREE_TASK), after, MAX_PAGE)
            found += page.jobs
            after = page.next
            if after is None:
                return [_delivery(job) for job in found]

    def replay(self, job: Delivery | str) -> bool:
        """Make a dead letter visible again, with deliveries counted from zero. False, and nothing changes, when the job is not
        dead."""
        self._check_open()
        return self._call(self._replay(job.job_id if isinstance(job, Delivery) else job))

    async def _replay(self, id: str) -> bool:
        store = await self._connection.ready()
        found = await store.get(id)
        if found is None or found.queue != self._queue or found.task != FREE_TASK or found.state is not State.DEAD:
            return False
        [acted] = await store.requeue([id], Actor(self._consumer))
        return acted is Acted.DONE

    def stats(self) -> dict[str, int]:
        """How many jobs are visible, delayed, in flight and dead, and how many idempotency keys are held."""
        self._check_open()
        counted, died = self._call(self._counted())
        self._tell(died)
        return counted

    async def _counted(self) -> tuple[dict[str, int], list[str]]:
        store = await self._connection.ready()
        died: list[str] = []
        while True:
            runs = await store.reclaim(_RECLAIMED_AT_ONCE)
            died += self._died(runs)
            if len(runs) < _RECLAIMED_AT_ONCE:
                break
        stats = await store.stats(self._queue)
        delayed = stats.ready + stats.scheduled + stats.retrying - stats.due
        return {
            "visible": stats.due,
            "delayed": delayed,
            "in_flight": stats.running,
            "dead": stats.dead,
            "dedup_keys": stats.keys,
        }, died

    def close(self) -> list[Delivery]:
        """Refuse new work, hand back what is in flight here, and let go of the store. What was handed back is returned.

        It is visible to others at once, and the delivery does not count. From now on `enqueue` and `dequeue` raise `QueueClosed`,
        and `ack` and `nack` say False. Closing a closed queue does nothing.
        """
        if self._closed:
            return []
        self._closed = True
        out = list(self._out.values())
        self._out.clear()
        try:
            return self._call(self._hand_back(out)) if out else []
        finally:
            self._connection.close()

    async def _hand_back(self, out: Sequence[Delivery]) -> list[Delivery]:
        store = await self._connection.ready()
        answers = await store.settle([Settlement(each.job_id, each.lease, Released()) for each in out])
        return [each for each, answer in zip(out, answers, strict=True) if answer.said is Settled.SETTLED]

    def _check_open(self) -> None:
        if self._closed:
            raise QueueClosed("the queue is closed; make another JobQueue")

    def _call(self, coro: Coroutine[Any, Any, T]) -> T:
        return self._connection.portal.call(coro)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_GIVEN_BACK: Final = Failure("the consumer gave it back")


def _delivery(job: Job) -> Delivery:
    return Delivery(job.id, job.payload, job.attempt, job.lease, job.enqueued_at)


def _lease(name: str, seconds: float) -> float:
    if not (is_number(seconds) and 0 < seconds <= MAX_LEASE):
        raise InvalidJob(FieldError(name, f"{seconds!r} is not a time above 0 s and up to {MAX_LEASE:g} s"))
    return seconds
