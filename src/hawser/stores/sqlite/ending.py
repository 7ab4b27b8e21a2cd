"""Ending a job that is not running, in the writer's transaction."""

from __future__ import annotations

from typing import NamedTuple

from hawser.job import FOREVER, KeyScope, State
from hawser.store import Actor
from hawser.stores.sqlite.tx import Tx


class FoundJob(NamedTuple):
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
    run_at: int
    group: str | None
    held: int | None
    batch: str | None


def end(tx: Tx, job: FoundJob, actor: Actor, state: State = State.CANCELLED) -> None:
    """Finish a job that is not running."""
    tx.con.execute(tx.sql["end"], {"state": state, "now": tx.now, "reason": actor.reason, "seq": job.seq})
    tx.move(job.queue, job.task, job.priority, state, +1)
    if job.batch is not None:
        tx.count_member(job.batch, State(job.state), state)
    tx.tally(job.queue, job.task, state.value)


def end_waiting(tx: Tx, job: FoundJob, actor: Actor) -> None:
    """Cancel a job that waits."""
    tx.wait(job.queue, job.task, job.priority, job.lane, -1)
    tx.reopen_group(job.task, job.group)
    if job.held is not None:
        tx.hold(job.queue, job.task, job.priority, -1)
        tx.con.execute(tx.sql["forget_waits"], (job.id,))
    end(tx, job, actor)
    if job.key is not None and job.key_ttl != FOREVER:
        tx.free_key(KeyScope(job.queue, job.task, job.key), job.id)
