"""The operator's actions. Each is one piece of work inside a write transaction, and leaves its audit record there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import assert_never

import msgspec

from hawser.clock import from_datetime, to_us
from hawser.job import KeyScope, NewJob, State
from hawser.limit import Limit
from hawser.policy import NO_POLICY, QueuePolicy
from hawser.store import AUDIT_KEPT, DONE_LATE, ERROR_TOLD, WORKER_KEPT, Acted, Actor, Beat, LeaseRef, Retention, Target, Weight
from hawser.store.rollup import Measured
from hawser.stores.dependencies import REMOVED
from hawser.stores.order import Lane, lane_number
from hawser.stores.record import BLANK, about_of, noted
from hawser.stores.sqlite import batches, enqueue, group_rules, limits, requests
from hawser.stores.sqlite.dependencies import sweep, tell_waiters
from hawser.stores.sqlite.ending import FoundJob, end, end_waiting
from hawser.stores.sqlite.tx import Tx
from hawser.stores.tally import KEEP_MINUTES, MINUTE_US, event_of
from hawser.value.fingerprint import fingerprint


def act(tx: Tx, action: str, ids: Sequence[str], actor: Actor, do: Callable[[Tx, FoundJob, Actor], Acted]) -> list[Acted]:
    """Do one action to each job, with one audit record."""
    answers = []
    for id in ids:
        row = tx.con.execute(tx.sql["target"], {"id": id}).fetchone()
        answers.append(do(tx, FoundJob._make(row), actor) if row else Acted.NOT_FOUND)
    said = noted(ids, answers)
    if said.changed:
        note(tx, action, said.target, said.changed, actor, said.ids)
    return answers


def note(tx: Tx, action: str, target: str, count: int, actor: Actor, ids: tuple[str, ...] = ()) -> None:
    record = {"at": tx.now, "by": actor.by, "action": action, "target": target, "count": count, "reason": actor.reason}
    tx.con.execute(tx.sql["note"], {**record, "about": about_of(actor, ids)})


def cancel(tx: Tx, job: FoundJob, actor: Actor) -> Acted:
    match state := State(job.state):
        case State.RUNNING:
            tx.con.execute(tx.sql["ask_to_cancel"], {"seq": job.seq, "reason": actor.reason})
            return Acted.ASKED
        case State.READY:
            end_waiting(tx, job, actor)
            tell_waiters(tx, [(job.id, State.CANCELLED)])
            return Acted.DONE
        case State.DONE | State.DEAD | State.CANCELLED:
            return Acted.WRONG_STATE
        case _:
            assert_never(state)


def end_returned(tx: Tx, lost: LeaseRef) -> bool:
    row = tx.con.execute(tx.sql["returned"], {"id": lost.id, "lease": lost.lease}).fetchone()
    return row is not None and cancel(tx, FoundJob._make(row), Actor(reason=DONE_LATE)) is Acted.DONE


def discard(tx: Tx, job: FoundJob, actor: Actor) -> Acted:
    if job.state != State.DEAD:
        return Acted.WRONG_STATE
    tx.move(job.queue, job.task, job.priority, State.DEAD, -1)
    tx.con.execute(tx.sql["remove_dead"], (job.seq,))
    end(tx, job, actor)
    tell_waiters(tx, [(job.id, State.CANCELLED)])
    return Acted.DONE


def requeue(tx: Tx, job: FoundJob, actor: Actor, later: int = 0) -> Acted:  # noqa: ARG001  # one shape for all actions
    if job.state not in (State.DEAD, State.CANCELLED):
        return Acted.WRONG_STATE
    if job.key is not None:
        scope = KeyScope(job.queue, job.task, job.key)
        holder = tx.holder(scope)
        if holder is None:
            tx.hold_live_key(scope, job.id)
        elif holder != job.id:
            return Acted.KEY_TAKEN
    lane = lane_number(Lane.TIMED, job.group)
    tx.con.execute(tx.sql["requeue"], {"lane": lane, "run_at": tx.now + later, "seq": job.seq})
    if job.state == State.DEAD:
        tx.con.execute(tx.sql["remove_dead"], (job.seq,))
    if job.batch is not None:
        tx.count_member(job.batch, State(job.state), State.READY)
    tell_waiters(tx, [(job.id, State.READY)])
    tx.move(job.queue, job.task, job.priority, State(job.state), -1)
    tx.wait(job.queue, job.task, job.priority, lane, +1)
    tx.open_group(job.queue, job.task, job.priority, job.group, tx.now + later)
    return Acted.DONE


def replacing(new: NewJob) -> Callable[[Tx, FoundJob, Actor], Acted]:
    """Discard a dead job and put another in its place."""

    def replace(tx: Tx, job: FoundJob, actor: Actor) -> Acted:
        if job.state != State.DEAD:
            return Acted.WRONG_STATE
        answers, added = enqueue.sort_out(tx, (new,))
        if answers[0].id != new.id:
            return Acted.KEY_TAKEN
        tx.con.execute(tx.sql["wait_instead"], {"job": job.id, "instead": new.id})
        if job.batch is not None:
            tx.con.execute(tx.sql["leave_batch"], (job.seq,))
            tx.count_member(job.batch, State.DEAD, None)
        discard(tx, job._replace(batch=None), actor)
        enqueue.add(tx, [msgspec.structs.replace(each, batch=job.batch) for each in added], job.id)
        tell_waiters(tx, [(new.id, State.READY)])
        return Acted.DONE

    return replace


def close_batch(tx: Tx, id: str, actor: Actor | None) -> Acted:
    said = batches.close(tx, id)
    if actor is not None and said is Acted.DONE:
        note(tx, "close_batch", f"batch:{id}", 0, actor)
    return said


def cancel_batch(tx: Tx, id: str, actor: Actor) -> Acted:
    said = batches.cancel(tx, id, actor)
    if said is Acted.DONE:
        note(tx, "cancel_batch", f"batch:{id}", 0, actor)
    return said


def cancel_members(tx: Tx) -> bool:
    """Cancel some members of batches that are to be cancelled; whether there may be more."""
    found = batches.next_members(tx)
    if found is None:
        return False
    ids, actor = found
    for id in ids:
        row = tx.con.execute(tx.sql["target"], {"id": id}).fetchone()
        if row is not None:
            cancel(tx, FoundJob._make(row), actor)
    return True


def pause(tx: Tx, target: Target, actor: Actor, until: datetime | None) -> None:
    ends = None if until is None else from_datetime(until)
    row = {"kind": target.kind, "name": target.name, "since": tx.now, "until": ends, "reason": actor.reason, "by": actor.by}
    tx.con.execute(tx.sql["pause"], row)
    tx.controls_changed()
    note(tx, "pause", f"{target.kind}:{target.name}", 0, actor)


def resume(tx: Tx, target: Target, actor: Actor) -> bool:
    rows = tx.con.execute(tx.sql["resume"], {"kind": target.kind, "name": target.name}).fetchall()
    tx.controls_changed()
    stood = any(until is None or until > tx.now for (until,) in rows)
    if stood:
        note(tx, "resume", f"{target.kind}:{target.name}", 0, actor)
    return stood


def set_weight(tx: Tx, weight: Weight, actor: Actor) -> None:
    asked = {"queue": weight.queue, "group": weight.group}
    if weight.weight == 1:
        tx.con.execute(tx.sql["clear_weight"], asked)
    else:
        tx.con.execute(tx.sql["set_weight"], {**asked, "weight": weight.weight})
    note(tx, "set_weight", f"queue:{weight.queue}", 0, actor)


def set_limit(tx: Tx, target: Target, limit: Limit | None, actor: Actor) -> bool:
    changed = limits.choose(tx, target, limit, actor)
    if changed:
        note(tx, "clear_limit" if limit is None else "set_limit", f"{target.kind}:{target.name}", 0, actor)
    return changed


def set_policy(tx: Tx, queue: str, policy: QueuePolicy, actor: Actor) -> None:
    text = None if policy == NO_POLICY else msgspec.json.encode(policy)
    tx.con.execute(tx.sql["set_policy"], {"queue": queue, "policy": text, "max_attempts": policy.max_attempts})
    tx.controls_changed()
    note(tx, "set_policy", f"queue:{queue}", 0, actor)


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
    # Before what has ended is removed.
    sweep(tx)
    batches.fold(tx)
    batches.recount(tx)
    removed = 0
    for task, *any_of in tx.con.execute(tx.sql["tasks"]).fetchall():
        for state, some in zip((State.DONE, State.DEAD, State.CANCELLED), any_of, strict=True):
            if some and removed < limit:
                kept_for = getattr(by_task.get(task, retention), state)
                removed += _prune(tx, task, state, tx.now - to_us(kept_for), limit - removed)
    batches.prune(tx, retention, limit)
    batches.fold(tx)
    tx.flush()
    requests.forget(tx, limit)
    tx.con.execute(tx.sql["forget_tallies"], {"minute": tx.now // MINUTE_US - KEEP_MINUTES})
    tx.con.execute(tx.sql["forget_pauses"], {"now": tx.now})
    tx.con.execute(tx.sql["forget_workers"], {"before": tx.now - to_us(WORKER_KEPT)})
    tx.con.execute(tx.sql["forget_audit"], {"before": tx.now - to_us(AUDIT_KEPT)})
    tx.con.execute(tx.sql["forget_events"], {"now": tx.now, "limit": limit})
    tx.con.execute(tx.sql["forget_lanes"])
    tx.con.execute(tx.sql["forget_ungrouped"])
    group_rules.forget(tx)
    tx.con.execute(tx.sql["forget_queues"])
    return removed


def _prune(tx: Tx, task: str, state: State, before: int, limit: int) -> int:
    which = {"task": task, "state": state, "before": before, "limit": limit}
    rows = tx.con.execute(tx.sql["prunable"], which).fetchall()
    for _, id, _, queue, priority, key in rows:
        tx.move(queue, task, priority, state, -1)
        if key is not None:
            tx.free_key(KeyScope(queue, task, key), id)
    seqs = [(row[0],) for row in rows]
    if state is not State.DONE:
        tx.con.executemany(tx.sql["forget_probe"], [(task, row[1]) for row in rows])
    if state is State.DEAD:
        tx.con.executemany(tx.sql["remove_dead"], seqs)
    tx.con.executemany(tx.sql["remove_attempts"], seqs)
    tx.con.executemany(tx.sql["remove_steps"], seqs)
    tx.con.executemany(tx.sql["remove_output"], seqs)
    tx.con.executemany(tx.sql["remove"], seqs)
    if state is State.DEAD:
        tell_waiters(tx, [(row[1], State.CANCELLED) for row in rows], REMOVED)
    return len(rows)


def group_dead(tx: Tx, limit: int) -> int:
    """Group dead jobs that have no group yet."""
    rows = tx.con.execute(tx.sql["ungrouped"], {"limit": limit, "blank": BLANK, "told": ERROR_TOLD}).fetchall()
    tx.con.executemany(tx.sql["group_dead"], [(fingerprint(error), seq) for seq, error in rows])
    return len(rows)
