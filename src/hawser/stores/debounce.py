"""Debounced jobs: what a call does to the job that waits with its key. The rule, once, for the stores that decide in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hawser.clock import to_us
from hawser.job import KeyScope, NewJob
from hawser.store import Enqueued


class DebouncedHolder(NamedTuple):
    """The live job that was debounced and holds a key."""

    id: str
    newest: str
    """The id of the call whose payload it has."""
    until: int | None
    """When it is due at the latest."""
    started: bool
    """Whether it was ever given out."""


class Replacement(NamedTuple):
    """A job that waits gets the payload of another, which is not added."""

    holder: str
    job: NewJob
    run_at: int


class Judged(NamedTuple):
    """What becomes of a debounced job."""

    answer: Enqueued | None = None
    """None: it is to be added, if its key is free."""
    free: bool = False
    """Whether the key is free: the job that had it has started."""


def any_debounced(jobs: Sequence[NewJob]) -> bool:
    return any(job.debounce is not None for job in jobs)


def due_until(job: NewJob, now: int) -> int | None:
    """When a new job is due at the latest."""
    return None if job.at_most is None else now + to_us(job.at_most)


class Debouncing:
    """The debounced jobs of one call."""

    def __init__(self, jobs: Sequence[NewJob], look: Callable[[KeyScope], DebouncedHolder | None], now: int) -> None:
        newest: dict[KeyScope, NewJob] = {}
        for job in jobs:
            if job.debounce is not None and (other := newest.get(job.key_scope, job)).id <= job.id:
                newest[other.key_scope] = job
        self._newest = newest
        self._all = jobs
        self._look = look
        self._now = now
        self.replacements: list[Replacement] = []
        self.jobs = [job for job in jobs if job.debounce is None or newest[job.key_scope] is job]
        """Those that are looked at: of each key the newest."""

    def judge(self, job: NewJob) -> Judged:
        """What becomes of a job whose id is not known."""
        holder = self._look(job.key_scope)
        if holder is None:
            return Judged()
        if job.id <= holder.newest:
            return Judged(Enqueued(holder.id, created=False, replaced=job.id == holder.newest))
        if holder.started:
            return Judged(free=True)
        due = self._now + to_us(job.delay)
        run_at = due if holder.until is None else min(due, holder.until)
        self.replacements.append(Replacement(holder.id, job, run_at))
        return Judged(Enqueued(holder.id, created=False, replaced=True))

    def answers(self, answers: Sequence[Enqueued]) -> list[Enqueued]:
        """The answers for all jobs of the call, from those for the ones that were looked at."""
        said = {job.id: answer for job, answer in zip(self.jobs, answers, strict=True)}
        return [
            said[job.id]
            if job.debounce is None or (newest := self._newest[job.key_scope]).id == job.id
            else Enqueued(said[newest.id].id, created=False)
            for job in self._all
        ]
