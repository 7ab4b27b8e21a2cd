"""What a job may wait for: pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from hawser.errors import FieldError, InvalidJob
from hawser.ids import is_id


class HasId(Protocol):
    """A job or a handle."""

    @property
    def id(self) -> str: ...


UpstreamJob = HasId | str
"""A job that another waits for: it, its handle, or its id."""

MAX_UPSTREAM: Final = 200_000
"""Jobs that one job may wait for."""


def upstream_id(job: UpstreamJob) -> str:
    """The id of a job to wait for."""
    return job if isinstance(job, str) else getattr(job, "id", repr(job))


def upstream_faults(ids: object, own: str | None = None, group: str | None = None) -> Iterator[FieldError]:
    if not isinstance(ids, tuple):
        yield FieldError("after", f"{ids!r} is not a list of jobs; give new jobs, handles or ids")
    elif len(ids) > MAX_UPSTREAM:
        yield FieldError("after", f"{len(ids):,} jobs to wait for; at most {MAX_UPSTREAM:,}: use a batch")
    elif wrong := [id for id in ids if not isinstance(id, str) or not is_id(id)]:
        yield FieldError("after", f"{wrong[0]!r} is not a job; give a new job, a handle or the id of a job")
    elif own in ids:
        yield FieldError("after", "the job would wait for itself; leave it out")
    elif ids and group is not None:
        yield FieldError("after", "a job of a group cannot wait for others; give it no group, or let a handler enqueue it")


def joined_upstream(
    before: tuple[str, ...], jobs: tuple[UpstreamJob, ...], was: str, on: str, group: str | None = None
) -> tuple[str, ...]:
    """The jobs that a job waits for, with more of them; `InvalidJob` says what is wrong."""
    if on not in ("done", "ended"):
        raise InvalidJob(FieldError("on", f"{on!r} is neither 'done' nor 'ended'"))
    if before and was != on:
        raise InvalidJob(FieldError("on", "a job waits in one way for all its jobs: for done, or for ended; leave one out"))
    ids = (*before, *(upstream_id(job) for job in jobs))
    if faults := tuple(upstream_faults(ids, group=group)):
        raise InvalidJob(*faults)
    return tuple(dict.fromkeys(ids))
