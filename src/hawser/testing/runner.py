"""Runs jobs in virtual time: one after the other, in the test's own process, on a store whose clock the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from hawser.app import Hawser
from hawser.client.portal import Portal
from hawser.clock import from_datetime
from hawser.context import Context
from hawser.errors import HawserError
from hawser.handler.run_control import InlineRun
from hawser.job import Claimed, Job, State
from hawser.outcome import Dead, Failed, Outcome, Released, Suspended, decide, failure_of
from hawser.policy import backoff_of
from hawser.store import MAX_LEASE, MAX_PAGE, Filter, LeaseRef, Leave, Settlement, Share, Store
from hawser.task import Task
from hawser.telemetry.events import SettledBatch, tell
from hawser.testing.clock import ManualClock

T = TypeVar("T")

WORKER: Final = "test"

MOST_RUNS: Final = 10_000
"""Runs in one drain, or after one call inline, before it gives up: a job that enqueues itself, or snoozes for ever, would have no
end."""


class DueCall(NamedTuple):
    """A handler that has to be called."""

    task: Task[..., Any]
    ctx: Context
    arguments: dict[str, Any]


class Ended(NamedTuple):
    """What a handler returned, or raised if it failed."""

    value: Any
    failed: bool


Turn = Generator[DueCall, Ended, T]
"""What is done with jobs. It yields the calls of handlers, so that sync and async tests can each make them in their way."""


class RanOnce(NamedTuple):
    """A job that was run once."""

    job: Claimed
    outcome: Outcome
    error: BaseException | None
    """What the handler raised, if the attempt failed."""


class TaskRunner:
    """Claims, calls and settles. The store must be one whose coroutines never suspend."""

    def __init__(self, store: Store, apps: Sequence[Hawser], tasks: Mapping[str, Task[..., Any]], clock: ManualClock) -> None:
        """`apps`: whose listeners hear of the ends of their jobs."""
        self._store = store
        self._apps = apps
        self._tasks = tasks
        self._clock = clock
        self._ask = Portal(store).call

    def jobs(self, **filter: Any) -> list[Job]:
        """The jobs that match, in the order in which they were enqueued."""
        found: list[Job] = []
        after: str | None = None
        while True:
            page = self._ask(self._store.find(Filter(**filter), after, MAX_PAGE))
            found += page.jobs
            after = page.next
            if after is None:
                return found[::-1]

    def one(self, leave: Collection[str] = ()) -> Turn[RanOnce | None]:
        """Run the next due job, but for those with these ids; None when nothing is due."""
        leaving = frozenset(leave)
        while True:
            queues = [Share(queue) for queue in self._ask(self._store.queues())]
            claimed = self._ask(self._store.claim(queues, 1, WORKER, MAX_LEASE, leave=Leave(jobs=leaving)))
            if not claimed:
                return None
            [job] = claimed
            if job.task in self._tasks:
                return (yield from self._run(job, self._tasks[job.task]))
            # As a worker would: the job waits for one that knows the task.
            self._settle(Settlement(job.id, job.lease, Released()), job)
            leaving |= {job.id}

    def ready(self) -> set[str]:
        """The ids of the jobs that wait, but for what waits for others."""
        return {job.id for job in self.jobs(state=State.READY) if not job.held}

    def at_once(self, ids: Sequence[str], before: Collection[str]) -> Turn[None]:
        """Run the jobs with these ids, one after the other, each with all that follows from it: children, what waited for it, and
        itself after a snooze or a sleep. When nothing else is left, the clock moves to the next of them.

        What was ready before stays. When all have run, the first error of a handler is raised; that job is not tried again.
        """
        left, waiting, error = set(before), list(ids), None
        for _ in range(MOST_RUNS):
            ran = yield from self.one({*left, *waiting})
            if ran is None and waiting:
                ran = yield from self.one({*left, *waiting[1:]})
                waiting = waiting[1:] if ran is None or ran.job.id == waiting[0] else waiting
            elif ran is None and not self._to_next(left):
                break
            if ran is not None and ran.error is not None:
                error = error or ran.error
                left.add(ran.job.id)
        else:
            raise AssertionError(f"inline: {MOST_RUNS} runs and no end; does a handler enqueue its own job, or snooze, for ever?")
        if error is not None:
            raise error

    def _to_next(self, left: Collection[str]) -> bool:
        """Move the clock to the next time at which one of the other jobs is due."""
        jobs = (job for job in self.jobs(state=State.READY) if not job.held and job.id not in left and job.task in self._tasks)
        later = [due for job in jobs if (due := from_datetime(job.run_at)) > self._clock.now()]
        if later:
            self._clock.set(min(later))
        return bool(later)

    def _run(self, job: Claimed, task: Task[..., Any]) -> Turn[RanOnce]:
        backoff = backoff_of(task.options.backoff, self._ask(self._store.policies()).get(job.queue))
        try:
            arguments = task.parameters.unpack(job.body)
        except HawserError as error:
            outcome: Outcome = Failed(failure_of(error), backoff.delay(job.attempt))
            self._settle(Settlement(job.id, job.lease, outcome), job)
            return RanOnce(job, outcome, error)
        run = InlineRun()
        ctx = task.new_context(job, run)
        ended = yield DueCall(task, ctx, arguments)
        ended = Ended(*ctx.ended(ended.value, failed=ended.failed))
        outcome = decide(ended.value, attempt=job.attempt, backoff=backoff, failed=ended.failed)
        if run.progressed is not None:
            self._ask(self._store.extend(WORKER, [LeaseRef(job.id, job.lease, run.progressed)], MAX_LEASE))
        if run.output is not None and (sent := run.output.pending(job)) is not None:
            self._ask(self._store.write_output([sent]))
        self._settle(Settlement(job.id, job.lease, outcome, ctx.follows(outcome)), job)
        return RanOnce(job, outcome, ended.value if ended.failed and isinstance(outcome, Failed | Dead) else None)

    def _settle(self, settlement: Settlement, job: Claimed) -> None:
        answers = self._ask(self._store.settle([settlement]))
        for app in self._apps:
            if job.task in app.tasks:
                tell(app.events.settled, SettledBatch([settlement], answers, [job], [0.0]))


class DelayedJobs:
    """Which of the waiting jobs are for a time that the test has not reached."""

    def __init__(self) -> None:
        self._held: set[str] = set()
        self._released: set[str] = set()
        """Those that waited for others and were due when these had ended, however far a drain had moved the clock by then."""

    def among(self, jobs: Collection[Job], reached: int, now: int) -> set[str]:
        """Their ids. To be asked after each run, before the clock is moved."""
        held = {job.id for job in jobs if job.held}
        self._released |= {job.id for job in jobs if job.id in self._held - held and from_datetime(job.run_at) <= now}
        self._held = held
        return {job.id for job in jobs if self._is_later(job, reached)}

    def _is_later(self, job: Job, reached: int) -> bool:
        due = from_datetime(job.run_at)
        return not job.lease and due > reached and job.run_at > job.enqueued_at and job.id not in self._released


class Caller:
    """Calls handlers for a test. Coroutines of a sync test run on one loop, so what one of them opens serves the next."""

    def __init__(self, apps: Sequence[Hawser], store: Store) -> None:
        """`apps`: whose hooks are called."""
        self._apps = apps
        self._inline = Portal(store)
        self._portal = Portal()

    def close(self) -> None:
        self._portal.close()

    def drive(self, turn: Turn[T]) -> T:
        """Do it for a sync caller: plain handlers are called in the caller's own thread. Start and stop hooks run around it."""
        self._hooked(self._start())
        try:
            call = next(turn)
            while True:
                call = turn.send(_ended(self._called, call))
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            self._hooked(self._stop())

    async def adrive(self, turn: Turn[T]) -> T:
        """Do it on the running loop: plain handlers are called in a thread, as in a worker."""
        await self._start()
        try:
            call = next(turn)
            while True:
                call = turn.send(await _aended(_awaited, call))
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            await self._stop()

    async def _start(self) -> None:
        for app in self._apps:
            await app.hooks.start(app)

    async def _stop(self) -> None:
        for app in reversed(self._apps):
            await app.hooks.stop(app)

    def _hooked(self, coro: Coroutine[Any, Any, None]) -> None:
        if any(app.hooks.may_wait for app in self._apps):
            self._wait(coro)
        else:
            self._inline.call(coro)

    def _called(self, call: DueCall) -> Any:
        value = _invoke(call)
        return self._wait(value) if call.task.is_async else value

    def _wait(self, coro: Coroutine[Any, Any, Any]) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._portal.call(coro)
        # The loop of this thread waits for us; it may be our own portal's.
        portal = Portal()
        try:
            return portal.call(coro)
        finally:
            portal.close()


async def _awaited(call: DueCall) -> Any:
    return await _invoke(call) if call.task.is_async else await asyncio.to_thread(_invoke, call)


def _invoke(call: DueCall) -> Any:
    return call.task.begin(call.ctx, call.arguments)


def _ended(called: Callable[[DueCall], Any], call: DueCall) -> Ended:
    try:
        return Ended(called(call), failed=False)
    except (Exception, SystemExit, Suspended) as error:  # noqa: BLE001  # not pytest.fail(), nor Ctrl-C: those end the test
        return Ended(error, failed=True)


async def _aended(called: Callable[[DueCall], Awaitable[Any]], call: DueCall) -> Ended:
    try:
        return Ended(await called(call), failed=False)
    except (Exception, SystemExit, Suspended) as error:  # noqa: BLE001  # as above
        return Ended(error, failed=True)
