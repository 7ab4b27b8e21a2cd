"""A worker inside of another program: one process runs the jobs, and a thread of it does what a supervisor would do."""

from __future__ import annotations

import asyncio
import os
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

from hawser.client.app_loader import spec_of
from hawser.supervisor.board_reader import BoardReader
from hawser.supervisor.maintenance import Maintenance
from hawser.telemetry.events import Events
from hawser.worker.board import Board, board_size
from hawser.worker.handshake import facts_of
from hawser.worker.options import WorkerOptions
from hawser.worker.process import new_name
from hawser.worker.unserved import unknown, unserved, warn_of, warn_of_unknown
from hawser.worker.worker import Worker

if TYPE_CHECKING:
    from hawser.app import Hawser


class MaintenanceThread:
    """The maintenance of an embedded worker: a thread with a loop of its own. A handler that holds the GIL delays it too."""

    def __init__(self, app: Hawser, options: WorkerOptions, board: BoardReader, name: str, events: Events) -> None:
        self._make = (app, options, board, name, events)
        self._facts = facts_of(app, options)
        # Its own end cancels what is left on the loop and hangs up: a loop that is only closed would leave its connections open.
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="hawser-maintenance", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        with self._runner:
            self._runner.run(self._main())

    async def _main(self) -> None:
        app, options, board, name, events = self._make
        store = await app.store()
        maintenance = Maintenance(
            store,
            {name: board},
            {name: os.getpid()},
            options,
            self._facts,
            events,
        )
        maintenance.start()
        await self._stop.wait()
        maintenance.ended(name)
        await maintenance.stop()
        await store.beat([], [name])


async def embedded(
    app: Hawser,
    options: WorkerOptions,
    stop: asyncio.Event,
    *,
    spec: str | None,
    events: Events | None = None,
    started: asyncio.Event | None = None,
) -> int:
    """A worker in this process and on this loop; returns the number of runs that would not end."""
    events = events or app.events
    store = await app.store()
    warn_of(unserved(app, options))
    warn_of_unknown(await unknown(app, options, store))
    name, cells = new_name(), options.cells
    memory = bytearray(board_size(cells))
    worker = Worker(app, options, Board(memory, cells), name, spec=spec, events=events)
    await app.hooks.start(app)
    try:
        maintenance = MaintenanceThread(app, options, BoardReader(memory, cells), name, events)
        maintenance.start()
        try:
            await worker.run(store, stop, started)
        finally:
            await asyncio.to_thread(maintenance.stop)
    finally:
        await app.hooks.stop(app)
    return worker.stuck


class EmbeddedWorker:
    """Runs jobs on the loop of the caller, between `async with` and its end. Then it drains."""

    def __init__(self, app: Hawser, options: WorkerOptions) -> None:
        self._app = app
        self._options = options
        self._stop = asyncio.Event()
        self._work: asyncio.Task[int] | None = None

    async def __aenter__(self) -> Self:
        """Until the worker runs. What keeps it from starting is raised here, and the body does not run."""
        started = asyncio.Event()
        loop = asyncio.get_running_loop()
        work = embedded(self._app, self._options, self._stop, spec=spec_of(self._app), started=started)
        self._work = loop.create_task(work, name="hawser-worker")
        starting = loop.create_task(started.wait())
        try:
            await asyncio.wait((self._work, starting), return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            self._work.cancel()
            await asyncio.wait((self._work,))
            raise
        finally:
            starting.cancel()
        if not started.is_set():
            await self._work
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        await self.wait()

    def stop(self) -> None:
        """Begin to drain: claim nothing more, finish what runs."""
        self._stop.set()

    async def wait(self) -> None:
        """Until the worker has ended: by `stop`, or with `burst` when nothing is due. What ended it otherwise is raised."""
        assert self._work is not None, "the worker has not begun; use async with"
        await asyncio.shield(self._work)
