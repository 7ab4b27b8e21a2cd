"""The changes of single jobs. Each is one piece of work inside a write transaction."""

from __future__ import annotations

from collections.abc import Callable

from hawser.job import FOREVER, KeyScope, State
from hawser.store import Acted, Actor, Change
from hawser.stores.order import changed_due, changed_place, lane_number
from hawser.stores.sqlite.dependencies import tell_waiters
from hawser.stores.sqlite.ending import FoundJob, end
from hawser.stores.sqlite.operations import note
from hawser.stores.sqlite.tx import Tx
from hawser.value.fingerprint import fingerprint


def changing(change: Change) -> Callable[[Tx, FoundJob, Actor], Acted]:
    """Give a waiting job another queue, priority or due time."""

    def act(tx: Tx, job: FoundJob, actor: Actor) -> Acted:  # noqa: ARG001  # one shape for all actions
        if job.state != State.READY or job.held is not None:
            return Acted.WRONG_STATE
        queue = job.queue if change.queue is None else change.queue
        priority = job.priority if change.priority is None else change.priority
        if job.key is not None and queue != job.queue and not _move_key(tx, job, queue):
            return Acted.KEY_TAKEN
        run_at, kind = changed_place(job.attempt, changed_due(change, job.run_at, tx.now), tx.now)
        lane = lane_number(kind, job.group)
        place = {"queue": queue, "priority": priority, "lane": lane, "run_at": run_at}
        tx.con.execute(tx.sql["change"], {**place, "seq": job.seq})
        tx.wait(job.queue, job.task, job.priority, job.lane, -1)
        tx.wait(queue, job.task, priority, lane, +1)
        tx.open_group(queue, job.task, priority, job.group, run_at)
        tx.reopen_group(job.task, job.group)
        return Acted.DONE

    return act


def _move_key(tx: Tx, job: FoundJob, queue: str) -> bool:
    """Let the job's hold go along into another queue; False when another job holds the key there."""
    assert job.key is not None
    here, there = KeyScope(job.queue, job.task, job.key), KeyScope(queue, job.task, job.key)
    if tx.holder(there) is not None:
        return False
    found = tx.con.execute(tx.sql["held_until"], {**here._asdict(), "job_id": job.id}).fetchone()
    if found is not None:
        tx.move_key(here, there, job.id, found[0])
    return True


def dead_letter(tx: Tx, job: FoundJob, actor: Actor) -> Acted:
    """End a waiting job as dead."""
    if job.state != State.READY or job.held is not None:
        return Acted.WRONG_STATE
    tx.wait(job.queue, job.task, job.priority, job.lane, -1)
    tx.reopen_group(job.task, job.group)
    end(tx, job, actor, State.DEAD)
    found = tx.con.execute(tx.sql["last_error"], {"seq": job.seq}).fetchone()
    kind = fingerprint((found[0] if found else None) or actor.reason)
    tx.con.execute(tx.sql["add_dead"], (job.seq, job.id, job.task, job.queue, kind))
    if job.key is not None and job.key_ttl != FOREVER:
        tx.free_key(KeyScope(job.queue, job.task, job.key), job.id)
    tell_waiters(tx, [(job.id, State.DEAD)])
    return Acted.DONE


def end_leases(tx: Tx, worker: str, actor: Actor) -> int:
    ended = tx.con.execute(tx.sql["end_leases"], {"now": tx.now, "worker": worker}).rowcount
    if ended:
        note(tx, "reclaim_worker", f"worker:{worker}", ended, actor)
    return ended
