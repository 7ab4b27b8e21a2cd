"""Enqueue: add the jobs that are new, in the writer's transaction.

A transaction holds the file's write lock from its first statement on, so what is read here cannot change before it is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from hawser.batch import NewBatch
from hawser.job import NewJob, State
from hawser.policy import attempts_of
from hawser.store import (
    Enqueued,
    RequestKey,
)
from hawser.stores import dedup
from hawser.stores.batches import any_batch
from hawser.stores.columns import values_of
from hawser.stores.debounce import Debouncing, any_debounced
from hawser.stores.dependencies import any_waits, standing_for
from hawser.stores.order import due_at, first_lane, lane_number
from hawser.stores.sqlite import batches, debounce, requests
from hawser.stores.sqlite.dependencies import cancel_waiting, check_upstream, hold_back, tell
from hawser.stores.sqlite.tx import Tx

_json = msgspec.json.Encoder().encode


def enqueue(tx: Tx, jobs: Sequence[NewJob], request: RequestKey | None = None) -> list[Enqueued]:
    if request is not None and (made := requests.recall(tx, request)) is not None:
        return made
    debouncing = debounce.debouncing(tx, jobs) if any_debounced(jobs) else None
    answers = _accept(tx, jobs if debouncing is None else debouncing.jobs, debouncing)
    if debouncing is not None:
        answers = debouncing.answers(answers)
    tally_duplicates(tx, jobs, answers)
    if request is not None:
        requests.remember(tx, request, answers)
    return answers


def _accept(tx: Tx, jobs: Sequence[NewJob], debouncing: Debouncing | None) -> list[Enqueued]:
    """Add what is to be added; all is judged before anything is written."""
    answers, added = sort_out(tx, jobs, strict=True, debouncing=debouncing)
    stands_for = standing_for(jobs, answers) if any_waits(added) else None
    if stands_for is not None:
        check_upstream(tx, jobs, added, stands_for)
    batched = any_batch(jobs)
    if batched:
        batches.check(tx, jobs, answers)
    dedup.check_depth(added, tx.max_depth, tx.waiting)
    add(tx, added, None)
    if batched:
        batches.join_holders(tx, jobs, answers)
    if stands_for is not None:
        hold_back(tx, added, stands_for)
    if debouncing is not None:
        debounce.note(tx, added)
        for each in debouncing.replacements:
            debounce.replace_payload(tx, each)
    return answers


def follow_on(tx: Tx, parent_id: str, batch: str | None, jobs: Sequence[NewJob]) -> None:
    """Add the jobs that follow from one of that batch."""
    answers, added = sort_out(tx, jobs)
    reasons: dict[str, str] = {}
    if batched := any_batch(jobs):
        added, reasons = batches.accepted(tx, jobs, answers, added, batch)
    add(tx, added, parent_id)
    if any_waits(added):
        hold_back(tx, [job for job in added if job.id not in reasons], standing_for(jobs, answers))
    for job in added:
        if job.id in reasons:
            tell(tx, cancel_waiting(tx, job.id, reasons[job.id]))
    if batched:
        batches.join_holders(tx, jobs, answers, reasons.keys())
    tally_duplicates(tx, jobs, answers)


def open_batch(tx: Tx, batch: NewBatch) -> bool:
    """Add a batch and the jobs that it releases."""
    if not batches.open_batch(tx, batch):
        return False
    jobs = list(batch.follow_ups.values())
    answers, added = sort_out(tx, jobs, strict=True)
    batches.check(tx, jobs, answers)
    dedup.check_depth(added, tx.max_depth, tx.waiting)
    batches.add(tx, batch)
    add(tx, added, None)
    hold_back(tx, added, {})
    return True


def sort_out(
    tx: Tx, jobs: Sequence[NewJob], *, strict: bool = False, debouncing: Debouncing | None = None
) -> tuple[list[Enqueued], list[NewJob]]:
    """What to answer for each job, and which of them to add."""
    rows = tx.con.execute(tx.sql["known"], {"ids": _json([job.id for job in jobs])})
    known = {id: dedup.Stands(*stands) for id, *stands in rows}
    return dedup.sort_out(jobs, known.get, tx.holder, strict=strict, debouncing=debouncing)


def add(tx: Tx, jobs: Sequence[NewJob], parent_id: str | None) -> None:
    """Insert jobs that are known to be new."""
    rows = []
    counts: Counter[tuple[str, str, int, int]] = Counter()
    for job in jobs:
        run_at = due_at(job, tx.now)
        lane = lane_number(first_lane(job, run_at, tx.now), job.group)
        attempts = attempts_of(job.max_attempts, tx.max_attempts(job.queue))
        if parent_id is not None:
            job = replace(job, parent_id=parent_id)  # noqa: PLW2901  # the row of this job
        rows.append((job.id, job.task, job.queue, job.priority, lane, run_at, tx.now, attempts, *values_of(job, tx.now)))
        counts[job.queue, job.task, job.priority, lane] += 1
        if job.key is not None:
            tx.hold_key(job)
        if job.batch is not None:
            tx.count_member(job.batch, None, State.READY)
        tx.open_group(job.queue, job.task, job.priority, job.group, run_at)
    tx.con.executemany(tx.sql["add"], rows)
    for (queue, task, priority, lane), n in counts.items():
        tx.wait(queue, task, priority, lane, +n)
        tx.tally(queue, task, "enqueued", n)


def tally_duplicates(tx: Tx, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
    for job in dedup.duplicates(jobs, answers):
        tx.tally(job.queue, job.task, "deduplicated")
