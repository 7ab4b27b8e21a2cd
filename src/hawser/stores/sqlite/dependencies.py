"""Jobs that wait for others, in the writer's transaction: who ends a job goes on with those that wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from hawser.batch import BatchState
from hawser.job import NewJob, State
from hawser.store import Actor
from hawser.stores.dependencies import (
    FAR,
    UNKNOWN,
    UpstreamStanding,
    check_order,
    dooms,
    due_when_released,
    hold_of,
    is_over,
    reason_of,
    standing_of,
    unknown,
    upstream_of,
)
from hawser.stores.order import Lane, due_at, first_lane, lane_number
from hawser.stores.sqlite.ending import FoundJob, end_waiting
from hawser.stores.sqlite.tx import Tx
from hawser.value.upstream import WaitsOn

ON: Final[tuple[WaitsOn, ...]] = ("done", "ended", "died")
"""What of others a job waits for, by the number that stands in `any_end`."""

SWEPT: Final = 1_000
"""Jobs that one sweep goes on with."""

_json = msgspec.json.Encoder().encode


def check_upstream(tx: Tx, jobs: Sequence[NewJob], added: Sequence[NewJob], stands_for: Mapping[str, str]) -> None:
    """Refuse jobs that wait for what is not there."""
    check_order(jobs)
    coming = {job.id for job in added}
    ids = [id for id in dict.fromkeys(id for job in added for id in upstream_of(job, stands_for)) if id not in coming]
    known = standings(tx, ids)
    if missing := [id for id in ids if id not in known]:
        raise unknown(missing)


def standings(tx: Tx, ids: Sequence[str]) -> dict[str, UpstreamStanding]:
    """How these jobs and batches stand, by id."""
    if not ids:
        return {}
    asked = {"ids": _json(ids)}
    found = {id: standing_of(State(state)) for id, state in tx.con.execute(tx.sql["states_of"], asked)}
    if len(found) < len(ids):
        for id, state, died, _, _ in tx.con.execute(tx.sql["batch_standings"], asked):
            found[id] = UpstreamStanding(BatchState(state).job_state, bool(died), batch=True)
    return found


def hold_back(tx: Tx, added: Sequence[NewJob], stands_for: Mapping[str, str]) -> None:
    """Hold those of the new jobs back that wait for others."""
    for job in added:
        if job.waits_for:
            _hold_back(tx, job, upstream_of(job, stands_for))


def _hold_back(tx: Tx, job: NewJob, upstream: Sequence[str]) -> None:
    found, on = standings(tx, upstream), job.waits_on
    if _doomed(upstream, found, on) is None and all(is_over(found[id], on) for id in upstream):
        return
    now, where = tx.now, (job.queue, job.task, job.priority)
    tx.move(*where, first_lane(job, due_at(job, now), now), -1)
    tx.move(*where, Lane.TIMED, +1)
    tx.hold(*where, +1)
    tx.con.execute(tx.sql["hold_back"], (hold_of(job), len(upstream), lane_number(Lane.TIMED, job.group), FAR, job.id))
    depend(tx, job.id, upstream, on)


def depend(tx: Tx, id: str, upstream: Sequence[str], on: WaitsOn) -> None:
    """A held job waits for these from now on; it is released or cancelled if that is decided already."""
    found = standings(tx, upstream)
    if (reason := _doomed(upstream, found, on)) is not None:
        tell(tx, cancel_waiting(tx, id, reason))
        return
    left = [each for each in upstream if not is_over(found[each], on)]
    if not left:
        release(tx, id)
        return
    tx.con.executemany(tx.sql["depend"], [(id, each, ON.index(on)) for each in left])
    tx.dependencies_changed()


def _doomed(upstream: Sequence[str], found: Mapping[str, UpstreamStanding], on: WaitsOn) -> str | None:
    """Why a job that waits for these is cancelled, if it is."""
    for id in upstream:
        if id not in found:
            return reason_of(id, UNKNOWN)
        if (end := dooms(found[id], on)) is not None:
            return reason_of(id, end, batch=found[id].batch)
    return None


def tell_waiters(tx: Tx, ended: Iterable[tuple[str, State]], removed: str | None = None) -> None:
    """These jobs stand otherwise than before: go on with those that wait for them or count them, and so on down."""
    tell(tx, {id: standing_of(state) for id, state in ended}, removed)


def tell(tx: Tx, told: Mapping[str, UpstreamStanding], removed: str | None = None) -> None:
    """The same, of jobs and batches. A batch that counts one of them is looked at when this work is over."""
    if not tx.any_dependency():
        return
    left = dict(told)
    while left:
        some, left = left, {}
        for id, waiter, on, counted in tx.con.execute(tx.sql["waiters"], {"ids": _json(list(some))}).fetchall():
            standing = some[id]
            if counted is not None:
                if removed is None:
                    _count_again(tx, waiter, id, State(counted), standing.state)
            elif is_over(standing, ON[on]):
                tx.con.execute(tx.sql["no_longer_waits"], (waiter, id))
                if not tx.con.execute(tx.sql["still_waits"], (waiter,)).fetchone():
                    release(tx, waiter)
            elif (end := dooms(standing, ON[on])) is not None:
                left |= cancel_waiting(tx, waiter, reason_of(id, removed or end, batch=standing.batch))
        removed = None


def _count_again(tx: Tx, batch: str, id: str, before: State, state: State) -> None:
    """A batch counts what is not its own job in another state."""
    after = state if state.finished else State.READY
    if after is not before:
        tx.con.execute(tx.sql["counted_as"], (after.value, batch, id))
        tx.count_member(batch, before, after)


def release(tx: Tx, id: str) -> None:
    """A held job waits no longer: it is due when its own time has passed."""
    row = tx.con.execute(tx.sql["held_job"], (id,)).fetchone()
    if row is not None:
        seq, queue, task, priority, group, held = row
        due_at = due_when_released(held, tx.now)
        tx.hold(queue, task, priority, -1)
        tx.con.execute(tx.sql["release"], (due_at, seq))
        tx.open_group(queue, task, priority, group, due_at)
        tx.reopen_group(task, group)


def cancel_waiting(tx: Tx, id: str, reason: str) -> dict[str, UpstreamStanding]:
    """Cancel a job that waits; what stands otherwise by that."""
    row = tx.con.execute(tx.sql["target"], {"id": id}).fetchone()
    if row is None or (job := FoundJob._make(row)).state != State.READY:
        return {}
    end_waiting(tx, job, Actor(reason=reason))
    return {id: standing_of(State.CANCELLED)}


def sweep(tx: Tx) -> None:
    """Go on with jobs whose upstream was ended by a process that knows nothing of dependencies."""
    if tx.any_dependency():
        rows = tx.con.execute(tx.sql["missed"], (SWEPT,)).fetchall()
        # One that is nowhere was done and not kept: who removes a dead one says so.
        tell_waiters(tx, [(id, State(state or State.DONE)) for id, state in rows])
