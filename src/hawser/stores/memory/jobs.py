"""The jobs of the memory store: what is kept of them, enqueue, and the moves that every other side makes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import count
from types import MappingProxyType
from typing import Any

from hawser.clock import Clock, SystemClock, Watch, at, from_datetime
from hawser.job import FOREVER, UNTIL_START, KeyScope, NewJob, State
from hawser.policy import QueuePolicy, attempts_of
from hawser.store import (
    Actor,
    AuditRecord,
    Enqueued,
    Pause,
    RequestKey,
    Target,
    WorkerSeen,
)
from hawser.stores.breakers import KeptBreaker
from hawser.stores.dedup import Stands, check_depth, duplicates, sort_out
from hawser.stores.dependencies import (
    FAR,
    REMOVED,
    UNKNOWN,
    any_waits,
    check_order,
    due_when_released,
    hold_of,
    is_over,
    reason_of,
    standing_for,
    unknown,
    upstream_of,
)
from hawser.stores.memory.dependencies import Dependencies
from hawser.stores.memory.depth import Depth
from hawser.stores.memory.keys import SWEEP, Keys
from hawser.stores.memory.leases import Leases
from hawser.stores.memory.limits import Limits
from hawser.stores.memory.ready import ReadyJobs
from hawser.stores.memory.requests import Requests
from hawser.stores.memory.row import Row
from hawser.stores.order import Lane, lane_of
from hawser.stores.wakeup import Wakeups

_AUDIT_KEPT = 10_000


class Jobs:
    """All jobs in dicts and heaps, under one lock."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = Watch(clock or SystemClock(), self._set_back)
        self._lock = threading.RLock()
        self._rows: dict[str, Row] = {}
        self._seq = count()
        self._ready = ReadyJobs()
        self._leases = Leases()
        self._keys = Keys(self._is_live, self._has_let_go)
        self._requests = Requests(self._rows.__contains__)
        self._ticks: set[tuple[str | None, datetime]] = set()
        """The ticks of schedules whose jobs are here."""
        self._made_steps: dict[str, dict[str, tuple[Any, ...]]] = {}
        """What runs have achieved, by job and name; only of jobs that have steps."""
        self._depth = Depth()
        self._finished: dict[tuple[str, State], deque[tuple[int, Row]]] = {}
        self._pauses: dict[Target, Pause] = {}
        self._limits = Limits()
        self._breakers: dict[str, KeptBreaker] = {}
        self._policies: dict[str, QueuePolicy] = {}
        self._weights: dict[tuple[str, str], int] = {}
        """By queue and group; those that are not 1."""
        self._audit: deque[AuditRecord] = deque(maxlen=_AUDIT_KEPT)
        self._workers: dict[str, WorkerSeen] = {}
        self._claims = 0
        self._cut_after = 0
        self._asked: set[str] = set()
        self._bell = Wakeups()
        self._dependencies = Dependencies()
        self._over: deque[tuple[str, State, str]] = deque()
        """Jobs that came to their end and that others wait for."""

    def _set_back(self, now: int, before: int) -> None:
        with self._lock:
            self._ready.set_back(now, before)

    @property
    def watch(self) -> Watch:
        """Its clock, and what it knows of it."""
        return self._clock

    async def enqueue(self, jobs: Sequence[NewJob], request: RequestKey | None = None) -> list[Enqueued]:
        with self._lock:
            now = self._clock.now()
            if request is not None and (made := self._requests.recall(request, now)) is not None:
                return made
            answers, added = self._sort_out(jobs, now, strict=True)
            self._check_upstream(jobs, added, answers)
            check_depth(added, self._limits.max_depth, self._depth.waiting)
            stands_for = standing_for(jobs, answers) if any_waits(added) else {}
            for job in added:
                self._add(job, now, job.parent_id, stands_for)
            if len(added) < len(jobs):
                self._tally_duplicates(jobs, answers, now)
            if request is not None:
                self._requests.remember(request, answers, now)
        if added:
            self._bell.ring()
        return answers

    def _has_let_go(self, id: str) -> bool:
        """Whether a job held its key until its start, and has started."""
        row = self._rows.get(id)
        return row is not None and row.new.key_ttl == UNTIL_START and row.attempt > 0

    def _is_live(self, id: str, scope: KeyScope) -> bool:
        """Whether the job is live and has this key."""
        row = self._rows.get(id)
        return row is not None and not row.state.finished and (row.queue, row.task, row.new.key) == scope

    def _sort_out(self, jobs: Sequence[NewJob], now: int, *, strict: bool = False) -> tuple[list[Enqueued], list[NewJob]]:
        return sort_out(jobs, self._known, lambda scope: self._keys.holder(scope, now), strict=strict)

    def _known(self, id: str) -> Stands | None:
        row = self._rows.get(id)
        return None if row is None else Stands(row.task, row.queue, row.new.body)

    def _tally_duplicates(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued], now: int) -> None:
        for job in duplicates(jobs, answers):
            self._depth.tally(now, job.queue, job.task, "deduplicated")

    def _check_upstream(self, jobs: Sequence[NewJob], added: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        if any_waits(added):
            check_order(jobs)
            stands_for, coming = standing_for(jobs, answers), {job.id for job in added}
            ids = dict.fromkeys(id for job in added for id in upstream_of(job, stands_for))
            if missing := [id for id in ids if id not in self._rows and id not in coming]:
                raise unknown(missing)

    def _add(self, job: NewJob, now: int, parent_id: str | None, stands_for: Mapping[str, str] = MappingProxyType({})) -> None:
        policy = self._policies.get(job.queue)
        row = Row(job, next(self._seq), now, parent_id, attempts_of(job.max_attempts, policy.max_attempts if policy else None))
        self._rows[job.id] = row
        if job.tick is not None:
            self._ticks.add((job.schedule, job.tick))
        if job.key is not None:
            self._keys.sweep(now, SWEEP)
            self._keys.take(job, now)
        doomed = self._hold(row, upstream_of(job, stands_for)) if job.waits_for else None
        self._ready.add(row, now)
        self._depth.move(row, +1)
        self._depth.tally(now, job.queue, job.task, "enqueued")
        if doomed is not None:
            self._cancel_waiting(row, doomed, now)

    def _hold(self, row: Row, upstream: Sequence[str]) -> str | None:
        """Hold a new job back as long as it waits for others; the reason to cancel it, if one of them is cancelled."""
        any_end, over = row.new.waits_for_end, {}
        for id in upstream:
            other = self._rows.get(id)
            if other is None:
                return reason_of(id, UNKNOWN)
            over[id] = is_over(other.state, any_end=any_end)
            if other.state is State.CANCELLED and not any_end:
                return reason_of(id, "is cancelled")
        if not all(over.values()):
            self._dependencies.add(row.new.id, over.items())
            row.held, row.run_at, row.lane = hold_of(row.new), FAR, Lane.TIMED
        return None

    def _cancel_waiting(self, row: Row, reason: str, now: int) -> None:
        """Cancel a job that waits, because of the job that it waited for."""
        self._ready.remove(row)
        self._depth.move(row, -1)
        row.state, row.reason, row.held = State.CANCELLED, reason, None
        self._depth.tally(now, row.queue, row.task, State.CANCELLED)
        self._finish(row, now)

    def _release(self, row: Row, now: int) -> None:
        """A held job waits for no other any longer: it is due when its own time has passed."""
        assert row.held is not None
        self._ready.remove(row)
        self._depth.move(row, -1)
        run_at, row.held = due_when_released(row.held, now), None
        self._dependencies.drop(row.new.id)
        self._make_ready(row, run_at, now)

    def _tell_waiters(self, id: str, state: State, end: str, now: int) -> None:
        """The job has come to its end: go on with those that wait for it. A long chain of cancelled jobs is no deep recursion."""
        self._over.append((id, state, end))
        if len(self._over) > 1:
            return
        while self._over:
            id, state, end = self._over[0]
            for row in [self._rows[waiter] for waiter in self._dependencies.waiters(id)]:
                any_end = row.new.waits_for_end
                if is_over(state, any_end=any_end):
                    if self._dependencies.end(row.new.id, id):
                        self._release(row, now)
                elif state is State.CANCELLED:
                    self._cancel_waiting(row, reason_of(id, end), now)
            if state is not State.DEAD:
                self._dependencies.forget(id)
            self._over.popleft()

    async def made(self, jobs: Sequence[NewJob], request: RequestKey | None = None) -> bool:
        with self._lock:
            known = request is not None and self._requests.knows(request, self._clock.now())
            return known or all(job.id in self._rows for job in jobs)

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
        if row.new.key is not None and row.new.key_ttl != FOREVER:
            self._keys.end(row.new, now)
        row.held = None
        self._dependencies.drop(row.new.id)
        if row.new.id in self._dependencies:
            self._tell_waiters(row.new.id, row.state, "is cancelled", now)

    def _remove(self, row: Row, now: int) -> None:
        """Forget a finished job; its entry in `_finished` is passed over when its time comes."""
        self._depth.move(row, -1)
        del self._rows[row.new.id]
        if self._made_steps:
            self._made_steps.pop(row.new.id, None)
        if row.new.id in self._dependencies:
            self._tell_waiters(row.new.id, State.CANCELLED, REMOVED, now)
        if row.new.tick is not None:
            self._ticks.discard((row.new.schedule, row.new.tick))
        if row.new.key is not None:
            self._keys.end(row.new, now)

    def _paused(self, kind: Any, name: str, now: int) -> bool:
        return bool(self._pauses) and self._stands(Target(kind, name), now)

    def _running(self, target: Target) -> int:
        """Jobs of a queue or task that run."""
        return self._depth.running(target.name) if target.kind == "task" else self._depth.of(target.name, State.RUNNING)

    def _stands(self, target: Target, now: int) -> bool:
        pause = self._pauses.get(target)
        return pause is not None and (pause.until is None or from_datetime(pause.until) > now)

    def _note(self, action: str, target: str, changed: int, actor: Actor, now: int, ids: tuple[str, ...] = ()) -> None:
        number = self._audit[-1].number + 1 if self._audit else 1
        self._audit.append(
            AuditRecord(
                number=number,
                at=at(now),
                by=actor.by,
                action=action,
                target=target,
                count=changed,
                reason=actor.reason,
                filter=actor.filter,
                operation=actor.operation,
                ids=ids,
            )
        )
