"""Where a job comes from, what it may wait for, and the batch that it counts in: pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, Literal, Protocol

from hawser.errors import FieldError, InvalidJob
from hawser.value.ids import is_id
from hawser.value.name import name_fault


class HasId(Protocol):
    """A job or a handle."""

    @property
    def id(self) -> str: ...


UpstreamJob = HasId | str
"""A job that another waits for: it, its handle, or its id; or a batch."""

WaitsOn = Literal["done", "ended", "died"]
"""What of others a job waits for: that they are done, have ended, or are dead. Of a batch, one death will do."""

MAX_UPSTREAM: Final = 200_000
"""Jobs that one job may wait for."""


def upstream_id(job: UpstreamJob) -> str:
    """The id of a job to wait for."""
    return job if isinstance(job, str) else getattr(job, "id", repr(job))


def upstream_faults(ids: object, own: str | None = None) -> Iterator[FieldError]:
    if not isinstance(ids, tuple):
        yield FieldError("after", f"{ids!r} is not a list of jobs; give new jobs, handles or ids")
    elif len(ids) > MAX_UPSTREAM:
        yield FieldError("after", f"{len(ids):,} jobs to wait for; at most {MAX_UPSTREAM:,}: use a batch")
    elif wrong := [id for id in ids if not isinstance(id, str) or not is_id(id)]:
        yield FieldError("after", f"{wrong[0]!r} is not a job; give a new job, a handle or the id of a job")
    elif own in ids:
        yield FieldError("after", "the job would wait for itself; leave it out")


def batch_faults(field: str, batch: object, waits_for: object = ()) -> Iterator[FieldError]:
    """What is wrong with the id of a batch, if one is given."""
    if batch is None:
        return
    if not isinstance(batch, str) or not is_id(batch):
        yield FieldError(field, f"{batch!r} is not a batch; give what app.batch(…) gave, or its id")
    elif isinstance(waits_for, tuple) and batch in waits_for:
        yield FieldError(field, "the job would wait for the batch that it counts in; leave one of them out")


def origin_faults(parent_id: object, schedule: object, tick: object) -> Iterator[FieldError]:
    if parent_id is not None and not (isinstance(parent_id, str) and is_id(parent_id)):
        yield FieldError("parent_id", f"{parent_id!r} is not the id of a job")
    if schedule is not None and (fault := name_fault(schedule)):
        yield FieldError("schedule", fault)
    if tick is not None and (schedule is None or not isinstance(tick, datetime) or tick.utcoffset() is None):
        yield FieldError("tick", f"{tick!r} is not a tick of a schedule; leave it out: the scheduler sets it")


def joined_upstream(before: tuple[str, ...], jobs: tuple[UpstreamJob, ...], was: str, on: str) -> tuple[str, ...]:
    """The jobs that a job waits for, with more of them; `InvalidJob` says what is wrong."""
    if on not in ("done", "ended"):
        raise InvalidJob(FieldError("on", f"{on!r} is neither 'done' nor 'ended'"))
    if before and was != on:
        raise InvalidJob(FieldError("on", "a job waits in one way for all its jobs: for done, or for ended; leave one out"))
    ids = (*before, *(upstream_id(job) for job in jobs))
    if faults := tuple(upstream_faults(ids)):
        raise InvalidJob(*faults)
    return tuple(dict.fromkeys(ids))
