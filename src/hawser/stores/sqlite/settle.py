"""Settle: outcomes, each fenced by its lease number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from hawser.clock import to_us
from hawser.job import FOREVER, KeyScope, State
from hawser.outcome import Step, follow, worked
from hawser.store import (
    HISTORY,
    LeaseRef,
    SettleAnswer,
    Settled,
    Settlement,
)
from hawser.stores.dependencies import FAR
from hawser.stores.order import Lane, lane_number, lane_of
from hawser.stores.sqlite.dependencies import tell_waiters
from hawser.stores.sqlite.enqueue import follow_on
from hawser.stores.sqlite.running import RunningRow, held
from hawser.stores.sqlite.tx import Tx
from hawser.stores.sqlite.waits import hold_run
from hawser.stores.tally import events_of
from hawser.stores.waits import followers
from hawser.value.fingerprint import fingerprint

_json = msgspec.json.Encoder().encode
_DONE: Final = Step(State.DONE, "done")


def settle(tx: Tx, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
    """Most runs are done and nothing follows from them: those are written at once, the others one by one."""
    are_plain = [_is_plain(settlement) for settlement in settlements]
    plain = [settlement for settlement, is_plain in zip(settlements, are_plain, strict=True) if is_plain]
    twice = len({settlement.id for settlement in settlements}) < len(settlements)
    if not plain or twice or not _finish(tx, plain):
        return _settle(tx, settlements)
    finished = _finished(plain)
    if len(plain) == len(settlements):
        return finished
    rest = [settlement for settlement, is_plain in zip(settlements, are_plain, strict=True) if not is_plain]
    ends, others = iter(finished), iter(_settle(tx, rest))
    return [next(ends if is_plain else others) for is_plain in are_plain]


def _finished(settlements: Sequence[Settlement]) -> list[SettleAnswer]:
    """Those of one kind share their answer."""
    answers: dict[tuple[Any, ...], SettleAnswer] = {}
    for kind in {settlement.hint[1:6] for settlement in settlements}:
        queue, task, _, attempt, max_attempts = kind
        answers[kind] = SettleAnswer(Settled.SETTLED, task, queue, State.DONE, None, attempt, max_attempts)
    return [answers[settlement.hint[1:6]] for settlement in settlements]


def _is_plain(settlement: Settlement) -> bool:
    hint = settlement.hint
    return hint is not None and worked(settlement.outcome) and settlement.keep and not settlement.then and hint[-1] is None


def _finish(tx: Tx, settlements: Sequence[Settlement]) -> bool:
    """Finish runs that all still stand, or change nothing and say False."""
    bare, rows = [], []
    counts: Counter[tuple[Any, ...]] = Counter()
    for settlement in settlements:
        hint, outcome = settlement.hint, settlement.outcome
        assert worked(outcome)
        if outcome.result is None:
            bare.append((hint[0], settlement.id, settlement.lease))
        else:
            rows.append((tx.now, outcome.result, hint[0], settlement.id, settlement.lease))
        counts[hint[1:5]] += 1
    tx.con.execute("savepoint finish")
    stood = tx.con.executemany(tx.sql["finish"], rows).rowcount if rows else 0
    stood += tx.con.execute(tx.sql["finish_all"], {"now": tx.now, "runs": _json(bare)}).rowcount if bare else 0
    all_stood = stood == len(settlements)
    if not all_stood:
        tx.con.execute("rollback to finish")
    tx.con.execute("release finish")
    if all_stood:
        if tx.any_dependency():
            tell_waiters(tx, [(settlement.id, State.DONE) for settlement in settlements])
        for settlement in settlements:
            if settlement.hint[6] is not None:
                tx.reopen_group(settlement.hint[2], settlement.hint[6])
        for (queue, task, priority, attempt), n in counts.items():
            tx.move(queue, task, priority, State.RUNNING, -n)
            tx.move(queue, task, priority, State.DONE, +n)
            for event in events_of(_DONE, attempt):
                tx.tally(queue, task, event, n)
    return all_stood


def _settle(tx: Tx, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
    runs = held(tx, settlements)
    answers: list[SettleAnswer | None] = []
    leaving = LeaveBatch(tx)
    for settlement in settlements:
        run = runs.pop((settlement.id, settlement.lease), None)
        if run is None:
            answers.append(None)
            continue
        step = follow(settlement.outcome, attempt=run.attempt, max_attempts=run.max_attempts, cancel_asked=bool(run.cancel_asked))
        leaving.add(run, step, keep=settlement.keep, hinted=settlement.hint is not None)
        if then := followers(settlement, step):
            leaving.write()
            follow_on(tx, run.id, run.batch, then)
        if step.hold is not None:
            leaving.write()
            hold_run(tx, run, step.hold)
        answers.append(SettleAnswer(Settled.SETTLED, run.task, run.queue, step.state, step.due_in, run.attempt, run.max_attempts))
    leaving.write()
    if None in answers:
        refused = _refused(tx, [s for s, answer in zip(settlements, answers, strict=True) if answer is None])
        return [refused[s.id, s.lease] if answer is None else answer for s, answer in zip(settlements, answers, strict=True)]
    return [answer for answer in answers if answer is not None]


def _refused(tx: Tx, settlements: Sequence[Settlement]) -> dict[tuple[str, int], SettleAnswer]:
    """What to say of settlements that the fence did not let through."""
    standing = standings(tx, settlements)
    said: dict[tuple[str, int], SettleAnswer] = {}
    for settlement in settlements:
        lease, settled, state, queue, task, run_at, *attempts = standing.get(settlement.id, (None, None, None, None, None, 0))
        if settlement.lease == lease == settled and state != State.RUNNING:
            after = max(0, run_at - tx.now) / 1_000_000 if state == State.READY and run_at < FAR else None
            answer = SettleAnswer(Settled.REPEATED, task, queue, State(str(state)), after, *attempts)
        else:
            answer = SettleAnswer(Settled.LOST, task, queue)
            tx.tally(queue or "", task or "", "stale")
        said[settlement.id, settlement.lease] = answer
    return said


def standings(tx: Tx, refused: Sequence[Settlement] | Sequence[LeaseRef]) -> dict[str, list[Any]]:
    """Lease, last settled lease, state, queue, task, due time and attempts of jobs, by id."""
    ids = _json([ref.id for ref in refused])
    return {id: row for id, *row in tx.con.execute(tx.sql["standing"], {"ids": ids})}


class LeaveBatch:
    """Runs on their way out of running, written together."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._done: list[tuple[Any, ...]] = []
        self._left: list[tuple[Any, ...]] = []
        self._records: list[tuple[Any, ...]] = []
        self._removed: list[tuple[int]] = []
        self._stepped: list[tuple[int]] = []
        """Of those that are removed the jobs that may have steps or output: not in their first run, or settled without a hint."""
        self._dead: list[tuple[Any, ...]] = []
        self._ended: list[tuple[str, State]] = []

    def add(self, run: RunningRow, step: Step, *, keep: bool = True, reclaimed: bool = False, hinted: bool = False) -> None:
        """The run goes where the step says; when it was reclaimed, a new lease number keeps it from ever settling."""
        tx = self._tx
        # The lease number from now on, and the lease that settled the job.
        leases = (run.lease + 1, None) if reclaimed else (run.lease, run.lease)
        for event in events_of(step, run.attempt):
            tx.tally(run.queue, run.task, event)
        tx.move(run.queue, run.task, run.priority, State.RUNNING, -1)
        tx.reopen_group(run.task, run.group)
        if step.recorded and step.state is not State.DONE:  # what is done stands in the row
            error, traceback = (step.failure.error, step.failure.traceback) if step.failure else (None, None)
            self._records.append(
                (run.seq, run.lease, run.attempt, run.worker, run.started_at, tx.now, step.word, error, traceback)
            )
        if step.state is State.READY:
            attempt, returned = step.attempts_kept(run.attempt), run.returned + (not step.burns)
            lane = lane_number(lane_of(attempt, fresh=False), run.group)
            tx.wait(run.queue, run.task, run.priority, lane, +1)
            run_at = FAR if step.hold is not None else tx.now + to_us(step.after)
            tx.open_group(run.queue, run.task, run.priority, run.group, run_at)
            self._leave(run, step, (State.READY.value, lane, run_at, None, attempt, returned, *leases, 0))
        else:
            self._finish(run, step, keep=keep, leases=leases, hinted=hinted)

    def _finish(self, run: RunningRow, step: Step, *, keep: bool, leases: tuple[int, int | None], hinted: bool) -> None:
        tx = self._tx
        self._ended.append((run.id, step.state))
        if run.batch is not None:
            tx.count_member(run.batch, State.RUNNING, step.state)
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
            if run.lease > 1 or not hinted:
                self._stepped.append((run.seq,))
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
        writes = ("finish", self._done), ("leave", self._left), ("record", self._records), ("add_dead", self._dead)
        for name, rows in (*writes, ("remove", self._removed)):
            if rows:
                tx.con.executemany(tx.sql[name], rows)
        if self._removed:
            tx.con.executemany(tx.sql["remove_attempts"], self._removed)
        if self._stepped:
            tx.con.executemany(tx.sql["remove_steps"], self._stepped)
            tx.con.executemany(tx.sql["remove_output"], self._stepped)
        if long := [(row[0], row[0], HISTORY) for row in self._records if row[1] > HISTORY]:
            tx.con.executemany(tx.sql["trim_attempts"], long)
        for rows in (self._done, self._left, self._records, self._dead, self._removed, self._stepped):
            rows.clear()
        if self._ended:
            ended, self._ended = self._ended, []
            tell_waiters(tx, ended)
