"""The worker's side: enqueue, claim, settle, extend, reclaim. Each is one piece of work inside a write transaction.

A transaction holds the file's write lock from its first statement on, so what is read here cannot change before it is written.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from hawser.clock import from_datetime, to_us
from hawser.job import Claimed, NewJob, State
from hawser.outcome import Done, Step, abandoned, follow
from hawser.policy import attempts_of
from hawser.store import HISTORY, SETTLE_GRACE, Enqueued, LeaseRef, LeaseStatus, Reclaimed, Settled, Settlement, Share
from hawser.stores import intake
from hawser.stores.order import Entry, Lane, choose, due_at, first_lane, lane_of
from hawser.stores.sqlite.tx import Tx
from hawser.stores.tally import events_of

_GRACE: Final = to_us(SETTLE_GRACE)
_DONE: Final = Step(State.DONE, "done")
_json = msgspec.json.Encoder().encode


class Run(NamedTuple):
    """A running job, as the fence lets it through. Same order as in `held` and `expired`."""

    seq: int
    id: str
    lease: int
    task: str
    queue: str
    priority: int
    attempt: int
    max_attempts: int
    timeout: float
    lease_until: int
    started_at: int
    worker: str
    key: str | None
    key_ttl: float
    cancel_asked: int
    returned: int


def enqueue(tx: Tx, jobs: Sequence[NewJob]) -> list[Enqueued]:
    answers, added = sort_out(tx, jobs)
    intake.check_depth(added, tx.max_depth, tx.waiting)
    add(tx, added, None)
    tally_duplicates(tx, jobs, answers)
    return answers


def sort_out(tx: Tx, jobs: Sequence[NewJob]) -> tuple[list[Enqueued], list[NewJob]]:
    """What to answer for each job, and which of them to add."""
    known = {row[0] for row in tx.con.execute(tx.sql["known"], {"ids": _json([job.id for job in jobs])})}
    return intake.sort_out(jobs, known.__contains__, tx.holder)


def add(tx: Tx, jobs: Sequence[NewJob], parent_id: str | None) -> None:
    """Insert jobs that are known to be new."""
    rows = []
    counts: Counter[tuple[str, str, int, Lane]] = Counter()
    for job in jobs:
        run_at = due_at(job, tx.now)
        lane = first_lane(job, run_at, tx.now)
        tags = _json(job.tags).decode() if job.tags else None
        attempts = attempts_of(job.max_attempts, tx.max_attempts(job.queue))
        rows.append(
            (
                *(job.id, job.task, job.queue, job.body, job.priority, lane, run_at, tx.now, attempts, job.timeout),
                *(job.key, job.key_ttl, tags, parent_id or job.parent_id, job.confirm_replay),
                *(job.schedule, None if job.tick is None else from_datetime(job.tick)),
            )
        )
        counts[job.queue, job.task, job.priority, lane] += 1
        if job.key is not None:
            tx.hold_key(job)
    tx.con.executemany(tx.sql["add"], rows)
    for (queue, task, priority, lane), n in counts.items():
        tx.move(queue, task, priority, lane, +n)
        tx.tally(queue, task, "enqueued", n)


def tally_duplicates(tx: Tx, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
    for job in intake.duplicates(jobs, answers):
        tx.tally(job.queue, job.task, "deduplicated")


class LaneCursor:
    """A lane's due jobs, read only as far as they are taken."""

    __slots__ = ("_cursor", "head", "task", "waited")

    def __init__(self, cursor: sqlite3.Cursor, task: str, *, waited: bool) -> None:
        self._cursor = cursor
        self.task = task
        self.waited = waited
        self.head: Entry | None = cursor.fetchone()

    def pop(self) -> None:
        self.head = self._cursor.fetchone()


def claim(
    tx: Tx, queues: Sequence[Share], limit: int, worker: str, lease_for: float, turn: int, room: Mapping[str, int]
) -> list[Claimed]:
    tx.flush()

    def levels(queue: str) -> list[list[LaneCursor]]:
        by_priority: dict[int, list[LaneCursor]] = {}
        if not tx.paused("queue", queue):
            for task, priority, *depths in tx.con.execute(tx.sql["lanes"], {"queue": queue}).fetchall():
                if not tx.paused("task", task):
                    sources = by_priority.setdefault(priority, [])
                    for lane in Lane:
                        if depths[lane]:
                            cursor = tx.con.execute(tx.sql["due"], (queue, task, priority, lane, tx.now, limit))
                            sources.append(LaneCursor(cursor, task, waited=lane is not Lane.FRESH))
        return list(by_priority.values())

    lease_us = to_us(lease_for)
    claimed: list[Claimed] = []
    starts = []
    counts: Counter[tuple[str, str, int, int]] = Counter()
    for entry in choose(queues, limit, turn, tx.now, levels, dict(room)):
        run_at, seq, id, task, queue, body, priority, attempt, max_attempts, timeout, lease, enqueued_at, *rest = entry
        key, tags, parent_id, schedule, tick, crashes, lane = rest
        leased_for = min(lease_us, to_us(timeout) + _GRACE)
        starts.append((tx.now + leased_for, leased_for, tx.now, worker, seq))
        counts[queue, task, priority, lane] += 1
        claimed.append(
            Claimed(
                id=id,
                task=task,
                queue=queue,
                body=body,
                priority=priority,
                attempt=attempt + 1,
                max_attempts=max_attempts,
                timeout=timeout,
                lease=lease + 1,
                run_at_us=run_at,
                enqueued_at_us=enqueued_at,
                key=key,
                tags=tuple(msgspec.json.decode(tags)) if tags else (),
                parent_id=parent_id,
                schedule=schedule,
                tick_us=tick,
                crashes=crashes,
                hint=(seq, queue, task, priority, attempt + 1, key),
            )
        )
    tx.con.executemany(tx.sql["start"], starts)
    for (queue, task, priority, lane), n in counts.items():
        tx.move(queue, task, priority, Lane(lane), -n)
        tx.move(queue, task, priority, State.RUNNING, +n)
        tx.tally(queue, task, "claimed", n)
    return claimed


def settle(tx: Tx, settlements: Sequence[Settlement]) -> list[Settled]:
    """Most runs are done and nothing follows from them: those are written at once, the others one by one."""
    plain = [settlement for settlement in settlements if _is_plain(settlement)]
    twice = len({settlement.id for settlement in settlements}) < len(settlements)
    if not plain or twice or not _finish(tx, plain):
        return _settle(tx, settlements)
    rest = [settlement for settlement in settlements if not _is_plain(settlement)]
    answers = iter(_settle(tx, rest)) if rest else iter(())
    return [Settled.SETTLED if _is_plain(settlement) else next(answers) for settlement in settlements]


def _is_plain(settlement: Settlement) -> bool:
    hint = settlement.hint
    return hint is not None and type(settlement.outcome) is Done and settlement.keep and not settlement.then and hint[-1] is None


def _finish(tx: Tx, settlements: Sequence[Settlement]) -> bool:
    """Finish runs that all still stand, or change nothing and say False."""
    rows = []
    counts: Counter[tuple[Any, ...]] = Counter()
    for settlement in settlements:
        seq, *kind, _ = settlement.hint
        assert isinstance(settlement.outcome, Done)
        rows.append((tx.now, settlement.outcome.result, seq, settlement.id, settlement.lease, tx.now))
        counts[tuple(kind)] += 1
    tx.con.execute("savepoint finish")
    all_stood = tx.con.executemany(tx.sql["finish"], rows).rowcount == len(rows)
    if not all_stood:
        tx.con.execute("rollback to finish")
    tx.con.execute("release finish")
    if all_stood:
        for (queue, task, priority, attempt), n in counts.items():
            tx.move(queue, task, priority, State.RUNNING, -n)
            tx.move(queue, task, priority, State.DONE, +n)
            for event in events_of(_DONE, attempt):
                tx.tally(queue, task, event, n)
    return all_stood


def _settle(tx: Tx, settlements: Sequence[Settlement]) -> list[Settled]:
    held = _held(tx, settlements)
    answers: list[Settled | None] = []
    leaving = Leaving(tx)
    for settlement in settlements:
        run = held.pop((settlement.id, settlement.lease), None)
        if run is None:
            answers.append(None)
            continue
        step = follow(settlement.outcome, attempt=run.attempt, max_attempts=run.max_attempts, cancel_asked=bool(run.cancel_asked))
        leaving.add(run, step, keep=settlement.keep)
        if settlement.then:
            leaving.write()
            children, added = sort_out(tx, settlement.then)
            add(tx, added, run.id)
            tally_duplicates(tx, settlement.then, children)
        answers.append(Settled.SETTLED)
    leaving.write()
    if None in answers:
        refused = _refused(tx, [s for s, answer in zip(settlements, answers, strict=True) if answer is None])
        return [refused[s.id, s.lease] if answer is None else answer for s, answer in zip(settlements, answers, strict=True)]
    return [answer for answer in answers if answer is not None]


def _held(tx: Tx, leases: Sequence[Settlement] | Sequence[LeaseRef]) -> dict[tuple[str, int], Run]:
    """The fence, for many runs at once."""
    pairs = _json([(ref.id, ref.lease) for ref in leases])
    runs = map(Run._make, tx.con.execute(tx.sql["held"], {"leases": pairs, "now": tx.now}))
    return {(run.id, run.lease): run for run in runs}


def _refused(tx: Tx, settlements: Sequence[Settlement]) -> dict[tuple[str, int], Settled]:
    """What to say of settlements that the fence did not let through."""
    standing = _standing(tx, settlements)
    said: dict[tuple[str, int], Settled] = {}
    for settlement in settlements:
        lease, settled, state, queue, task = standing.get(settlement.id, (None, None, None, "", ""))
        if settlement.lease == lease == settled and state != State.RUNNING:
            said[settlement.id, settlement.lease] = Settled.REPEATED
        else:
            said[settlement.id, settlement.lease] = Settled.LOST
            tx.tally(queue, task, "stale")
    return said


def _standing(tx: Tx, refused: Sequence[Settlement] | Sequence[LeaseRef]) -> dict[str, list[Any]]:
    """Lease, last settled lease, state, queue and task of jobs, by id."""
    ids = _json([ref.id for ref in refused])
    return {id: row for id, *row in tx.con.execute(tx.sql["standing"], {"ids": ids})}


class Leaving:
    """Runs on their way out of running, written together."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._done: list[tuple[Any, ...]] = []
        self._left: list[tuple[Any, ...]] = []
        self._records: list[tuple[Any, ...]] = []
        self._removed: list[tuple[int]] = []

    def add(self, run: Run, step: Step, *, keep: bool = True, reclaimed: bool = False) -> None:
        """The run goes where the step says; when it was reclaimed, a new lease number keeps it from ever settling."""
        tx = self._tx
        # The lease number from now on, and the lease that settled the job.
        leases = (run.lease + 1, None) if reclaimed else (run.lease, run.lease)
        for event in events_of(step, run.attempt):
            tx.tally(run.queue, run.task, event)
        tx.move(run.queue, run.task, run.priority, State.RUNNING, -1)
        if step.word not in ("done", "snoozed", "released"):
            error, traceback = (step.failure.error, step.failure.traceback) if step.failure else (None, None)
            self._records.append(
                (run.seq, run.lease, run.attempt, run.worker, run.started_at, tx.now, step.word, error, traceback)
            )
        if step.state is State.READY:
            attempt, returned = (run.attempt, run.returned) if step.burns else (run.attempt - 1, run.returned + 1)
            lane = lane_of(attempt, fresh=False)
            tx.move(run.queue, run.task, run.priority, lane, +1)
            run_at = tx.now + to_us(step.after)
            self._leave(run, step, (State.READY.value, lane, run_at, None, attempt, returned, *leases, 0))
        else:
            self._finish(run, step, keep=keep, leases=leases)

    def _finish(self, run: Run, step: Step, *, keep: bool, leases: tuple[int, int | None]) -> None:
        tx = self._tx
        if step.state is not State.DONE:
            ended = (step.state.value, Lane.TIMED, None, tx.now, run.attempt, run.returned, *leases, run.cancel_asked)
            self._leave(run, step, ended)
        elif keep:
            self._done.append((tx.now, step.result, run.seq, run.id, run.lease, tx.now))
        else:
            self._removed.append((run.seq,))
        kept = keep or step.state is not State.DONE
        if kept:
            tx.move(run.queue, run.task, run.priority, step.state, +1)
        if run.key is not None and (not run.key_ttl or not kept):
            tx.free_key(run.queue, run.key, run.id)

    def _leave(self, run: Run, step: Step, place: tuple[Any, ...]) -> None:
        keeps_reason = step.state is State.CANCELLED and step.reason is None and bool(run.cancel_asked)
        self._left.append((*place, keeps_reason, step.reason, step.word == "lost", run.seq))

    def write(self) -> None:
        tx = self._tx
        for name, rows in (("finish", self._done), ("leave", self._left), ("record", self._records), ("remove", self._removed)):
            if rows:
                tx.con.executemany(tx.sql[name], rows)
        if self._removed:
            tx.con.executemany(tx.sql["remove_attempts"], self._removed)
        if long := [(row[0], row[0], HISTORY) for row in self._records if row[1] > HISTORY]:
            tx.con.executemany(tx.sql["trim_attempts"], long)
        for rows in (self._done, self._left, self._records, self._removed):
            rows.clear()


def extend(tx: Tx, leases: Sequence[LeaseRef], lease_for: float) -> list[LeaseStatus]:
    held = _held(tx, leases)
    answers = []
    stale = []
    longer: dict[int, tuple[int, int, int]] = {}
    noted = []
    for ref in leases:
        run = held.get((ref.id, ref.lease))
        if run is None:
            stale.append(ref)
            answers.append(LeaseStatus.LOST)
            continue
        until = min(tx.now + to_us(lease_for), run.started_at + to_us(run.timeout) + _GRACE)
        if until > run.lease_until:
            longer[run.seq] = (until, until - tx.now, run.seq)
        if ref.progress is not None:
            noted.append((ref.progress, run.seq))
        answers.append(LeaseStatus.CANCEL_ASKED if run.cancel_asked else LeaseStatus.HELD)
    tx.con.executemany(tx.sql["lengthen"], list(longer.values()))
    tx.con.executemany(tx.sql["note_progress"], noted)
    if stale:
        standing = _standing(tx, stale)
        for ref in stale:
            *_, queue, task = standing.get(ref.id, ("", ""))
            tx.tally(queue, task, "stale")
    return answers


def reclaim(tx: Tx, limit: int, *, clock_was_set_back: bool) -> list[Reclaimed]:
    if clock_was_set_back:
        tx.con.execute(tx.sql["cut_leases"], {"now": tx.now})
    runs = [Run._make(row) for row in tx.con.execute(tx.sql["expired"], {"now": tx.now, "limit": limit})]
    leaving = Leaving(tx)
    reclaimed = []
    for run in runs:
        step = abandoned(run.worker, attempt=run.attempt, max_attempts=run.max_attempts, cancel_asked=bool(run.cancel_asked))
        leaving.add(run, step, reclaimed=True)
        reclaimed.append(Reclaimed(run.id, run.task, run.queue, run.worker, run.attempt, step.state))
    leaving.write()
    return reclaimed
