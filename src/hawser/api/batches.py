"""`/batches`: open one, look at it, close it, cancel it. Its jobs come in by `/jobs` with `batch`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from hawser.api.bodies import ID, MAX_HTTP_PAGE, TEXT, Controlled, Id, In, JobIn, Out, ReasonIn, or_none, said
from hawser.api.call import Answer, Call, NoBody, NoQuery
from hawser.api.jobs import new_job_of, within
from hawser.api.problem import Problem
from hawser.batch import MAX_BATCH_NAME, Batch, BatchState, NewBatch, new_batch
from hawser.client.batch_calls import cancel_batch, checked_state, get_batch
from hawser.errors import BatchNotFound
from hawser.store import Acted


class BatchNewIn(In):
    """A batch to open. The jobs that it releases are stored with it, without a key, a group and `after`."""

    name: Annotated[str, said(minLength=1, maxLength=MAX_BATCH_NAME, pattern=TEXT)]
    """A label; several batches may have the same."""
    id: Annotated[str, said(pattern=ID)] | UnsetType = UNSET
    """For lost answers: a UUIDv7 made by the caller. Sent again it opens no second batch."""
    parent: Annotated[str, said(pattern=ID)] | UnsetType = UNSET
    """The batch in which this one counts as one job until it has ended."""
    then: JobIn | UnsetType = UNSET
    """Released when the batch is closed and all its jobs have ended, however."""
    on_success: JobIn | UnsetType = UNSET
    """Released when all its jobs are done, also when that takes a replay."""
    on_dead: JobIn | UnsetType = UNSET
    """Released at the first death of one of its jobs."""


class BatchView(Out):
    """A batch as it stands. `waiting`, `running`, `done`, `dead` and `cancelled` add up to `total`, and are exact."""

    id: str
    name: str
    state: BatchState
    created_at: datetime
    total: int
    """Its jobs; a batch inside it counts as one."""
    waiting: int
    running: int
    done: int
    dead: int
    cancelled: int
    closed: bool
    """False: more jobs may come, and it does not end."""
    cancel_asked: bool
    reason: str | None
    """Why it was cancelled."""
    parent: str | None
    ended_at: datetime | None
    then: str | None
    on_success: str | None
    on_dead: str | None
    """The ids of the jobs that it releases."""


class BatchOpenedOut(BatchView):
    """The batch that stands for what was sent; `created` is false when it was there before, by its id."""

    created: bool


class BatchesPage(Out):
    """Newest first; `next` is where to go on, null at the end."""

    batches: list[BatchView]
    next: str | None


class BatchesQuery(In):
    """Which batches, newest first. Go on with `after` set to the page's `next` until that is null."""

    state: Literal["open", "running", "done", "dead", "cancelled"] | UnsetType = UNSET
    after: Id | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_HTTP_PAGE)] = 100


async def open_one(call: Call[BatchNewIn, NoQuery]) -> Answer:
    """Open a batch, with the jobs that it releases. Add to it by `batch` of a job, then close it."""
    new = _new_batch(call)
    jobs = list(new.follow_ups.values())
    call.identity.owes(len(jobs))
    if new.parent is not None and (parent := await call.store.batch(new.parent)) is not None:
        await _refuse_foreign(call, parent)
    if await call.store.batch(new.id) is None:  # a repeat adds nothing, so the queue has room for it
        await call.api.depths.check(call.store, jobs)
    created = await call.store.open_batch(new)
    call.api.readiness.wrote()
    batch = await _seen(call, new.id)
    return Answer(BatchOpenedOut(**_fields(batch), created=created), 201 if created else 200)


def _new_batch(call: Call[BatchNewIn, NoQuery]) -> NewBatch:
    body, given = call.body, {}
    for word in ("then", "on_success", "on_dead"):
        if (job := getattr(body, word)) is not UNSET:
            with within(word):
                given[word] = new_job_of(call, job)
    named = {} if body.id is UNSET else {"id": body.id}
    return new_batch(name=body.name, parent=or_none(body.parent), **named, **given)


async def ls(call: Call[NoBody, BatchesQuery]) -> Answer:
    """Batches, newest first: all, or those in a state."""
    query = call.query
    page = await call.store.batches(checked_state(or_none(query.state)), or_none(query.after), query.limit)
    return Answer(BatchesPage(batches=[batch_view(batch) for batch in page.batches], next=page.next))


async def show(call: Call[NoBody, NoQuery]) -> Answer:
    """One batch with its counts."""
    return Answer(batch_view(await _seen(call, call.path["id"])))


async def close(call: Call[ReasonIn, NoQuery]) -> Answer:
    """Say that no more jobs come: the batch ends when all its jobs have ended. `changed` is false when it was closed already.

    A key that is only a producer's leaves no audit record: it ends what a producer began.
    """
    batch = await _seen(call, call.path["id"])
    actor = call.actor(call.body.reason) if call.identity.may_look() else None
    said_of_it = await call.store.close_batch(batch.id, actor)
    if said_of_it is Acted.NOT_FOUND:
        raise BatchNotFound(batch.id)
    return Answer(Controlled(changed=said_of_it is Acted.DONE))


async def cancel(call: Call[ReasonIn, NoQuery]) -> Answer:
    """Close a batch, cancel its jobs that wait, and ask the workers of those that run to stop; so in batches inside it."""
    await cancel_batch(call.store, call.path["id"], call.actor(call.body.reason))
    return Answer(Controlled(changed=True))


async def _seen(call: Call[Any, NoQuery], id: str) -> Batch:
    """The batch, if the caller may see it."""
    batch = await get_batch(call.store, id)
    await _refuse_foreign(call, batch)
    return batch


async def _refuse_foreign(call: Call[Any, NoQuery], batch: Batch) -> None:
    """A producer's key that is for some tasks or queues has nothing to do with batches that release other jobs."""
    identity = call.identity
    if identity.may_look() or (identity.tasks is None and identity.queues is None):
        return
    for id in (batch.then, batch.on_success, batch.on_dead):
        job = None if id is None else await call.store.get(id)
        if job is not None and not identity.may_see(job.task, job.queue):
            raise Problem(403, f"this key may not see batch {batch.id}: it releases a job of task {job.task!r}")


def batch_view(batch: Batch) -> BatchView:
    return BatchView(**_fields(batch))


def _fields(batch: Batch) -> dict[str, Any]:
    return msgspec.structs.asdict(batch) | {"state": batch.state}
