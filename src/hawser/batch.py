"""Batches: jobs that are counted together, and the jobs that follow when they have ended. The values, and their rules: pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Final, assert_never

import msgspec

from hawser.errors import FieldError, InvalidJob
from hawser.job import NewJob, State
from hawser.value.ids import is_id, new_id
from hawser.value.name import text_fault
from hawser.value.upstream import batch_faults

MAX_BATCH_NAME: Final = 128
"""Characters of a batch's name."""

ADDED_AT_ONCE: Final = 1_000
"""Jobs that `batch.add` writes at most in one call of the store."""


class BatchState(StrEnum):
    """Where a batch stands."""

    OPEN = "open"
    """Its producer has not closed it: more jobs may come."""
    RUNNING = "running"
    """Closed, and some of its jobs have not ended."""
    DONE = "done"
    DEAD = "dead"
    """All have ended, and at least one is dead."""
    CANCELLED = "cancelled"
    """All have ended, none is dead, and at least one is cancelled."""

    @property
    def job_state(self) -> State:
        """The state of a job that stands as the batch does; ready until it has ended."""
        match self:
            case BatchState.OPEN | BatchState.RUNNING:
                return State.READY
            case BatchState.DONE | BatchState.DEAD | BatchState.CANCELLED:
                return State(self.value)
            case _:
                assert_never(self)


class NewBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch on its way into a store. Made by `new_batch`, which checks every field."""

    id: str = msgspec.field(default_factory=new_id)
    name: str
    """A label; several batches may have the same."""
    parent: str | None = None
    """The batch in which this one counts as one job until it has ended."""
    then: NewJob | None = None
    """Released when the batch is closed and all its jobs have ended, however."""
    on_success: NewJob | None = None
    """Released when all its jobs are done, also when that takes a requeue after the end."""
    on_dead: NewJob | None = None
    """Released at the first death of one of its jobs."""

    @property
    def follow_ups(self) -> dict[str, NewJob]:
        """The jobs that it releases, by the words for them, each waiting for the batch."""
        given = {"then": (self.then, "ended"), "on_success": (self.on_success, "done"), "on_dead": (self.on_dead, "died")}
        return {
            word: msgspec.structs.replace(job, waits_for=(self.id,), waits_on=on)
            for word, (job, on) in given.items()
            if job is not None
        }


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as it stands. `waiting`, `running`, `done`, `dead` and `cancelled` add up to `total`."""

    id: str
    name: str
    created_at: datetime
    total: int = 0
    """Its jobs; a batch inside it counts as one."""
    waiting: int = 0
    running: int = 0
    done: int = 0
    dead: int = 0
    cancelled: int = 0
    closed: bool = False
    """Whether its producer has closed it; until then it does not end."""
    cancel_asked: bool = False
    reason: str | None = None
    """Why it was cancelled, if a reason was given."""
    parent: str | None = None
    """The batch that it counts in."""
    ended_at: datetime | None = None
    """When all its jobs had ended; the last time, if some were requeued since."""
    then: str | None = None
    on_success: str | None = None
    on_dead: str | None = None
    """The ids of the jobs that it releases."""

    @property
    def state(self) -> BatchState:
        """open, running, done, dead or cancelled."""
        left = self.waiting + self.running
        return state_of(closed=self.closed, left=left, dead=self.dead, cancelled=self.cancelled)


class BatchPage(msgspec.Struct, frozen=True):
    """Some batches, newest first, and where to go on; `next` is None at the end."""

    batches: list[Batch]
    next: str | None = None


def state_of(*, closed: bool, left: int, dead: int, cancelled: int) -> BatchState:
    """Where a batch stands with so many members that have not ended, that are dead and that are cancelled."""
    if not closed:
        return BatchState.OPEN
    if left:
        return BatchState.RUNNING
    return BatchState.DEAD if dead else BatchState.CANCELLED if cancelled else BatchState.DONE


def new_batch(**fields: object) -> NewBatch:
    """A checked `NewBatch`; raises `InvalidJob` that names every field at fault."""
    batch = NewBatch(**fields)  # type: ignore[arg-type]  # judged below
    if errors := tuple(_faults(batch)):
        raise InvalidJob(*errors)
    return batch


def _faults(batch: NewBatch) -> Iterator[FieldError]:
    if not isinstance(batch.id, str) or not is_id(batch.id):
        yield FieldError("id", f"{batch.id!r} is not a UUIDv7 in lower case with hyphens; leave it out and one is made")
    if fault := text_fault(batch.name, MAX_BATCH_NAME):
        yield FieldError("name", fault)
    yield from batch_faults("parent", batch.parent)
    if batch.parent == batch.id:
        yield FieldError("parent", "the batch would count in itself; leave it out")
    for word in ("then", "on_success", "on_dead"):
        if (job := getattr(batch, word)) is not None and (fault := _follow_up_fault(job, batch.id)):
            yield FieldError(word, fault)


def _follow_up_fault(job: object, batch: str) -> str | None:
    if not isinstance(job, NewJob):
        return f"{type(job).__qualname__} is not a new job; make one with task.job(…)"
    if job.waits_for:
        return "it waits for other jobs already; leave that out: it waits for the batch"
    if job.key is not None:
        return "it has a key, and is released once without one; leave the key out"
    return "it would be one of the jobs that it waits for; give it no batch, or another one" if job.batch == batch else None
