"""Batches: the rules that all stores share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hawser.batch import Batch
from hawser.clock import at
from hawser.errors import FieldError, InvalidJob
from hawser.job import NewJob
from hawser.stores.dependencies import UNKNOWN

CANCELLED = "is cancelled"
ENDED = "has ended"

NEXT = {UNKNOWN: "open it with app.batch(…) first", ENDED: "open another one", CANCELLED: "open another one"}
"""What to do where a batch cannot be added to."""


def refusal(id: str, why: str, field: str = "batch") -> InvalidJob:
    """The error for those who add to a batch that takes no more."""
    text = f"this store does not have batch {id}" if why == UNKNOWN else f"batch {id} {why}"
    return InvalidJob(FieldError(field, f"{text}: nothing can be added to it; {NEXT[why]}"))


def reason_against(id: str, why: str) -> str:
    """Why a job that followed from another and was to count in such a batch is cancelled."""
    return f"it was to be added to batch {id}, which {why}"


def any_tied(jobs: Sequence[NewJob]) -> bool:
    """Whether one of them waits for others, or counts in a batch."""
    return any(job.waits_for or job.batch is not None for job in jobs)


def any_batch(jobs: Sequence[NewJob]) -> bool:
    return any(job.batch is not None for job in jobs)


def shown(id: str, name: str, parent: str | None, created_at: int, closed: bool, cancelled: bool, *rest: Any) -> Batch:
    """A batch from its row, in the order in which `batch` of SQLite and `batches` of PostgreSQL read it."""
    reason, ended_at, members, done, dead, given_up, then, on_success, on_dead, running = rest
    return Batch(
        id=id,
        name=name,
        created_at=at(created_at),
        total=members,
        waiting=members - done - dead - given_up - running,
        running=running,
        done=done,
        dead=dead,
        cancelled=given_up,
        closed=bool(closed),
        cancel_asked=bool(cancelled),
        reason=reason,
        parent=parent,
        ended_at=None if ended_at is None else at(ended_at),
        then=then,
        on_success=on_success,
        on_dead=on_dead,
    )
