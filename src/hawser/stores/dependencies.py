"""Jobs that wait for others: the rules that all stores share.

A held job is a waiting job whose due time lies far ahead. What it waits for, jobs and batches, stands in rows of its own, one for
each. It is released once: its due time becomes the moment of the release plus its own delay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, assert_never

from hawser.clock import from_datetime, to_us
from hawser.errors import FieldError, InvalidJob
from hawser.job import NewJob, State
from hawser.store import Enqueued
from hawser.value.upstream import WaitsOn, upstream_faults

FAR: Final = 9_000_000_000_000_000
"""The due time of a held job, in microseconds: the year 2255. A number in Lua is exact up to 2**53."""

REASON: Final = "it waited for {kind} {id}, which {end}"
"""Why a job is cancelled with what it waited for."""

CANCELLED: Final = "is cancelled"
REMOVED: Final = "was removed while it was dead"
UNKNOWN: Final = "this store does not have"
NO_DEATH: Final = "ended without a dead job"


class UpstreamStanding(NamedTuple):
    """How a job or a batch stands that others wait for."""

    state: State
    """Of a batch that has not ended: ready."""
    died: bool = False
    """Whether it is dead; of a batch, whether one of its members died."""
    batch: bool = False


def standing_of(state: State) -> UpstreamStanding:
    """How a job stands."""
    return UpstreamStanding(state, state is State.DEAD)


def reason_of(id: str, end: str, *, batch: bool = False) -> str:
    return REASON.format(kind="batch" if batch else "job", id=id, end=end)


def hold_of(job: NewJob) -> int:
    """What is kept of a held job's own time: its delay, or minus its due time."""
    return to_us(job.delay) if job.run_at is None else -from_datetime(job.run_at)


def due_when_released(hold: int, now: int) -> int:
    return now + hold if hold >= 0 else max(now, -hold)


def is_over(standing: UpstreamStanding, on: WaitsOn) -> bool:
    """Whether what stands so is no longer waited for."""
    match on:
        case "done":
            return standing.state is State.DONE
        case "ended":
            return standing.state.finished
        case "died":
            return standing.died
        case _:
            assert_never(on)


def dooms(standing: UpstreamStanding, on: WaitsOn) -> str | None:
    """Why one that waits for what stands so is cancelled; None when it is not."""
    match on:
        case "done":
            return CANCELLED if standing.state is State.CANCELLED else None
        case "ended":
            return None
        case "died":
            return NO_DEATH if standing.state.finished and not standing.died else None
        case _:
            assert_never(on)


def any_waits(jobs: Sequence[NewJob]) -> bool:
    return any(job.waits_for for job in jobs)


def check_order(jobs: Sequence[NewJob]) -> None:
    """A job that waits for another of the same call stands behind it: so no circle can be written."""
    places = {job.id: n for n, job in enumerate(jobs)}
    for n, job in enumerate(jobs):
        if faults := tuple(upstream_faults(job.waits_for, job.id)):
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
    """These cannot be waited for."""
    named = ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
    text = f"this store does not have {named}: it was never enqueued here, or is removed; leave it out or enqueue it, too"
    return InvalidJob(FieldError("after", text))
