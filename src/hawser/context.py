"""What a handler knows about its own run, and what it may ask for."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from datetime import timedelta
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar, overload

import msgspec

from hawser.clock import MAX_DELAY
from hawser.errors import ConfigError, FieldError, InvalidJob, NotCommitted, SuspensionCaught
from hawser.hooks import EMPTY
from hawser.job import Claimed, NewJob, new_job
from hawser.json_value import to_json
from hawser.ledger import Ledger, StepRules
from hawser.outcome import Suspended
from hawser.settling import SettlingTransaction
from hawser.stores.dependencies import check_order

MAX_PROGRESS: Final = 8 * 1024
"""Bytes of JSON that `progress` takes: it travels with every extension of the lease."""

T = TypeVar("T")

_logger = logging.getLogger("hawser.job")

INLINE: Final = StepRules(None, is_async=False, kept=True)


class RunControl(Protocol):
    """What a worker does for a run. Each call returns at once, from the loop and from threads alike."""

    @property
    def cancelled(self) -> bool:
        """Whether the run should end: the job was cancelled, or the lease is gone."""

    @property
    def lost(self) -> bool:
        """Whether the run has no right to write any more, as far as the worker knows."""

    @property
    def draining(self) -> bool:
        """Whether the worker is to end: a run with steps goes on elsewhere, from its last one."""

    def extend(self, seconds: float | None) -> None:
        """Keep the lease for so many seconds from now; None for one more lease."""

    def progress(self, body: bytes) -> None:
        """Keep what the run says of its progress, as JSON text, for the next extension."""


class InlineRun:
    """The run of a task that was called like a function: there is no lease, so it only remembers."""

    cancelled = False
    lost = False
    draining = False

    def __init__(self) -> None:
        self.extended: float | None = None
        self.progressed: bytes | None = None

    def extend(self, seconds: float | None) -> None:
        self.extended = seconds

    def progress(self, body: bytes) -> None:
        self.progressed = body


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
        self._ledger: Ledger | None = None
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
        check_order((*self.then, *jobs))
        self.then.extend(jobs)

    def progress(self, value: Any) -> None:
        """Say how far the run is: any JSON value, shown with the job. The last one counts."""
        self._run.progress(to_json("progress", value, MAX_PROGRESS))

    # Steps. `docs/guides/steps.md` has the rules.

    @overload
    def step(
        self, name: str, call: Callable[[], Awaitable[T]], *, into: type[T] | None = None, version: int | None = None
    ) -> Awaitable[T]: ...
    @overload
    def step(self, name: str, call: Callable[[], T], *, into: type[T] | None = None, version: int | None = None) -> T: ...
    def step(self, name: str, call: Callable[[], Any], *, into: Any = None, version: int | None = None) -> Any:
        """Do something once: call it, and keep what it returns with the job under this name. Every later run of the job gets
        what is kept, and the call is not made again. In an async handler, await it.

        Between the call and its record lies a moment in which a crash has the next run call it again: give the other side
        `ctx.key(name)` to tell the repeat. What is kept is JSON; `into` is the type in which every run gets it. `version` makes a
        new step of an old name, when the code has changed. A name that was used before in this run, or a value that cannot
        be kept, fails the job for good.
        """
        return self._steps_made().step(name, call, into, version)

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
        slept: Awaitable[None] = self._steps_made().sleep(name, seconds + 60 * minutes + 3600 * hours + 86_400 * days)
        return slept

    def transaction(self, target: Any) -> SettlingTransaction:
        """A transaction of your own in the database of this app's store, whose commit also settles the job as done: your rows,
        the fence and "done" stand together or not at all.

        `async with ctx.transaction(pool) as con:` with a pool or connection of asyncpg or psycopg, or an engine or session of
        SQLAlchemy; `with ctx.transaction(connection) as con:` in a plain handler, also with Django and sqlite3. Jobs given to
        `ctx.enqueue` before the end of the block are added in the same commit. Let it be the last thing that the handler does.
        """
        if self._settling is not None and self._settling.asked:
            raise ConfigError("transaction: this run has settled its job in one already; do all of it in one block")
        self._settling = SettlingTransaction(target, self.job, self._steps, lambda: tuple(self.then))
        return self._settling

    def ended(self, value: Any, *, failed: bool) -> tuple[Any, bool]:
        """How the run ended: what the handler returned, or raised if it failed; but a step that could not be recorded, or a
        transaction that was to settle the job and did not commit, is a failure whatever the handler made of it."""
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

    def _steps_made(self) -> Ledger:
        if self._ledger is None:
            self._ledger = Ledger(self.job, self._run, self._steps)
        return self._ledger

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
