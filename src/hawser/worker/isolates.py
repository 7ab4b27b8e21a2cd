"""Child processes for jobs that run apart: each runs one job at a time and may be killed."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import cast

import msgspec

from hawser.job import NewJob
from hawser.outcome import Failed, Failure, Outcome, describe
from hawser.policy import QueuePolicy, backoff_of
from hawser.telemetry.logs import configured
from hawser.worker import wire
from hawser.worker.process import how
from hawser.worker.run import Run, Stop
from hawser.worker.slots import Changes
from hawser.worker.wire import Broken, CancelOrder, DrainOrder, Extend, IsolateReady, Order, Over, Progress, packed, received

_logger = logging.getLogger("hawser.worker")

CANCEL_GRACE = 5.0
"""Seconds that a cancelled handler has to stop by itself before its process is killed."""


AFTER_FALSE_START = 30.0
"""Seconds before a job is tried again whose child process could not load the app."""

READY_WITHIN = 60.0
"""Seconds that a child process has to import the app."""

END_WITHIN = 1.0
"""Seconds that a child process has to end after it has closed its connection."""

STOP_WITHIN = 2.0
"""Seconds that an idle child process has for its stop hooks at the end of the worker."""

CRASH_PAUSE = 3.0
"""Seconds before a child process is started in the place of one that a job has crashed, or that could not be started. Starting
one costs more than most jobs: many jobs that crash must not take the cores from the others."""


class Isolates:
    """Up to so many child processes, started when needed and used again while they live.

    A run is given to a process that is ready, so that the time in which the app is imported is not the run's.
    """

    def __init__(self, spec: str | None, store: str | None, most: int) -> None:
        self._spec = spec
        self._store = store
        self._places = most
        self._ready: list[Isolate] = []
        self._busy = 0
        self._keeping = False
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._running: set[Isolate] = set()
        self._pauses: set[asyncio.TimerHandle] = set()
        self.freed = Changes()
        """Whenever a run that needs a child process may have become possible."""

    @property
    def possible(self) -> bool:
        """Whether a child process could find the app and its store."""
        return self._spec is not None and self._store is not None

    @property
    def free(self) -> bool:
        """Whether a run can start now."""
        if not self.possible:
            return True  # it fails at once, and says why
        dead = [isolate for isolate in self._ready if not isolate.fit]
        for isolate in dead:
            isolate.close()
            self._ready.remove(isolate)
            self._places += 1
        if dead:
            self._prepare()
        return bool(self._ready)

    def room(self) -> int:
        """How many more runs can start now. Before the first one a single job may come: it is handed back, but shows that a
        process is needed. To start one with every worker would cost time and memory where no isolated job ever comes."""
        if not self.possible:
            return self._places  # they fail at once, and say why
        if not self._keeping:
            return 1
        return len(self._ready) if self.free else 0

    def keep_ready(self) -> None:
        """From now on there are runs for child processes: keep one ready, so that the next such run can be claimed at all."""
        self._keeping = True
        self._prepare()

    def keep_no_more(self) -> None:
        """The worker ends: no process is started any more."""
        self._keeping = False
        for isolate in self._running:
            isolate.tell_drain()

    def _prepare(self) -> None:
        """Start processes when none is ready: as many as are busy, so that many waiting jobs do not wait for one process after
        another."""
        if not self._keeping or not self.possible or self._ready or self._starting:
            return
        for _ in range(min(self._places, max(1, self._busy))):
            self._places -= 1
            task = asyncio.get_running_loop().create_task(self._start())
            self._starting.add(task)

    async def _start(self) -> None:
        assert self._spec is not None
        assert self._store is not None
        isolate = None
        try:
            isolate = Isolate(self._spec, self._store)
            await isolate.start()
        except Exception as error:  # noqa: BLE001  # no memory, no file descriptors, nonsense on the wire: it may pass
            _logger.warning("no child process can be started: %s; trying again", describe(error))
            self._pause()
        else:
            self._ready.append(isolate)
            isolate = None
        finally:
            self._starting.discard(cast("asyncio.Task[None]", asyncio.current_task()))
            if isolate is not None:
                await isolate.kill()
        self._freed()

    def _freed(self) -> None:
        self._prepare()
        self.freed.happen()

    def _pause(self) -> None:
        """A place stays empty for a while."""

        def over() -> None:
            self._pauses.discard(pause)
            self._places += 1
            self._freed()

        pause = asyncio.get_running_loop().call_later(CRASH_PAUSE, over)
        self._pauses.add(pause)

    def take(self) -> Isolate | None:
        """A process for a run that starts now; None when there can be none."""
        if not self.possible:
            return None
        isolate = self._ready.pop()
        self._busy += 1
        self._prepare()
        return isolate

    async def run(self, isolate: Isolate | None, run: Run, policy: QueuePolicy | None) -> tuple[Outcome, Sequence[NewJob]]:
        """Run a job apart. Cancelled, for a timeout or a lost lease, it kills the process."""
        try:
            return await self._run(isolate, run, policy)
        finally:
            self._busy -= isolate is not None

    async def _run(self, isolate: Isolate | None, run: Run, policy: QueuePolicy | None) -> tuple[Outcome, Sequence[NewJob]]:
        assert run.task is not None
        backoff = backoff_of(run.task.options.backoff, policy)
        if isolate is None:
            text = "isolate: a child process cannot find the app; keep it in a module, under a name, with a store that has a URL"
            return Failed(Failure(text), backoff.delay(run.job.attempt)), ()
        if run.stop is not None:
            self._ready.append(isolate)
            raise asyncio.CancelledError  # it was told before its first step
        if isolate.fault is not None:
            await self._end(isolate)
            return Failed(Failure(f"isolate: the child process cannot load the app: {isolate.fault}"), AFTER_FALSE_START), ()
        self._running.add(isolate)
        try:
            ended = await isolate.run(run, policy)
        except BaseException:
            await self._end(isolate)
            raise
        finally:
            self._running.discard(isolate)
        if isinstance(ended, Over):
            self._ready.append(isolate)
            run.misfit = ended.misfit
            run.stepped_apart, run.doubtful_apart = ended.stepped, ended.doubtful
            return ended.outcome, ended.then
        await self._end(isolate, pause=True)
        return Failed(Failure(ended), backoff.delay(run.job.attempt), lost=True), ()

    async def _end(self, isolate: Isolate, *, pause: bool = False) -> None:
        """Kill the process. Its place comes back when it is gone, also if the waiting caller is cancelled meanwhile."""
        isolate.kill_now()

        async def over() -> None:
            try:
                await isolate.kill()
            finally:
                if pause:
                    self._pause()
                else:
                    self._places += 1
                    self._freed()

        task = asyncio.get_running_loop().create_task(over())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        await asyncio.shield(task)

    async def close(self) -> None:
        self.keep_no_more()
        if self._ending:
            await asyncio.wait(self._ending)
        for pause in self._pauses:
            pause.cancel()
        starting = list(self._starting)
        for task in starting:
            task.cancel()
        if starting:
            await asyncio.wait(starting)
        await asyncio.gather(*(isolate.end() for isolate in self._ready))
        self._ready.clear()


class Isolate:
    """One child process and the socket to it."""

    def __init__(self, spec: str, store: str) -> None:
        ours, theirs = socket.socketpair()
        try:
            args = [sys.executable, "-m", "hawser.worker.isolate", spec, store, str(theirs.fileno()), str(os.getpid()), _logs()]
            self._process = subprocess.Popen(args, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL)  # noqa: S603
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._socket = ours
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.fault: str | None = None
        """Why no job can run in it; the next job says so."""

    @property
    def fit(self) -> bool:
        """Whether it lives, or has a fault to tell of."""
        return self.fault is not None or self._process.poll() is None

    async def start(self) -> None:
        """Until the app is imported, or cannot be."""
        self._socket.setblocking(False)
        self._streams = await asyncio.open_connection(sock=self._socket, limit=2**26)
        try:
            async with asyncio.timeout(READY_WITHIN):
                match await received(self._streams[0]):
                    case IsolateReady():
                        pass
                    case Broken(error):
                        self.fault = error
                    case other:
                        self.fault = f"unexpected {other!r}"
        except TimeoutError:
            self.fault = f"it was not ready after {READY_WITHIN:g} s"
        except (EOFError, ConnectionError, OSError):
            self.fault = f"its process {await self._how()} before it was ready"

    async def run(self, run: Run, policy: QueuePolicy | None) -> Over | str:
        """The handler's end, or a text that says how the process died instead."""
        assert run.task is not None
        assert self._streams is not None
        reader, writer = self._streams
        try:
            writer.write(packed(Order(run.job, run.task.options.memory_limit, policy)))
            return await self._listen(run, reader)
        except asyncio.CancelledError:
            if run.stop is not Stop.CANCEL:
                raise
            return await self._ask_to_stop(run, reader, writer)
        except (EOFError, ConnectionError, OSError):
            return await self._cause_of_death()

    def tell_drain(self) -> None:
        """The worker is to end."""
        if self._streams is not None and not self._streams[1].is_closing():
            self._streams[1].write(packed(DrainOrder()))

    async def _listen(self, run: Run, reader: asyncio.StreamReader) -> Over:
        while True:
            match await received(reader):
                case Over() as over:
                    return over
                case Progress(body):
                    run.progress(body)
                case wire.Written(body):
                    run.relay(body)
                case Extend(seconds):
                    run.extend(seconds)
                case _:
                    pass

    async def _ask_to_stop(self, run: Run, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Over | str:
        """An operator cancelled the job: the handler may stop by itself first."""
        try:
            writer.write(packed(CancelOrder()))
            async with asyncio.timeout(CANCEL_GRACE):
                return await self._listen(run, reader)
        except (TimeoutError, EOFError, OSError):
            raise asyncio.CancelledError from None

    async def _cause_of_death(self) -> str:
        return f"the job's process {await self._how()} while running"

    async def _how(self) -> str:
        """How a process ended that says nothing more. It may have closed its connection and live on."""
        try:
            return how(await asyncio.to_thread(self._process.wait, END_WITHIN))
        except subprocess.TimeoutExpired:
            return "closed its connection"

    async def end(self) -> None:
        """Let an idle process end by itself, so that its stop hooks run; kill it when that takes too long."""
        self.close()
        try:
            await asyncio.to_thread(self._process.wait, STOP_WITHIN)
        except subprocess.TimeoutExpired:
            await self.kill()

    def kill_now(self) -> None:
        self._process.kill()

    async def kill(self) -> None:
        self.kill_now()
        await asyncio.to_thread(self._process.wait)
        self.close()

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        else:
            self._socket.close()


def _logs() -> str:
    """How this process logs, if Hawser set that up."""
    options = configured()
    return "" if options is None else msgspec.json.encode(options).decode()
