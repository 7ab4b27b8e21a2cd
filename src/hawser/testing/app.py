"""An app for tests: nothing to configure, no process to start, and the test moves the clock."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, Unpack

import msgspec

from hawser.app import Hawser
from hawser.client.schedules import declared
from hawser.clock import SystemClock, at, from_datetime, to_us
from hawser.config import Settings
from hawser.errors import ConfigError
from hawser.job import Job, State
from hawser.schedule.declaration import declaration, reconcile
from hawser.schedule.schedule import plan
from hawser.task import Task, declared_limits, find_task
from hawser.testing.clock import ManualClock
from hawser.testing.runner import MOST_RUNS, Caller, DelayedJobs, DueCall, Ended, RanOnce, TaskRunner
from hawser.testing.store import StoreUnderTest

_ANY: Final = object()


class Drained(NamedTuple):
    """What a drain did."""

    runs: int
    """Attempts that were made."""
    jobs: tuple[Job, ...]
    """The jobs that were run, as they are now, in the order of their first run."""

    def in_state(self, state: State | str) -> tuple[Job, ...]:
        """The jobs that are in that state now."""
        return tuple(job for job in self.jobs if job.state == state)

    @property
    def done(self) -> int:
        """How many of them are done."""
        return len(self.in_state(State.DONE))

    @property
    def dead(self) -> int:
        """How many of them are dead."""
        return len(self.in_state(State.DEAD))


class AppUnderTest(Hawser):
    """A `Hawser` on a memory store of its own, for one test. The pytest fixture `hawser_app` is one.

    Its clock starts at the time at which it was made and stands still: `advance` moves it, and `drain` does for retries.
    """

    def __init__(self, **settings: Unpack[Settings]) -> None:
        self._time = ManualClock(at(SystemClock().now()))
        self._memory = StoreUnderTest(clock=self._time)
        super().__init__(self._memory, clock=self._time, **settings)
        self._connection.portal = self._memory.portal
        self._apps: list[Hawser] = [self]
        self._runner = TaskRunner(self._memory, self._apps, self._tasks, self._time)
        self._caller = Caller(self._apps, self._memory)
        self._reached = self._time.now()
        """The time that the test asked for. A drain may have moved the clock further."""
        self._delayed = DelayedJobs()
        self._given_back: list[Callable[[], None]] = []

    def adopt(self, *apps: Hawser) -> Self:
        """Take over the tasks of your apps: until the end of the test their jobs go to this one's store."""
        for app in apps:
            for name in app.tasks:
                if name in self._tasks:
                    raise ConfigError(f"task {name!r} is already registered here; adopt apps whose tasks have other names")
            self._given_back.append(app.lend_store(self._memory, self._memory.portal))
            self._tasks.update(app.tasks)
            self._apps.append(app)
        return self

    # What was enqueued.

    def enqueued(
        self, task: str | Task[..., Any] | None = None, *, queue: str | None = None, state: State | str | None = None
    ) -> list[Job]:
        """The jobs that were enqueued in this test, in any state, oldest first; of one task, queue or state."""
        name = task.name if isinstance(task, Task) else task
        wanted = None if state is None else State(state)
        return self._runner.jobs(task=name, queue=queue, state=wanted)

    def assert_enqueued(
        self,
        task: str | Task[..., Any],
        payload: Mapping[str, Any] | None = None,
        *,
        queue: str | None = None,
        count: int | None = None,
        **fields: Any,
    ) -> Job:
        """Fail unless such a job was enqueued; return the latest one.

        Of the payload only the given arguments are compared. `fields` are other fields of `Job`, such as `key`, `priority` or
        `run_at`. `count` is how many there must be (default: at least one).
        """
        name = task.name if isinstance(task, Task) else task
        find_task(self._tasks, name)
        if unknown := [field for field in fields if field not in Job.__struct_fields__]:
            raise TypeError(f"assert_enqueued: a job has no field {unknown[0]!r}")
        same = self.enqueued(name)
        found = [job for job in same if _fits(job, payload, {"queue": queue, **fields} if queue else fields)]
        if found and count in (None, len(found)):
            return found[-1]
        wanted = ", ".join(
            f"{field}={value!r}"
            for field, value in {"payload": payload, "queue": queue, **fields}.items()
            if value is not None or field in fields
        )
        times = "" if count is None else f" {count} times"
        there = "\n".join(f"  {_line(job)}" for job in same) or "  none at all"
        raise AssertionError(f"{name} was not enqueued{times} with {wanted or 'any payload'}; jobs of {name}:\n{there}")

    def assert_not_enqueued(self, task: str | Task[..., Any], payload: Mapping[str, Any] | None = None) -> None:
        """Fail if a job of the task, with these arguments if some are given, was enqueued."""
        name = task.name if isinstance(task, Task) else task
        find_task(self._tasks, name)
        if found := [job for job in self.enqueued(name) if _fits(job, payload, {})]:
            raise AssertionError(f"{name} was enqueued:\n" + "\n".join(f"  {_line(job)}" for job in found))

    # Running.

    def drain(self, *, raise_errors: bool = False, limit: int = MOST_RUNS) -> Drained:
        """Run what is due, and what follows from it; then move the clock to the next retry, until none is left.

        Delayed jobs and schedules wait for `advance`. With `raise_errors` the first error of a handler is raised. An async test
        awaits `adrain` instead, so that its coroutines run on the test's own loop.
        """
        return self._caller.drive(self._draining(limit, raise_errors=raise_errors))

    async def adrain(self, *, raise_errors: bool = False, limit: int = MOST_RUNS) -> Drained:
        """As `drain`; async handlers run on the running loop."""
        return await self._caller.adrive(self._draining(limit, raise_errors=raise_errors))

    def _draining(self, limit: int, *, raise_errors: bool) -> Generator[DueCall, Ended, Drained]:
        self._declare()
        with self._in_order():
            return (yield from self._runs(limit, raise_errors=raise_errors))

    @contextmanager
    def _in_order(self) -> Iterator[None]:
        """Groups whose order is strict keep it. No other limit holds here: jobs run one after the other, and rates would only
        take time. Nor does it hold inline, where each job is run at its enqueue."""
        strict = {name: limit for name, limit in declared_limits(self._tasks).items() if limit is not None and limit.ordered}
        self._memory.portal.call(self._memory.declare_limits(strict))
        try:
            yield
        finally:
            self._memory.portal.call(self._memory.declare_limits(dict.fromkeys(strict)))

    def _runs(self, limit: int, *, raise_errors: bool) -> Generator[DueCall, Ended, Drained]:
        ran: list[RanOnce] = []
        while True:
            waiting = self._runner.jobs(state=State.READY)
            now = yield from self._runner.one(self._delayed.among(waiting, self._reached, self._time.now()))
            if now is not None:
                ran.append(now)
                if now.error is not None and raise_errors:
                    raise now.error
                if len(ran) >= limit:
                    raise AssertionError(
                        f"drain has made {limit} runs and has not ended; the last one: {_line(self.get(now.job.id))}"
                    )
            elif not self._to_next_retry():
                break
        ids = dict.fromkeys(one.job.id for one in ran)
        return Drained(len(ran), tuple(map(self.get, ids)))

    def _to_next_retry(self) -> bool:
        now = self._time.now()
        times = (from_datetime(job.run_at) for job in self._runner.jobs(state=State.READY) if job.lease and not job.held)
        later = min((time for time in times if time > now), default=None)
        if later is None:
            return False
        self._time.set(later)
        return True

    @contextmanager
    def inline(self) -> Iterator[None]:
        """Within it an enqueue runs the job at once, delayed ones too,
        and all that follows from it. What a handler raises is raised.

        So do the end of a batch, `emit` and `cancel` with what they release. Sleeps and snoozes move the clock.
        """
        before, self._memory.at_once = self._memory.at_once, (self._runner, self._caller)
        try:
            yield
        finally:
            self._memory.at_once = before

    # Time.

    @property
    def now(self) -> datetime:
        """The time that the store sees."""
        return at(self._time.now())

    def advance(self, seconds: float | timedelta) -> None:
        """Move the clock. Delayed jobs fall due and schedules make their jobs, tick by tick; `drain` runs them."""
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        if seconds < 0:
            raise ValueError(f"advance: {seconds!r} is negative; the clock only moves forward")
        self._to(self._time.now() + to_us(seconds))

    def advance_to(self, when: datetime) -> None:
        """Move the clock to an instant, as `advance` does."""
        if when.utcoffset() is None or when < self.now:
            raise ValueError(f"advance_to: {when!r} is not an aware datetime from {self.now} on")
        self._to(from_datetime(when))

    def _to(self, end: int) -> None:
        ask = self._memory.portal.call
        self._declare()
        while True:
            due = ask(self._memory.due_schedules(1_000))
            if due.schedules:
                ask(self._memory.fire([plan(schedule, due.now) for schedule in due.schedules]))
            elif due.next_in is not None and due.now + to_us(due.next_in) <= end:
                self._time.set(due.now + max(1, to_us(due.next_in)))
            else:
                break
        self._time.set(end)
        self._reached = end
        ask(self._memory.reclaim(0))  # ends waits whose time is over

    def _declare(self) -> None:
        """What a worker would do with the schedules that the tasks declare."""
        ask = self._memory.portal.call
        mine = declared(self._tasks, self.config.max_payload)
        living = ask(self._memory.declare(declaration(mine)))
        changes = reconcile(mine, living, ask(self._memory.schedules()), self._time.now())
        if changes:
            ask(self._memory.fire(changes))

    # The end.

    def close(self) -> None:
        """Give adopted apps their own stores back."""
        while self._given_back:
            self._given_back.pop()()
        self._caller.close()
        super().close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _fits(job: Job, payload: Mapping[str, Any] | None, fields: Mapping[str, Any]) -> bool:
    has, wanted = job.payload, msgspec.json.decode(msgspec.json.encode(dict(payload or {}), enc_hook=str))
    fitting = all(has.get(name, _ANY) == value for name, value in wanted.items())
    return fitting and all(getattr(job, name) == value for name, value in fields.items())


def _line(job: Job) -> str:
    due = "" if job.run_at <= job.enqueued_at else f", due at {job.run_at:%Y-%m-%d %H:%M:%S}"
    return f"{job.task} {job.payload!r} in queue {job.queue}, {job.state}, attempt {job.attempt}{due}"
