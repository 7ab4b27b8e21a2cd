"""The child process that runs isolated jobs, one at a time: python -m hawser.worker.isolate APP STORE FD PARENT_PID"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import resource
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hawser.context import Context
from hawser.errors import HawserError
from hawser.outcome import Done, Failed, Failure, decide, failure_of
from hawser.policy import backoff_of
from hawser.target import find_app
from hawser.worker.orphan import die_with
from hawser.worker.wire import Broken, CancelOrder, Extend, Message, Order, Over, Progress, Ready, packed, read

if TYPE_CHECKING:
    from hawser.app import Hawser
    from hawser.task import Task


class IsolatedRun:
    """What a handler's context asks; answers go to the worker that ordered the run."""

    def __init__(self, sock: socket.socket) -> None:
        self.cancelled = False
        self._socket = sock

    def extend(self, seconds: float | None) -> None:
        self._socket.sendall(packed(Extend(seconds)))

    def progress(self, body: bytes) -> None:
        self._socket.sendall(packed(Progress(body)))


class Child:
    """Takes orders from a thread that listens, runs them in the main thread, where handlers may expect to be."""

    def __init__(self, app: Hawser, sock: socket.socket) -> None:
        self._app = app
        self._socket = sock
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._run: IsolatedRun | None = None

    def serve(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        self._socket.sendall(packed(Ready()))
        while True:
            order = self._orders.get()
            self._run = IsolatedRun(self._socket)
            over = self._execute(order, self._run)
            self._socket.sendall(_fitting(over))

    def _listen(self) -> None:
        while (message := self._read()) is not None:
            match message:
                case Order() as order:
                    self._orders.put(order)
                case CancelOrder() if self._run is not None:
                    self._run.cancelled = True
                case _:
                    pass
        os._exit(0)

    def _read(self) -> Message | None:
        with contextlib.suppress(OSError):
            return read(self._socket)
        return None

    def _execute(self, order: Order, run: IsolatedRun) -> Over:
        job = order.job
        task = self._app.tasks.get(job.task)
        if task is None:
            return Over(
                Failed(Failure(f"the isolated process has no task {job.task!r}; is its module imported by the app?"), 60.0)
            )
        ctx = Context(job, run)
        backoff = backoff_of(task.options.backoff, order.policy)
        try:
            arguments = task.parameters.unpack(job.body)
            with _memory(order.memory_limit):
                value = _called(task, ctx, arguments)
        except BaseException as error:  # noqa: BLE001  # SystemExit too: it ends the attempt, not the process
            outcome = decide(error, attempt=job.attempt, backoff=backoff, failed=True)
            return Over(outcome)
        outcome = decide(value, attempt=job.attempt, backoff=backoff, failed=False)
        return Over(outcome, tuple(ctx.then) if isinstance(outcome, Done) else ())


def _called(task: Task[..., Any], ctx: Context, arguments: dict[str, Any]) -> Any:
    value = task.fn(ctx, **arguments) if task.wants_context else task.fn(**arguments)
    return asyncio.run(value) if task.is_async else value


@contextlib.contextmanager
def _memory(limit: int | None) -> Iterator[None]:
    """Allow so many bytes beyond what the process has now."""
    if limit is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as statm:
        now = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _fitting(over: Over) -> bytes:
    try:
        return packed(over)
    except Exception as error:  # noqa: BLE001  # whatever it is, the worker must hear of an end
        return packed(Over(Failed(failure_of(error), 60.0)))


def main() -> None:
    spec, store, fd, parent = sys.argv[1:]
    die_with(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sock = socket.socket(fileno=int(fd))
    try:
        app = find_app(spec)
        if store != app.store_url:
            app.use_store(store)
    except HawserError as error:
        sock.sendall(packed(Broken(str(error))))
        sys.exit(1)
    Child(app, sock).serve()


if __name__ == "__main__":
    main()
