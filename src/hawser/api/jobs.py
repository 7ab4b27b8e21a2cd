"""`/jobs`: enqueue, look, cancel, retry."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET

from hawser.api.bodies import (
    ActedOut,
    BatchIn,
    BatchOut,
    ChangeIn,
    ConfirmIn,
    EnqueuedOfMany,
    EnqueuedOut,
    JobIn,
    JobQuery,
    ReasonIn,
    or_none,
)
from hawser.api.call import Answer, Call, NoBody, NoQuery
from hawser.api.problem import Problem, bad
from hawser.api.views import job_view
from hawser.client.explain import why
from hawser.client.pacing import spread
from hawser.clock import at
from hawser.errors import ConfigError, FieldError, InvalidJob, JobNotFound, QueueFull
from hawser.handle import Handle
from hawser.job import Job, NewJob, State
from hawser.redaction import shown
from hawser.store import RequestKey, Store
from hawser.task_options import JOB_OPTIONS, JobOptions
from hawser.telemetry import metric

_JOB_OPTION_NAMES: Final = tuple(name for name in JobIn.__struct_fields__ if name in JOB_OPTIONS)

_KEY: Final = re.compile("[!-~]([ -~]{0,253}[!-~])?")


async def enqueue(call: Call[JobIn, NoQuery]) -> Answer:
    """Enqueue a job; it is in the store, durably, when this is answered."""
    job = new_job_of(call, call.body)
    [handle] = await _put(call, (job,))
    if handle.created:
        return Answer(EnqueuedOut(id=handle.id, created=True, replaced=False, state=State.READY), 201)
    state = await _state(call.store, handle)
    return Answer(EnqueuedOut(id=handle.id, created=False, replaced=handle.replaced, state=state))


async def _put(call: Call[Any, NoQuery], jobs: Sequence[NewJob]) -> list[Handle[Any]]:
    call.identity.owes(len(jobs) - 1)
    request = _request(call)
    try:
        await call.api.depths.check(call.store, jobs)
    except QueueFull:
        if not await call.store.made(jobs, request):  # a repeat adds nothing, so the queue has room for it
            raise
    began = time.monotonic()
    handles = await (call.api.intake.put(jobs) if request is None else call.app.aput(jobs, request))
    call.api.readings.time(metric.ENQUEUE_SECONDS, time.monotonic() - began)
    call.api.readiness.wrote()
    return handles


def _request(call: Call[Any, NoQuery]) -> RequestKey | None:
    """What the caller calls this request, and a digest of its body, however that is written."""
    given = call.headers.get(b"idempotency-key")
    if given is None:
        return None
    key = given.decode("latin-1")
    if not _KEY.fullmatch(key):
        raise bad("Idempotency-Key", "not a text of 1 to 255 printable ASCII characters; a new UUID for each request will do")
    value = type(call.body).__name__, msgspec.json.decode(msgspec.json.encode(call.body))
    return RequestKey(call.identity.name, key, hashlib.sha256(msgspec.json.encode(value, order="sorted")).digest())


async def _state(store: Store, handle: Handle[Any]) -> State:
    """Of the job that stands for what was sent; it may be over by now."""
    holder = await store.get(handle.id)
    return holder.state if holder else State.DONE


async def enqueue_batch(call: Call[BatchIn, NoQuery]) -> Answer:
    """Enqueue many jobs in one write, all or none."""
    jobs = []
    for index, one in enumerate(call.body.jobs):
        with within(f"jobs[{index}]"):
            jobs.append(new_job_of(call, one))
    if call.body.rate is not UNSET:
        try:
            jobs = spread(jobs, call.body.rate)
        except ConfigError as error:
            raise bad("rate", str(error).removeprefix("rate: ")) from None
    handles = await _put(call, jobs)
    answers = [EnqueuedOfMany(id=handle.id, created=handle.created, replaced=handle.replaced) for handle in handles]
    return Answer(BatchOut(jobs=answers), 201 if any(handle.created for handle in handles) else 200)


@contextmanager
def within(where: str) -> Iterator[None]:
    """Name the fields of a part by where it stands in the whole."""
    try:
        yield
    except InvalidJob as error:
        raise type(error)(*(FieldError(f"{where}.{fault.field}", fault.message) for fault in error.errors)) from None
    except Problem as problem:
        problem.errors = [FieldError(f"{where}.{fault.field}", fault.message) for fault in problem.errors]
        problem.detail = f"{where}: {problem.detail}"
        raise


def new_job_of(call: Call[Any, Any], body: JobIn) -> NewJob:
    """The job that a body describes, judged as the Python API would."""
    task = body.task
    if task is UNSET:
        task = body.type
        if task is UNSET:
            raise bad("task", "missing; name the task to run")
    elif body.type is not UNSET:
        raise bad("type", "given together with task, which means the same; leave one out")
    if body.delay is not UNSET and body.run_at is not UNSET:
        raise bad("run_at", "given together with delay; leave one of them out")
    if body.key_ttl is not UNSET and body.key is UNSET:
        raise bad("key_ttl", "given without a key; add one, or leave it out")
    payload = b"{}" if body.payload is UNSET else bytes(body.payload)
    longest = call.app.config.max_payload
    if len(payload) > longest:
        text = f"{len(payload):,} bytes of JSON; at most {longest:,}: keep the data elsewhere and send its id"
        raise Problem(413, f"payload: {text}", FieldError("payload", text))
    options = {name: value for name in _JOB_OPTION_NAMES if (value := getattr(body, name)) is not UNSET}
    most = call.api.options.max_attempts
    if body.max_attempts is not UNSET and body.max_attempts > most:
        raise bad("max_attempts", f"{body.max_attempts} is more than the {most} that this server takes; send less")
    if not call.identity.may_enqueue(task):
        raise Problem(403, f"this key may not enqueue task {task!r}", FieldError("task", "not among the tasks of this key"))
    job = call.app.job_from_json(task, payload, cast("JobOptions", options))
    if not call.identity.may_use(job.queue):
        text = f"this key may not enqueue into queue {job.queue!r}"
        raise Problem(403, text, FieldError("queue", "not among the queues of this key"))
    return job


async def show(call: Call[NoBody, JobQuery]) -> Answer:
    """One job in full, with all its attempts, and why it is not running; waits for its end when asked to."""
    job = await seen(call)
    if call.query.wait and not job.state.finished:
        await _until_ended(call, job)
        await call.api.gate.admit_again(call.identity, call.store)  # its key may have been revoked while it waited
        job = await seen(call)
    reasons = await why(call.store, job, at(call.app.clock.now())) if call.identity.may_look() else None
    return Answer(job_view(shown(call.app.tasks, job), reasons))


async def seen(call: Call[NoBody, Any]) -> Job:
    """The job that the path names, if the caller may see it."""
    job = await found(call.store, call.path["id"])
    if not call.identity.may_see(job.task, job.queue):
        raise Problem(403, f"this key may not see jobs of task {job.task!r} in queue {job.queue!r}")
    return job


async def _until_ended(call: Call[NoBody, JobQuery], job: Job) -> None:
    """Returns when the job has ended, the time is up, the key is no longer good, or none of that matters any longer."""
    try:
        call.app.results.check_kept(job.task)
    except ConfigError as error:
        raise bad("wait", str(error)) from None
    waiting = [
        asyncio.ensure_future(call.app.results.ended(job.id, min(call.query.wait, call.api.options.max_wait))),
        asyncio.ensure_future(call.gone.wait()),
        asyncio.ensure_future(call.api.stopping.wait()),
        asyncio.ensure_future(call.api.gate.until_refused(call.identity, call.store)),
    ]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def found(store: Store, id: str) -> Job:
    job = await store.get(id)
    if job is None:
        raise JobNotFound(id)
    return job


async def cancel(call: Call[ReasonIn, NoQuery]) -> Answer:
    """End a waiting job, or ask the worker of a running one to stop it."""
    id = call.path["id"]
    acted = await call.app.acancel(id, reason=call.body.reason, by=call.identity.name)
    return Answer(ActedOut(id=id, acted=acted.value))  # type: ignore[arg-type]  # the others are raised


async def change(call: Call[ChangeIn, NoQuery]) -> Answer:
    """Give a waiting job another queue, priority or due time."""
    id, body = call.path["id"], call.body
    queue, priority, run_at, delay = or_none(body.queue), or_none(body.priority), or_none(body.run_at), or_none(body.delay)
    if queue is None and priority is None and run_at is None and delay is None:
        raise bad("queue", "nothing to change; send queue, priority, run_at or delay")
    if run_at is not None and delay is not None:
        raise bad("run_at", "given together with delay; leave one of them out")
    if queue is not None and not call.identity.may_use(queue):
        raise Problem(403, f"this key may not use queue {queue!r}", FieldError("queue", "not among the queues of this key"))
    await call.app.achange(
        id, queue=queue, priority=priority, run_at=run_at, delay=delay, reason=body.reason, by=call.identity.name
    )
    return Answer(ActedOut(id=id, acted="done"))


async def run_now(call: Call[ReasonIn, NoQuery]) -> Answer:
    """Make a waiting job due now."""
    id = call.path["id"]
    await call.app.achange(id, delay=0, reason=call.body.reason, by=call.identity.name)
    return Answer(ActedOut(id=id, acted="done"))


async def dead_letter(call: Call[ReasonIn, NoQuery]) -> Answer:
    """End a waiting job as dead, for example one that fails at every attempt."""
    id = call.path["id"]
    await call.app.adead_letter(id, reason=call.body.reason, by=call.identity.name)
    return Answer(ActedOut(id=id, acted="done"))


async def retry(call: Call[ConfirmIn, NoQuery]) -> Answer:
    """Run a dead or cancelled job again, with attempts from zero."""
    id = call.path["id"]
    await call.app.arequeue(id, confirm=call.body.confirm, reason=call.body.reason, by=call.identity.name)
    return Answer(ActedOut(id=id, acted="done"))
