"""Batches, in the writer's transaction: their counts change in the write that changes a member."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from hawser.batch import Batch, BatchPage, BatchState, NewBatch, state_of
from hawser.clock import to_us
from hawser.job import NewJob, State
from hawser.store import BEHIND_READ, Acted, Actor, Enqueued, Retention
from hawser.stores.batches import (
    CANCELLED,
    ENDED,
    reason_against,
    refusal,
    shown,
)
from hawser.stores.circles import check_circles, in_circles, member_waits
from hawser.stores.dependencies import REMOVED, UNKNOWN, UpstreamStanding
from hawser.stores.sqlite.dependencies import standings, tell
from hawser.stores.sqlite.tx import Tx

MEMBERS_PER_CANCEL: Final = 1_000
"""Members that are cancelled in one transaction."""

MEMBERS_COUNTED_UP_TO: Final = 200
"""Members that have not ended up to which a prune counts them."""

_ENDED: Final = (State.DONE, State.DEAD, State.CANCELLED)
_json = msgspec.json.Encoder().encode


def against(tx: Tx, ids: Sequence[str], own: str | None = None) -> dict[str, str]:
    """Of these batches, those to which no job can be added, and why. `own` is that of the job that the new ones follow from: it
    takes them although it has ended before, for that job was requeued since."""
    rows = {id: rest for id, *rest in tx.con.execute(tx.sql["batch_standings"], {"ids": _json(ids)})}
    found = {id: UNKNOWN for id in ids if id not in rows}
    for id, (_, _, cancelled, ended) in rows.items():
        if cancelled or (ended and id != own):
            found[id] = CANCELLED if cancelled else ENDED
    return found


def check(tx: Tx, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
    """Refuse jobs of batches that take no more. Those that are here already change nothing."""
    coming = [
        job.batch
        for job, answer in zip(jobs, answers, strict=True)
        if job.batch is not None and (answer.created or (answer.id != job.id and not _counts(tx, job.batch, answer.id)))
    ]
    for id, why in against(tx, list(dict.fromkeys(coming))).items():
        raise refusal(id, why)
    if waits := member_waits(jobs, answers):
        check_circles(waits, partial(_behind, tx), partial(_may_wait, tx))


def _behind(tx: Tx, batch: str) -> set[str]:
    """All that waits for a batch, directly or over others."""
    return {id for (id,) in tx.con.execute(tx.sql["waits_behind"], {"batch": batch, "limit": BEHIND_READ + 1})}


def _may_wait(tx: Tx, ids: Collection[str]) -> list[str]:
    """Those of these that may wait for others: held jobs, and batches."""
    return [id for (id,) in tx.con.execute(tx.sql["may_wait"], {"ids": _json([*ids])})]


def _counts(tx: Tx, batch: str, id: str) -> bool:
    return tx.con.execute(tx.sql["is_member"], {"job": id, "batch": batch}).fetchone() is not None


def accepted(
    tx: Tx, jobs: Sequence[NewJob], answers: Sequence[Enqueued], added: Sequence[NewJob], own: str | None
) -> tuple[list[NewJob], dict[str, str]]:
    """The jobs to add of those that follow from another, without their batch where it does not take them; and why these are
    cancelled, by id. Of a job that is not added, since its key is held, it says why the holder does not count."""
    refused = against(tx, [job.batch for job in jobs if job.batch is not None], own)
    reasons = {job.id: reason_against(job.batch, refused[job.batch]) for job in added if job.batch in refused}
    if waits := [each for each in member_waits(jobs, answers) if each.batch not in refused]:
        for id, found in in_circles(waits, partial(_behind, tx), partial(_may_wait, tx)).items():
            reasons[id] = reason_against(found.batch, found.why)
    return [msgspec.structs.replace(job, batch=None) if job.id in reasons else job for job in added], reasons


def join_holders(tx: Tx, jobs: Sequence[NewJob], answers: Sequence[Enqueued], refused: Collection[str] = frozenset()) -> None:
    """Where the key of a job of a batch is held, the holder counts, unless the job is among those refused. One that is not kept
    was done."""
    for job, answer in zip(jobs, answers, strict=True):
        if job.batch is None or answer.id == job.id or job.id in refused or _counts(tx, job.batch, answer.id):
            continue
        if not tx.con.execute(tx.sql["batch_standings"], {"ids": _json([job.batch])}).fetchone():
            continue
        found = tx.con.execute(tx.sql["states_of"], {"ids": _json([answer.id])}).fetchone()
        state = State(found[1]) if found else State.DONE
        _count_other(tx, job.batch, answer.id, state if state.finished else State.READY)


def _count_other(tx: Tx, batch: str, id: str, state: State) -> None:
    tx.con.execute(tx.sql["count_other"], (batch, id, state.value))
    tx.dependencies_changed()
    tx.count_member(batch, None, state)


def fold(tx: Tx) -> None:
    """Write the counts that changed, and go on with those that wait for a batch that stands otherwise now."""
    while changes := tx.take_batch_changes():
        for id, change in changes.items():
            found = tx.con.execute(tx.sql["count_members"], {"id": id, **change}).fetchone()
            if found is not None:
                _judge(tx, id, *found, changed=bool(change["died"]))


def _judge(tx: Tx, id: str, was: str, closed: int, left: int, dead: int, cancelled: int, died: int, *, changed: bool) -> None:
    state = state_of(closed=bool(closed), left=left, dead=dead, cancelled=cancelled)
    if state != was:
        changed = True
        ends = state.job_state.finished and not BatchState(was).job_state.finished
        tx.con.execute(tx.sql["stand_otherwise"], {"id": id, "state": state, "ended_at": tx.now if ends else None})
    if changed:
        tell(tx, {id: UpstreamStanding(state.job_state, bool(died), batch=True)})


def open_batch(tx: Tx, batch: NewBatch) -> bool:
    """Add the batch itself; False when it is there already."""
    if tx.con.execute(tx.sql["batch_standings"], {"ids": _json([batch.id])}).fetchone():
        return False
    if batch.parent is not None and (why := against(tx, [batch.parent]).get(batch.parent)):
        raise refusal(batch.parent, why, "parent")
    return True


def add(tx: Tx, batch: NewBatch) -> None:
    ids = (each and each.id for each in (batch.then, batch.on_success, batch.on_dead))
    tx.con.execute(tx.sql["add_batch"], (batch.id, batch.name, batch.parent, tx.now, *ids))
    if batch.parent is not None:
        _count_other(tx, batch.parent, batch.id, State.READY)


def close(tx: Tx, id: str) -> Acted:
    found = tx.con.execute(tx.sql["batch_standings"], {"ids": _json([id])}).fetchone()
    if found is None:
        return Acted.NOT_FOUND
    if not tx.con.execute(tx.sql["close_batch"], (id,)).rowcount:
        return Acted.WRONG_STATE
    tx.touch_batch(id)
    return Acted.DONE


def cancel(tx: Tx, id: str, actor: Actor) -> Acted:
    """Say that a batch is cancelled, and the batches inside it; the members follow."""
    standing = standings(tx, [id]).get(id)
    if standing is None or not standing.batch:
        return Acted.NOT_FOUND
    if standing.state.finished:
        return Acted.WRONG_STATE
    left = [id]
    while left:
        one = left.pop()
        tx.con.execute(tx.sql["cancel_batch"], (actor.reason, actor.by, one))
        tx.touch_batch(one)
        left += [inside for (inside,) in tx.con.execute(tx.sql["batches_inside"], (one,)).fetchall()]
    return Acted.DONE


def next_members(tx: Tx) -> tuple[list[str], Actor] | None:
    """Some members that are to be cancelled; they count as looked at. None when no batch has any left."""
    found = tx.con.execute(tx.sql["cancelling"]).fetchone()
    if found is None:
        return None
    batch, reason, by, behind = found
    ids = [id for (id,) in tx.con.execute(tx.sql["members_behind"], (batch, behind, MEMBERS_PER_CANCEL)).fetchall()]
    tx.con.execute(tx.sql["cancelled_up_to"], (ids[-1] if len(ids) == MEMBERS_PER_CANCEL else None, batch))
    return ids, Actor(by, reason)


def recount(tx: Tx) -> None:
    """Count members that a process has ended which knows nothing of batches."""
    for id, missing, more_dead, more_cancelled in tx.con.execute(
        tx.sql["uncounted"], {"most": MEMBERS_COUNTED_UP_TO, "limit": MEMBERS_PER_CANCEL}
    ).fetchall():
        dead = max(0, min(missing, more_dead))
        cancelled = max(0, min(missing - dead, more_cancelled))
        change = tx.touch_batch(id)
        change["done"] += missing - dead - cancelled
        change["dead"] += dead
        change["cancelled"] += cancelled
        change["died"] |= dead > 0


def prune(tx: Tx, retention: Retention, limit: int) -> None:
    """Forget batches that ended long ago; what waits for one still is cancelled."""
    for state in _ENDED:
        before = tx.now - to_us(getattr(retention, state))
        for id, died in tx.con.execute(tx.sql["old_batches"], (state, before, limit)).fetchall():
            tx.con.execute(tx.sql["remove_batch"], (id,))
            tx.con.execute(tx.sql["forget_waits"], (id,))
            tell(tx, {id: UpstreamStanding(State.CANCELLED, bool(died), batch=True)}, REMOVED)


def read(con: sqlite3.Connection, sql: Mapping[str, str], id: str) -> Batch | None:
    row = con.execute(sql["batch"], {"id": id}).fetchone()
    return None if row is None else shown(*row)


def page(con: sqlite3.Connection, sql: Mapping[str, str], state: BatchState | None, after: str | None, limit: int) -> BatchPage:
    asked = {"state": state, "after": "g" if after is None else after, "limit": limit + 1}
    ids = [id for (id,) in con.execute(sql["batch_ids"], asked)]
    found = [read(con, sql, id) for id in ids[:limit]]
    return BatchPage([batch for batch in found if batch is not None], ids[limit - 1] if len(ids) > limit else None)


def live(con: sqlite3.Connection, sql: Mapping[str, str]) -> dict[BatchState, int]:
    return {state: con.execute(sql["live_batches"], (state,)).fetchone()[0] for state in (BatchState.OPEN, BatchState.RUNNING)}
