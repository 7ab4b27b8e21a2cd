"""Which of the jobs that arrive are added, and what is answered: the rule, once, for the stores that decide in Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from hawser.errors import IdConflict, QueueFull
from hawser.job import KeyScope, NewJob
from hawser.store import Enqueued
from hawser.stores.debounce import Debouncing, Judged

NOT_DEBOUNCED: Final = Judged()


class Stands(NamedTuple):
    """A job that the store has, as far as it tells whether another is the same."""

    task: str
    queue: str
    body: bytes


def is_same(job: NewJob, stands: Stands) -> bool:
    """Whether a job with the same id is the same job: of this task, in this queue, with this payload, however it is written."""
    if (job.task, job.queue) != (stands.task, stands.queue):
        return False
    if job.debounce is not None:
        return True  # a later call may have replaced its payload
    return job.body == stands.body or _canonical(job.body) == _canonical(stands.body)


def _canonical(body: bytes) -> bytes | None:
    try:
        return msgspec.json.encode(msgspec.json.decode(body), order="sorted")
    except (msgspec.DecodeError, RecursionError):
        return body


def sort_out(
    jobs: Sequence[NewJob],
    known: Callable[[str], Stands | None],
    holder: Callable[[KeyScope], str | None],
    *,
    strict: bool = False,
    debouncing: Debouncing | None = None,
) -> tuple[list[Enqueued], list[NewJob]]:
    """What to answer for each job, and which of them to add. `holder` gives the job that holds a key now; `debouncing` judges
    those that are debounced.

    Strict: an id that belongs to another job is refused.
    """
    answers: list[Enqueued] = []
    added: dict[str, NewJob] = {}
    taken: dict[KeyScope, str] = {}
    for job in jobs:
        first = added.get(job.id)
        stands = known(job.id) if first is None else Stands(first.task, first.queue, first.body)
        if stands is not None:
            if strict and not is_same(job, stands):
                raise IdConflict(job.id)
            answers.append(Enqueued(job.id, created=False))
            continue
        if job.key is not None:
            scope = job.key_scope
            judged = debouncing.judge(job) if debouncing is not None and job.debounce is not None else NOT_DEBOUNCED
            if judged.answer is not None:
                answers.append(judged.answer)
                continue
            holding = taken.get(scope) or (None if judged.free else holder(scope))
            if holding is not None:
                answers.append(Enqueued(holding, created=False))
                continue
            taken[scope] = job.id
        answers.append(Enqueued(job.id, created=True))
        added[job.id] = job
    return answers, list(added.values())


def check_depth(added: Sequence[NewJob], max_depth: Callable[[str], int | None], waiting: Callable[[str], int]) -> None:
    """Refuse all of them when a queue would wait deeper than its limit."""
    for queue, jobs in Counter(job.queue for job in added).items():
        limit = max_depth(queue)
        if limit is not None and (depth := waiting(queue)) + jobs > limit:
            raise QueueFull(queue, depth, limit)


def duplicates(jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> list[NewJob]:
    """The jobs that an earlier one stands for."""
    return [job for job, answer in zip(jobs, answers, strict=True) if answer.id != job.id]
