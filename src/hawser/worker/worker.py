"""One worker process: claims, runs and settles until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from hawser.cycle import Cycle
from hawser.task import declared_limits
from hawser.telemetry.events import Events
from hawser.worker.board import Board
from hawser.worker.broadcast import Broadcast
from hawser.worker.claimer import Claimer
from hawser.worker.demand import Demand
from hawser.worker.executor import Executor
from hawser.worker.isolates import Isolates
from hawser.worker.metrics_file import ProcessMeter
from hawser.worker.options import WorkerOptions
from hawser.worker.policies import Policies
from hawser.worker.progress_writer import ProgressWriter
from hawser.worker.refusals import Refusals
from hawser.worker.runners import Runners
from hawser.worker.served import ServedQueues, chosen
from hawser.worker.settler import Settler
from hawser.worker.slots import Closing, Slots
from hawser.worker.watchdog import Watchdog

if TYPE_CHECKING:
    from hawser.app import Hawser
    from hawser.store import Store


_logger = logging.getLogger("hawser.worker")

WRITE_WITHIN: Final = 5.0
"""Seconds that outcomes have at least to be written at the end, when the drain's own time is over."""


class Worker:
    """The parts of one process. Its leases are kept by a `Maintenance` elsewhere, which reads the board."""

    def __init__(
        self,
        app: Hawser,
        options: WorkerOptions,
        board: Board,
        name: str,
        *,
        spec: str | None,
        broadcast: Broadcast | None = None,
        events: Events | None = None,
        readings: str | None = None,
    ) -> None:
        """Without a `broadcast` there is no supervisor to see to the jobs that are left when this process has ended."""
        self._app = app
        self._options = options
        self._board = board
        self._name = name
        self._spec = spec
        self._broadcast = broadcast
        self._events = events or Events()
        self._readings = readings
        self.stuck = 0
        """Runs that would not end, when the worker has ended."""

    async def run(self, store: Store, stop: asyncio.Event, started: asyncio.Event | None = None) -> None:
        """Work until `stop` is set, then drain. `started` is set once jobs are claimed."""
        options, name = self._options, self._name
        tasks = chosen(self._app.tasks, options)
        process_meter = ProcessMeter(store, self._events, self._readings)
        events = process_meter.events
        closing = Closing(stop, self._broadcast)
        policies = Policies(store)
        served = ServedQueues(store, options.queues, (task.template.queue for task in tasks.values()))
        refusals = Refusals(
            store,
            name,
            tasks,
            [queue.name for queue in options.queues],
            options.unaccepted_after,
            left_out=self._app.tasks.keys() - tasks.keys(),
        )
        isolates = Isolates(self._spec, self._app.store_url, options.isolates)
        slots = Slots(options.slots, options.lease, self._board, tasks, closing)
        runners = Runners(tasks, self._board, isolates, policies)
        settler = Settler(store, slots, events, self._app.results.tell)
        progress_writer = ProgressWriter(store, name, options.lease)
        executor = Executor(tasks, slots, runners, settler, progress_writer, policies, refusals, events)
        demand = Demand(served, policies, refusals)
        claimer = Claimer(store, name, options, slots, executor, demand, events, stop.set if options.burst else None)
        watchdog = Watchdog(slots, executor, runners, self._board, closing, self._broadcast, events)
        watching, claiming = Cycle("watchdog", watchdog.turn, slots.occupied), Cycle("claimer", claimer.turn)
        # Before the first claim: old and new code obey the limits of the worker that started last.
        await store.declare_limits(declared_limits(self._app.tasks))
        await store.declare_breakers({name: task.options.breaker for name, task in self._app.tasks.items()})
        settler.start()
        process_meter.start()
        for cycle in (watching, progress_writer.cycle, claiming):
            cycle.start()
        if started is not None:
            started.set()
        try:
            await stop.wait()
        finally:
            # Nothing starts from now on. Stop claiming, finish what runs, hand back the rest, and write all of it, in that order.
            end = time.monotonic() + options.drain_timeout
            returned = executor.returned
            claimer.stop()
            await claiming.stop()
            watching.wake()
            await watchdog.drain(options.drain_timeout, alone=self._broadcast is None)
            await settler.stop(max(WRITE_WITHIN, end - time.monotonic()))
            _logger.info("worker %s drained; %d jobs were handed back", name, executor.returned - returned)
            await progress_writer.cycle.stop()
            await watching.stop()
            await isolates.close()
            await process_meter.stop()
            self.stuck = len(slots.runs)
