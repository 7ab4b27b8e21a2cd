"""Jobs, queues, workers and the rest, as an operator sees them over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from hawser.api.bodies import Out
from hawser.job import FOREVER, UNTIL_START, Attempt, Job, State
from hawser.limit import Limit
from hawser.policy import NO_POLICY, QueuePolicy
from hawser.store import AuditRecord, Durability, Pause, QueueStats, WorkerSeen


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


BRIEF: Final = 200
"""Bytes of a progress, characters of an error, that a brief list has at most."""

LEFT_OUT: Final = ("payload", "result", "progress", "error")


class JobLine(Out, kw_only=True):
    """A job in a list; `error` is the last attempt's. A brief list has no payload and no result, but their sizes; no progress
    that is long, and only the beginning of a long error."""

    id: str
    task: str
    queue: str
    payload: Raw | UnsetType = UNSET
    payload_size: int
    """Bytes of JSON."""
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
    key_ttl: float | Literal["forever", "start"]
    tags: tuple[str, ...]
    parent_id: str | None
    batch: str | None
    """The batch that it counts in."""
    confirm_replay: bool
    schedule: str | None
    tick: datetime | None
    group: str | None
    index: tuple[str, ...]
    """The arguments that it is found by, as NAME=VALUE."""
    expires_at: datetime | None
    cancel_asked: bool
    returned: int
    crashes: int
    reason: str | None
    held: bool
    """It waits for other jobs; `run_at` says nothing meanwhile."""
    result: Raw | UnsetType = UNSET
    result_size: int | None
    progress: Raw | UnsetType = UNSET
    error: str | None


class JobView(JobLine, kw_only=True):
    """A job in full. `why` is what keeps it from running; null when it runs or has ended, and for a producer's key."""

    attempts: list[AttemptView]
    why: str | None


class JobsPage(Out):
    """`next` is where to go on; null at the end. A page may be short and still have a `next`: there is more to look through."""

    jobs: list[JobLine]
    next: str | None
    searched: int
    """Jobs that were looked at for this page; when it is full, at least so many."""
    searched_to: datetime | None
    """All newer jobs have been looked at, in this page and those before; null at the end."""
    left_out: list[str]
    """Fields that a brief list leaves out or cuts."""


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
    held: int
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


class LimitedView(StatsView):
    """With what a queue is limited to; null where there is no such limit, and of all queues."""

    max_running: int | None
    """Jobs that may run at once."""
    rate: str | None
    """Jobs that may start in a period, such as 100/m."""
    max_depth: int | None
    """Jobs that may wait."""


class StatsOut(LimitedView):
    """With what the store promises, and how often its server was replaced by a replica."""

    durability: Durability
    done_most: int | None
    failovers: int


class QueueView(LimitedView):
    queue: str
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
    index: tuple[str, ...]
    """The arguments that its jobs are found by."""
    redact: tuple[str, ...]
    """The arguments whose values are redacted."""
    payload_schema: dict[str, Any]
    pause: PauseView | None


class TasksOut(Out):
    tasks: list[TaskView]


class WorkerView(Out):
    worker: str
    host: str
    pid: int
    version: str
    """Of Hawser."""
    app_version: str | None
    """Of the app, as its deploys call it."""
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
    """One action of an operator. `target` is a job's id, `jobs` for several, `queue:NAME`, `task:NAME`, `schedule:NAME`,
    `worker:NAME`, `batch:ID`, `key:ID`, `operation:ID` or `version:NAME`."""

    number: int
    at: datetime
    by: str
    action: str
    target: str
    count: int
    reason: str | None
    filter: dict[str, str] | None
    """What chose the jobs of a bulk action."""
    operation: str | None
    """The bulk action that it was a part of."""
    ids: list[str]
    """Of several jobs those that it changed, the first 1,000."""


class AuditOut(Out):
    """Newest first; `next` is where to go on, null at the end."""

    audit: list[AuditView]
    next: int | None


class GroupView(Out):
    """Dead jobs of one task with one kind of error; the sample is the newest, with the beginning of its error. `id` is what lists
    and actions take as `group`."""

    id: str
    task: str
    fingerprint: str
    count: int
    first_at: datetime
    last_at: datetime
    sample_id: str
    sample_error: str
    new_since: str | None
    """The version of the app that works now, when the oldest of these jobs died after it began to."""


class GroupsOut(Out):
    """`grouped` counts the jobs of these groups. `ungrouped` counts dead jobs of any queue and task that an older version wrote
    and that will be grouped soon, up to 10,000. `complete` is false when there are such, or more groups."""

    groups: list[GroupView]
    grouped: int
    ungrouped: int
    complete: bool


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


def brief_line(job: Job) -> JobLine:
    """Without what may be large."""
    line = job_line(job)
    line.payload = line.result = UNSET
    if job.progress_body is not None and len(job.progress_body) > BRIEF:
        line.progress = UNSET
    if line.error is not None and len(line.error) > BRIEF:
        line.error = f"{line.error[:BRIEF]}…"
    return line


def _fields(job: Job) -> dict[str, Any]:
    fields = {name: getattr(job, name) for name in JobLine.__struct_fields__ if name not in _MADE}
    return fields | {
        "payload": _raw(job.body),
        "payload_size": len(job.body),
        "result": _raw(job.result_body),
        "result_size": None if job.result_body is None else len(job.result_body),
        "progress": _raw(job.progress_body),
        "key_ttl": {FOREVER: "forever", UNTIL_START: "start"}.get(job.key_ttl, job.key_ttl),
        "error": job.errors[-1].error if job.errors else None,
    }


_MADE = frozenset({"payload", "payload_size", "result", "result_size", "progress", "key_ttl", "error"})


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

    limits: Mapping[str, Limit]
    policies: Mapping[str, QueuePolicy]
    pauses: Mapping[str, Pause]


def limit_fields(limit: Limit | None) -> dict[str, Any]:
    """What the limit of a queue says, beside its figures."""
    limit = limit or Limit()
    return {"max_running": limit.running, "rate": limit.rate, "max_depth": limit.max_depth}


def queue_view(queue: str, stats: QueueStats, controls: Controls) -> QueueView:
    return QueueView(
        **stats_fields(stats),
        queue=queue,
        **limit_fields(controls.limits.get(queue)),
        policy=controls.policies.get(queue, NO_POLICY),
        pause=pause_view(controls.pauses.get(queue)),
    )


def worker_view(seen: WorkerSeen) -> WorkerView:
    fields = {name: getattr(seen.beat, name) for name in WorkerView.__struct_fields__ if name not in ("since", "seen_at")}
    return WorkerView(**fields, since=seen.since, seen_at=seen.seen_at)


def audit_view(record: AuditRecord) -> AuditView:
    return msgspec.convert(record, AuditView, from_attributes=True)
