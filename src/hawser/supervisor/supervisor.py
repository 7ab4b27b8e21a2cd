"""P worker processes under one that runs no handlers: it keeps their leases, restarts what dies, and ends them all."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Final

from hawser.clock import SystemClock
from hawser.cycle import Cycle, wait_after
from hawser.outcome import describe
from hawser.store import EVERY_QUEUE, SETTLE_GRACE, Store
from hawser.stores import make_store
from hawser.stores.url import without_password
from hawser.supervisor.board_reader import BoardReader
from hawser.supervisor.crash_recovery import CrashRecovery
from hawser.supervisor.maintenance import Maintenance
from hawser.supervisor.metrics_files import Gathered
from hawser.supervisor.scaler import Load, Scaler
from hawser.supervisor.status_server import StatusServer
from hawser.supervisor.worker_process import Told, WorkerProcess, shared
from hawser.telemetry import metric
from hawser.telemetry.logs import LogOptions, say
from hawser.telemetry.meter import Meter
from hawser.worker.board import How
from hawser.worker.broadcast import BROADCAST_BYTES, Broadcast
from hawser.worker.handshake import NO_STORE_EXIT_CODE, Status
from hawser.worker.options import MetricsOptions, WorkerOptions
from hawser.worker.process import how
from hawser.worker.signals import stop_on_signals, tell_stacks
from hawser.worker.unserved import warn_of, warn_of_unknown

_logger = logging.getLogger("hawser.supervisor")

FIRST_RESTART: Final = 0.2
LONGEST_RESTART: Final = 15.0
"""Seconds before a process that died is replaced, doubled while they die young."""

YOUNG: Final = 10.0
"""A process that dies within so many seconds of its start died young."""

FALSE_STARTS: Final = 5
"""Processes in a row that never became ready, after which we give up: the cause is not one that a restart removes."""

SCALE_EVERY: Final = 2.0
"""Seconds between two looks at the load."""

HEAR_EVERY: Final = 1.0
"""Seconds between two looks for jobs that crashed a child process of their own."""

EXIT_GRACE: Final = 0.8
"""Seconds that a process has to end after its drain deadline before it is killed."""


class Supervisor:
    """Starts and watches the processes."""

    def __init__(
        self,
        app: str,
        options: WorkerOptions,
        *,
        store: str | None = None,
        logs: LogOptions | None = None,
        metrics: MetricsOptions | None = None,
    ) -> None:
        self._app = app
        self._options = options
        self._store_url = store
        self._logs = logs or LogOptions()
        self._store: Store | None = None
        self._maintenance: Maintenance | None = None
        self._children: dict[str, WorkerProcess] = {}
        self._boards: dict[str, BoardReader] = {}
        self._pids: dict[str, int] = {}
        self._lives: set[asyncio.Task[None]] = set()
        """One task for each process, from its start to the clean-up after its end."""
        self._stop = asyncio.Event()
        self._wanted = options.processes
        self._deaths = 0
        self._false_starts = 0
        self._ever_ready = False
        self._broadcast_fd, memory = shared(BROADCAST_BYTES)
        self._broadcast = Broadcast(memory)
        self._error: str | None = None
        self._code = 0
        self._scaler = Scaler(options, time.monotonic())
        self._metrics = metrics
        self._meter = Meter()
        self._meter.readings.count(metric.RESTARTS, (), 0)
        self._recovery = CrashRecovery(self._broadcast, self._meter)
        self._folder = tempfile.TemporaryDirectory(prefix="hawser-readings-") if metrics else None
        self._gathered = Gathered(Path(self._folder.name)) if self._folder else None

    async def run(self) -> int:
        """Until a signal comes or nothing can be started; the exit code."""
        self._handle_signals()
        status_server = await self._show()
        for _ in range(self._options.processes):
            await self._spawn()
        cycles = [Cycle("guard", self.guard), Cycle("hear", self.hear)]
        if self._options.most_processes > self._options.processes:
            cycles.append(Cycle("scaler", self.scale))
        for cycle in cycles:
            cycle.start()
        await self._stop.wait()
        await self._drain()
        for cycle in cycles:
            await cycle.stop()
        if self._maintenance is not None:
            await self._maintenance.stop()
        if self._store is not None:
            await self._store.close()
        if status_server is not None:
            await status_server.stop()
        if self._folder is not None:
            self._folder.cleanup()
        if self._error is not None:
            say(f"error: {self._error}")
            return self._code
        return 0

    def _handle_signals(self) -> None:
        def began(number: int) -> None:
            _logger.info("signal %d: draining for up to %g s", number, self._options.drain_timeout)

        def killed() -> None:
            _logger.warning("second signal: ending at once")
            for child in self._children.values():
                child.send(signal.SIGKILL)

        def stacks() -> None:
            for child in self._children.values():
                if child.ready:
                    # Before it is, the signal might end it.
                    child.send(signal.SIGUSR1)

        stop_on_signals(self._stop, began, killed)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, stacks)
        tell_stacks()

    async def _show(self) -> StatusServer | None:
        """Open the metrics port, when one is wanted."""
        if self._metrics is None or self._gathered is None:
            return None
        status_server = StatusServer(self._gathered, self._meter, self._boards, self._options.slots, lambda: self._maintenance)
        port = await status_server.start(self._metrics.host, self._metrics.port)
        _logger.info("metrics on http://%s:%d/metrics", self._metrics.host, port)
        return status_server

    # The start of a process.

    async def _spawn(self) -> None:
        """Start a process. The end waits for it, should it come meanwhile."""
        await self._during_life(self._make())

    def _during_life(self, part: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(part)
        self._lives.add(task)
        task.add_done_callback(self._lives.discard)
        return task

    async def _make(self) -> None:
        child = WorkerProcess(self._options)
        metrics_file = self._gathered.file(child.name) if self._gathered is not None else None
        await child.start(Told(self._app, self._store_url, self._broadcast_fd, self._logs, metrics_file))
        self._children[child.name] = child
        if self._stop.is_set():
            # The others were told while this one was being made.
            child.send(signal.SIGTERM)
        self._during_life(self._watch(child))

    async def _watch(self, child: WorkerProcess) -> None:
        """A child's life: ready, then its end. If anything goes wrong here, a dead process is cleaned up and replaced."""
        try:
            status = await child.status()
            if status.error is None:
                self._became_ready(child, status)
        except Exception as error:
            # Its leases would not be kept.
            _logger.exception("worker %s cannot be served; killing it", child.name)
            status = Status(error=f"the supervisor cannot serve its processes: {describe(error)}")
            child.send(signal.SIGKILL)
        await self._clean_up(child, await child.wait(), status)

    def _became_ready(self, child: WorkerProcess, status: Status) -> None:
        self._boards[child.name] = child.board
        self._pids[child.name] = child.pid
        if self._maintenance is None:
            if status.store.startswith("memory:"):
                self._fail("memory:// lives in one process: use app.run_worker(), or a store that processes can share", 2)
                return
            warn_of(status.unserved)
            warn_of_unknown(status.unknown)
            self._store = make_store(status.store, clock=SystemClock())
            self._maintenance = Maintenance(
                self._store,
                self._boards,
                self._pids,
                self._options,
                status.app,
                self._meter,
            )
            self._maintenance.start()
        child.ready = self._ever_ready = True
        self._false_starts = 0
        queues = ",".join(queue.name for queue in self._options.queues)
        shown = without_password(status.store)
        _logger.info("worker %s is ready: store %s, queues %s, %d slots", child.name, shown, queues, self._options.slots)

    # Its end.

    async def _clean_up(self, child: WorkerProcess, code: int, status: Status) -> None:
        """Write what the process can no longer write, then replace it."""
        self._children.pop(child.name)
        if self._store is not None:
            try:
                await self._recovery.settle(self._store, child, code, graceful=child.draining or self._stop.is_set())
            except Exception:
                _logger.exception("could not settle for worker %s; its leases will run out", child.name)
        self._boards.pop(child.name, None)
        self._pids.pop(child.name, None)
        child.close()
        if self._gathered is not None:
            self._gathered.ended(child.name)
        if self._maintenance is not None:
            self._maintenance.ended(child.name)
        if self._stop.is_set() or child.draining:
            return
        if self._options.burst and child.ready and code == 0:
            self._wanted -= 1
            if not self._children:
                self._stop.set()
            return
        if not child.ready:
            # A store that answered before may come back: keep trying.
            self._false_starts += not (code == NO_STORE_EXIT_CODE and self._ever_ready)
            if (code == 2 and not self._ever_ready) or self._false_starts >= FALSE_STARTS:
                self._fail(status.error or "the worker processes do not start", 2 if code == 2 else 1)
                return
        self._meter.readings.count(metric.RESTARTS)
        _logger.error("worker %s %s; starting another", child.name, status.error if not child.ready else how(code))
        # One that took jobs was killed by a job, and that burns attempts. One that took none would die again and again.
        young = time.monotonic() - child.started_at < YOUNG and not child.board.taken
        self._deaths = self._deaths + 1 if young else 1
        await self._replace()

    async def _replace(self) -> None:
        """Start another process, after a wait, unless there are enough by then."""
        while True:
            await asyncio.sleep(wait_after(self._deaths, FIRST_RESTART, LONGEST_RESTART))
            if self._stop.is_set() or len(self._live) >= self._wanted:
                return
            try:
                await self._spawn()
            except OSError as error:
                _logger.warning("no process can be started: %s; trying again", error)
                self._deaths += 1
            else:
                return

    def _fail(self, error: str, code: int) -> None:
        self._error, self._code = error, code
        self._stop.set()

    # Watching.

    async def guard(self) -> float:
        """Kill a process whose event loop stands still while a handler is past its timeout: nothing else can end that."""
        now = time.monotonic()
        self._recovery.forget(now)
        for child in self._children.values():
            if child.ready and not child.hung and now - child.board.beaten_at > 1.0:
                held = [held for held in child.board.held() if held.how not in (How.CLAIMED, How.ENDED)]
                child.hung = {run.id for run in held if run.cap - SETTLE_GRACE / 2 < now}
                if child.hung:
                    _logger.error("worker %s: a handler blocks it past its timeout; killing the process", child.name)
                    child.send(signal.SIGKILL)
        return 1.0

    async def hear(self) -> float:
        """Learn which jobs have killed a child process of their own. Apart from the guard, which must not wait for a store."""
        if self._store is not None:
            for child in list(self._children.values()):
                await self._recovery.hear(self._store, child)
        return HEAR_EVERY

    @property
    def _live(self) -> list[WorkerProcess]:
        """The processes that are to stay."""
        return [child for child in self._children.values() if not child.draining]

    async def scale(self) -> float:
        """One process more or less, as the load asks for; the one with the least to do goes, and drains."""
        if self._store is None or self._stop.is_set():
            return 1.0
        names = [queue.name for queue in self._options.queues]
        figures = [await self._store.stats(name) for name in ([None] if EVERY_QUEUE in names else names)]
        live = self._live
        load = Load(
            due=sum(stats.due for stats in figures),
            oldest=max(stats.oldest_age_s for stats in figures),
            running=sum(child.board.running for child in live),
            processes=len(live),
            starting=len(live) < self._wanted or not all(child.ready for child in live),
        )
        wanted = self._scaler.decide(load, time.monotonic())
        if wanted > len(live):
            self._wanted = wanted
            _logger.info("%d jobs wait, the oldest for %.0f s: %d processes", load.due, load.oldest, wanted)
            await self._spawn()
        elif wanted < len(live):
            self._wanted = wanted
            _logger.info("little to do: %d processes", wanted)
            spare = min(live, key=lambda child: child.board.running)
            spare.draining = True
            spare.send(signal.SIGTERM)
        # Jobs of equal length start and end together: looks at even intervals could always meet the gap between two.
        return SCALE_EVERY * random.uniform(0.6, 1.0)  # noqa: S311  # jitter, not a secret

    # The end.

    async def _drain(self) -> None:
        """Leases are kept meanwhile; what does not end in time is killed, and its jobs handed back."""
        self._broadcast.close()
        for child in self._children.values():
            child.send(signal.SIGTERM)
        deadline = time.monotonic() + self._options.drain_timeout + EXIT_GRACE
        while self._lives and (left := deadline - time.monotonic()) > 0:
            await asyncio.wait(self._lives, timeout=left)
        for child in self._children.values():
            _logger.warning("worker %s did not end in time; killing it", child.name)
            child.send(signal.SIGKILL)
        if self._lives:
            await asyncio.wait(self._lives, timeout=10)
