"""What stores keep in rows, as it is shown; times are microseconds there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from hawser.clock import at, to_us
from hawser.job import Attempt, Job, State
from hawser.store import (
    AUDIT_IDS,
    BULK_SILENCE,
    Acted,
    AuditRecord,
    Beat,
    BulkOperation,
    BulkPlan,
    BulkState,
    DeadLetter,
    JobEnd,
    Pause,
    Target,
    WorkerSeen,
)
from hawser.store.api_key import Actor, ApiKey, KeyRecord
from hawser.stores.columns import job_fields

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
        priority=row["priority"],
        state=state,
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        lease=row["lease"],
        run_at=at(row["run_at"]),
        enqueued_at=at(row["enqueued_at"]),
        started_at=None if row["started_at"] is None else at(row["started_at"]),
        finished_at=None if row["finished_at"] is None else at(row["finished_at"]),
        lease_until=None if row["lease_until"] is None else at(row["lease_until"]),
        worker=row["worker"] if state is State.RUNNING else None,
        cancel_asked=bool(row["cancel_asked"]),
        returned=row["returned"],
        crashes=row["crashes"],
        reason=row["reason"],
        result_body=row["result"],
        progress_body=row["progress"],
        attempts=tuple(attempts),
        held=row["held"] is not None,
        **job_fields(row),
    )


def end_of(task: str, state: str, error: str | None, result: bytes | None) -> JobEnd | None:
    """How a job ended; None when it is live."""
    return JobEnd(State(state), task, error, result) if State(state).finished else None


def letter_of(id: str, task: str, queue: str, error: str | None, finished_at: int) -> DeadLetter:
    return DeadLetter(id, task, queue, error, at(finished_at))


def pause_of(kind: Literal["queue", "task"], name: str, since: int, until: int | None, reason: str | None, by: str) -> Pause:
    return Pause(target=Target(kind, name), since=at(since), until=None if until is None else at(until), reason=reason, by=by)


def worker_of(since: int, seen_at: int, about: str | bytes) -> WorkerSeen:
    return WorkerSeen(beat=msgspec.json.decode(about, type=Beat), since=at(since), seen_at=at(seen_at))


class _About(msgspec.Struct, omit_defaults=True):
    """What an audit record has in JSON."""

    filter: dict[str, str] | None = None
    operation: str | None = None
    ids: tuple[str, ...] = ()


class Noted(NamedTuple):
    """What an audit record says of an action on jobs."""

    target: str
    changed: int
    ids: tuple[str, ...]


def changed(answers: Sequence[Acted]) -> int:
    """How many jobs an action changed."""
    return sum(answer in (Acted.DONE, Acted.ASKED) for answer in answers)


def noted(ids: Sequence[str], answers: Sequence[Acted]) -> Noted:
    """What to record when these jobs were named, and this became of them."""
    acted_on = [id for id, answer in zip(ids, answers, strict=True) if answer in (Acted.DONE, Acted.ASKED)]
    if len(ids) == 1:
        return Noted(ids[0], len(acted_on), ())
    return Noted("jobs", len(acted_on), tuple(dict.fromkeys(acted_on))[:AUDIT_IDS])


def about_of(actor: Actor, ids: tuple[str, ...] = ()) -> str | None:
    """The part of an audit record that is kept as JSON; None when there is nothing to say."""
    about = _About(None if actor.filter is None else dict(actor.filter), actor.operation, ids)
    return None if about == _About() else msgspec.json.encode(about).decode()


def audit_of(
    number: int, when: int, by: str, action: str, target: str, count: int, reason: str | None, about: str | None
) -> AuditRecord:
    more = _About() if about is None else msgspec.json.decode(about, type=_About)
    return AuditRecord(
        number=number,
        at=at(when),
        by=by,
        action=action,
        target=target,
        count=count,
        reason=reason,
        filter=more.filter,
        operation=more.operation,
        ids=more.ids,
    )


def bulk_of(
    now: int,
    id: str,
    plan: str | bytes,
    state: str,
    owner: str,
    turn: int,
    cursor: str | None,
    done: int,
    skipped: int,
    error: str | None,
    started_at: int,
    seen_at: int,
    ended_at: int | None,
) -> BulkOperation:
    return BulkOperation(
        id=id,
        plan=msgspec.json.decode(plan, type=BulkPlan),
        state=BulkState(state),
        owner=owner,
        turn=turn,
        cursor=cursor,
        done=done,
        skipped=skipped,
        error=error,
        started_at=at(started_at),
        seen_at=at(seen_at),
        ended_at=None if ended_at is None else at(ended_at),
        interrupted=state == BulkState.RUNNING and abs(now - seen_at) >= to_us(BULK_SILENCE),
    )


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
