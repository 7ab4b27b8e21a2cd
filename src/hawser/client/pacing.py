"""Many jobs at a pace: their due times are spread, so the store holds them all at once and no producer has to go on running."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from hawser.clock import MAX_DELAY
from hawser.errors import ConfigError
from hawser.job import NewJob
from hawser.limit import rate_of
from hawser.value.job_time import refuse_debounce

JOBS_PER_WRITE: Final = 1_000
"""Jobs that are written at once."""

FULL_QUEUE_RETRY_S: Final = 0.5
"""Seconds until a queue that is full is tried again."""


def spread(jobs: Sequence[NewJob], rate: str) -> list[NewJob]:
    """The jobs, each due one step of the rate behind the one before it."""
    starts, period = rate_of(rate)
    step = period / starts
    if step * len(jobs) > MAX_DELAY:
        raise ConfigError(f"rate: {len(jobs):,} jobs at {rate} would take longer than 10 years; use a higher rate")
    return [_later(job, n * step) for n, job in enumerate(jobs)]


def _later(job: NewJob, seconds: float) -> NewJob:
    refuse_debounce(job.debounce, "debounce", "given together with a rate, which says when the job is due; leave one of them out")
    if job.run_at is not None:
        return replace(job, run_at=job.run_at + timedelta(seconds=seconds))
    return replace(job, delay=min(MAX_DELAY, job.delay + seconds))


class PacedWrites:
    """The writes of one paced call. A queue that is full takes fewer at once, and is waited for."""

    def __init__(self, jobs: Sequence[NewJob], rate: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._jobs = spread(jobs, rate)
        self._clock = clock
        self._began = clock()
        self._done = 0
        self._size = JOBS_PER_WRITE

    def __iter__(self) -> Iterator[list[NewJob]]:
        """The jobs to write next, until all are written; the same again when the write was refused."""
        while self._done < len(self._jobs):
            late = self._clock() - self._began
            some = self._jobs[self._done : self._done + self._size]
            # Delays count from the write: what the writes before it took is made up for.
            yield [job if job.run_at is not None else replace(job, delay=max(0.0, job.delay - late)) for job in some]

    def wrote(self, count: int) -> None:
        self._done += count
        self._size = min(JOBS_PER_WRITE, 2 * self._size)

    def refused(self) -> float:
        """The queue is full: how many seconds to wait before the next write."""
        if self._size == 1:
            return FULL_QUEUE_RETRY_S
        self._size //= 2
        return 0.0
