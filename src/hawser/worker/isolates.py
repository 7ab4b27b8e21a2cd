"""Child processes for jobs that run apart: each runs one job at a time and may be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from hawser.job import NewJob
from hawser.outcome import Failed, Failure, Outcome
from hawser.policy import QueuePolicy, backoff_of
from hawser.worker.run import Run, Stop
from hawser.worker.wire import Broken, CancelOrder, Extend, Order, Over, Progress, Ready, packed, received

CANCEL_GRACE = 5.0
"""Seconds that a cancelled handler has to stop by itself before its process is killed."""


AFTER_FALSE_START = 30.0
"""Seconds before a job is tried again whose child process could not load the app."""


class CannotStart(Exception):
    """A child process has no app to run."""


class Isolates:
    """Up to so many child processes, started when needed and used again while they live."""

    def __init__(self, spec: str | None, store: str | None, most: int) -> None:
        self._spec = spec
        self._store = store
        self._idle: list[Isolate] = []
        self.free = most
        """Runs that could start now; the executor counts them, as it starts and ends them."""

    @property
    def possible(self) -> bool:
        """Whether a child process could find the app and its store."""
        return self._spec is not None and self._store is not None

    async def run(self, run: Run, policy: QueuePolicy | None) -> tuple[Outcome, Sequence[NewJob]]:
        """Run a job apart. Cancelled, for a timeout or a lost lease, it kills the process."""
        assert run.task is not None
        backoff = backoff_of(run.task.options.backoff, policy)
        if self._spec is None or self._store is None:
            text = "isolate: a child process cannot find the app; keep it in a module, under a name, with a store that has a URL"
            return Failed(Failure(text), backoff.delay(run.job.attempt)), ()
        isolate = self._idle.pop() if self._idle else Isolate(self._spec, self._store)
        try:
            ended = await isolate.run(run, policy)
        except CannotStart as error:
            await isolate.kill()
            return Failed(Failure(f"isolate: the child process cannot load the app: {error}"), AFTER_FALSE_START), ()
        except BaseException:
            await isolate.kill()
            raise
        if isinstance(ended, Over):
            self._idle.append(isolate)
            return ended.outcome, ended.then
        await isolate.kill()
        return Failed(Failure(ended), backoff.delay(run.job.attempt), lost=True), ()

    async def close(self) -> None:
        for isolate in self._idle:
            await isolate.kill()
        self._idle.clear()


class Isolate:
    """One child process and the socket to it."""

    def __init__(self, spec: str, store: str) -> None:
        ours, theirs = socket.socketpair()
        try:
            args = [sys.executable, "-m", "hawser.worker.isolate", spec, store, str(theirs.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(args, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL)  # noqa: S603
        finally:
            theirs.close()
        self._socket = ours
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self, run: Run, policy: QueuePolicy | None) -> Over | str:
        """The handler's end, or a text that says how the process died instead."""
        assert run.task is not None
        try:
            reader, writer = await self._ready()
            run.deadline = time.monotonic() + run.job.timeout
            writer.write(packed(Order(run.job, run.task.options.memory_limit, policy)))
            return await self._listen(run, reader)
        except asyncio.CancelledError:
            if run.stop is not Stop.CANCEL or self._streams is None:
                raise
            return await self._ask_to_stop(run, *self._streams)
        except (EOFError, ConnectionError, OSError):
            return await self._obituary()

    async def _ready(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            self._socket.setblocking(False)
            self._streams = await asyncio.open_connection(sock=self._socket, limit=2**26)
            match await received(self._streams[0]):
                case Ready():
                    pass
                case Broken(error):
                    raise CannotStart(error)
                case other:
                    raise ConnectionError(f"unexpected {other!r}")
        return self._streams

    async def _listen(self, run: Run, reader: asyncio.StreamReader) -> Over:
        while True:
            match await received(reader):
                case Over() as over:
                    return over
                case Progress(body):
                    run.progress(body)
                case Extend(seconds):
                    run.extend(seconds)
                case _:
                    pass

    async def _ask_to_stop(self, run: Run, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Over | str:
        """Somebody cancelled the job: the handler may stop by itself first."""
        try:
            writer.write(packed(CancelOrder()))
            async with asyncio.timeout(CANCEL_GRACE):
                return await self._listen(run, reader)
        except (TimeoutError, EOFError, OSError):
            raise asyncio.CancelledError from None

    async def _obituary(self) -> str:
        code = await asyncio.to_thread(self._process.wait)
        if code < 0:
            return f"the job's process was killed by signal {-code} ({signal.Signals(-code).name}) while running"
        return f"the job's process ended with exit code {code} while running"

    async def kill(self) -> None:
        self._process.kill()
        await asyncio.to_thread(self._process.wait)
        if self._streams is not None:
            self._streams[1].close()
        else:
            self._socket.close()
