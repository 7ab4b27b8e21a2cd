"""The jobs of the memory store: what is kept of them, enqueue, and the moves that every other side makes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import count
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from hawser.clock import Clock, SystemClock, Watch, at, from_datetime, to_us
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
from hawser.stores.batches import any_batch, reason_against, refusal
from hawser.stores.breakers import KeptBreaker
from hawser.stores.circles import MemberWait, check_circles, in_circles, member_waits
from hawser.stores.debounce import DebouncedHolder, Debouncing, Replacement, any_debounced
from hawser.stores.dedup import Stands, check_depth, duplicates, sort_out
from hawser.stores.dependencies import (
    REMOVED,
    UpstreamStanding,
    any_waits,
    check_order,
    hold_of,
    standing_for,
    unknown,
    upstream_of,
)
from hawser.stores.memory.depth import Depth
from hawser.stores.memory.events import KeptEvents
from hawser.stores.memory.expiry import Expiries
from hawser.stores.memory.keys import SWEEP, Keys
from hawser.stores.memory.leases import Leases
from hawser.stores.memory.limits import Limits
from hawser.stores.memory.ready import ReadyJobs
from hawser.stores.memory.requests import Requests
from hawser.stores.memory.row import Row
from hawser.stores.memory.upstream import UpstreamJobs, counted_state
from hawser.stores.order import changed_place, lane_of
from hawser.stores.wakeup import Wakeups

_AUDIT_KEPT = 10_000


class Jobs(UpstreamJobs):
    """All jobs in dicts and heaps, under one lock."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__()
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
        self._outputs: dict[str, list[tuple[Any, ...]]] = {}
        """What runs have written, by job: for each chunk `LastChunk`, body, time and attempt; only of jobs that have output."""
        self._events = KeptEvents()
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
        self._expiries = Expiries()

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
            debouncing = Debouncing(jobs, self._debounced, now) if any_debounced(jobs) else None
            answers = self._accept(jobs if debouncing is None else debouncing.jobs, now, debouncing)
            if debouncing is not None:
                answers = debouncing.answers(answers)
            self._tally_duplicates(jobs, answers, now)
            if request is not None:
                self._requests.remember(request, answers, now)
        if any(answer.created or answer.replaced for answer in answers):
            self._bell.ring()
        return answers

    def _accept(self, jobs: Sequence[NewJob], now: int, debouncing: Debouncing | None) -> list[Enqueued]:
        """Add what is to be added; all is judged before anything is written."""
        answers, added = self._sort_out(jobs, now, strict=True, debouncing=debouncing)
        self._check_upstream(jobs, added, answers)
        self._check_batches(jobs, answers)
        check_depth(added, self._limits.max_depth, self._depth.waiting)
        stands_for = standing_for(jobs, answers) if any_waits(added) else {}
        for job in added:
            self._add(job, now, job.parent_id, stands_for)
        self._join_holders(jobs, answers, now)
        for each in debouncing.replacements if debouncing is not None else ():
            self._replace_payload(each, now)
        return answers

    def _debounced(self, scope: KeyScope) -> DebouncedHolder | None:
        put_off = self._keys.debounced(scope)
        return None if put_off is None else DebouncedHolder(*put_off, started=self._rows[put_off.id].lease > 0)

    def _replace_payload(self, replacement: Replacement, now: int) -> None:
        """A debounced job that waits gets the payload of another call, and is put off."""
        row, job = self._rows[replacement.holder], replacement.job
        self._ready.remove(row)
        self._depth.move(row, -1)
        row.new = replace(row.new, body=job.body, index=job.index, expires=job.expires)
        row.run_at, row.lane = changed_place(row.attempt, replacement.run_at, now)
        self._expiries.drop(row.new.id)
        row.expires_at = None if job.expires is None else now + to_us(job.expires)
        if row.expires_at is not None:
            self._expiries.add(row.new.id, row.expires_at)
        self._ready.add(row, now)
        self._depth.move(row, +1)
        self._reopen_group(row)
        self._keys.replaced(row.new.key_scope, job.id)

    def _has_let_go(self, id: str) -> bool:
        """Whether a job held its key until its start, and has started."""
        row = self._rows.get(id)
        return row is not None and row.new.key_ttl == UNTIL_START and row.attempt > 0

    def _is_live(self, id: str, scope: KeyScope) -> bool:
        """Whether the job is live and has this key."""
        row = self._rows.get(id)
        return row is not None and not row.state.finished and (row.queue, row.task, row.new.key) == scope

    def _sort_out(
        self, jobs: Sequence[NewJob], now: int, *, strict: bool = False, debouncing: Debouncing | None = None
    ) -> tuple[list[Enqueued], list[NewJob]]:
        return sort_out(jobs, self._known, lambda scope: self._keys.holder(scope, now), strict=strict, debouncing=debouncing)

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
            if missing := [id for id in ids if id not in self._rows and id not in coming and id not in self._batches.all]:
                raise unknown(missing)

    def _check_batches(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        """Refuse jobs of batches that take no more. Those that are here already change nothing."""
        if any_batch(jobs):
            for job, answer in zip(jobs, answers, strict=True):
                if job.batch is None or (answer.id == job.id and not answer.created):
                    continue
                kept = self._batches.all.get(job.batch)
                if (kept is None or answer.id not in kept.members) and (why := self._batches.against(job.batch)) is not None:
                    raise refusal(job.batch, why)
            check_circles(member_waits(jobs, answers), self._behind, self._may_wait)

    def _join_holders(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued], now: int) -> None:
        """Where the key of a job of a batch is held, the holder counts, unless it waits for that batch. One that is not kept was
        done."""
        for job, answer in zip(jobs, answers, strict=True) if any_batch(jobs) else ():
            kept = None if answer.id == job.id or job.batch is None else self._batches.all.get(job.batch)
            if kept is not None and self._circle(MemberWait(job.id, kept.id, (answer.id,))) is None:
                row = self._rows.get(answer.id)
                self._batches.join(kept, answer.id, counted_state(row.state) if row else State.DONE)
                self._judge(kept, now)

    def _add(
        self,
        job: NewJob,
        now: int,
        parent_id: str | None,
        stands_for: Mapping[str, str] = MappingProxyType({}),
        own_batch: str | None = None,
    ) -> None:
        """`own_batch` is that of the job that it follows from."""
        policy = self._policies.get(job.queue)
        doomed = None
        if job.batch is not None and (why := self._against(job, job.batch, own_batch, stands_for)) is not None:
            doomed, job = reason_against(job.batch, why), replace(job, batch=None)
        row = Row(job, next(self._seq), now, parent_id, attempts_of(job.max_attempts, policy.max_attempts if policy else None))
        self._rows[job.id] = row
        if job.tick is not None:
            self._ticks.add((job.schedule, job.tick))
        if job.key is not None:
            self._keys.sweep(now, SWEEP)
            self._keys.take(job, now)
        if row.expires_at is not None:
            self._expiries.add(job.id, row.expires_at)
        if job.batch is not None:
            self._batches.all[job.batch].add(job.id)
            self._judge(self._batches.all[job.batch], now)
        if job.waits_for and doomed is None:
            doomed = self._hold(row, upstream_of(job, stands_for), hold_of(job), job.waits_on)
        self._ready.add(row, now)
        self._depth.move(row, +1)
        self._depth.tally(now, job.queue, job.task, "enqueued")
        if doomed is not None:
            self._cancel_waiting(row, doomed, now)

    def _against(self, job: NewJob, batch: str, own: str | None, stands_for: Mapping[str, str]) -> str | None:
        """Why a job that comes with the end of another cannot be added to its batch."""
        if (why := self._batches.against(batch, own)) is not None:
            return why
        return self._circle(MemberWait(job.id, batch, upstream_of(job, stands_for))) if job.waits_for else None

    def _circle(self, member: MemberWait) -> str | None:
        """Why a member that comes with the end of another job cannot be added."""
        found = in_circles([member], self._behind, self._may_wait)
        return found[member.id].why if found else None

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
        if row.expires_at is not None:
            self._expiries.add(row.new.id, row.expires_at)
        self._reopen_group(row)

    def _reopen_group(self, row: Row) -> None:
        """A job of a group has left its place: a limit, or the order of the group, may let the next one go."""
        if row.group is not None and row.task in self._limits.per_group:
            self._ready.reopen(row.task, row.group)

    def _finish(self, row: Row, now: int) -> None:
        row.finished_at = now
        if row.expires_at is not None:
            self._expiries.drop(row.new.id)
        self._depth.move(row, +1)
        self._finished.setdefault((row.task, row.state), deque()).append((now, row))
        if row.new.key is not None and row.new.key_ttl != FOREVER:
            self._keys.end(row.new, now)
        row.held = None
        self._reopen_group(row)
        self._dependencies.drop(row.new.id)
        self._count(row, now)

    def _remove(self, row: Row, now: int) -> None:
        """Forget a finished job; its entry in `_finished` is passed over when its time comes."""
        self._depth.move(row, -1)
        del self._rows[row.new.id]
        if row.state is not State.DONE and (breaker := self._breakers.get(row.task)) and breaker.probe_id == row.new.id:
            self._breakers[row.task] = breaker.without_probe()
        if self._made_steps:
            for step in self._made_steps.pop(row.new.id, {}).values():
                self._events.waits_no_more(row.new.id, step)
        if self._outputs:
            self._outputs.pop(row.new.id, None)
        if row.new.id in self._dependencies:
            self._tell(row.new.id, UpstreamStanding(State.CANCELLED), now, REMOVED)
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
