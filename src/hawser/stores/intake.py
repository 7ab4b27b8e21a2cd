"""Which of the jobs that arrive are added, and what is answered: the rule, once, for the stores that decide in Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from hawser.errors import QueueFull
from hawser.job import NewJob
from hawser.store import Enqueued


def sort_out(
    jobs: Sequence[NewJob], is_known: Callable[[str], bool], holder: Callable[[str, str], str | None]
) -> tuple[list[Enqueued], list[NewJob]]:
    """What to answer for each job, and which of them to add. `holder` gives the job that holds a key of a queue now."""
    answers: list[Enqueued] = []
    added: dict[str, NewJob] = {}
    taken: dict[tuple[str, str], str] = {}
    for job in jobs:
        if job.id in added or is_known(job.id):
            answers.append(Enqueued(job.id, created=False))
            continue
        if job.key is not None:
            holding = taken.get((job.queue, job.key)) or holder(job.queue, job.key)
            if holding is not None:
                answers.append(Enqueued(holding, created=False))
                continue
            taken[job.queue, job.key] = job.id
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
