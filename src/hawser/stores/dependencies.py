"""Jobs that wait for others: the rules that all stores share.

A held job is a waiting job whose due time lies far ahead. What it waits for stands in rows of its own, one per job. It is
released once: its due time becomes the moment of the release plus its own delay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from hawser.clock import from_datetime, to_us
from hawser.errors import FieldError, InvalidJob
from hawser.job import NewJob, State
from hawser.store import Enqueued
from hawser.upstream import upstream_faults

FAR: Final = 9_000_000_000_000_000
"""The due time of a held job, in microseconds: the year 2255. A number in Lua is exact up to 2**53."""

REASON: Final = "it waited for job {id}, which {end}"
"""Why a job is cancelled with the one that it waited for."""

REMOVED: Final = "was removed while it was dead"
UNKNOWN: Final = "this store does not have"


def reason_of(id: str, end: str) -> str:
    return REASON.format(id=id, end=end)


def hold_of(job: NewJob) -> int:
    """What is kept of a held job's own time: its delay, or minus its due time."""
    return to_us(job.delay) if job.run_at is None else -from_datetime(job.run_at)


def due_when_released(hold: int, now: int) -> int:
    return now + hold if hold >= 0 else max(now, -hold)


def is_over(state: State, *, any_end: bool) -> bool:
    """Whether a job in this state is no longer waited for."""
    return state is State.DONE or (any_end and state.finished)


def any_waits(jobs: Sequence[NewJob]) -> bool:
    return any(job.waits_for for job in jobs)


def check_order(jobs: Sequence[NewJob]) -> None:
    """A job that waits for another of the same call stands behind it: so no circle can be written."""
    places = {job.id: n for n, job in enumerate(jobs)}
    for n, job in enumerate(jobs):
        if faults := tuple(upstream_faults(job.waits_for, job.id, job.group)):
            raise InvalidJob(*faults)
        for id in job.waits_for:
            if places.get(id, -1) >= n:
                text = f"job {id} stands behind this one in the same call; put what is waited for in front, and write no circle"
                raise InvalidJob(FieldError("after", text))


def upstream_of(job: NewJob, stands_for: Mapping[str, str]) -> tuple[str, ...]:
    """The jobs that it waits for; where a key is held, the holder in place of the job that was not added."""
    return tuple(dict.fromkeys(stands_for.get(id, id) for id in job.waits_for))


def standing_for(jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> dict[str, str]:
    """The jobs that stand for others of a call, by the ids of those."""
    return {job.id: answer.id for job, answer in zip(jobs, answers, strict=True) if answer.id != job.id}


def unknown(ids: Sequence[str]) -> InvalidJob:
    """These jobs cannot be waited for."""
    named = ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
    text = f"this store does not have {named}: it was never enqueued here, or is removed; leave it out or enqueue it, too"
    return InvalidJob(FieldError("after", text))
