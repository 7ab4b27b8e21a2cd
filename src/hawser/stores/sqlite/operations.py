"""The operator's actions. Each is one piece of work inside a write transaction, and leaves its audit record there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from hawser.clock import from_datetime, to_us
from hawser.history import Measured
from hawser.job import NewJob, State
from hawser.policy import NO_POLICY, QueuePolicy
from hawser.store import AUDIT_KEPT, WORKER_KEPT, Acted, Beat, Limits, Retention, Signature, Target
from hawser.stores.order import Lane
from hawser.stores.sqlite import jobs
from hawser.stores.sqlite.tx import Tx
from hawser.stores.tally import KEEP_MINUTES, MINUTE, event_of


class Found(NamedTuple):
    """A job that an operator acts on. Same order as in `target`."""

    seq: int
    id: str
    task: str
    queue: str
    priority: int
    state: str
    lane: int
    attempt: int
    lease: int
    key: str | None
    key_ttl: float


def act(tx: Tx, action: str, ids: Sequence[str], sign: Signature, do: Callable[[Tx, Found, Signature], Acted]) -> list[Acted]:
    """Do one thing to each job, and say so once."""
    answers = []
    for id in ids:
        row = tx.con.execute(tx.sql["target"], {"id": id}).fetchone()
        answers.append(do(tx, Found._make(row), sign) if row else Acted.NOT_FOUND)
    changed = sum(answer in (Acted.DONE, Acted.ASKED) for answer in answers)
    if changed:
        note(tx, action, ids[0] if len(ids) == 1 else "jobs", changed, sign)
    return answers


def note(tx: Tx, action: str, target: str, count: int, sign: Signature) -> None:
    record = {"at": tx.now, "by": sign.by, "action": action, "target": target, "count": count, "reason": sign.reason}
    tx.con.execute(tx.sql["note"], record)


def cancel(tx: Tx, job: Found, sign: Signature) -> Acted:
    if job.state == State.RUNNING:
        tx.con.execute(tx.sql["ask_to_cancel"], {"seq": job.seq, "reason": sign.reason})
        return Acted.ASKED
    if job.state != State.READY:
        return Acted.WRONG_STATE
    tx.move(job.queue, job.task, job.priority, Lane(job.lane), -1)
    _end(tx, job, sign)
    if job.key is not None and not job.key_ttl:
        tx.free_key(job.queue, job.key, job.id)
    return Acted.DONE


def discard(tx: Tx, job: Found, sign: Signature) -> Acted:
    if job.state != State.DEAD:
        return Acted.WRONG_STATE
    tx.move(job.queue, job.task, job.priority, State.DEAD, -1)
    _end(tx, job, sign)
    return Acted.DONE


def _end(tx: Tx, job: Found, sign: Signature) -> None:
    """Finish a job that is not running as cancelled."""
    tx.con.execute(tx.sql["end"], {"state": State.CANCELLED, "now": tx.now, "reason": sign.reason, "seq": job.seq})
    tx.move(job.queue, job.task, job.priority, State.CANCELLED, +1)
    tx.tally(job.queue, job.task, State.CANCELLED.value)


def requeue(tx: Tx, job: Found, sign: Signature) -> Acted:  # noqa: ARG001  # one shape for all actions
    if job.state not in (State.DEAD, State.CANCELLED):
        return Acted.WRONG_STATE
    if job.key is not None and not job.key_ttl:
        if tx.holder(job.queue, job.key) is not None:
            return Acted.KEY_TAKEN
        tx.hold_live_key(job.queue, job.key, job.id)
    tx.con.execute(tx.sql["requeue"], {"lane": Lane.TIMED, "now": tx.now, "seq": job.seq})
    tx.move(job.queue, job.task, job.priority, State(job.state), -1)
    tx.move(job.queue, job.task, job.priority, Lane.TIMED, +1)
    return Acted.DONE


def replacing(new: NewJob) -> Callable[[Tx, Found, Signature], Acted]:
    """Discard a dead job and put another in its place."""

    def replace(tx: Tx, job: Found, sign: Signature) -> Acted:
        if job.state != State.DEAD:
            return Acted.WRONG_STATE
        answers, added = jobs.sort_out(tx, (new,))
        if answers[0].id != new.id:
            return Acted.KEY_TAKEN
        discard(tx, job, sign)
        jobs.add(tx, added, job.id)
        return Acted.DONE

    return replace


def pause(tx: Tx, target: Target, sign: Signature, until: datetime | None) -> None:
    ends = None if until is None else from_datetime(until)
    row = {"kind": target.kind, "name": target.name, "since": tx.now, "until": ends, "reason": sign.reason, "by": sign.by}
    tx.con.execute(tx.sql["pause"], row)
    tx.controls_changed()
    note(tx, "pause", f"{target.kind}:{target.name}", 0, sign)


def resume(tx: Tx, target: Target, sign: Signature) -> bool:
    rows = tx.con.execute(tx.sql["resume"], {"kind": target.kind, "name": target.name}).fetchall()
    tx.controls_changed()
    stood = any(until is None or until > tx.now for (until,) in rows)
    if stood:
        note(tx, "resume", f"{target.kind}:{target.name}", 0, sign)
    return stood


def set_limits(tx: Tx, queue: str, limits: Limits, sign: Signature) -> None:
    tx.con.execute(tx.sql["set_limits"], {"queue": queue, "max_depth": limits.max_depth})
    tx.controls_changed()
    note(tx, "set_limits", f"queue:{queue}", 0, sign)


def set_policy(tx: Tx, queue: str, policy: QueuePolicy, sign: Signature) -> None:
    text = None if policy == NO_POLICY else msgspec.json.encode(policy)
    tx.con.execute(tx.sql["set_policy"], {"queue": queue, "policy": text, "max_attempts": policy.max_attempts})
    tx.controls_changed()
    note(tx, "set_policy", f"queue:{queue}", 0, sign)


def beat(tx: Tx, beats: Sequence[Beat], gone: Sequence[str]) -> None:
    about = [(each.worker, tx.now, tx.now, msgspec.json.encode(each)) for each in beats]
    tx.con.executemany(tx.sql["beat"], about)
    tx.con.executemany(tx.sql["forget_worker"], [(name,) for name in gone])


def measure(tx: Tx, measured: Sequence[Measured]) -> None:
    for each in measured:
        tx.tally(each.queue, each.task, event_of(each), each.count)


def prune(tx: Tx, retention: Retention, by_task: Mapping[str, Retention], limit: int) -> int:
    tx.flush()
    tx.sweep_keys(limit)
    removed = 0
    for task, *any_of in tx.con.execute(tx.sql["tasks"]).fetchall():
        for state, some in zip((State.DONE, State.DEAD, State.CANCELLED), any_of, strict=True):
            if some and removed < limit:
                kept_for = getattr(by_task.get(task, retention), state)
                removed += _prune(tx, task, state, tx.now - to_us(kept_for), limit - removed)
    tx.flush()
    tx.con.execute(tx.sql["forget_tallies"], {"minute": tx.now // MINUTE - KEEP_MINUTES})
    tx.con.execute(tx.sql["forget_pauses"], {"now": tx.now})
    tx.con.execute(tx.sql["forget_workers"], {"before": tx.now - to_us(WORKER_KEPT)})
    tx.con.execute(tx.sql["forget_audit"], {"before": tx.now - to_us(AUDIT_KEPT)})
    tx.con.execute(tx.sql["forget_lanes"])
    tx.con.execute(tx.sql["forget_queues"])
    return removed


def _prune(tx: Tx, task: str, state: State, before: int, limit: int) -> int:
    which = {"task": task, "state": state, "before": before, "limit": limit}
    rows = tx.con.execute(tx.sql["prunable"], which).fetchall()
    for _, id, _, queue, priority, key in rows:
        tx.move(queue, task, priority, state, -1)
        if key is not None:
            tx.free_key(queue, key, id)
    seqs = [(row[0],) for row in rows]
    tx.con.executemany(tx.sql["remove_attempts"], seqs)
    tx.con.executemany(tx.sql["remove"], seqs)
    return len(rows)
