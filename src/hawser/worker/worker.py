"""One worker process: claims, runs and settles until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from hawser.cycle import Cycle
from hawser.store import Retention
from hawser.telemetry.events import Events
from hawser.worker.board import Board
from hawser.worker.claimer import Claimer
from hawser.worker.courier import Courier
from hawser.worker.executor import Executor
from hawser.worker.isolates import Isolates
from hawser.worker.metering import Metering
from hawser.worker.minder import Minder
from hawser.worker.notice import Notice
from hawser.worker.options import WorkerOptions
from hawser.worker.policies import Policies
from hawser.worker.process import new_name
from hawser.worker.settler import Settler
from hawser.worker.unserved import unserved, warn_of

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from hawser.app import Hawser
    from hawser.store import Store


_logger = logging.getLogger("hawser.worker")


def run_loop(main: Coroutine[Any, Any, Any]) -> Any:
    """Run on uvloop where there is one."""
    try:
        import uvloop  # noqa: PLC0415  # optional
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


class Worker:
    """The parts of one process. Its leases are kept by a `Minder` elsewhere, which reads the board."""

    def __init__(
        self,
        app: Hawser,
        options: WorkerOptions,
        board: Board,
        name: str,
        *,
        spec: str | None,
        notice: Notice | None = None,
        events: Events | None = None,
        readings: str | None = None,
        alone: bool = False,
    ) -> None:
        """`alone`: no supervisor will see to the jobs that are left when this process has ended."""
        self._app = app
        self._options = options
        self._board = board
        self._name = name
        self._spec = spec
        self._notice = notice
        self._events = events or Events()
        self._readings = readings
        self._alone = alone
        self.stuck = 0
        """Runs that would not end, when the worker has ended."""

    async def run(self, store: Store, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then drain."""
        options, notice = self._options, self._notice
        metering = Metering(store, self._events, self._readings)
        events = metering.events
        isolates = Isolates(self._spec, self._app.store_url, options.isolates)
        courier = Courier(store, self._name, options.lease)
        policies = Policies(store)
        # The settler comes first and asks the executor later.
        settler = Settler(store, lambda run: executor.until(run), lambda run: executor.left(run), events)  # noqa: PLW0108
        executor = Executor(
            self._app.tasks,
            self._board,
            settler,
            courier,
            isolates,
            policies,
            slots=options.slots,
            lease=options.lease,
            events=events,
            open=lambda: not (stop.is_set() or (notice is not None and notice.closed)),
            wake_up=lambda: looking.wake(),  # noqa: PLW0108  # as above
        )
        claimer = Claimer(
            store,
            executor,
            self._board,
            options.queues,
            policies,
            worker=self._name,
            batch=options.claim_batch,
            lease=options.lease,
            events=events,
        )

        async def look() -> float:
            wait = executor.look()
            if notice is not None and (tasks := notice.news()) is not None:
                executor.isolate_also(tasks)
            self._board.beat(time.monotonic(), executor.running, executor.stuck, draining=stop.is_set())
            return wait

        looking, claiming = Cycle("look", look), Cycle("claimer", claimer.turn)
        settler.start()
        metering.start()
        for cycle in (looking, courier.cycle, claiming):
            cycle.start()
        try:
            await stop.wait()
        finally:
            # Nothing starts from now on. Stop claiming, hand back what waits, finish what runs, hand back the rest, and write
            # all of it, in that order.
            claimer.stop()
            await claiming.stop()
            returned = executor.returned
            executor.hand_back()
            looking.wake()
            await executor.drain(options.drain_timeout, alone=self._alone)
            executor.hand_back()
            await settler.stop()
            _logger.info("worker %s drained; %d jobs were handed back", self._name, executor.returned - returned)
            await courier.cycle.stop()
            await looking.stop()
            await isolates.close()
            await metering.stop()
            self.stuck = executor.running


class MinderThread:
    """The minder of an embedded worker: a thread with a loop of its own. A handler that holds the GIL holds it up, too."""

    def __init__(self, app: Hawser, options: WorkerOptions, board: Board, name: str, events: Events) -> None:
        self._make = (app, options, board, name, events)
        self._schedules = app.declared()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="hawser-minder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
        finally:
            self._loop.close()

    async def _main(self) -> None:
        app, options, board, name, events = self._make
        store = await app.store()
        minder = Minder(
            store,
            {name: board},
            {name: os.getpid()},
            options,
            retention=app.config.retention,
            by_task=retentions(app),
            schedules=self._schedules,
            events=events,
        )
        minder.start()
        await self._stop.wait()
        minder.ended(name)
        await minder.stop()
        await store.beat([], [name])


def retentions(app: Hawser) -> dict[str, Retention]:
    """The retention of the tasks that have one of their own."""
    return {name: task.options.retention for name, task in app.tasks.items() if task.options.retention is not None}


async def embedded(
    app: Hawser, options: WorkerOptions, stop: asyncio.Event, *, spec: str | None, events: Events | None = None
) -> int:
    """A worker in this process and on this loop; returns the number of runs that would not end."""
    events = events or app.events
    store = await app.store()
    warn_of(unserved(app, options))
    name, cells = new_name(), options.cells
    board = Board(bytearray(Board.size(cells)), cells)
    minder = MinderThread(app, options, board, name, events)
    minder.start()
    worker = Worker(app, options, board, name, spec=spec, events=events, alone=True)
    try:
        await worker.run(store, stop)
    finally:
        await asyncio.to_thread(minder.stop)
    return worker.stuck


def stop_on_signals(stop: asyncio.Event) -> None:
    """The first SIGTERM or SIGINT drains, the second ends at once."""
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if stop.is_set():
            sys.stderr.flush()
            os._exit(128 + number)
        stop.set()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal, number)
