"""Runs jobs in virtual time: one after the other, in the test's own process, on a store whose clock the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from hawser.app import Hawser
from hawser.client.portal import Portal
from hawser.clock import from_datetime
from hawser.context import Context
from hawser.errors import HawserError
from hawser.job import Claimed, Job, State
from hawser.outcome import Dead, Failed, Outcome, Released, Suspended, decide, failure_of
from hawser.policy import backoff_of
from hawser.run_control import InlineRun
from hawser.store import MAX_LEASE, MAX_PAGE, Filter, LeaseRef, Leave, Settlement, Share, Store
from hawser.task import Task

T = TypeVar("T")

WORKER: Final = "test"


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

    def __init__(self, store: Store, tasks: Mapping[str, Task[..., Any]]) -> None:
        self._store = store
        self._tasks = tasks
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
            self._settle(Settlement(job.id, job.lease, Released()))
            leaving |= {job.id}

    def this(self, id: str) -> Turn[None]:
        """Run the job with this id and those that follow from it. What its handler raises is raised, once it is settled."""
        others = {job.id for job in self.jobs(state=State.READY)} - {id}
        ran = yield from self.one(others)
        if ran is None:
            return
        if ran.error is not None:
            raise ran.error
        for child in self.jobs(state=State.READY, parent_id=id):
            yield from self.this(child.id)

    def _run(self, job: Claimed, task: Task[..., Any]) -> Turn[RanOnce]:
        backoff = backoff_of(task.options.backoff, self._ask(self._store.policies()).get(job.queue))
        try:
            arguments = task.parameters.unpack(job.body)
        except HawserError as error:
            outcome: Outcome = Failed(failure_of(error), backoff.delay(job.attempt))
            self._settle(Settlement(job.id, job.lease, outcome))
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
        self._settle(Settlement(job.id, job.lease, outcome, ctx.follows(outcome)))
        return RanOnce(job, outcome, ended.value if ended.failed and isinstance(outcome, Failed | Dead) else None)

    def _settle(self, settlement: Settlement) -> None:
        self._ask(self._store.settle([settlement]))


def delayed(jobs: Collection[Job], reached: int) -> Iterator[str]:
    """Of the waiting jobs the ids of those that were enqueued for a time which the test has not reached."""
    for job in jobs:
        due = from_datetime(job.run_at)
        if not job.lease and due > reached and job.run_at > job.enqueued_at:
            yield job.id


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
