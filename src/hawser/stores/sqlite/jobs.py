"""The worker's side: enqueue, claim, settle, extend, reclaim. Each is one piece of work inside a write transaction.

A transaction holds the file's write lock from its first statement on, so what is read here cannot change before it is written.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from hawser.clock import to_us
from hawser.fingerprint import fingerprint
from hawser.job import FOREVER, Claimed, KeyScope, NewJob, State
from hawser.outcome import Step, abandoned, follow, worked
from hawser.policy import attempts_of
from hawser.store import (
    HISTORY,
    SETTLE_GRACE,
    Enqueued,
    LeaseRef,
    LeaseStatus,
    Leave,
    Reclaimed,
    RequestKey,
    SettleAnswer,
    Settled,
    Settlement,
    Share,
)
from hawser.stores import dedup
from hawser.stores.columns import read_tags, values_of
from hawser.stores.order import Entry, Lane, choose, due_at, first_lane, lane_of
from hawser.stores.sqlite import requests
from hawser.stores.sqlite.tx import Tx
from hawser.stores.tally import STALE_EXTENSION, events_of

_GRACE: Final = to_us(SETTLE_GRACE)
_DONE: Final = Step(State.DONE, "done")
_json = msgspec.json.Encoder().encode


class RunningRow(NamedTuple):
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


def enqueue(tx: Tx, jobs: Sequence[NewJob], request: RequestKey | None = None) -> list[Enqueued]:
    if request is not None and (made := requests.recall(tx, request)) is not None:
        return made
    answers, added = sort_out(tx, jobs, strict=True)
    dedup.check_depth(added, tx.max_depth, tx.waiting)
    add(tx, added, None)
    tally_duplicates(tx, jobs, answers)
    if request is not None:
        requests.remember(tx, request, answers)
    return answers


def sort_out(tx: Tx, jobs: Sequence[NewJob], *, strict: bool = False) -> tuple[list[Enqueued], list[NewJob]]:
    """What to answer for each job, and which of them to add."""
    rows = tx.con.execute(tx.sql["known"], {"ids": _json([job.id for job in jobs])})
    known = {id: dedup.Stands(*stands) for id, *stands in rows}
    return dedup.sort_out(jobs, known.get, tx.holder, strict=strict)


def add(tx: Tx, jobs: Sequence[NewJob], parent_id: str | None) -> None:
    """Insert jobs that are known to be new."""
    rows = []
    counts: Counter[tuple[str, str, int, Lane]] = Counter()
    for job in jobs:
        run_at = due_at(job, tx.now)
        lane = first_lane(job, run_at, tx.now)
        attempts = attempts_of(job.max_attempts, tx.max_attempts(job.queue))
        if parent_id is not None:
            job = replace(job, parent_id=parent_id)  # noqa: PLW2901  # the row of this job
        rows.append((job.id, job.task, job.queue, job.priority, lane, run_at, tx.now, attempts, *values_of(job)))
        counts[job.queue, job.task, job.priority, lane] += 1
        if job.key is not None:
            tx.hold_key(job)
    tx.con.executemany(tx.sql["add"], rows)
    for (queue, task, priority, lane), n in counts.items():
        tx.move(queue, task, priority, lane, +n)
        tx.tally(queue, task, "enqueued", n)


def tally_duplicates(tx: Tx, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
    for job in dedup.duplicates(jobs, answers):
        tx.tally(job.queue, job.task, "deduplicated")


class LaneCursor:
    """A lane's due jobs, read only as far as they are taken."""

    __slots__ = ("_cursor", "_without", "head", "task", "waited")

    def __init__(self, cursor: sqlite3.Cursor, task: str, without: Collection[str], *, waited: bool) -> None:
        self._cursor = cursor
        self._without = without
        self.task = task
        self.waited = waited
        self.head: Entry | None = None
        self.pop()

    def pop(self) -> None:
        self.head = self._cursor.fetchone()
        while self._without and self.head is not None and self.head[2] in self._without:
            self.head = self._cursor.fetchone()


def claim(
    tx: Tx, queues: Sequence[Share], limit: int, worker: str, lease_for: float, turn: int, room: Mapping[str, int], leave: Leave
) -> list[Claimed]:
    tx.flush()
    most = limit + len(leave.jobs)

    def levels(queue: str) -> list[list[LaneCursor]]:
        by_priority: dict[int, list[LaneCursor]] = {}
        if not tx.paused("queue", queue):
            for task, priority, *depths in tx.con.execute(tx.sql["lanes"], {"queue": queue}).fetchall():
                if task not in leave.tasks and not tx.paused("task", task):
                    sources = by_priority.setdefault(priority, [])
                    for lane in Lane:
                        if depths[lane]:
                            cursor = tx.con.execute(tx.sql["due"], (queue, task, priority, lane, tx.now, most))
                            sources.append(LaneCursor(cursor, task, leave.jobs, waited=lane is not Lane.FRESH))
        return list(by_priority.values())

    lease_us = to_us(lease_for)
    claimed: list[Claimed] = []
    starts = []
    counts: Counter[tuple[str, str, int, int]] = Counter()
    for entry in choose(queues, limit, turn, tx.now, levels, dict(room)):
        run_at, seq, id, task, queue, priority, attempt, max_attempts, lease, enqueued_at, crashes, lane, *given = entry
        body, timeout, key, parent_id, schedule, tags, tick = given
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
                tags=read_tags(tags) if tags else (),
                parent_id=parent_id,
                schedule=schedule,
                tick_us=tick,
                crashes=crashes,
                hint=(seq, queue, task, priority, attempt + 1, max_attempts, key),
            )
        )
    tx.con.executemany(tx.sql["start"], starts)
    for (queue, task, priority, lane), n in counts.items():
        tx.move(queue, task, priority, Lane(lane), -n)
        tx.move(queue, task, priority, State.RUNNING, +n)
        tx.tally(queue, task, "claimed", n)
    return claimed


def settle(tx: Tx, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
    """Most runs are done and nothing follows from them: those are written at once, the others one by one."""
    plain = [settlement for settlement in settlements if _is_plain(settlement)]
    twice = len({settlement.id for settlement in settlements}) < len(settlements)
    if not plain or twice or not _finish(tx, plain):
        return _settle(tx, settlements)
    rest = [settlement for settlement in settlements if not _is_plain(settlement)]
    answers = iter(_settle(tx, rest)) if rest else iter(())
    return [_finished(settlement) if _is_plain(settlement) else next(answers) for settlement in settlements]


def _finished(settlement: Settlement) -> SettleAnswer:
    _, queue, task, _, attempt, max_attempts, _ = settlement.hint
    return SettleAnswer(Settled.SETTLED, task, queue, State.DONE, None, attempt, max_attempts)


def _is_plain(settlement: Settlement) -> bool:
    hint = settlement.hint
    return hint is not None and worked(settlement.outcome) and settlement.keep and not settlement.then and hint[-1] is None


def _finish(tx: Tx, settlements: Sequence[Settlement]) -> bool:
    """Finish runs that all still stand, or change nothing and say False."""
    rows = []
    counts: Counter[tuple[Any, ...]] = Counter()
    for settlement in settlements:
        seq, *kind, _, _ = settlement.hint
        assert worked(settlement.outcome)
        rows.append((tx.now, settlement.outcome.result, seq, settlement.id, settlement.lease))
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


def _settle(tx: Tx, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
    held = _held(tx, settlements)
    answers: list[SettleAnswer | None] = []
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
        answers.append(SettleAnswer(Settled.SETTLED, run.task, run.queue, step.state, step.due_in, run.attempt, run.max_attempts))
    leaving.write()
    if None in answers:
        refused = _refused(tx, [s for s, answer in zip(settlements, answers, strict=True) if answer is None])
        return [refused[s.id, s.lease] if answer is None else answer for s, answer in zip(settlements, answers, strict=True)]
    return [answer for answer in answers if answer is not None]


def _held(tx: Tx, leases: Sequence[Settlement] | Sequence[LeaseRef]) -> dict[tuple[str, int], RunningRow]:
    """The fence, for many runs at once."""
    pairs = _json([(ref.id, ref.lease) for ref in leases])
    runs = map(RunningRow._make, tx.con.execute(tx.sql["held"], {"leases": pairs}))
    return {(run.id, run.lease): run for run in runs}


def _refused(tx: Tx, settlements: Sequence[Settlement]) -> dict[tuple[str, int], SettleAnswer]:
    """What to say of settlements that the fence did not let through."""
    standing = _standing(tx, settlements)
    said: dict[tuple[str, int], SettleAnswer] = {}
    for settlement in settlements:
        lease, settled, state, queue, task, run_at, *attempts = standing.get(settlement.id, (None, None, None, None, None, 0))
        if settlement.lease == lease == settled and state != State.RUNNING:
            after = max(0, run_at - tx.now) / 1_000_000 if state == State.READY else None
            answer = SettleAnswer(Settled.REPEATED, task, queue, State(str(state)), after, *attempts)
        else:
            answer = SettleAnswer(Settled.LOST, task, queue)
            tx.tally(queue or "", task or "", "stale")
        said[settlement.id, settlement.lease] = answer
    return said


def _standing(tx: Tx, refused: Sequence[Settlement] | Sequence[LeaseRef]) -> dict[str, list[Any]]:
    """Lease, last settled lease, state, queue, task, due time and attempts of jobs, by id."""
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
        self._dead: list[tuple[Any, ...]] = []

    def add(self, run: RunningRow, step: Step, *, keep: bool = True, reclaimed: bool = False) -> None:
        """The run goes where the step says; when it was reclaimed, a new lease number keeps it from ever settling."""
        tx = self._tx
        # The lease number from now on, and the lease that settled the job.
        leases = (run.lease + 1, None) if reclaimed else (run.lease, run.lease)
        for event in events_of(step, run.attempt):
            tx.tally(run.queue, run.task, event)
        tx.move(run.queue, run.task, run.priority, State.RUNNING, -1)
        if step.recorded and step.state is not State.DONE:  # what is done stands in the row
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

    def _finish(self, run: RunningRow, step: Step, *, keep: bool, leases: tuple[int, int | None]) -> None:
        tx = self._tx
        if step.state is not State.DONE:
            ended = (step.state.value, Lane.TIMED, None, tx.now, run.attempt, run.returned, *leases, run.cancel_asked)
            self._leave(run, step, ended)
            if step.state is State.DEAD:
                error = step.failure.error if step.failure else None
                self._dead.append((run.seq, run.id, run.task, run.queue, fingerprint(error or step.reason)))
        elif keep:
            self._done.append((tx.now, step.result, run.seq, run.id, run.lease))
        else:
            self._removed.append((run.seq,))
        kept = keep or step.state is not State.DONE
        if kept:
            tx.move(run.queue, run.task, run.priority, step.state, +1)
        if run.key is not None and (run.key_ttl != FOREVER or not kept):
            tx.free_key(KeyScope(run.queue, run.task, run.key), run.id)

    def _leave(self, run: RunningRow, step: Step, place: tuple[Any, ...]) -> None:
        keeps_reason = step.state is State.CANCELLED and step.reason is None and bool(run.cancel_asked)
        self._left.append((*place, keeps_reason, step.reason, step.crashed, run.seq))

    def write(self) -> None:
        tx = self._tx
        writes = ("finish", self._done), ("leave", self._left), ("record", self._records), ("bury", self._dead)
        for name, rows in (*writes, ("remove", self._removed)):
            if rows:
                tx.con.executemany(tx.sql[name], rows)
        if self._removed:
            tx.con.executemany(tx.sql["remove_attempts"], self._removed)
        if long := [(row[0], row[0], HISTORY) for row in self._records if row[1] > HISTORY]:
            tx.con.executemany(tx.sql["trim_attempts"], long)
        for rows in (self._done, self._left, self._records, self._dead, self._removed):
            rows.clear()


def extend(tx: Tx, leases: Sequence[LeaseRef], lease_for: float) -> list[LeaseStatus]:
    held = _held(tx, leases)
    answers = []
    stale = []
    longer: dict[int, tuple[int, int, int]] = {}
    noted = []
    for ref in leases:
        run = held.get((ref.id, ref.lease))
        until = 0 if run is None else min(tx.now + to_us(lease_for), run.started_at + to_us(run.timeout) + _GRACE)
        if run is None or max(until, run.lease_until) <= tx.now:
            stale.append(ref)
            answers.append(LeaseStatus.LOST)
            continue
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
            _, _, _, queue, task, *_ = standing.get(ref.id, (0, 0, "", "", ""))
            tx.tally(queue, task, STALE_EXTENSION)
    return answers


def reclaim(tx: Tx, limit: int, *, clock_was_set_back: bool) -> list[Reclaimed]:
    if clock_was_set_back:
        tx.con.execute(tx.sql["cut_leases"], {"now": tx.now})
    rows = tx.con.execute(tx.sql["expired"], {"now": tx.now, "limit": limit})
    runs = [(RunningRow._make(row[:-1]), bool(row[-1])) for row in rows]
    leaving = Leaving(tx)
    reclaimed = []
    for run, renewed in runs:
        asked = bool(run.cancel_asked)
        step = abandoned(run.worker, renewed=renewed, attempt=run.attempt, max_attempts=run.max_attempts, cancel_asked=asked)
        leaving.add(run, step, reclaimed=True)
        reclaimed.append(Reclaimed(run.id, run.task, run.queue, run.worker, run.attempt, step.state, renewed, step.due_in))
    leaving.write()
    return reclaimed
