"""Jobs that wait for others, in the writer's transaction: who ends a job goes on with those that wait for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from hawser.job import NewJob, State
from hawser.store import Actor
from hawser.stores.dependencies import (
    FAR,
    REMOVED,
    UNKNOWN,
    check_order,
    due_when_released,
    hold_of,
    is_over,
    reason_of,
    unknown,
    upstream_of,
)
from hawser.stores.order import Lane, due_at, first_lane
from hawser.stores.sqlite.ending import FoundJob, end_waiting
from hawser.stores.sqlite.tx import Tx

SWEPT: Final = 1_000
"""Jobs that one sweep goes on with."""

_json = msgspec.json.Encoder().encode


def check_upstream(tx: Tx, jobs: Sequence[NewJob], added: Sequence[NewJob], stands_for: Mapping[str, str]) -> None:
    """Refuse jobs that wait for what is not there."""
    check_order(jobs)
    coming = {job.id for job in added}
    ids = [id for id in dict.fromkeys(id for job in added for id in upstream_of(job, stands_for)) if id not in coming]
    known = _states(tx, ids)
    if missing := [id for id in ids if id not in known]:
        raise unknown(missing)


def _states(tx: Tx, ids: Sequence[str]) -> dict[str, State]:
    return {id: State(state) for id, state in tx.con.execute(tx.sql["states_of"], {"ids": _json(ids)})} if ids else {}


def hold_back(tx: Tx, added: Sequence[NewJob], stands_for: Mapping[str, str]) -> None:
    """Hold those of the new jobs back that wait for others."""
    for job in added:
        if job.waits_for:
            _hold_back(tx, job, upstream_of(job, stands_for))


def _hold_back(tx: Tx, job: NewJob, upstream: Sequence[str]) -> None:
    states, any_end = _states(tx, upstream), job.waits_for_end
    doomed = next((id for id in upstream if id not in states or (states[id] is State.CANCELLED and not any_end)), None)
    left = [id for id in upstream if id in states and not is_over(states[id], any_end=any_end)]
    if doomed is None and not left:
        return
    now, where = tx.now, (job.queue, job.task, job.priority)
    tx.move(*where, first_lane(job, due_at(job, now), now), -1)
    tx.move(*where, Lane.TIMED, +1)
    tx.hold(*where, +1)
    tx.con.execute(tx.sql["hold_back"], (hold_of(job), len(upstream), Lane.TIMED, FAR, job.id))
    if doomed is not None:
        end = "is cancelled" if doomed in states else UNKNOWN
        tell_waiters(tx, _cancel(tx, job.id, reason_of(doomed, end)))
        return
    tx.con.executemany(tx.sql["depend"], [(job.id, id, any_end) for id in left])
    tx.dependencies_changed()


def tell_waiters(tx: Tx, ended: Iterable[tuple[str, State]], end: str = "is cancelled") -> None:
    """These jobs came to their end: go on with those that wait for them, and so on down."""
    if not tx.any_dependency():
        return
    left = deque(ended)
    while left:
        some = dict(left)
        left.clear()
        for job, waiter, any_end in tx.con.execute(tx.sql["waiters"], {"ids": _json(list(some))}).fetchall():
            if is_over(some[job], any_end=bool(any_end)):
                tx.con.execute(tx.sql["no_longer_waits"], (waiter, job))
                if not tx.con.execute(tx.sql["still_waits"], (waiter,)).fetchone():
                    _release(tx, waiter)
            elif some[job] is State.CANCELLED:
                left.extend(_cancel(tx, waiter, reason_of(job, end)))
        end = "is cancelled"


def _release(tx: Tx, id: str) -> None:
    row = tx.con.execute(tx.sql["held_job"], (id,)).fetchone()
    if row is not None:
        seq, queue, task, priority, _, held = row
        tx.hold(queue, task, priority, -1)
        tx.con.execute(tx.sql["release"], (due_when_released(held, tx.now), seq))


def _cancel(tx: Tx, id: str, reason: str) -> list[tuple[str, State]]:
    """Cancel a held job; the jobs that have come to their end by that."""
    row = tx.con.execute(tx.sql["target"], {"id": id}).fetchone()
    if row is None or (job := FoundJob._make(row)).state != State.READY:
        return []
    end_waiting(tx, job, Actor(reason=reason))
    return [(id, State.CANCELLED)]


def sweep(tx: Tx) -> None:
    """Go on with jobs whose upstream was ended by a process that knows nothing of dependencies."""
    if tx.any_dependency():
        rows = tx.con.execute(tx.sql["missed"], (SWEPT,)).fetchall()
        tell_waiters(tx, [(id, State(state)) for id, state in rows if state is not None])
        tell_waiters(tx, [(id, State.CANCELLED) for id, state in rows if state is None], REMOVED)
