"""What a handler knows about its own run, and what it may ask for."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

import msgspec

from hawser.clock import MAX_DELAY
from hawser.errors import ConfigError, FieldError, InvalidJob, LeaseLost, NotCommitted, SuspensionCaught
from hawser.handle import TypedJob
from hawser.handler.hooks import EMPTY
from hawser.handler.ledger import StepRules
from hawser.handler.output import chunk_body
from hawser.handler.run_control import RunControl
from hawser.handler.settling import SettlingTransaction
from hawser.handler.waiting import NOT_GIVEN, WaitingLedger
from hawser.job import Claimed, NewJob, new_job
from hawser.outcome import Outcome, Suspended, holds, worked
from hawser.stores.dependencies import check_order
from hawser.value.job_time import refuse_debounce
from hawser.value.json_value import to_json

MAX_PROGRESS: Final = 8 * 1024
"""Bytes of JSON that `progress` takes: it travels with every extension of the lease."""

T = TypeVar("T")

_logger = logging.getLogger("hawser.job")

INLINE: Final = StepRules(None, is_async=False, kept=True)


class RunBatch:
    """The batch of a run's job, for its handler."""

    def __init__(self, id: str, enqueue: Callable[..., None]) -> None:
        self.id = id
        self._enqueue = enqueue

    def add(self, *jobs: NewJob) -> None:
        """Add jobs to the batch in the same write that settles this one, so that it does not end between."""
        self._enqueue(*(job.of_batch(self.id) if isinstance(job, NewJob) else job for job in jobs))


class Context:
    """One run of one job, for its handler."""

    def __init__(self, job: Claimed, run: RunControl, state: Mapping[str, Any] = EMPTY, steps: StepRules = INLINE) -> None:
        self.job = job
        self.state = state
        """What the start hooks of this worker process returned, by their names."""
        self.then: list[NewJob] = []
        """The jobs that follow from this one; written together with its outcome."""
        self._run = run
        self._steps = steps
        self._ledger: WaitingLedger | None = None
        self._settling: SettlingTransaction | None = None

    @property
    def attempt(self) -> int:
        """Which start of the job this is, from 1."""
        return self.job.attempt

    @property
    def lease(self) -> int:
        """The number of this run's lease. It only grows over the life of a job, so it can fence writes elsewhere:
        keep it with what you write, and refuse a lower one."""
        return self.job.lease

    @property
    def cancelled(self) -> bool:
        """Whether the run should end. A long handler looks now and then, and returns or raises `Cancel`."""
        return self._run.cancelled

    @cached_property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry job_id, task and attempt."""
        return _JobLog(_logger, {"job_id": self.job.id, "task": self.job.task, "attempt": self.job.attempt})

    def enqueue(self, *jobs: NewJob) -> None:
        """Add jobs, made by `task.job(…)`, in the same write that settles this one; they exist exactly if it does."""
        if self._settling is not None and self._settling.asked:
            raise ConfigError("enqueue: the transaction that settles this job is over; call ctx.enqueue before its block ends")
        for job in jobs:
            if not isinstance(job, NewJob):
                raise InvalidJob(FieldError("job", f"{type(job).__qualname__} is not a new job; make one with task.job(…)"))
            if not isinstance(job.body, bytes):
                raise InvalidJob(FieldError("job.body", "the payload must be JSON text, as bytes; make the job with task.job(…)"))
            new_job(**msgspec.structs.asdict(job))
            refuse_debounce(job.debounce, "debounce", "a job that follows from another cannot be debounced; use app.enqueue(…)")
        check_order((*self.then, *jobs))
        self.then.extend(jobs)

    @property
    def batch(self) -> RunBatch:
        """The batch that this job is of: `ctx.batch.add(load.job(more))`."""
        if self.job.batch is None:
            raise ConfigError("batch: this job is of no batch; enqueue it with batch.add(…), or use ctx.enqueue(…)")
        return RunBatch(self.job.batch, self.enqueue)

    def progress(self, value: Any) -> None:
        """Say how far the run is: any JSON value, shown with the job. The last one counts."""
        self._run.progress(to_json("progress", value, MAX_PROGRESS))

    def write(self, chunk: Any) -> None:
        """Add a chunk to the output of the job: a text or any other JSON value, for those who watch it, as `app.output(id)` or
        over HTTP. It returns at once, in async handlers too: chunks are written together, in their order, a moment later, and
        all of them before the outcome of the run.

        A run that comes after this one goes on behind what is there. `OutputFull` is raised when the job has written as much as
        it may, `LeaseLost` when this run has no right to write any more.
        """
        body = chunk_body(chunk)
        if self._settling is not None and self._settling.asked:
            raise ConfigError("write: the transaction that settles this job is over; call ctx.write before its block ends")
        if self._run.lost:
            raise LeaseLost("write: the lease of this run is gone, so another run may go on with the job; end this one")
        self._run.write(body)

    # Steps. `docs/guides/steps.md` has the rules.

    @overload
    def step(
        self, name: str, call: Callable[[], Awaitable[T]], *, into: type[T] | None = None, version: int | None = None
    ) -> Awaitable[T]: ...
    @overload
    def step(self, name: str, call: Callable[[], T], *, into: type[T] | None = None, version: int | None = None) -> T: ...
    @overload
    def step(
        self,
        name: str,
        call: Callable[[Any], Awaitable[T]],
        *,
        inside: object,
        into: type[T] | None = None,
        version: int | None = None,
    ) -> Awaitable[T]: ...
    @overload
    def step(
        self, name: str, call: Callable[[Any], T], *, inside: object, into: type[T] | None = None, version: int | None = None
    ) -> T: ...
    def step(
        self, name: str, call: Callable[..., Any], *, into: Any = None, version: int | None = None, inside: Any = None
    ) -> Any:
        """Do something once: call it, and keep what it returns with the job under this name. Every later run of the job gets
        what is kept, and the call is not made again. In an async handler, await it.

        Between the call and its record lies a moment in which a crash has the next run call it again: give the other side
        `ctx.key(name)` to tell the repeat. What is kept is JSON; `into` is the type in which every run gets it. `version` makes a
        new step of an old name, when the code has changed. A name that was used before in this run, or a value that cannot
        be kept, fails the job for good.

        `inside`, a pool or connection to the database of this app's store as `ctx.transaction` takes it, closes that moment for
        rows: the call gets a connection in a transaction, and its rows and the record are one commit.
        """
        return self._steps_made().step(name, call, into, version, inside)

    def sleep(
        self, name: str, seconds: float | timedelta = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0
    ) -> Awaitable[None]:
        """Go on after so long, without a slot, a lease or a process in between: the run ends here, and when the time has come the
        job runs again, past its recorded steps, to this place. In an async handler, await it.

        The end is recorded as a step, by the store's clock, so a deploy or a crash makes it neither longer nor shorter. No
        attempt is burned.
        """
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        parts = {"seconds": (seconds, 1), "minutes": (minutes, 60), "hours": (hours, 3_600), "days": (days, 86_400)}
        ledger, lasts = self._steps_made(), 0.0
        for field, (value, unit) in parts.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ledger.refuse(f"sleep {name!r}: {field}: {value!r} is not a number")
            lasts += value * unit
        slept: Awaitable[None] = ledger.sleep(name, lasts)
        return slept

    @overload
    def wait_for(self, event: str, *, timeout: float | timedelta | None, into: type[T]) -> Awaitable[T]: ...
    @overload
    def wait_for(self, event: str, *, timeout: float | timedelta | None, into: None = None) -> Awaitable[Any]: ...
    def wait_for(self, event: str, *, timeout: Any = NOT_GIVEN, into: Any = None) -> Any:
        """Go on when an event of this name has come, emitted by `app.emit`, over HTTP or by `hawser emit`, and get what it says:
        in the type `into`, else as plain JSON. It may have come before. In an async handler, await it.

        The run ends here, without a slot, a lease or an attempt, and the job runs again, past its recorded steps, when the event
        comes. `timeout` in seconds must be given; None waits without an end. When the time is over, by the store's clock from
        the first arrival on, `EventTimeout` is raised, in this run and in every later one.
        """
        return self._steps_made().wait_for(event, timeout, into)

    @overload
    def gather(self, *jobs: TypedJob[T], name: str = "gather") -> Awaitable[list[T]]: ...
    @overload
    def gather(self, *jobs: NewJob, name: str = "gather") -> Awaitable[list[Any]]: ...
    def gather(self, *jobs: NewJob, name: str = "gather") -> Any:
        """Run jobs of its own, made by `task.job(…)`, and get what they returned, in their order. In an async handler, await it.

        The run ends here, without a slot, a lease or an attempt, and the job runs again when all of them are done. Their ids
        follow from this job and the name, so that no later run adds them again; a second gather of a handler needs a `name` of
        its own. While one of them is dead the job waits on, until it is replayed; when one is cancelled, the job is, too.
        """
        return self._steps_made().gather(jobs, name)

    def transaction(self, target: Any) -> SettlingTransaction:
        """A transaction of your own in the database of this app's store, whose commit also settles the job as done: your rows,
        the fence and "done" stand together or not at all.

        `async with ctx.transaction(pool) as con:` with a pool or connection of asyncpg or psycopg, or an engine or session of
        SQLAlchemy; `with ctx.transaction(connection) as con:` in a plain handler, also with Django and sqlite3. Jobs given to
        `ctx.enqueue` before the end of the block are added in the same commit. Let it be the last thing that the handler does.
        """
        if self._settling is not None and self._settling.asked:
            raise ConfigError("transaction: this run has settled its job in one already; do all of it in one block")
        self._settling = SettlingTransaction(target, self.job, self._steps, lambda: tuple(self.then), lambda: self._run.output)
        return self._settling

    def ended(self, value: Any, *, failed: bool) -> tuple[Any, bool]:
        """How the run ended: what the handler returned, or raised if it failed; but a step that could not be recorded, or a
        transaction that was to settle the job and did not commit, is a failure, also when the handler caught the error."""
        if self._ledger is not None:
            if self._ledger.fault is not None:
                return self._ledger.fault, True
            if self._ledger.suspended is not None:
                return _after(self._ledger.suspended, value, failed=failed)
        if self.doubtful and not failed:
            return NotCommitted("the transaction that was to settle the job was not committed"), True
        return value, failed

    @property
    def doubtful(self) -> bool:
        """Whether the job may have been settled in a transaction of the handler's own, whose end is not known."""
        return self._settling is not None and self._settling.asked and not self._settling.committed

    def key(self, name: str) -> str:
        """A text that is the same in every run of this job, and of no other job or name: for the idempotency key of an API."""
        return f"{self.job.id}:{name}"

    def _steps_made(self) -> WaitingLedger:
        if self._ledger is None:
            self._ledger = WaitingLedger(self.job, self._run, self._steps)
        return self._ledger

    def follows(self, outcome: Outcome) -> tuple[NewJob, ...]:
        """The jobs that are added with this outcome of the run."""
        if worked(outcome):
            return tuple(self.then)
        return self._ledger.children if holds(outcome) and self._ledger is not None else ()

    @property
    def stepped(self) -> bool:
        """Whether this run has recorded a step."""
        return self._ledger is not None and self._ledger.recorded

    def extend(self, seconds: float | timedelta | None = None) -> None:
        """Keep the lease for at least so many seconds from now (default: one more lease), but not past the timeout."""
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        if seconds is not None and (not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_DELAY):
            raise ValueError(f"extend: {seconds!r} is not a time in seconds; use a number from 0 to 10 years, or a timedelta")
        self._run.extend(seconds)


if TYPE_CHECKING:

    class SyncContext(Context):
        """For type checkers: the context of a plain `def` handler, in which calls that wait give their value."""

        def sleep(  # type: ignore[override]
            self, name: str, seconds: float | timedelta = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0
        ) -> None: ...
        @overload  # type: ignore[override]
        def wait_for(self, event: str, *, timeout: float | timedelta | None, into: type[T]) -> T: ...
        @overload
        def wait_for(self, event: str, *, timeout: float | timedelta | None, into: None = None) -> Any: ...
        def wait_for(self, event: str, *, timeout: float | timedelta | None, into: Any = None) -> Any: ...
        @overload  # type: ignore[override]
        def gather(self, *jobs: TypedJob[T], name: str = "gather") -> list[T]: ...
        @overload
        def gather(self, *jobs: NewJob, name: str = "gather") -> list[Any]: ...
        def gather(self, *jobs: NewJob, name: str = "gather") -> Any: ...

else:
    SyncContext = Context


def _after(suspended: Suspended, value: Any, *, failed: bool) -> tuple[Any, bool]:
    """How a suspended run ended: as suspended, unless its handler went on. An error in its clean-up is that error; a group of
    errors that its tasks raised is the suspension."""
    if failed:
        return (value if isinstance(value, Exception) else suspended), True
    text = f"the handler caught what suspends its run ({suspended}) and went on; catch Exception, not BaseException"
    return SuspensionCaught(text), True


class _JobLog(logging.LoggerAdapter[logging.Logger]):
    """Adds the job's fields to those of the call; the plain adapter would drop the call's."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs
