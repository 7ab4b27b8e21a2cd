"""The memory store. Every method is one step under one lock and never suspends, so a plain caller may drive it inline."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, assert_never

from hawser.clock import Clock, at, from_datetime, to_us
from hawser.job import Job, NewJob, State, Waiting
from hawser.policy import NO_POLICY, QueuePolicy
from hawser.store import (
    DONE_LATE,
    PAGE,
    WORKER_KEPT,
    Acted,
    Actor,
    AuditRecord,
    BulkOperation,
    BulkPlan,
    BulkStep,
    DeadGroup,
    DeadGroups,
    DeadLetters,
    Declined,
    Durability,
    Filter,
    LeaseRef,
    Limits,
    Page,
    Pause,
    QueueStats,
    Retention,
    Target,
    Unaccepted,
    WorkerSeen,
)
from hawser.store.api_key import ApiKey, KeyRecord
from hawser.store.rollup import EventCount, LaneDepth, Measured, Rollup
from hawser.stores.declined import Kept, merged
from hawser.stores.memory.api_keys import ApiKeys
from hawser.stores.memory.bulk import Bulks
from hawser.stores.memory.groups import GroupSize
from hawser.stores.memory.ready import Heap
from hawser.stores.memory.row import Row
from hawser.stores.memory.scheduling import Scheduling
from hawser.stores.order import Lane
from hawser.stores.record import changed, noted
from hawser.stores.tally import MINUTE, attempts_p99, event_of, rates, rolled, summed


class MemoryStore(Scheduling):
    """The jobs, the schedules, and what an operator does with them."""

    durability: Durability = "relaxed"
    inline = True
    """Its coroutines never suspend (`wait` apart): a sync caller may run them without an event loop."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self._api_keys = ApiKeys()
        self._bulks = Bulks()
        self._declined: dict[str, Kept] = {}

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def get(self, id: str) -> Job | None:
        with self._lock:
            row = self._rows.get(id)
            return row.view() if row else None

    async def find(self, filter: Filter, after: str | None = None, limit: int = PAGE) -> Page:
        with self._lock:
            now = self._clock.now()
            behind = {id: row for id, row in self._rows.items() if after is None or id < after}
            newest = heapq.nlargest(limit + 1, (id for id, row in behind.items() if _matches(row, filter, now)))
            jobs = [self._rows[id].view() for id in newest[:limit]]
        return Page(jobs, jobs[-1].id if len(newest) > limit else None, len(behind))

    async def dead_letters(
        self, queue: str | None = None, task: str | None = None, after: str | None = None, limit: int = PAGE
    ) -> DeadLetters:
        with self._lock:
            ids = (id for id, row in self._rows.items() if row.state is State.DEAD and (after is None or id < after))
            newest = heapq.nlargest(limit + 1, ids)
            rows = [self._rows[id] for id in newest[:limit]]
            letters = [row.letter() for row in rows if queue in (None, row.queue) and task in (None, row.task)]
        return DeadLetters(letters, len(rows), newest[limit - 1] if len(newest) > limit else None)

    async def dead_groups(self, queue: str | None = None, task: str | None = None, limit: int = PAGE) -> DeadGroups:
        with self._lock:
            largest = self._depth.dead.of(queue, task)
            return DeadGroups([self._group(group) for group in largest[:limit]], 0, len(largest) > limit)

    def _group(self, group: GroupSize) -> DeadGroup:
        oldest, newest = self._rows[group.oldest], self._rows[group.newest]
        return DeadGroup(group.task, group.fingerprint, group.size, at(oldest.finished_at), newest.letter())

    async def group_dead(self, limit: int) -> int:  # noqa: ARG002  # all have their groups
        return 0

    async def stats(self, queue: str | None = None) -> QueueStats:
        with self._lock:
            if queue is not None:
                return self._stats((queue,))
            return self._stats(self._depth.queues())

    async def queues(self) -> dict[str, QueueStats]:
        with self._lock:
            now = self._clock.now()
            paused = {target.name for target in self._pauses if target.kind == "queue" and self._stands(target, now)}
            return {
                queue: self._stats((queue,)) for queue in sorted({*self._depth.queues(), *self._limits, *self._policies, *paused})
            }

    def _stats(self, queues: Sequence[str]) -> QueueStats:
        now = self._clock.now()
        self._keys.sweep(now, -1)
        depth = {place: sum(self._depth.of(queue, place) for queue in queues) for place in (*Lane, *State)}
        due = {
            lane: sum(heap.due(now) for queue in queues for heap in self._ready.heaps(queue, lane))
            for lane in (Lane.TIMED, Lane.RETRYING)
        }
        heads = [heap.head[0] for queue in queues for heap in self._ready.heaps(queue, *Lane) if heap.head]
        sums = summed((entry for queue in queues for entry in self._depth.tallied(queue, now)), now)
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
            attempts_p99=attempts_p99(sums),
            rates=rates(sums, now),
            paused=any(self._paused("queue", queue, now) for queue in queues),
        )

    async def cancel(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return self._act("cancel", ids, actor, self._cancel)

    def _cancel(self, row: Row, actor: Actor, now: int) -> Acted:
        match row.state:
            case State.RUNNING:
                row.cancel_asked = True
                self._asked.add(row.new.id)
                row.reason = actor.reason
                return Acted.ASKED
            case State.READY:
                self._ready.remove(row)
                self._end(row, State.CANCELLED, actor.reason, now)
                return Acted.DONE
            case State.DONE | State.DEAD | State.CANCELLED:
                return Acted.WRONG_STATE
            case _:
                assert_never(row.state)

    async def requeue(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        answers = self._act("requeue", ids, actor, self._requeue)
        self._bell.ring()
        return answers

    def _requeue(self, row: Row, actor: Actor, now: int) -> Acted:  # noqa: ARG002  # one shape for all actions
        if row.state not in (State.DEAD, State.CANCELLED):
            return Acted.WRONG_STATE
        if row.new.key is not None:
            holder = self._keys.holder(row.new.key_scope, now)
            if holder is None:
                self._keys.take_again(row.new)
            elif holder != row.new.id:
                return Acted.KEY_TAKEN
        self._depth.move(row, -1)
        row.state = State.READY
        row.attempt = 0
        row.cancel_asked = False
        row.reason = None
        row.result = None
        self._make_ready(row, now, now)
        return Acted.DONE

    async def discard(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return self._act("discard", ids, actor, self._discard)

    def _discard(self, row: Row, actor: Actor, now: int) -> Acted:
        if row.state is not State.DEAD:
            return Acted.WRONG_STATE
        self._end(row, State.CANCELLED, actor.reason, now)
        return Acted.DONE

    async def replace(self, id: str, job: NewJob, actor: Actor) -> Acted:
        def swap(row: Row, actor: Actor, now: int) -> Acted:
            if row.state is not State.DEAD:
                return Acted.WRONG_STATE
            answers, added = self._sort_out((job,), now)
            if answers[0].id != job.id:
                return Acted.KEY_TAKEN
            self._discard(row, actor, now)
            for new in added:
                self._add(new, now, row.new.id)
            return Acted.DONE

        answers = self._act("replace", (id,), actor, swap)
        self._bell.ring()
        return answers[0]

    def _end(self, row: Row, state: State, reason: str | None, now: int) -> None:
        """Finish a row that is not running."""
        self._depth.move(row, -1)
        row.state = state
        row.reason = reason
        self._depth.tally(now, row.queue, row.task, state)
        self._finish(row, now)

    def _act(self, action: str, ids: Sequence[str], actor: Actor, act: Any) -> list[Acted]:
        with self._lock:
            now = self._clock.now()
            answers = []
            for id in ids:
                row = self._rows.get(id)
                answers.append(act(row, actor, now) if row else Acted.NOT_FOUND)
            said = noted(ids, answers)
            if said.changed:
                self._note(action, said.target, said.changed, actor, now, said.ids)
            return answers

    async def pause(self, target: Target, actor: Actor, until: datetime | None = None) -> None:
        with self._lock:
            now = self._clock.now()
            self._pauses[target] = Pause(target=target, since=at(now), until=until, reason=actor.reason, by=actor.by)
            self._note("pause", f"{target.kind}:{target.name}", 0, actor, now)

    async def resume(self, target: Target, actor: Actor) -> bool:
        with self._lock:
            now = self._clock.now()
            stood = self._stands(target, now)
            self._pauses.pop(target, None)
            if stood:
                self._note("resume", f"{target.kind}:{target.name}", 0, actor, now)
        self._bell.ring()
        return stood

    async def pauses(self) -> list[Pause]:
        with self._lock:
            now = self._clock.now()
            return [pause for target, pause in self._pauses.items() if self._stands(target, now)]

    async def set_limits(self, queue: str, limits: Limits, actor: Actor) -> None:
        with self._lock:
            if limits == Limits():
                self._limits.pop(queue, None)
            else:
                self._limits[queue] = limits
            self._note("set_limits", f"queue:{queue}", 0, actor, self._clock.now())

    async def limits(self) -> dict[str, Limits]:
        with self._lock:
            return dict(self._limits)

    async def set_policy(self, queue: str, policy: QueuePolicy, actor: Actor) -> None:
        with self._lock:
            if policy == NO_POLICY:
                self._policies.pop(queue, None)
            else:
                self._policies[queue] = policy
            self._note("set_policy", f"queue:{queue}", 0, actor, self._clock.now())

    async def policies(self) -> dict[str, QueuePolicy]:
        with self._lock:
            return dict(self._policies)

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
                removed += self._prune(finished, state, kept_for, now, limit - removed)
                if not finished:
                    del self._finished[task, state]
            self._requests.forget(now, limit)
            self._bulks.forget(now)
            self._declined = {id: kept for id, kept in self._declined.items() if self._lives(id)}
            return removed

    def _prune(self, finished: deque[tuple[int, Row]], state: State, kept_for: int, now: int, limit: int) -> int:
        removed = 0
        while removed < limit and finished and finished[0][0] <= now - kept_for:
            finished_at, row = finished.popleft()
            if row.state is state and row.finished_at == finished_at and self._rows.get(row.new.id) is row:
                self._remove(row, now)
                removed += 1
        return removed

    async def lanes(self) -> list[LaneDepth]:
        with self._lock:
            now = self._clock.now()
            lanes = [_lane(now, *lane) for lane in self._ready.all()]
        return sorted(lanes, key=lambda lane: (lane.queue, lane.task, lane.priority))

    async def measure(self, measured: Sequence[Measured]) -> None:
        with self._lock:
            now = self._clock.now()
            for each in measured:
                self._depth.tally(now, each.queue, each.task, event_of(each), each.count)

    async def rollups(self, minutes: int, queue: str | None = None, task: str | None = None) -> list[Rollup]:
        with self._lock:
            return rolled(self._depth.tallied_of(queue, task), self._clock.now(), minutes)

    async def event_counts(self, minutes: int, events: Sequence[str]) -> list[EventCount]:
        with self._lock:
            return list(self._depth.event_counts(self._clock.now() // MINUTE - minutes + 1, events))

    async def put_api_key(self, key: ApiKey, lasts: float | None, actor: Actor) -> None:
        with self._lock:
            now = self._clock.now()
            if self._api_keys.put(key, lasts, now):
                self._note("create_key", f"key:{key.id}", 0, actor, now)

    async def api_keys(self) -> list[KeyRecord]:
        with self._lock:
            return self._api_keys.records(self._clock.now())

    async def revoke_api_key(self, id: str, actor: Actor) -> bool:
        with self._lock:
            now = self._clock.now()
            revoked = self._api_keys.revoke(id, now)
            if revoked:
                self._note("revoke_key", f"key:{id}", 0, actor, now)
            return revoked

    async def use_api_keys(self, ids: Sequence[str]) -> None:
        with self._lock:
            self._api_keys.use(ids, self._clock.now())

    async def end_returned(self, lost: LeaseRef) -> bool:
        with self._lock:
            row = self._rows.get(lost.id)
            if row is None or row.state is not State.READY or row.lease != lost.lease + 1 or row.settled == row.lease:
                return False
            self._cancel(row, Actor(reason=DONE_LATE), self._clock.now())
            return True

    async def decline(self, declined: Sequence[Declined]) -> list[Unaccepted | None]:
        with self._lock:
            now = self._clock.now()
            live = [note for note in declined if self._lives(note.id)]
            for note in live:
                self._declined[note.id] = merged(self._declined.get(note.id), note, now)
            return [self._declined[note.id].answer(now) if note in live else None for note in declined]

    def _lives(self, id: str) -> bool:
        row = self._rows.get(id)
        return row is not None and not row.state.finished

    async def start_bulk(self, id: str, plan: BulkPlan, owner: str) -> BulkOperation:
        with self._lock:
            return self._bulks.start(id, plan, owner, self._clock.now())

    async def bulk(self, id: str) -> BulkOperation | None:
        with self._lock:
            return self._bulks.get(id, self._clock.now())

    async def bulks(self) -> list[BulkOperation]:
        with self._lock:
            return self._bulks.all(self._clock.now())

    async def step_bulk(self, step: BulkStep) -> BulkOperation | None:
        do = {"cancel": self._cancel, "requeue": self._requeue, "discard": self._discard}
        with self._lock:
            kept = self._bulks.current(step)
            if kept is None:
                return None
            answers = self._act(kept.plan.action, step.ids, kept.plan.actor(step.id), do[kept.plan.action])
            written = self._bulks.write(step, changed(answers), self._clock.now())
        self._bell.ring()
        return written

    async def take_bulks(self, owner: str, limit: int) -> list[BulkOperation]:
        with self._lock:
            return self._bulks.take(owner, limit, self._clock.now())

    async def release_bulk(self, id: str, turn: int) -> None:
        with self._lock:
            self._bulks.release(id, turn, self._clock.now())

    async def stop_bulk(self, id: str, actor: Actor) -> BulkOperation | None:
        with self._lock:
            now = self._clock.now()
            if self._bulks.get(id, now) is None:
                return None
            if self._bulks.stop(id, now):
                self._note("stop_operation", f"operation:{id}", 0, actor, now)
            return self._bulks.get(id, now)

    async def workers(self) -> list[WorkerSeen]:
        with self._lock:
            oldest = at(self._clock.now() - to_us(WORKER_KEPT))
            self._workers = {name: seen for name, seen in self._workers.items() if seen.seen_at > oldest}
            return sorted(self._workers.values(), key=lambda seen: (seen.since, seen.beat.worker))

    async def note(self, action: str, target: str, actor: Actor) -> None:
        with self._lock:
            self._note(action, target, 0, actor, self._clock.now())

    async def audit(
        self, limit: int = PAGE, before: int | None = None, action: str | None = None, by: str | None = None
    ) -> list[AuditRecord]:
        with self._lock:
            older = (record for record in reversed(self._audit) if before is None or record.number < before)
            chosen = (record for record in older if action in (None, record.action))
            theirs = (record for record in chosen if by in (None, record.by) or record.by.startswith(f"{by}:"))
            return list(islice(theirs, limit))


def _lane(now: int, queue: str, task: str, priority: int, heaps: list[Heap]) -> LaneDepth:
    first_due = min(heap.head[0] for heap in heaps if heap.head)
    waiting = sum(heap.size for heap in heaps)
    age = max(0.0, (now - first_due) / 1_000_000)
    return LaneDepth(queue=queue, task=task, priority=priority, waiting=waiting, oldest_age_s=age)


def _matches(row: Row, filter: Filter, now: int) -> bool:
    new = row.new
    return (
        (filter.state is None or row.state is filter.state)
        and (filter.waiting is None or _waiting(row, now) is filter.waiting)
        and (filter.queue is None or row.queue == filter.queue)
        and (filter.task is None or row.task == filter.task)
        and (filter.key is None or new.key == filter.key)
        and (filter.tag is None or filter.tag in new.tags)
        and (filter.parent_id is None or row.parent_id == filter.parent_id)
        and (filter.schedule is None or new.schedule == filter.schedule)
        and (filter.group is None or (row.state is State.DEAD and (row.task, row.fingerprint()) == filter.group))
        and (filter.since is None or row.enqueued_at >= from_datetime(filter.since))
        and (filter.until is None or row.enqueued_at < from_datetime(filter.until))
    )


def _waiting(row: Row, now: int) -> Waiting | None:
    if row.state is not State.READY or (not row.attempt and row.run_at <= now):
        return None
    return Waiting.RETRYING if row.attempt else Waiting.SCHEDULED
