"""The memory store. Every method is one step under one lock and never suspends, so a plain caller may drive it inline."""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import Any

from hawser.clock import Clock, SystemClock, Watch, at, from_datetime, to_us
from hawser.declaration import Declaration
from hawser.job import Claimed, Job, NewJob, State
from hawser.outcome import Step, abandoned, follow
from hawser.schedule import Advance, Schedule
from hawser.store import (
    NO_ROOM_SET,
    PAGE,
    SETTLE_GRACE,
    WORKER_KEPT,
    Acted,
    Advanced,
    AuditRecord,
    Beat,
    DueSchedules,
    Durability,
    Enqueued,
    Filter,
    LeaseRef,
    LeaseStatus,
    Limits,
    Page,
    Pause,
    QueueStats,
    Reclaimed,
    Retention,
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
from hawser.stores.memory.schedules import Schedules
from hawser.stores.order import Lane, choose, lane_of
from hawser.stores.tally import attempts_p99, events_of, rates
from hawser.stores.wakeup import Wakeups

_GRACE = to_us(SETTLE_GRACE)
_AUDIT_KEPT = 10_000


class MemoryStore:
    """All jobs in dicts and heaps."""

    durability: Durability = "relaxed"
    inline = True
    """Its coroutines never suspend (`wait` apart): a sync caller may run them without an event loop."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = Watch(clock or SystemClock())
        self._lock = threading.RLock()
        self._rows: dict[str, Row] = {}
        self._seq = count()
        self._ready = Ready()
        self._leases = Leases()
        self._keys = Keys()
        self._schedules = Schedules()
        self._ticks: set[tuple[str | None, datetime]] = set()
        self._depth = Depth()
        self._finished: dict[tuple[str, State], deque[tuple[int, Row]]] = {}
        self._pauses: dict[Target, Pause] = {}
        self._limits: dict[str, Limits] = {}
        self._audit: deque[AuditRecord] = deque(maxlen=_AUDIT_KEPT)
        self._workers: dict[str, WorkerSeen] = {}
        self._claims = 0
        self._cut_after = 0
        self._bell = Wakeups()

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    # The worker's side.

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
        row = Row(job, next(self._seq), now, parent_id)
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
        step = follow(settlement.outcome, attempt=row.attempt, max_attempts=row.new.max_attempts, cancel_asked=row.cancel_asked)
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
        step = abandoned(worker, attempt=attempt, max_attempts=row.new.max_attempts, cancel_asked=row.cancel_asked)
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

    async def workers(self) -> list[WorkerSeen]:
        with self._lock:
            oldest = at(self._clock.now() - to_us(WORKER_KEPT))
            self._workers = {name: seen for name, seen in self._workers.items() if seen.seen_at > oldest}
            return sorted(self._workers.values(), key=lambda seen: (seen.since, seen.beat.worker))

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

    # The scheduler's side.

    async def schedules(self, names: Sequence[str] | None = None) -> list[Schedule]:
        with self._lock:
            return self._schedules.named(names)

    async def due_schedules(self, limit: int) -> DueSchedules:
        with self._lock:
            return self._schedules.due(limit, self._clock.now())

    async def fire(self, advances: Sequence[Advance]) -> list[Advanced]:
        with self._lock:
            now = self._clock.now()
            answers = [self._advance(advance, now) for advance in advances]
        if any(advance.jobs for advance in advances):
            self._bell.ring()
        return answers

    def _advance(self, advance: Advance, now: int) -> Advanced:
        standing = self._schedules.get(advance.schedule.name)
        revision = standing.revision if standing else None
        if revision == advance.schedule.revision:
            return Advanced.REPEATED
        if revision != advance.expect:
            return Advanced.STALE
        last = self._rows.get(advance.unless_live) if advance.unless_live else None
        if advance.otherwise is not None and last is not None and not last.state.finished:
            self._schedules.put(advance.otherwise)
            return Advanced.SKIPPED
        self._schedules.put(advance.schedule)
        new = [job for job in advance.jobs if job.tick is None or (job.schedule, job.tick) not in self._ticks]
        for job in self._sort_out(new, now)[1]:
            self._add(job, now, job.parent_id)
        return Advanced.DONE

    async def put_schedule(self, advance: Advance, action: str, sign: Signature) -> Advanced:
        with self._lock:
            [answer] = await self.fire((advance,))
            if answer in (Advanced.DONE, Advanced.SKIPPED):
                made = len(advance.jobs) if answer is Advanced.DONE else 0
                self._note(action, f"schedule:{advance.schedule.name}", made, sign, self._clock.now())
            return answer

    async def delete_schedule(self, name: str, sign: Signature) -> bool:
        with self._lock:
            gone = self._schedules.remove(name)
            if gone:
                self._note("delete_schedule", f"schedule:{name}", 0, sign, self._clock.now())
            return gone

    async def declare(self, declaration: Declaration) -> list[Declaration]:
        with self._lock:
            return self._schedules.declare(declaration, self._clock.now())

    # The operator's side.

    async def get(self, id: str) -> Job | None:
        with self._lock:
            row = self._rows.get(id)
            return row.view() if row else None

    async def find(self, filter: Filter, after: str | None = None, limit: int = PAGE) -> Page:
        with self._lock:
            ids = (id for id, row in self._rows.items() if (after is None or id < after) and _matches(row, filter))
            newest = heapq.nlargest(limit + 1, ids)
            jobs = [self._rows[id].view() for id in newest[:limit]]
        return Page(jobs, jobs[-1].id if len(newest) > limit else None)

    async def stats(self, queue: str | None = None) -> QueueStats:
        with self._lock:
            if queue is not None:
                return self._stats((queue,))
            return self._stats(self._depth.queues())

    async def queues(self) -> dict[str, QueueStats]:
        with self._lock:
            now = self._clock.now()
            paused = {target.name for target in self._pauses if target.kind == "queue" and self._stands(target, now)}
            return {queue: self._stats((queue,)) for queue in sorted({*self._depth.queues(), *self._limits, *paused})}

    def _stats(self, queues: Sequence[str]) -> QueueStats:
        now = self._clock.now()
        self._keys.sweep(now, -1)
        depth = {place: sum(self._depth.of(queue, place) for queue in queues) for place in (*Lane, *State)}
        due = {
            lane: sum(heap.due(now) for queue in queues for heap in self._ready.heaps(queue, lane))
            for lane in (Lane.TIMED, Lane.RETRYING)
        }
        heads = [heap.head[0] for queue in queues for heap in self._ready.heaps(queue, *Lane) if heap.head]
        tallied = [entry for queue in queues for entry in self._depth.tallied(queue)]
        return QueueStats(
            ready=depth[Lane.FRESH] + due[Lane.TIMED],
            scheduled=depth[Lane.TIMED] - due[Lane.TIMED],
            retrying=depth[Lane.RETRYING],
            due=depth[Lane.FRESH] + due[Lane.TIMED] + due[Lane.RETRYING],
            running=depth[State.RUNNING],
            done=depth[State.DONE],
            dead=depth[State.DEAD],
            cancelled=depth[State.CANCELLED],
            keys=sum(self._keys.count(queue) for queue in queues),
            oldest_age_s=max(0.0, (now - min(heads)) / 1_000_000) if heads else 0.0,
            attempts_p99=attempts_p99(tallied, now),
            rates=rates(tallied, now),
            paused=any(self._paused("queue", queue, now) for queue in queues),
        )

    async def cancel(self, ids: Sequence[str], sign: Signature) -> list[Acted]:
        return self._act("cancel", ids, sign, self._cancel)

    def _cancel(self, row: Row, sign: Signature, now: int) -> Acted:
        if row.state is State.RUNNING:
            row.cancel_asked = True
            row.reason = sign.reason
            return Acted.ASKED
        if row.state is not State.READY:
            return Acted.WRONG_STATE
        self._ready.remove(row)
        self._end(row, State.CANCELLED, sign.reason, now)
        return Acted.DONE

    async def requeue(self, ids: Sequence[str], sign: Signature) -> list[Acted]:
        answers = self._act("requeue", ids, sign, self._requeue)
        self._bell.ring()
        return answers

    def _requeue(self, row: Row, sign: Signature, now: int) -> Acted:  # noqa: ARG002  # one shape for all actions
        if row.state not in (State.DEAD, State.CANCELLED):
            return Acted.WRONG_STATE
        if row.new.key is not None and not row.new.key_ttl:
            if self._keys.holder(row.queue, row.new.key, now) is not None:
                return Acted.KEY_TAKEN
            self._keys.take(row.new, now)
        self._depth.move(row, -1)
        row.state = State.READY
        row.attempt = 0
        row.cancel_asked = False
        row.reason = None
        row.result = None
        self._make_ready(row, now, now)
        return Acted.DONE

    async def discard(self, ids: Sequence[str], sign: Signature) -> list[Acted]:
        return self._act("discard", ids, sign, self._discard)

    def _discard(self, row: Row, sign: Signature, now: int) -> Acted:
        if row.state is not State.DEAD:
            return Acted.WRONG_STATE
        self._end(row, State.CANCELLED, sign.reason, now)
        return Acted.DONE

    async def replace(self, id: str, job: NewJob, sign: Signature) -> Acted:
        def swap(row: Row, sign: Signature, now: int) -> Acted:
            if row.state is not State.DEAD:
                return Acted.WRONG_STATE
            answers, added = self._sort_out((job,), now)
            if answers[0].id != job.id:
                return Acted.KEY_TAKEN
            self._discard(row, sign, now)
            for new in added:
                self._add(new, now, row.new.id)
            return Acted.DONE

        answers = self._act("replace", (id,), sign, swap)
        self._bell.ring()
        return answers[0]

    def _end(self, row: Row, state: State, reason: str | None, now: int) -> None:
        """Finish a row that is not running."""
        self._depth.move(row, -1)
        row.state = state
        row.reason = reason
        self._depth.tally(now, row.queue, row.task, state)
        self._finish(row, now)

    def _act(self, action: str, ids: Sequence[str], sign: Signature, act: Any) -> list[Acted]:
        with self._lock:
            now = self._clock.now()
            answers = []
            for id in ids:
                row = self._rows.get(id)
                answers.append(act(row, sign, now) if row else Acted.NOT_FOUND)
            changed = sum(answer in (Acted.DONE, Acted.ASKED) for answer in answers)
            if changed:
                self._note(action, ids[0] if len(ids) == 1 else "jobs", changed, sign, now)
            return answers

    def _note(self, action: str, target: str, changed: int, sign: Signature, now: int) -> None:
        record = AuditRecord(at=at(now), by=sign.by, action=action, target=target, count=changed, reason=sign.reason)
        self._audit.append(record)

    async def pause(self, target: Target, sign: Signature, until: datetime | None = None) -> None:
        with self._lock:
            now = self._clock.now()
            self._pauses[target] = Pause(target=target, since=at(now), until=until, reason=sign.reason, by=sign.by)
            self._note("pause", f"{target.kind}:{target.name}", 0, sign, now)

    async def resume(self, target: Target, sign: Signature) -> bool:
        with self._lock:
            now = self._clock.now()
            stood = self._stands(target, now)
            self._pauses.pop(target, None)
            if stood:
                self._note("resume", f"{target.kind}:{target.name}", 0, sign, now)
        self._bell.ring()
        return stood

    async def pauses(self) -> list[Pause]:
        with self._lock:
            now = self._clock.now()
            return [pause for target, pause in self._pauses.items() if self._stands(target, now)]

    def _paused(self, kind: Any, name: str, now: int) -> bool:
        return bool(self._pauses) and self._stands(Target(kind, name), now)

    def _stands(self, target: Target, now: int) -> bool:
        pause = self._pauses.get(target)
        return pause is not None and (pause.until is None or from_datetime(pause.until) > now)

    async def set_limits(self, queue: str, limits: Limits, sign: Signature) -> None:
        with self._lock:
            if limits == Limits():
                self._limits.pop(queue, None)
            else:
                self._limits[queue] = limits
            self._note("set_limits", f"queue:{queue}", 0, sign, self._clock.now())

    async def limits(self) -> dict[str, Limits]:
        with self._lock:
            return dict(self._limits)

    async def prune(self, retention: Retention, by_task: Mapping[str, Retention], limit: int) -> int:
        with self._lock:
            now = self._clock.now()
            self._keys.sweep(now, limit)
            self._depth.forget(now)
            self._ready.forget_empty()
            for target in [target for target in self._pauses if not self._stands(target, now)]:
                del self._pauses[target]
            removed = 0
            for (task, state), finished in list(self._finished.items()):
                kept_for = to_us(getattr(by_task.get(task, retention), state))
                removed += self._prune(finished, state, now - kept_for, limit - removed)
                if not finished:
                    del self._finished[task, state]
            return removed

    def _prune(self, finished: deque[tuple[int, Row]], state: State, before: int, limit: int) -> int:
        removed = 0
        while removed < limit and finished and finished[0][0] <= before:
            finished_at, row = finished.popleft()
            if row.state is state and row.finished_at == finished_at and self._rows.get(row.new.id) is row:
                self._remove(row)
                removed += 1
        return removed

    async def audit(self, limit: int = PAGE) -> list[AuditRecord]:
        with self._lock:
            return [record for record, _ in zip(reversed(self._audit), range(limit), strict=False)]


def _matches(row: Row, filter: Filter) -> bool:
    new = row.new
    return (
        (filter.state is None or row.state is filter.state)
        and (filter.queue is None or row.queue == filter.queue)
        and (filter.task is None or row.task == filter.task)
        and (filter.key is None or new.key == filter.key)
        and (filter.tag is None or filter.tag in new.tags)
        and (filter.parent_id is None or row.parent_id == filter.parent_id)
        and (filter.schedule is None or new.schedule == filter.schedule)
        and (filter.since is None or row.enqueued_at >= from_datetime(filter.since))
        and (filter.until is None or row.enqueued_at < from_datetime(filter.until))
    )
