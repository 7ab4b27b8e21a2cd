"""Where a handler runs: on the event loop, in a thread, or in a child process. The three look alike from outside."""

from __future__ import annotations

import asyncio
import logging
import threading
import types
from collections import deque
from collections.abc import Coroutine, Generator, Mapping
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, Protocol

from hawser.outcome import was_lost
from hawser.task import Task
from hawser.telemetry.logs import CURRENT
from hawser.worker.board import Board, How
from hawser.worker.isolates import Isolate, Isolates
from hawser.worker.loop import Forks, end_fork, in_name_of, starter_on
from hawser.worker.policies import Policies
from hawser.worker.run import Run

_logger = logging.getLogger("hawser.worker")


ON_LOOP: Final = How.LOOP
"""Read once: in Python 3.11 reading a member of an enum costs as much as a call."""


class Runner(Protocol):
    """One way to run handlers. How a run ends is told to its host, once, on the event loop."""

    apart: bool
    """Whether the payload is read elsewhere, in a child process."""

    def start(self, run: Run) -> None:
        """Arrange that the handler is called soon. Raises when that is not possible."""

    def stop(self, run: Run) -> bool:
        """End a handler that has begun; False when it can only be asked to end and may go on."""


class LoopRunner:
    """`async def` handlers, on the event loop."""

    apart = False

    def __init__(self, board: Board) -> None:
        self._board = board
        self._start = starter_on(asyncio.get_running_loop())
        self._forks = Forks.count

    def start(self, run: Run) -> None:
        run.work = self._start(self._await(run), name=run.job.task)

    def stop(self, run: Run) -> bool:
        _cancel(run)
        return True

    async def _await(self, run: Run) -> None:
        # In the task's own context. Set around its start it would have to be taken back, which costs as much again.
        CURRENT.set(run)
        run.begun = True
        assert run.task is not None
        try:
            if not run.begin(ON_LOOP):
                raise asyncio.CancelledError  # noqa: TRY301  # as if it had been told in its first step
            value = await _watched(run.task.begin(run.ctx, run.arguments), self._board, run, self._forks)
        except BaseException as error:  # noqa: BLE001  # SystemExit too: it ends the attempt, not the worker
            run.host.ended(run, error, failed=True)
        else:
            run.host.ended(run, value, failed=False)


@types.coroutine
def _watched(handler: Coroutine[Any, Any, Any], board: Board, run: Run, forks: int) -> Generator[Any, Any, Any]:
    """The handler's value. When the process dies inside of a step, the board still says whose step it was.

    A child process that the handler has forked, one with more than so many `forks`, ends when it comes back from the step,
    before it touches anything.
    """
    enter, cell = board.enter, run.cell
    try:
        enter(cell)
        yielded = handler.send(None)
        while True:
            if Forks.count != forks:
                end_fork(str(run))
            enter(0)
            try:
                sent = yield yielded
            except GeneratorExit:
                handler.close()
                raise
            except BaseException as error:  # noqa: BLE001  # a cancellation, for one: the handler's to deal with
                enter(cell)
                yielded = handler.throw(error)
            else:
                enter(cell)
                yielded = handler.send(sent)
    except StopIteration as stop:
        return stop.value
    finally:
        if Forks.count != forks:
            end_fork(str(run))
        enter(0)


class Returned(NamedTuple):
    """How a call in a thread ended: its value, or the exception if it failed."""

    run: Run
    value: Any
    failed: bool


class ThreadRunner:
    """`def` handlers. As many threads as calls run at once, started when needed, up to the number of slots. They die with the
    process. Calls go over one by one, results come back together."""

    apart = False

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[Run | None] = SimpleQueue()
        self._results: deque[Returned] = deque()
        self._told = False
        self._threads = 0
        self._busy = 0

    def start(self, run: Run) -> None:
        self._busy += 1
        if self._busy > self._threads:
            try:
                threading.Thread(target=self._work, name=f"hawser-slot-{self._threads + 1}", daemon=True).start()
            except RuntimeError:
                self._busy -= 1
                raise
            self._threads += 1
        self._calls.put(run)

    def stop(self, run: Run) -> bool:  # noqa: ARG002  # no thread can be stopped; the handler may ask its context
        return False

    def close(self) -> None:
        """Let idle threads end; those in a handler end with it, or with the process."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _work(self) -> None:
        while (run := self._calls.get()) is not None:
            try:
                ended = Returned(run, _call(run), failed=False)
            except BaseException as error:  # noqa: BLE001  # SystemExit too: it ends the attempt, not the worker
                ended = Returned(run, error, failed=True)
            self._results.append(ended)
            if not self._told:
                # `_collect` lowers the flag before it empties the deque, so nothing is left behind.
                self._told = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:
                    return  # the loop has ended: so has the worker
            del run, ended

    def _collect(self) -> None:
        self._told = False
        while self._results:
            self._busy -= 1
            ended = self._results.popleft()
            ended.run.host.ended(ended.run, ended.value, failed=ended.failed)


def _call(run: Run) -> Any:
    """In a thread."""
    if not run.begin(How.THREAD):
        raise asyncio.CancelledError
    assert run.task is not None
    forks = Forks.count
    try:
        return in_name_of(run).run(run.task.begin, run.ctx, run.arguments)
    finally:
        if Forks.count != forks:
            end_fork(str(run))


class IsolateRunner:
    """Handlers that run apart, each in a child process that it has to itself."""

    apart = True

    def __init__(self, isolates: Isolates, policies: Policies) -> None:
        self._isolates = isolates
        self._policies = policies
        self._loop = asyncio.get_running_loop()

    def start(self, run: Run) -> None:
        """Only while a child process is free."""
        isolate = self._isolates.take()
        run.work = self._loop.create_task(self._await(run, isolate))

    def stop(self, run: Run) -> bool:
        _cancel(run)
        return True

    async def _await(self, run: Run, isolate: Isolate | None) -> None:
        run.begun = True
        run.begin(How.APART)
        try:
            outcome, then = await self._isolates.run(isolate, run, self._policies.of(run.job.queue))
        except asyncio.CancelledError as error:
            run.host.ended(run, error, failed=True)
        except Exception as error:
            _logger.exception("job %s could not be run apart", run.job.id)
            run.host.ended(run, error, failed=True)
        else:
            if was_lost(outcome):
                run.crashed()
            run.host.decided(run, outcome, then)
        self._isolates.freed.happen()


def _cancel(run: Run) -> None:
    """Before its first step there is nothing to cancel: the step finds out that it is to stop."""
    if run.begun and run.work is not None:
        # On behalf of the run: the cancel reaches whatever the handler waits for, which need not be its own.
        in_name_of(run).run(run.work.cancel)


class Runners:
    """The three, and which of them a run needs."""

    def __init__(self, tasks: Mapping[str, Task[..., Any]], board: Board, isolates: Isolates, policies: Policies) -> None:
        self._isolates = isolates
        self._loop = LoopRunner(board)
        self._threads = ThreadRunner()
        self._apart = IsolateRunner(isolates, policies)
        self._isolated = frozenset(name for name, task in tasks.items() if task.options.isolate)
        self._dangerous: frozenset[str] = frozenset()
        self.freed = isolates.freed

    def choose(self, run: Run, task: Task[..., Any]) -> Runner | None:
        """None when it needs a child process and none is free; then there soon will be one."""
        if (self._dangerous or self._isolated or run.job.crashes) and (self.are_apart(task) or self._may_crash(run)):
            if self._isolates.free:
                return self._apart
            self._isolates.keep_ready()
            return None
        return self._loop if task.is_async else self._threads

    def are_apart(self, task: Task[..., Any]) -> bool:
        """Whether all jobs of the task run in child processes."""
        return task.name in self._isolated or (task.name in self._dangerous and self._isolates.possible)

    def _may_crash(self, run: Run) -> bool:
        """A job whose run was lost before may have been what killed its process: it must not take others along again."""
        return run.job.crashes > 0 and self._isolates.possible

    def isolate_also(self, tasks: frozenset[str]) -> None:
        """Run the jobs of these tasks apart from now on: they have crashed a process lately, or may have."""
        self._dangerous = tasks
        if tasks:
            self._isolates.keep_ready()

    def room(self) -> dict[str, int]:
        """Of tasks that run apart: how many more can start now."""
        if not (self._isolated or self._dangerous):
            return {}
        return dict.fromkeys(self._isolated | self._dangerous, self._isolates.room())

    def end(self) -> None:
        """No process is started any more for runs to come."""
        self._isolates.keep_no_more()

    def close(self) -> None:
        """Let idle threads end."""
        self._threads.close()
