"""What stores keep in rows, as it is shown; times are microseconds there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from hawser.access import ApiKey, KeyRecord
from hawser.clock import at
from hawser.job import Attempt, Job, State
from hawser.store import AuditRecord, Beat, DeadLetter, Pause, Target, WorkerSeen

Record = tuple[int, int, str, int, int | None, str, str | None, str | None]
"""Number, lease, worker, started, ended, outcome, error, traceback; times in microseconds."""

BLANK = " \t\n\r\v\f"
"""What a dead letter leaves out in front of an error."""


def shown(record: Record) -> Attempt:
    number, lease, worker, started_at, ended_at, outcome, error, traceback = record
    return Attempt(
        number=number,
        lease=lease,
        worker=worker,
        started_at=at(started_at),
        ended_at=None if ended_at is None else at(ended_at),
        outcome=outcome,
        error=error,
        traceback=traceback,
    )


def job_of(row: Mapping[str, Any], attempts: Sequence[Attempt]) -> Job:
    """The job of a row in a database. A run that is under way or done stands in the row itself, those before it in `attempts`."""
    state = State(row["state"])
    if state in (State.RUNNING, State.DONE):
        run = (row["attempt"], row["lease"], row["worker"], row["started_at"], row["finished_at"], state.value, None, None)
        attempts = [*attempts, shown(run)]
    return Job(
        id=row["id"],
        task=row["task"],
        queue=row["queue"],
        body=row["body"],
        priority=row["priority"],
        state=state,
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        timeout=row["timeout"],
        lease=row["lease"],
        run_at=at(row["run_at"]),
        enqueued_at=at(row["enqueued_at"]),
        started_at=None if row["started_at"] is None else at(row["started_at"]),
        finished_at=None if row["finished_at"] is None else at(row["finished_at"]),
        lease_until=None if row["lease_until"] is None else at(row["lease_until"]),
        worker=row["worker"] if state is State.RUNNING else None,
        key=row["key"],
        key_ttl=row["key_ttl"],
        tags=tuple(msgspec.json.decode(row["tags"])) if row["tags"] else (),
        parent_id=row["parent_id"],
        confirm_replay=bool(row["confirm_replay"]),
        schedule=row["schedule"],
        tick=None if row["tick"] is None else at(row["tick"]),
        cancel_asked=bool(row["cancel_asked"]),
        returned=row["returned"],
        crashes=row["crashes"],
        reason=row["reason"],
        result_body=row["result"],
        progress_body=row["progress"],
        attempts=tuple(attempts),
    )


def letter_of(id: str, task: str, queue: str, error: str | None, finished_at: int) -> DeadLetter:
    return DeadLetter(id, task, queue, error, at(finished_at))


def pause_of(kind: Literal["queue", "task"], name: str, since: int, until: int | None, reason: str | None, by: str) -> Pause:
    return Pause(target=Target(kind, name), since=at(since), until=None if until is None else at(until), reason=reason, by=by)


def worker_of(since: int, seen_at: int, about: str | bytes) -> WorkerSeen:
    return WorkerSeen(beat=msgspec.json.decode(about, type=Beat), since=at(since), seen_at=at(seen_at))


def audit_of(number: int, when: int, by: str, action: str, target: str, count: int, reason: str | None) -> AuditRecord:
    return AuditRecord(number=number, at=at(when), by=by, action=action, target=target, count=count, reason=reason)


def key_of(now: int, about: str | bytes, created_at: int, *times: int | None) -> KeyRecord:
    """An API key; it lives until it is revoked or its time is over."""
    expires_at, revoked_at, used_at = (None if us is None else at(us) for us in times)
    return KeyRecord(
        key=msgspec.json.decode(about, type=ApiKey),
        created_at=at(created_at),
        expires_at=expires_at,
        revoked_at=revoked_at,
        used_at=used_at,
        live=revoked_at is None and (expires_at is None or expires_at > at(now)),
    )
