"""The operator's reads. Each runs in one read transaction and never waits for the writer."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from hawser.clock import at, from_datetime, to_us
from hawser.job import Attempt, Job, NewJob, State
from hawser.policy import QueuePolicy
from hawser.schedule.schedule import Schedule
from hawser.store import (
    DUE_COUNTED,
    ERROR_TOLD,
    WORKER_KEPT,
    AuditRecord,
    BreakerStatus,
    BulkOperation,
    DeadGroup,
    DeadGroups,
    DeadLetters,
    Filter,
    GroupWait,
    LeaseRef,
    Leave,
    LimitUse,
    Page,
    Pause,
    QueueStats,
    RecordedStep,
    RequestKey,
    Weight,
    WorkerSeen,
)
from hawser.store.api_key import KeyRecord
from hawser.store.rollup import EventCount, LaneDepth, Measured, Rollup, TaskDepth
from hawser.store.schedules import DueSchedules
from hawser.stores.order import Lane
from hawser.stores.record import BLANK, audit_of, job_of, letter_of, pause_of, shown, worker_of
from hawser.stores.sqlite import api_keys, breakers, bulk, limits, requests, schedules
from hawser.stores.sqlite.due import due_in
from hawser.stores.sqlite.due_times import DueTimes
from hawser.stores.sqlite.group_wait import group_wait
from hawser.stores.sqlite.search import LAST_NAME, finder
from hawser.stores.steps import step_of
from hawser.stores.tally import MINUTE_US, attempts_p99, minutes_of, rates, rolled, times_of

SCAN: Final = 5_000
"""Jobs that one `find` looks at, again and again for `LOOK_FOR` seconds while it finds none."""

LOOK_FOR: Final = 0.015
_LAST: Final = "g"
"""Sorts behind every id."""

_ASKED: Final = ("state", "waiting", "queue", "task", "key", "tag", "parent_id", "schedule", "group_name", "argument", "batch")
_json = msgspec.json.Encoder().encode
T = TypeVar("T")


class Figures(NamedTuple):
    """What the figures of queues are made of."""

    depths: Mapping[str, Sequence[Any]]
    """The lanes that hold jobs."""
    sums: Mapping[str, Mapping[str, int]]
    first: int | None
    """The first minute of the last hour in which anything was counted, of any queue."""
    keys: Counter[str]
    paused: set[str]

    def queues(self) -> set[str]:
        return {*self.depths, *self.sums, *self.keys, *self.paused}


class Snapshot:
    """One read transaction."""

    def __init__(self, con: sqlite3.Connection, now: int, sql: Mapping[str, str]) -> None:
        self._con = con
        self._now = now
        self._sql = sql
        self._due_times = DueTimes(con, sql, now)

    def get(self, id: str) -> Job | None:
        jobs = self._jobs(self._con.execute(self._sql["get"], {"id": id}))
        return jobs[0] if jobs else None

    def ask(self, read: Callable[..., T], *asked: Any) -> T:
        """One of the reads that stand in modules of their own."""
        return read(self._con, self._sql, *asked)

    def group_wait(self, id: str) -> GroupWait | None:
        return group_wait(self._con, self._sql, self._now, id)

    def find(self, filter: Filter, after: str | None, limit: int) -> Page:
        asked: dict[str, Any] = {name: getattr(filter, name) for name in _ASKED}
        asked["since"] = None if filter.since is None else from_datetime(filter.since)
        asked["until"] = None if filter.until is None else from_datetime(filter.until)
        asked |= {"after": _LAST if after is None else after, "scan": SCAN, "limit": limit + 1, "now": self._now}
        found, looked_at = (self._sql[name] for name in ("found", "looked_at"))
        which = self._sql[finder(self._con, self._sql, filter, asked)]
        matching, counting = found.format(which=which, matching=self._sql["matching"]), looked_at.format(which=which)
        searched, end = 0, time.monotonic() + LOOK_FOR
        while True:
            jobs = self._jobs(self._con.execute(matching, asked))
            if len(jobs) > limit:
                return Page(jobs[:limit], jobs[limit - 1].id, searched + limit)
            seen, last = self._con.execute(counting, asked).fetchone()
            searched += seen
            if seen < SCAN:
                return Page(jobs, None, searched)
            if jobs or time.monotonic() >= end:
                return Page(jobs, last, searched)
            asked["after"] = last

    def _jobs(self, cursor: sqlite3.Cursor) -> list[Job]:
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        kept: dict[int, list[Attempt]] = {row["seq"]: [] for row in rows}
        if rows:
            for row in self._con.execute(self._sql["attempts"], {"jobs": _json(list(kept))}):
                kept[row[0]].append(shown(row[1:]))
        return [job_of(row, kept[row["seq"]]) for row in rows]

    def dead_letters(self, queue: str | None, task: str | None, after: str | None, limit: int) -> DeadLetters:
        asked = {"queue": queue, "task": task, "after": _LAST if after is None else after, "limit": limit + 1}
        rows = self._con.execute(self._sql["dead_letters"], asked | {"blank": BLANK, "told": ERROR_TOLD}).fetchall()
        letters = [letter_of(*row) for row in rows[:limit] if task in (None, row[1]) and queue in (None, row[2])]
        return DeadLetters(letters, len(rows[:limit]), rows[limit - 1][0] if len(rows) > limit else None)

    def dead_groups(self, queue: str | None, task: str | None, limit: int) -> DeadGroups:
        asked = {"queue": queue, "task": task, "limit": limit + 1, "blank": BLANK, "told": ERROR_TOLD}
        rows = self._con.execute(self._sql["dead_groups"], asked).fetchall()
        groups = [
            DeadGroup(name, fingerprint, count, at(first_at), letter_of(id, name, of, error, finished_at))
            for name, fingerprint, count, first_at, id, of, error, finished_at in rows[:limit]
        ]
        return DeadGroups(groups, self._ungrouped(DUE_COUNTED), len(rows) > limit)

    def has_ungrouped(self) -> bool:
        """Whether a dead job has no fingerprint yet."""
        return self._ungrouped(1) > 0

    def _ungrouped(self, most: int) -> int:
        return int(self._con.execute(self._sql["count_ungrouped"], (most,)).fetchone()[0])

    def stats(self, queue: str | None) -> QueueStats:
        figures = self._figures(queue)
        return self._stats(figures, figures.queues() if queue is None else (queue,))

    def queues(self) -> dict[str, QueueStats]:
        figures = self._figures(None)
        names = {*figures.depths, *figures.paused, *self._limited_queues(), *self.policies()}
        return {queue: self._stats(figures, (queue,)) for queue in sorted(names)}

    def _figures(self, queue: str | None) -> Figures:
        """Asked once for all queues, and not queue by queue."""
        asked = {"first": queue or "", "last": queue or LAST_NAME}
        depths: defaultdict[str, list[Any]] = defaultdict(list)
        for row in self._con.execute(self._sql["depths"], asked):
            if any(row[3:10]):
                depths[row[0]].append(row)
        sums: defaultdict[str, dict[str, int]] = defaultdict(dict)
        minutes = minutes_of(self._now)._asdict()
        for name, event, count in self._con.execute(self._sql["tallies"], asked | minutes):
            sums[name][event] = count
        [(first,)] = self._con.execute(self._sql["first_minute"], minutes)
        keys = Counter(dict(self._con.execute(self._sql["keys"], asked)))
        keys.subtract(dict(self._con.execute(self._sql["keys_over"], {"now": self._now})))
        return Figures(depths, sums, first, keys, {pause.target.name for pause in self.pauses() if pause.target.kind == "queue"})

    def _stats(self, figures: Figures, queues: Collection[str]) -> QueueStats:
        now = self._now
        depths = [row for queue in queues for row in figures.depths.get(queue, ())]
        sums: Counter[str] = Counter()
        for queue in queues:
            sums.update(figures.sums.get(queue, {}))
        fresh, timed, retrying, running, done, dead, cancelled, held, _ = (sum(row[i] for row in depths) for i in range(3, 12))
        due, oldest, exact = [0, 0, 0], now, True
        for named, task, priority, *places in depths:
            for lane in Lane:
                if places[lane]:
                    first = self._due_times.first((named, task, priority), lane, places[-1])
                    oldest = min(oldest, first)
                    # Where the first is not due there is nothing to count.
                    counted = lane is Lane.FRESH or first <= now
                    past, sure = self._due((named, task, priority), lane, places[lane], places[-1]) if counted else (0, True)
                    due[lane] += past
                    exact = exact and sure
        return QueueStats(
            ready=fresh + due[Lane.TIMED],
            scheduled=timed - due[Lane.TIMED] - held,
            held=held,
            retrying=retrying,
            due=fresh + due[Lane.TIMED] + due[Lane.RETRYING],
            running=running,
            done=done,
            dead=dead,
            cancelled=cancelled,
            keys=sum(figures.keys[queue] for queue in queues),
            oldest_age_s=(now - oldest) / 1_000_000,
            attempts_p99=attempts_p99(sums),
            rates=rates(sums, now, figures.first),
            paused=not figures.paused.isdisjoint(queues),
            exact=exact,
        )

    def _due(self, where: tuple[str, str, int], lane: Lane, size: int, grouped: int) -> tuple[int, bool]:
        """How many of a lane's jobs are due, and whether that is sure: the fewer are counted, the due or the others."""
        if lane is Lane.FRESH:
            return size, True
        due = self._due_times.count("count_due", where, lane, grouped)
        if due < DUE_COUNTED:
            return due, True
        later = self._due_times.count("count_later", where, lane, grouped)
        return (size - later, True) if later < DUE_COUNTED else (due, False)

    def pauses(self) -> list[Pause]:
        return [pause_of(*row) for row in self._con.execute(self._sql["pauses"], {"now": self._now})]

    def weights(self, queue: str | None) -> list[Weight]:
        return [Weight(*row) for row in self._con.execute(self._sql["weights"], {"queue": queue})]

    def limits(self) -> list[LimitUse]:
        return limits.uses(self._con, self._sql, self._now)

    def breakers(self) -> list[BreakerStatus]:
        return breakers.statuses(self._con, self._sql)

    def _limited_queues(self) -> list[str]:
        return [name for kind, name, *_ in self._con.execute(self._sql["limits"]) if kind == "queue"]

    def policies(self) -> dict[str, QueuePolicy]:
        rows = self._con.execute(self._sql["policies"])
        return {queue: msgspec.json.decode(policy, type=QueuePolicy) for queue, policy in rows}

    def workers(self) -> list[WorkerSeen]:
        rows = self._con.execute(self._sql["workers"], {"before": self._now - to_us(WORKER_KEPT)})
        return [worker_of(*row) for row in rows]

    def holders(self, leases: Sequence[LeaseRef]) -> list[str | None]:
        rows = self._con.execute(self._sql["holders"], {"ids": _json([ref.id for ref in leases])})
        known = {(id, lease): worker for id, lease, worker in rows}
        return [known.get((ref.id, ref.lease)) for ref in leases]

    def steps(self, id: str) -> list[RecordedStep]:
        return [step_of(row, self._now) for row in self._con.execute(self._sql["steps"], {"id": id})]

    def asked_to_stop(self, workers: Sequence[str]) -> list[LeaseRef]:
        rows = self._con.execute(self._sql["asked_to_stop"], {"workers": _json(list(workers))})
        return [LeaseRef(id, lease) for id, lease in rows]

    def schedules(self, names: Sequence[str] | None, after: str, limit: int | None) -> list[Schedule]:
        return schedules.named(self._con, self._sql, names, after, limit)

    def due_schedules(self, limit: int) -> DueSchedules:
        return schedules.due(self._con, self._sql, self._now, limit)

    def next_schedules(self, limit: int) -> list[Schedule]:
        return schedules.following(self._con, self._sql, limit)

    def audit(self, limit: int, before: int | None, action: str | None, by: str | None) -> list[AuditRecord]:
        asked = {"limit": limit, "before": before, "action": action, "by": by}
        return [audit_of(*row) for row in self._con.execute(self._sql["audit"], asked)]

    def task_depths(self) -> list[TaskDepth]:
        counts: Counter[tuple[str, str, State]] = Counter()
        for queue, task, _, fresh, timed, retrying, *ends, _, _ in self._con.execute(
            self._sql["depths"], {"first": "", "last": LAST_NAME}
        ):
            for state, count in zip(State, (fresh + timed + retrying, *ends), strict=True):
                counts[queue, task, state] += count
        return [TaskDepth(*where, count) for where, count in counts.items() if count]

    def lanes(self) -> list[LaneDepth]:
        return [self._lane(*row) for row in self._con.execute(self._sql["waiting_lanes"]).fetchall()]

    def _lane(self, queue: str, task: str, priority: int, fresh: int, timed: int, retrying: int, grouped: int) -> LaneDepth:
        waiting = fresh, timed, retrying
        heads = [self._due_times.first((queue, task, priority), lane, grouped) for lane in Lane if waiting[lane]]
        oldest = max(0.0, (self._now - min(heads)) / 1_000_000)
        return LaneDepth(queue=queue, task=task, priority=priority, waiting=sum(waiting), oldest_age_s=oldest)

    def rollups(self, minutes: int, queue: str | None, task: str | None) -> list[Rollup]:
        asked = {"minute": self._now // MINUTE_US - minutes + 1, "queue": queue, "task": task}
        return rolled(self._con.execute(self._sql["rollups"], asked), self._now, minutes)

    def times(self, minutes: int, queue: str | None) -> list[Measured]:
        asked = {"minute": self._now // MINUTE_US - minutes + 1, "queue": queue}
        return times_of(self._con.execute(self._sql["times"], asked))

    def event_counts(self, minutes: int, events: Sequence[str], back: int) -> list[EventCount]:
        last = self._now // MINUTE_US - back
        asked = {"first": last - minutes + 1, "last": last, "events": msgspec.json.encode(list(events)).decode()}
        return [EventCount(*row) for row in self._con.execute(self._sql["event_counts"], asked)]

    def api_keys(self) -> list[KeyRecord]:
        return api_keys.records(self._con, self._sql, self._now)

    def made(self, jobs: Sequence[NewJob], request: RequestKey | None) -> bool:
        if request is not None and requests.knows(self._con, self._sql, self._now, request):
            return True
        ids = {job.id for job in jobs}
        return len(self._con.execute(self._sql["known"], {"ids": _json(list(ids))}).fetchall()) == len(ids)

    def bulk(self, id: str) -> BulkOperation | None:
        return bulk.get(self._con, self._sql, self._now, id)

    def bulks(self) -> list[BulkOperation]:
        return bulk.latest(self._con, self._sql, self._now)

    def any_past_expiry(self) -> bool:
        return bool(self._con.execute(self._sql["any_past_expiry"], {"now": self._now}).fetchone()[0])

    def due_in(self, queues: Sequence[str], leave: Leave) -> float | None:
        return due_in(self._con, self._sql, self._now, queues, leave)
