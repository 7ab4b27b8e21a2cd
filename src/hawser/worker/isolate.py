"""The child process that runs isolated jobs, one at a time: python -m hawser.worker.isolate APP STORE FD PARENT_PID LOGS"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import resource
import socket
import sys
import threading
from collections.abc import Iterator
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import msgspec

from hawser.client.app_loader import find_app
from hawser.context import Context
from hawser.errors import HawserError, InvalidJob
from hawser.handler.output import RunOutput
from hawser.outcome import Failed, Failure, decide, describe, failure_of
from hawser.policy import backoff_of
from hawser.telemetry.logs import LogOptions, configure, flush, on_behalf_of
from hawser.value.payload import is_object
from hawser.worker.ending import FAULT_AFTER
from hawser.worker.loop import Forks, end_fork
from hawser.worker.orphan import die_with
from hawser.worker.signals import leave_to_the_supervisor, tell_stacks
from hawser.worker.wire import (
    Broken,
    CancelOrder,
    DrainOrder,
    Extend,
    IsolateReady,
    Message,
    Order,
    Over,
    Progress,
    Written,
    packed,
    read,
)

if TYPE_CHECKING:
    from hawser.app import Hawser
    from hawser.task import Task


class IsolatedRun:
    """What a handler's context asks; answers go to the worker that ordered the run."""

    def __init__(self, sock: socket.socket) -> None:
        self.cancelled = False
        self.draining = False
        self.lost = False  # a child whose run has lost its lease is killed
        self.output: RunOutput | None = None
        self._socket = sock

    def extend(self, seconds: float | None) -> None:
        self._socket.sendall(packed(Extend(seconds)))

    def progress(self, body: bytes) -> None:
        self._socket.sendall(packed(Progress(body)))

    def write(self, body: bytes) -> None:
        if self.output is None:
            self.output = RunOutput()
        self.output.add(body)
        self._socket.sendall(packed(Written(body)))


class OrderServer:
    """Takes orders from a thread that listens, runs them in the main thread, where handlers may expect to be."""

    def __init__(self, app: Hawser, sock: socket.socket, runner: asyncio.Runner) -> None:
        self._app = app
        self._socket = sock
        self._runner = runner
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self._run: IsolatedRun | None = None
        self._begun = self._ended = 0

    def serve(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        self._socket.sendall(packed(IsolateReady()))
        while (order := self._orders.get()) is not None:
            self._run = IsolatedRun(self._socket)
            over = self._execute(order, self._run)
            self._socket.sendall(_fitting(over))
            self._ended += 1

    def _listen(self) -> None:
        while (message := self._read()) is not None:
            match message:
                case Order() as order:
                    self._begun += 1
                    self._orders.put(order)
                case CancelOrder() if self._run is not None:
                    self._run.cancelled = True
                case DrainOrder() if self._run is not None:
                    self._run.draining = True
                case _:
                    pass
        if self._begun != self._ended:
            os._exit(0)  # the worker is gone, so there is no one to report the outcome to
        self._orders.put(None)

    def _read(self) -> Message | None:
        with contextlib.suppress(OSError):
            return read(self._socket)
        return None

    def _execute(self, order: Order, run: IsolatedRun) -> Over:
        job = order.job
        task = self._app.tasks.get(job.task)
        if task is None:
            return Over(
                Failed(Failure(f"the isolated process has no task {job.task!r}; is its module imported by the app?"), FAULT_AFTER)
            )
        ctx = task.new_context(job, run)
        backoff = backoff_of(task.options.backoff, order.policy)
        try:
            arguments = task.parameters.unpack(job.body)
        except BaseException as error:  # noqa: BLE001  # a model of the app's own may raise anything
            misfit = str(error) if isinstance(error, InvalidJob) and is_object(job.body) else None
            return Over(decide(error, attempt=job.attempt, backoff=backoff, failed=True), misfit=misfit)
        try:
            with _memory(order.memory_limit):
                value = self._called(task, ctx, arguments)
        except BaseException as error:  # noqa: BLE001  # SystemExit too: it ends the attempt, not the process
            value, failed = error, True
        else:
            failed = False
        value, failed = ctx.ended(value, failed=failed)
        outcome = decide(value, attempt=job.attempt, backoff=backoff, failed=failed)
        return Over(outcome, ctx.follows(outcome), stepped=ctx.stepped, doubtful=ctx.doubtful)

    def _called(self, task: Task[..., Any], ctx: Context, arguments: dict[str, Any]) -> Any:
        forks = Forks.count
        try:
            with on_behalf_of(ctx):
                value = task.begin(ctx, arguments)
                # In the context of now, which knows the job; the runner would take that of its own start.
                return self._runner.run(value, context=copy_context()) if task.is_async else value
        finally:
            if Forks.count != forks:  # a child that the handler has forked: the socket is its parent's
                end_fork(f"job {ctx.job.id} of task {task.name}")


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
    except Exception as error:  # noqa: BLE001  # the worker must hear of every end
        return packed(Over(Failed(failure_of(error), FAULT_AFTER)))


def main() -> None:
    spec, store, fd, parent, logs = sys.argv[1:]
    die_with(int(parent))
    leave_to_the_supervisor()
    tell_stacks()
    if logs:
        configure(msgspec.json.decode(logs, type=LogOptions))
    sock = socket.socket(fileno=int(fd))
    with asyncio.Runner() as runner:
        try:
            app = find_app(spec)
            if store != app.store_url:
                app.use_store(store)
            runner.run(app.hooks.start(app))
        except Exception as error:  # noqa: BLE001  # a start hook may raise anything
            text = str(error) if isinstance(error, HawserError) else f"a start hook failed: {describe(error)}"
            sock.sendall(packed(Broken(text)))
            sys.exit(1)
        OrderServer(app, sock, runner).serve()
        runner.run(app.hooks.stop(app))
    flush()
    os._exit(0)


if __name__ == "__main__":
    main()
