"""The jobs of the memory store, and the worker's side: enqueue, claim, settle, extend, reclaim, beat, wait."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import Any

from hawser.clock import Clock, SystemClock, Watch, at, from_datetime, to_us
from hawser.job import Claimed, NewJob, State
from hawser.outcome import Step, abandoned, follow
from hawser.policy import QueuePolicy, attempts_of
from hawser.store import (
    NO_ROOM_SET,
    SETTLE_GRACE,
    AuditRecord,
    Beat,
    Enqueued,
    LeaseRef,
    LeaseStatus,
    Limits,
    Pause,
    Reclaimed,
    Settled,
    Settlement,
    Share,
    Signature,
    Target,
    WorkerSeen,
)
from hawser.stores.intake import check_depth, duplicates, sort_out
from hawser.stores.memory.depth import Depth
from hawser.stores.memory.keys import SWEEP, Keys
from hawser.stores.memory.leases import Leases
from hawser.stores.memory.ready import Heap, Ready
from hawser.stores.memory.row import Row
from hawser.stores.order import choose, lane_of
from hawser.stores.tally import events_of
from hawser.stores.wakeup import Wakeups

_GRACE = to_us(SETTLE_GRACE)
_AUDIT_KEPT = 10_000


class Jobs:
    """All jobs in dicts and heaps, under one lock."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = Watch(clock or SystemClock())
        self._lock = threading.RLock()
        self._rows: dict[str, Row] = {}
        self._seq = count()
        self._ready = Ready()
        self._leases = Leases()
        self._keys = Keys()
        self._ticks: set[tuple[str | None, datetime]] = set()
        """The ticks of schedules whose jobs are here."""
        self._depth = Depth()
        self._finished: dict[tuple[str, State], deque[tuple[int, Row]]] = {}
        self._pauses: dict[Target, Pause] = {}
        self._limits: dict[str, Limits] = {}
        self._policies: dict[str, QueuePolicy] = {}
        self._audit: deque[AuditRecord] = deque(maxlen=_AUDIT_KEPT)
        self._workers: dict[str, WorkerSeen] = {}
        self._claims = 0
        self._cut_after = 0
        self._asked: set[str] = set()
        self._bell = Wakeups()

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        with self._lock:
            now = self._clock.now()
            answers, added = self._sort_out(jobs, now)
            if self._limits:
                check_depth(added, self._max_depth, self._depth.waiting)
            for job in added:
                self._add(job, now, job.parent_id)
            if len(added) < len(jobs):
                self._tally_duplicates(jobs, answers, now)
        if added:
            self._bell.ring()
        return answers

    def _sort_out(self, jobs: Sequence[NewJob], now: int) -> tuple[list[Enqueued], list[NewJob]]:
        return sort_out(jobs, self._rows.__contains__, lambda queue, key: self._keys.holder(queue, key, now))

    def _tally_duplicates(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued], now: int) -> None:
        for job in duplicates(jobs, answers):
            self._depth.tally(now, job.queue, job.task, "deduplicated")

    def _max_depth(self, queue: str) -> int | None:
        limits = self._limits.get(queue)
        return limits.max_depth if limits else None

    def _add(self, job: NewJob, now: int, parent_id: str | None) -> None:
        policy = self._policies.get(job.queue)
        row = Row(job, next(self._seq), now, parent_id, attempts_of(job.max_attempts, policy.max_attempts if policy else None))
        self._rows[job.id] = row
        if job.tick is not None:
            self._ticks.add((job.schedule, job.tick))
        if job.key is not None:
            self._keys.sweep(now, SWEEP)
            self._keys.take(job, now)
        self._ready.add(row, now)
        self._depth.move(row, +1)
        self._depth.tally(now, job.queue, job.task, "enqueued")

    async def claim(
        self, queues: Sequence[Share], limit: int, worker: str, lease_for: float, room: Mapping[str, int] = NO_ROOM_SET
    ) -> list[Claimed]:
        with self._lock:
            now = self._clock.now()
            turn, self._claims = self._claims, self._claims + 1

            def levels(queue: str) -> list[list[Heap]]:
                if self._paused("queue", queue, now):
                    return []
                return self._ready.levels(queue, lambda task: not self._paused("task", task, now))

            chosen = choose(queues, limit, turn, now, levels, dict(room))
            return [self._start(entry[3], worker, now, lease_for) for entry in chosen]

    def _start(self, row: Row, worker: str, now: int, lease_for: float) -> Claimed:
        self._depth.move(row, -1)
        row.state = State.RUNNING
        row.attempt += 1
        row.lease += 1
        row.started_at = now
        row.worker = worker
        row.lease_until = now + min(to_us(lease_for), to_us(row.new.timeout) + _GRACE)
        row.leased_for = row.lease_until - now
        self._leases.add(row)
        self._depth.move(row, +1)
        self._depth.tally(now, row.queue, row.task, "claimed")
        return row.claimed()

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        with self._lock:
            now = self._clock.now()
            answers = [self._settle(settlement, now) for settlement in settlements]
        self._bell.ring()
        return answers

    def _settle(self, settlement: Settlement, now: int) -> Settled:
        row = self._rows.get(settlement.id)
        if row is None or not self._holds(row, settlement.lease, now):
            if row is not None and row.state is not State.RUNNING and settlement.lease == row.lease == row.settled:
                return Settled.REPEATED
            self._tally_stale(row, now)
            return Settled.LOST
        step = follow(settlement.outcome, attempt=row.attempt, max_attempts=row.max_attempts, cancel_asked=row.cancel_asked)
        row.settled = row.lease
        self._leave(row, step, now)
        if step.state is State.DONE and not settlement.keep:
            self._remove(row)
        answers, added = self._sort_out(settlement.then, now)
        for job in added:
            self._add(job, now, row.new.id)
        self._tally_duplicates(settlement.then, answers, now)
        return Settled.SETTLED

    def _tally_stale(self, row: Row | None, now: int) -> None:
        self._depth.tally(now, row.queue if row else "", row.task if row else "", "stale")

    def _holds(self, row: Row, lease: int, now: int) -> bool:
        """The fence: this run, and its time is not up."""
        return row.state is State.RUNNING and row.lease == lease and row.lease_until > now

    def _leave(self, row: Row, step: Step, now: int) -> None:
        """Take a row out of running, to where the step says."""
        if step.word not in ("snoozed", "released"):
            row.record(step.word, now, step.failure)
        for event in events_of(step, row.attempt):
            self._depth.tally(now, row.queue, row.task, event)
        self._depth.move(row, -1)
        row.state = step.state
        if step.state is not State.CANCELLED or step.reason is not None or not row.cancel_asked:
            row.reason = step.reason  # else it keeps why somebody asked for the end
        if row.cancel_asked:
            self._asked.discard(row.new.id)
        row.result = step.result
        row.crashes += step.word == "lost"
        row.worker = None
        row.lease_until = 0
        if not step.burns:
            row.attempt -= 1
            row.returned += 1
        self._leases.end()
        if step.state is State.READY:
            row.cancel_asked = False
            self._make_ready(row, now + to_us(step.after), now)
        else:
            self._finish(row, now)

    def _make_ready(self, row: Row, run_at: int, now: int) -> None:
        row.run_at = run_at
        row.finished_at = 0
        row.lane = lane_of(row.attempt, fresh=False)
        self._ready.add(row, now)
        self._depth.move(row, +1)

    def _finish(self, row: Row, now: int) -> None:
        row.finished_at = now
        self._depth.move(row, +1)
        self._finished.setdefault((row.task, row.state), deque()).append((now, row))
        if row.new.key is not None and not row.new.key_ttl:
            self._keys.free(row.new)

    def _remove(self, row: Row) -> None:
        """Forget a finished job; its entry in `_finished` is passed over when its time comes."""
        self._depth.move(row, -1)
        del self._rows[row.new.id]
        if row.new.tick is not None:
            self._ticks.discard((row.new.schedule, row.new.tick))
        if row.new.key is not None:
            self._keys.free(row.new)

    async def extend(self, worker: str, leases: Sequence[LeaseRef], lease_for: float) -> list[LeaseStatus]:  # noqa: ARG002
        with self._lock:
            now = self._clock.now()
            return [self._extend(ref, now, lease_for) for ref in leases]

    def _extend(self, ref: LeaseRef, now: int, lease_for: float) -> LeaseStatus:
        row = self._rows.get(ref.id)
        if row is None or not self._holds(row, ref.lease, now):
            self._tally_stale(row, now)
            return LeaseStatus.LOST
        until = min(now + to_us(lease_for), row.started_at + to_us(row.new.timeout) + _GRACE)
        if until > row.lease_until:
            row.lease_until = until
            row.leased_for = until - now
        if ref.progress is not None:
            row.progress = ref.progress
        return LeaseStatus.CANCEL_ASKED if row.cancel_asked else LeaseStatus.HELD

    async def asked_to_stop(self, workers: Sequence[str]) -> list[LeaseRef]:
        with self._lock:
            rows = (self._rows[id] for id in self._asked)
            return [LeaseRef(row.new.id, row.lease) for row in rows if row.worker in workers]

    async def reclaim(self, limit: int) -> list[Reclaimed]:
        with self._lock:
            now = self._clock.now()
            self._cut_leases(now)
            reclaimed: list[Reclaimed] = []
            while len(reclaimed) < limit and (row := self._leases.expired(now)) is not None:
                reclaimed.append(self._reclaim(row, now))
        if reclaimed:
            self._bell.ring()
        return reclaimed

    def _reclaim(self, row: Row, now: int) -> Reclaimed:
        worker, attempt = row.worker or "", row.attempt
        step = abandoned(worker, attempt=attempt, max_attempts=row.max_attempts, cancel_asked=row.cancel_asked)
        self._leave(row, step, now)
        row.lease += 1
        return Reclaimed(row.new.id, row.task, row.queue, worker, attempt, row.state)

    def _cut_leases(self, now: int) -> None:
        """After the clock was set back: no lease may have more time left than it was given."""
        if self._clock.set_back > self._cut_after:
            for row in self._leases.all():
                if row.lease_until - now > row.leased_for:
                    row.lease_until = now + row.leased_for
                    self._leases.shortened(row)
        self._cut_after = self._clock.set_back

    async def beat(self, beats: Sequence[Beat], gone: Sequence[str] = ()) -> None:
        with self._lock:
            now = at(self._clock.now())
            for beat in beats:
                known = self._workers.get(beat.worker)
                self._workers[beat.worker] = WorkerSeen(beat=beat, since=known.since if known else now, seen_at=now)
            for name in gone:
                self._workers.pop(name, None)

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        waiter = self._bell.join()
        try:
            with self._lock:
                due_in = self._due_in(queues)
            await asyncio.wait((waiter,), timeout=timeout if due_in is None else min(timeout, due_in))
        finally:
            self._bell.leave(waiter)

    def _due_in(self, queues: Sequence[str]) -> float | None:
        """Seconds until a job of these queues may be claimed, 0 if one may be now, None if there is none."""
        now = self._clock.now()
        heads = [
            heap.head[0]
            for queue in queues
            if not self._paused("queue", queue, now)
            for level in self._ready.levels(queue, lambda task: not self._paused("task", task, now))
            for heap in level
            if heap.head
        ]
        return max(0.0, (min(heads) - now) / 1_000_000) if heads else None

    def _paused(self, kind: Any, name: str, now: int) -> bool:
        return bool(self._pauses) and self._stands(Target(kind, name), now)

    def _stands(self, target: Target, now: int) -> bool:
        pause = self._pauses.get(target)
        return pause is not None and (pause.until is None or from_datetime(pause.until) > now)

    def _note(self, action: str, target: str, changed: int, sign: Signature, now: int) -> None:
        number = self._audit[-1].number + 1 if self._audit else 1
        self._audit.append(
            AuditRecord(number=number, at=at(now), by=sign.by, action=action, target=target, count=changed, reason=sign.reason)
        )
