"""The event loop of a worker. Handlers share it, so none of them may end it, or what others do on it."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import sys
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, Protocol, cast

from hawser.job import Claimed
from hawser.telemetry.logs import CURRENT

_logger = logging.getLogger("hawser.worker")

FORKED: Final = 70
"""The exit code of a forked child that came back from its handler."""


class Forks:
    """How many forks lie between the first process of this program and this one. A part that a process has made notices by it
    that it is a copy in a child; asking the system for the process id each time would be a system call for every run."""

    count = 0

    @classmethod
    def note(cls) -> None:
        cls.count += 1


os.register_at_fork(after_in_child=Forks.note)


class Culprit(Protocol):
    """The run on whose behalf a handler's code runs."""

    job: Claimed

    @property
    def work(self) -> asyncio.Task[None] | None:
        """The task that is its own to cancel."""

    def blame(self, deed: str) -> None:
        """It has tried to do what would have harmed others."""


def culprit() -> Culprit | None:
    """The run whose handler's code runs now; None for the worker's own code."""
    return cast("Culprit | None", CURRENT.get())


class GuardedTask(asyncio.Task[Any]):
    """A task that a handler cannot cancel: the worker's own, or that of another run. What a handler starts is a plain task, which
    it may cancel, and so may others."""

    def cancel(self, msg: Any = None) -> bool:
        by = culprit()
        if by is None or self is by.work or self.done():
            return super().cancel(msg)
        by.blame("it cancelled tasks that are not its own, as with asyncio.all_tasks()")
        return False


def in_name_of(run: Culprit) -> Context:
    """A context in which code runs on behalf of this run."""
    context = copy_context()
    context.run(CURRENT.set, run)
    return context


class Unstoppable:
    """Mixed into the class of a loop: only the worker that runs the loop can stop it, no handler can."""

    def stop(self) -> None:
        by = culprit()
        if by is None:
            super().stop()  # type: ignore[misc]  # of the loop beside
            return
        by.blame("it stopped the event loop of its worker")
        raise RuntimeError("a handler must not stop the event loop of its worker")


def run_loop(main: Coroutine[Any, Any, Any]) -> Any:
    """Run on uvloop where there is one."""
    try:
        import uvloop  # noqa: PLC0415  # optional
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def run_guarded(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a worker, on uvloop where there is one. The loop goes on until `main` has ended, no matter what handlers do to it."""
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        loop = runner.get_loop()
        loop.set_task_factory(cast("Any", _guarded))
        os.register_at_fork(after_in_child=lambda: _end_soon(loop))
        task = loop.create_task(main)
        while True:
            try:
                return loop.run_until_complete(task)
            except SystemExit:
                # Of a task that a handler has started: the handler, which awaits it, hears of it as well.
                if task.done():
                    raise
                _logger.exception("a handler's task tried to end the worker; the worker goes on")
            except RuntimeError:
                if task.done():
                    raise
                _logger.exception("code outside of the worker stopped the event loop; the loop goes on")


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415  # optional
    except ImportError:
        base: type[Any] = asyncio.SelectorEventLoop
    else:
        base = uvloop.Loop
    return cast("asyncio.AbstractEventLoop", type("WorkerLoop", (Unstoppable, base), {})())


def _guarded(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **kwargs: Any) -> asyncio.Task[Any]:
    """`asyncio.all_tasks()` does not show the worker's own tasks: a handler that waited for them would wait for ever."""
    if CURRENT.get() is not None:
        return asyncio.Task(coro, loop=loop, **kwargs)
    task = GuardedTask(coro, loop=loop, **kwargs)
    asyncio.tasks._unregister_task(task)  # noqa: SLF001  # documented in "Extending" of asyncio
    return task


class StartsTask(Protocol):
    """Makes a task of a coroutine."""

    def __call__(self, coro: Coroutine[Any, Any, None], /, *, name: str) -> asyncio.Task[None]: ...


def starter_on(loop: asyncio.AbstractEventLoop) -> StartsTask:
    """What starts the tasks of runs on a loop. On a worker's own loop it makes them itself: the way over the loop's factory costs
    as much again."""
    return partial(GuardedTask, loop=loop) if loop.get_task_factory() is cast("Any", _guarded) else loop.create_task


def _end_soon(loop: asyncio.AbstractEventLoop) -> None:
    """In a forked child: it may go on inside of the handler that made it, but the loop is not its own."""
    if not loop.is_closed():
        loop.call_soon(end_fork, "a task")


def end_fork(who: str) -> None:
    """End a forked child that came back from a handler, at once: the store's connections and the board are its parent's.

    It writes to standard error and not to the log, whose locks another thread may have held at the fork, and only if that does
    not block.
    """
    with suppress(OSError, ValueError):
        if select.select([], [sys.stderr.fileno()], [], 0)[1]:
            text = f"{who}: its handler forked, and the child process {os.getpid()} came back from it; the child is ended\n"
            os.write(sys.stderr.fileno(), text.encode())
    os._exit(FORKED)
