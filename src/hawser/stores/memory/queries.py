"""The operator's reads of the memory store."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from itertools import islice

from hawser.clock import at, from_datetime, to_us
from hawser.job import Job, State, Waiting
from hawser.policy import QueuePolicy
from hawser.store import (
    GONE,
    JOBS_PER_PAGE,
    WAITS_TOLD,
    WORKER_KEPT,
    AuditRecord,
    DeadGroup,
    DeadGroups,
    DeadLetters,
    Filter,
    JobEnd,
    LimitUse,
    Page,
    Pause,
    QueueStats,
    Upstream,
    Waits,
    Weight,
    WorkerSeen,
)
from hawser.store.rollup import EventCount, LaneDepth, Measured, Rollup, TaskDepth
from hawser.stores.memory.groups import GroupSize
from hawser.stores.memory.heap import Heap
from hawser.stores.memory.row import Row
from hawser.stores.memory.scheduling import Scheduling
from hawser.stores.order import Lane
from hawser.stores.tally import MINUTE_US, attempts_p99, rates, rolled, summed, times_of


class Queries(Scheduling):
    """What people, the API and charts look at."""

    async def ended(self, ids: Sequence[str]) -> list[JobEnd | None]:
        with self._lock:
            return [row.ended() if (row := self._rows.get(id)) else GONE for id in ids]

    async def get(self, id: str) -> Job | None:
        with self._lock:
            row = self._rows.get(id)
            return row.view() if row else None

    async def waits(self, id: str) -> Waits | None:
        with self._lock:
            if id not in self._dependencies.of:
                return None
            left = self._dependencies.left(id)
            told = sorted(left)[:WAITS_TOLD]
            upstream = tuple(self._upstream(each) for each in told)
            return Waits(len(self._dependencies.of[id]), len(left), upstream)

    def _upstream(self, id: str) -> Upstream:
        if (row := self._rows.get(id)) is not None:
            return Upstream(id, row.state)
        kept = self._batches.all[id]
        return Upstream(id, kept.standing.state, kept.name)

    async def find(self, filter: Filter, after: str | None = None, limit: int = JOBS_PER_PAGE) -> Page:
        with self._lock:
            now = self._clock.now()
            behind = {id: row for id, row in self._rows.items() if after is None or id < after}
            newest = heapq.nlargest(limit + 1, (id for id, row in behind.items() if _matches(row, filter, now)))
            jobs = [self._rows[id].view() for id in newest[:limit]]
        return Page(jobs, jobs[-1].id if len(newest) > limit else None, len(behind))

    async def dead_letters(
        self, queue: str | None = None, task: str | None = None, after: str | None = None, limit: int = JOBS_PER_PAGE
    ) -> DeadLetters:
        with self._lock:
            ids = (id for id, row in self._rows.items() if row.state is State.DEAD and (after is None or id < after))
            newest = heapq.nlargest(limit + 1, ids)
            rows = [self._rows[id] for id in newest[:limit]]
            letters = [row.letter() for row in rows if queue in (None, row.queue) and task in (None, row.task)]
        return DeadLetters(letters, len(rows), newest[limit - 1] if len(newest) > limit else None)

    async def dead_groups(self, queue: str | None = None, task: str | None = None, limit: int = JOBS_PER_PAGE) -> DeadGroups:
        with self._lock:
            largest = self._depth.dead.of(queue, task)
            return DeadGroups([self._group(group) for group in largest[:limit]], 0, len(largest) > limit)

    def _group(self, group: GroupSize) -> DeadGroup:
        oldest, newest = self._rows[group.oldest], self._rows[group.newest]
        return DeadGroup(group.task, group.fingerprint, group.size, at(oldest.finished_at), newest.letter())

    async def stats(self, queue: str | None = None) -> QueueStats:
        with self._lock:
            if queue is not None:
                return self._stats((queue,))
            return self._stats(self._depth.queues())

    async def queues(self) -> dict[str, QueueStats]:
        with self._lock:
            now = self._clock.now()
            paused = {target.name for target in self._pauses if target.kind == "queue" and self._stands(target, now)}
            names = {*self._depth.queues(), *self._limits.queues(), *self._policies, *paused}
            return {queue: self._stats((queue,)) for queue in sorted(names)}

    def _stats(self, queues: Sequence[str]) -> QueueStats:
        now = self._clock.now()
        self._keys.sweep(now, -1)
        depth = {place: sum(self._depth.of(queue, place) for queue in queues) for place in (*Lane, *State)}
        due = {
            lane: sum(heap.due(now) for queue in queues for heap in self._ready.heaps(queue, lane))
            for lane in (Lane.TIMED, Lane.RETRYING)
        }
        held = sum(map(self._depth.held, queues))
        heads = [heap.head[0] for queue in queues for heap in self._ready.heaps(queue, *Lane) if heap.head]
        sums = summed((entry for queue in queues for entry in self._depth.tallied(queue, now)), now)
        return QueueStats(
            ready=depth[Lane.FRESH] + due[Lane.TIMED],
            scheduled=depth[Lane.TIMED] - due[Lane.TIMED] - held,
            held=held,
            retrying=depth[Lane.RETRYING],
            due=depth[Lane.FRESH] + due[Lane.TIMED] + due[Lane.RETRYING],
            running=depth[State.RUNNING],
            done=depth[State.DONE],
            dead=depth[State.DEAD],
            cancelled=depth[State.CANCELLED],
            keys=sum(self._keys.count(queue) for queue in queues),
            oldest_age_s=max(0.0, (now - min(heads)) / 1_000_000) if heads else 0.0,
            attempts_p99=attempts_p99(sums),
            rates=rates(sums, now, self._depth.first_minute(now)),
            paused=any(self._paused("queue", queue, now) for queue in queues),
        )

    async def pauses(self) -> list[Pause]:
        with self._lock:
            now = self._clock.now()
            return [pause for target, pause in self._pauses.items() if self._stands(target, now)]

    async def weights(self, queue: str | None = None) -> list[Weight]:
        with self._lock:
            return [Weight(*name, weight) for name, weight in sorted(self._weights.items()) if queue in (None, name[0])]

    async def limits(self) -> list[LimitUse]:
        with self._lock:
            return self._limits.uses(self._clock.now(), self._running, self._ready.shut_groups)

    async def policies(self) -> dict[str, QueuePolicy]:
        with self._lock:
            return dict(self._policies)

    async def lanes(self) -> list[LaneDepth]:
        with self._lock:
            now = self._clock.now()
            lanes = [_lane(now, *lane) for lane in self._ready.all()]
        return sorted(lanes, key=lambda lane: (lane.queue, lane.task, lane.priority))

    async def task_depths(self) -> list[TaskDepth]:
        with self._lock:
            counts = Counter((row.queue, row.task, row.state) for row in self._rows.values())
        return [TaskDepth(*where, count) for where, count in counts.items()]

    async def rollups(self, minutes: int, queue: str | None = None, task: str | None = None) -> list[Rollup]:
        with self._lock:
            return rolled(self._depth.tallied_of(queue, task), self._clock.now(), minutes)

    async def times(self, minutes: int, queue: str | None = None) -> list[Measured]:
        with self._lock:
            first = self._clock.now() // MINUTE_US - minutes + 1
            return times_of(each for each in self._depth.counted_from(first) if queue in (None, each[0]))

    async def event_counts(self, minutes: int, events: Sequence[str], back: int = 0) -> list[EventCount]:
        with self._lock:
            last = self._clock.now() // MINUTE_US - back
            return list(self._depth.event_counts(last - minutes + 1, last, events))

    async def workers(self) -> list[WorkerSeen]:
        with self._lock:
            oldest = at(self._clock.now() - to_us(WORKER_KEPT))
            self._workers = {name: seen for name, seen in self._workers.items() if seen.seen_at > oldest}
            return sorted(self._workers.values(), key=lambda seen: (seen.since, seen.beat.worker))

    async def audit(
        self, limit: int = JOBS_PER_PAGE, before: int | None = None, action: str | None = None, by: str | None = None
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
        and (filter.group_name is None or new.group == filter.group_name)
        and (filter.argument is None or filter.argument in new.index)
        and (filter.batch is None or new.batch == filter.batch)
        and (filter.since is None or row.enqueued_at >= from_datetime(filter.since))
        and (filter.until is None or row.enqueued_at < from_datetime(filter.until))
    )


def _waiting(row: Row, now: int) -> Waiting | None:
    if row.held is not None:
        return Waiting.HELD
    if row.state is not State.READY or (not row.attempt and row.run_at <= now):
        return None
    return Waiting.RETRYING if row.attempt else Waiting.SCHEDULED
