"""The values: a job before it is stored, as it is claimed, and as an operator sees it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, Self, assert_never

import msgspec

from hawser.clock import at
from hawser.errors import FieldError, InvalidJob
from hawser.value.ids import is_id, new_id
from hawser.value.indexed import index_faults
from hawser.value.job_time import is_number, key_ttl_faults, read_times, refuse_debounce, time_faults
from hawser.value.name import name_fault, text_fault
from hawser.value.upstream import UpstreamJob, WaitsOn, batch_faults, joined_upstream, origin_faults, upstream_faults

FOREVER: Final = math.inf
"""`key_ttl=FOREVER`: the key is held for as long as the job is kept."""

UNTIL_START: Final = -math.inf
"""`key_ttl="start"`: the key is free once the job has started."""

MAX_PRIORITY: Final = 9
MAX_ATTEMPTS: Final = 2**31 - 1
DEFAULT_ATTEMPTS: Final = 5
DEFAULT_TIMEOUT: Final = 300.0
"""Seconds that an attempt may take."""
MAX_TIMEOUT: Final = 30 * 86_400.0
MAX_TAGS: Final = 16
MAX_GROUP: Final = 128
"""Characters of a group's name."""

FREE_TASK: Final = "job"
"""The task of jobs with any JSON payload, which are pulled: by `JobQueue` and over HTTP. No function is behind it."""


class State(StrEnum):
    """Where a job stands. "Scheduled" and "retrying" are ways to look at `READY`, not states."""

    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        """Whether the job has come to its end (a dead one may still be requeued)."""
        match self:
            case State.READY | State.RUNNING:
                return False
            case State.DONE | State.DEAD | State.CANCELLED:
                return True
            case _:
                assert_never(self)


class Waiting(StrEnum):
    """Three ways to look at a job that is `READY`."""

    SCHEDULED = "scheduled"
    """Waits for its time, and was never tried."""
    RETRYING = "retrying"
    """Waits for another attempt."""
    HELD = "held"
    """Waits for other jobs, or in the middle of its handler for an event."""


class KeyScope(NamedTuple):
    """The scope of a deduplication key: one queue, one task."""

    queue: str
    task: str
    key: str


class NewJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job on its way into a store. Made by `new_job`, which checks every field."""

    task: str
    body: bytes
    """The payload as JSON text."""
    id: str = msgspec.field(default_factory=new_id)
    queue: str = "default"
    priority: int = 5
    delay: float = 0.0
    """Seconds from the moment the store accepts it; 0 is due at once."""
    run_at: datetime | None = None
    """An aware instant on the store's clock; instead of `delay`."""
    expires: float | None = None
    """Seconds from the moment the store accepts it after which it is not started any more; None is never."""
    max_attempts: int | None = None
    """None: what its queue says when the store accepts it, else `DEFAULT_ATTEMPTS`."""
    timeout: float = DEFAULT_TIMEOUT
    key: str | None = None
    key_ttl: float = 0.0
    """0: the key is held while the job is live. Seconds: and at least for so long. `FOREVER`: as long as the job is kept.
    `UNTIL_START`: until it has started."""
    debounce: float | None = None
    """Seconds for which no other call with its key may come before it is due; each that comes replaces its payload."""
    at_most: float | None = None
    """Seconds after the first call at which it is due however many come; only with `debounce`. None: it is put off each time."""
    tags: tuple[str, ...] = ()
    parent_id: str | None = None
    confirm_replay: bool = False
    """When it has died, run it again only with an explicit confirmation."""
    schedule: str | None = None
    """The schedule that made it."""
    tick: datetime | None = None
    """The tick of the schedule that it was made for; None when an operator ran the schedule by hand."""
    group: str | None = None
    """Whose job it is, such as a customer's: the groups of a queue take turns. Jobs without one are one group."""
    index: tuple[str, ...] = ()
    """The arguments that it is found by, as `name=value`: those that its task declares as indexed."""
    batch: str | None = None
    """The id of the batch that it counts in."""

    waits_for: tuple[str, ...] = ()  # ids, set by `after`
    waits_on: WaitsOn = "done"

    def after(self, *jobs: UpstreamJob, on: Literal["done", "ended"] = "done") -> Self:
        """The same job, which waits for others: new jobs, handles, ids or batches. It is due when all of them are done, or with
        `on="ended"` when all have ended, however; its delay counts from then."""
        refuse_debounce(self.debounce, "after")
        ids = joined_upstream(self.waits_for, jobs, self.waits_on, on)
        return msgspec.structs.replace(self, waits_for=ids, waits_on=on)

    def of_batch(self, batch: str) -> NewJob:
        """The same job, which counts in a batch."""
        if self.batch not in (None, batch):
            raise InvalidJob(FieldError("batch", f"the job is of batch {self.batch} already; leave that out"))
        refuse_debounce(self.debounce, "batch")
        if faults := tuple(batch_faults("batch", batch, self.waits_for)):
            raise InvalidJob(*faults)
        return msgspec.structs.replace(self, batch=batch)

    @property
    def key_scope(self) -> KeyScope:
        """The scope of its key; only of a job that has one."""
        assert self.key is not None
        return KeyScope(self.queue, self.task, self.key)


def new_job(**fields: Any) -> NewJob:
    """A checked `NewJob`; raises `InvalidJob` that names every field at fault.

    A job's fields are checked here, and its payload in `payload.py`: the result is the same on every store, over HTTP and in the
    CLI.
    """
    read_times(fields)
    if isinstance(fields.get("tags"), (list, set, frozenset)):
        fields["tags"] = tuple(fields["tags"])
    try:
        job = NewJob(**fields)
    except TypeError as error:
        raise InvalidJob(FieldError("job", f"{error}; see NewJob for the fields of a job")) from None
    errors = tuple(_faults(job))
    if errors:
        raise InvalidJob(*errors)
    return job if job.debounce is None else msgspec.structs.replace(job, delay=job.debounce, key_ttl=UNTIL_START)


def _faults(job: NewJob) -> Iterator[FieldError]:
    if not isinstance(job.id, str) or not is_id(job.id):
        yield FieldError(
            "id", f"{job.id!r} is not a UUIDv7 in lower case with hyphens; send one, or leave it out and one is made"
        )
    for field, name in (("task", job.task), ("queue", job.queue)):
        if fault := name_fault(name):
            yield FieldError(field, fault)
    if not _is_int(job.priority) or not 0 <= job.priority <= MAX_PRIORITY:
        yield FieldError("priority", f"{job.priority!r} is not a whole number from 0 to 9 (9 goes first)")
    if job.max_attempts is not None and not (_is_int(job.max_attempts) and 1 <= job.max_attempts <= MAX_ATTEMPTS):
        yield FieldError("max_attempts", f"{job.max_attempts!r} is not a whole number from 1 to {MAX_ATTEMPTS}")
    if not is_number(job.timeout) or not 0 < job.timeout <= MAX_TIMEOUT:
        yield FieldError("timeout", f"{job.timeout!r} is not a time above 0 s and up to 30 days")
    yield from time_faults(job)
    yield from _label_faults(job)


def _label_faults(job: NewJob) -> Iterator[FieldError]:
    if job.key is not None and (fault := text_fault(job.key, 512)):
        yield FieldError("key", fault)
    yield from key_ttl_faults(job.key_ttl, job.key)
    if not isinstance(job.tags, tuple):
        yield FieldError("tags", f"{job.tags!r} is not a list of texts")
    elif len(job.tags) > MAX_TAGS:
        yield FieldError("tags", f"{len(job.tags)} tags; at most {MAX_TAGS}")
    else:
        for tag in job.tags:
            if fault := text_fault(tag, 64):
                yield FieldError("tags", fault)
    if job.group is not None and (fault := text_fault(job.group, MAX_GROUP)):
        yield FieldError("group", fault)
    yield from index_faults(job.index)
    if not isinstance(job.confirm_replay, bool):
        yield FieldError("confirm_replay", f"{job.confirm_replay!r} is not True or False")
    yield from origin_faults(job.parent_id, job.schedule, job.tick)
    yield from upstream_faults(job.waits_for, job.id)
    yield from batch_faults("batch", job.batch, job.waits_for)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A job as a worker gets it: what to run, and the right to run it.

    Stores give what has no default by place: Python makes a dict for a call with more than 15 names, 1.4 µs for each job.
    """

    id: str
    task: str
    queue: str
    body: bytes
    priority: int
    attempt: int
    max_attempts: int
    timeout: float
    lease: int
    run_at_us: int
    enqueued_at_us: int
    key: str | None = None
    tags: tuple[str, ...] = ()
    parent_id: str | None = None
    schedule: str | None = None
    """The schedule that made it."""
    tick_us: int | None = None
    group: str | None = None
    batch: str | None = None
    crashes: int = 0
    """How many of its runs were lost. One that has crashed a process before is best run apart from others."""
    hint: Any = None
    """Where the store keeps the run. Handed back with the settlement it saves a look-up; it means nothing outside of the
    store."""

    @property
    def payload(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def run_at(self) -> datetime:
        return at(self.run_at_us)

    @property
    def enqueued_at(self) -> datetime:
        return at(self.enqueued_at_us)

    @property
    def tick(self) -> datetime | None:
        """The tick of its schedule that it was made for: say "the day before" of this, not of the time at which it runs."""
        return None if self.tick_us is None else at(self.tick_us)


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """The n-th start of a job and how it ended. `str()` of it is its error."""

    number: int
    lease: int
    worker: str
    started_at: datetime
    ended_at: datetime | None = None
    outcome: str = "running"
    """running, done, failed, lost, dead or cancelled."""
    error: str | None = None
    """One readable line or more: "ValueError: no such user"."""
    traceback: str | None = None

    def __str__(self) -> str:
        return self.error or self.outcome


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as an operator sees it, whole."""

    id: str
    task: str
    queue: str
    body: bytes
    priority: int
    state: State
    attempt: int
    """How many times it was started; a release or a snooze gives its start back."""
    max_attempts: int
    timeout: float
    lease: int
    """The number of the last lease given; it never goes down."""
    run_at: datetime
    enqueued_at: datetime
    started_at: datetime | None = None
    """When the last claim took it."""
    finished_at: datetime | None = None
    lease_until: datetime | None = None
    worker: str | None = None
    key: str | None = None
    key_ttl: float = 0.0
    tags: tuple[str, ...] = ()
    parent_id: str | None = None
    confirm_replay: bool = False
    """Dead or cancelled, it runs again only with an explicit confirmation."""
    schedule: str | None = None
    """The schedule that made it."""
    tick: datetime | None = None
    """The tick of its schedule that it was made for; None when an operator ran the schedule by hand."""
    group: str | None = None
    """Whose job it is: the groups of a queue take turns."""
    index: tuple[str, ...] = ()
    """The arguments that it is found by, as `name=value`."""
    expires_at: datetime | None = None
    """When it is too late to start it: then it is cancelled."""
    batch: str | None = None
    """The id of the batch that it counts in."""
    cancel_asked: bool = False
    returned: int = 0
    """How often it went back to ready without burning an attempt."""
    crashes: int = 0
    """How many of its runs were lost: the process died, or the lease was not renewed."""
    reason: str | None = None
    """Why it was last snoozed, cancelled, discarded or declared dead, if a reason was given."""
    result_body: bytes | None = None
    progress_body: bytes | None = None
    attempts: tuple[Attempt, ...] = ()

    held: bool = False
    """It waits for other jobs; `run_at` says nothing meanwhile."""

    @property
    def payload(self) -> Any:
        """The arguments by name, as JSON gives them."""
        return msgspec.json.decode(self.body)

    @property
    def result(self) -> Any:
        """What its handler returned, as JSON gives it; None unless it is done, and where nothing is kept."""
        return None if self.result_body is None else msgspec.json.decode(self.result_body)

    @property
    def progress(self) -> Any:
        """What its handler last said by `ctx.progress`, as JSON gives it."""
        return None if self.progress_body is None else msgspec.json.decode(self.progress_body)

    @property
    def errors(self) -> tuple[Attempt, ...]:
        """The attempts that ended in an error, oldest first."""
        return tuple(attempt for attempt in self.attempts if attempt.error is not None)
