"""Jobs, queues, workers and the rest, as an operator sees them over HTTP."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw

from hawser.api.bodies import Out
from hawser.job import Attempt, Job, State
from hawser.policy import NO_POLICY, QueuePolicy
from hawser.store import AuditRecord, Durability, Limits, Pause, QueueStats, WorkerSeen


class AttemptView(Out):
    """One start of a job and how it ended."""

    number: int
    lease: int
    worker: str
    started_at: datetime
    ended_at: datetime | None
    outcome: str
    error: str | None
    traceback: str | None


class JobLine(Out):
    """A job in a list; `error` is the last attempt's."""

    id: str
    task: str
    queue: str
    payload: Raw
    priority: int
    state: State
    attempt: int
    max_attempts: int
    timeout: float
    lease: int
    run_at: datetime
    enqueued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    lease_until: datetime | None
    worker: str | None
    key: str | None
    key_ttl: float | Literal["forever"]
    tags: tuple[str, ...]
    parent_id: str | None
    confirm_replay: bool
    schedule: str | None
    tick: datetime | None
    cancel_asked: bool
    returned: int
    crashes: int
    reason: str | None
    result: Raw
    progress: Raw
    error: str | None


class JobView(JobLine):
    """A job in full. `why` is what keeps it from running; null when it runs or has ended, and for a producer's key."""

    attempts: list[AttemptView]
    why: str | None


class JobsPage(Out):
    """`next` is where to go on; null at the end. A page may be short and still have a `next`."""

    jobs: list[JobLine]
    next: str | None


class PauseView(Out):
    since: datetime
    until: datetime | None
    reason: str | None
    by: str


class StatsView(Out):
    """A queue, or all of them, in figures. `exact` is false when `ready` and `due` are only lower bounds."""

    ready: int
    scheduled: int
    retrying: int
    due: int
    running: int
    done: int
    dead: int
    cancelled: int
    keys: int
    oldest_age_s: float
    attempts_p99: int
    rates: dict[str, float]
    paused: bool
    exact: bool


class StatsOut(StatsView):
    """With what the store promises of durability."""

    durability: Durability


class QueueView(StatsView):
    queue: str
    max_depth: int | None
    policy: QueuePolicy
    pause: PauseView | None


class QueuesOut(Out):
    queues: list[QueueView]


class TaskView(Out):
    """A task of the app that this server serves."""

    task: str
    queue: str
    priority: int
    max_attempts: int | None
    """Null: what its queue says."""
    timeout: float
    isolate: bool
    confirm_replay: bool
    tags: tuple[str, ...]
    payload_schema: dict[str, Any]
    pause: PauseView | None


class TasksOut(Out):
    tasks: list[TaskView]


class WorkerView(Out):
    worker: str
    host: str
    pid: int
    version: str
    queues: tuple[str, ...]
    slots: int
    running: int
    stuck: int
    draining: bool
    since: datetime
    seen_at: datetime


class WorkersOut(Out):
    workers: list[WorkerView]


class AuditView(Out):
    """One action of an operator. `target` is a job's id, `jobs`, `queue:NAME`, `task:NAME`, `schedule:NAME` or `key:NAME`."""

    number: int
    at: datetime
    by: str
    action: str
    target: str
    count: int
    reason: str | None


class AuditOut(Out):
    """Newest first; `next` is where to go on, null at the end."""

    audit: list[AuditView]
    next: int | None


class GroupView(Out):
    """Dead jobs of one task with one kind of error; the sample is the newest, with the beginning of its error."""

    task: str
    fingerprint: str
    count: int
    first_at: datetime
    last_at: datetime
    sample_id: str
    sample_error: str


class GroupsOut(Out):
    """`searched` counts the dead jobs that were looked at, of other queues and tasks too; `complete` is false when there are
    more, older ones."""

    groups: list[GroupView]
    searched: int
    complete: bool


class Counted(Out):
    """What a dry run saw; `count` is a lower bound when `exact` is false."""

    count: int
    exact: bool
    token: str


class OperationView(Out):
    """An action on many jobs. `skipped`: what the state of a job, a key or a missing confirmation forbade."""

    id: str
    action: str
    state: Literal["running", "done", "stopped", "failed"]
    done: int
    skipped: int


class OperationsOut(Out):
    """Newest first."""

    operations: list[OperationView]


class TimesView(Out):
    """How long jobs waited, or ran, in one minute: seconds, estimated within buckets; null without any."""

    count: int
    p50: float | None
    p95: float | None
    p99: float | None


class MinuteView(Out):
    minute: datetime
    counts: dict[str, int]
    """Enqueued, claimed, done, failed, dead, …"""
    wait: TimesView
    run: TimesView


class HistoryOut(Out):
    """Oldest first; minutes in which nothing happened, too."""

    minutes: list[MinuteView]


class Health(Out):
    status: Literal["ok"]


class Ready(Out):
    status: Literal["ready"]
    durability: Durability


def job_view(job: Job, why: str | None = None) -> JobView:
    attempts = [_attempt(attempt) for attempt in job.attempts]
    return JobView(**_fields(job), attempts=attempts, why=why)


def job_line(job: Job) -> JobLine:
    return JobLine(**_fields(job))


def _fields(job: Job) -> dict[str, Any]:
    fields = {name: getattr(job, name) for name in JobLine.__struct_fields__ if name not in _MADE}
    return fields | {
        "payload": _raw(job.body),
        "result": _raw(job.result_body),
        "progress": _raw(job.progress_body),
        "key_ttl": "forever" if math.isinf(job.key_ttl) else job.key_ttl,
        "error": job.errors[-1].error if job.errors else None,
    }


_MADE = frozenset({"payload", "result", "progress", "key_ttl", "error"})


def _raw(body: bytes | None) -> Raw:
    """Stored JSON as it is, numbers to the last digit."""
    return Raw(b"null" if body is None else body)


def _attempt(attempt: Attempt) -> AttemptView:
    return AttemptView(**msgspec.structs.asdict(attempt))


def pause_view(pause: Pause | None) -> PauseView | None:
    return None if pause is None else PauseView(since=pause.since, until=pause.until, reason=pause.reason, by=pause.by)


def stats_fields(stats: QueueStats) -> dict[str, Any]:
    return msgspec.structs.asdict(stats) | {"rates": dict(stats.rates)}


class Controls(NamedTuple):
    """What operators have set, by queue."""

    limits: Mapping[str, Limits]
    policies: Mapping[str, QueuePolicy]
    pauses: Mapping[str, Pause]


def queue_view(queue: str, stats: QueueStats, controls: Controls) -> QueueView:
    limit = controls.limits.get(queue)
    return QueueView(
        **stats_fields(stats),
        queue=queue,
        max_depth=limit.max_depth if limit else None,
        policy=controls.policies.get(queue, NO_POLICY),
        pause=pause_view(controls.pauses.get(queue)),
    )


def worker_view(seen: WorkerSeen) -> WorkerView:
    fields = {name: getattr(seen.beat, name) for name in WorkerView.__struct_fields__ if name not in ("since", "seen_at")}
    return WorkerView(**fields, since=seen.since, seen_at=seen.seen_at)


def audit_view(record: AuditRecord) -> AuditView:
    return AuditView(**msgspec.structs.asdict(record))
