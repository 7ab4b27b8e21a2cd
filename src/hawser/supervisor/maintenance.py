"""What goes on beside the runs, in a thread or process that no handler can block: leases, upkeep, signs of life."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from typing import Final

from hawser.cycle import Cycle, Unasked
from hawser.store import Beat, Store
from hawser.supervisor.board_reader import BoardReader
from hawser.supervisor.extender import Extender
from hawser.telemetry.events import Events
from hawser.upkeep.breaker import BreakerJudge
from hawser.upkeep.deploy import DeployNoter
from hawser.upkeep.expirer import Expirer
from hawser.upkeep.pruner import Pruner
from hawser.upkeep.reclaimer import Reclaimer
from hawser.upkeep.recovery import Recovery
from hawser.upkeep.scheduler import Declarer, Scheduler
from hawser.worker.handshake import AppFacts
from hawser.worker.options import WorkerOptions

BEAT_EVERY: Final = 5.0
NEWS_LOOK_EVERY_S: Final = 1.0
"""Seconds between two looks for news: a worker that has started, or that drains."""


class Maintenance:
    """Serves any number of boards, by the names of their workers. Belongs to the event loop that starts it."""

    def __init__(
        self,
        store: Store,
        boards: Mapping[str, BoardReader],
        pids: Mapping[str, int],
        options: WorkerOptions,
        app: AppFacts,
        events: Events,
    ) -> None:
        self._store = store
        self._boards = boards
        self._pids = pids
        self._options = options
        self._tasks = app.tasks
        self._app_version = app.version
        self._gone: list[str] = []
        self._said: dict[str, bool] = {}
        """The workers in the last sign of life, and whether they drained."""
        self.heard_at: float | None = None
        """Monotonic time at which the store last answered to a sign of life."""
        self.extender = Extender(store, boards, options.lease)
        reclaimer = Reclaimer(store, min(2.0, options.lease / 4), events)
        self._cycles = [
            Cycle("extender", self.extender.turn),
            Cycle("reclaimer", reclaimer.turn),
            Cycle("recovery", Recovery(store).turn),
            Cycle("expirer", Expirer(store).turn),
            Cycle("pruner", Pruner(store, app.retention, app.by_task).turn),
            Cycle("declarer", Declarer(store, app.schedules).turn),
            Cycle("scheduler", Scheduler(store).turn),
            Cycle("breakers", BreakerJudge(store).turn),
            Cycle("deploys", DeployNoter(store, app.version, boards, f"{socket.gethostname()}:{os.getpid()}").turn),
            Cycle("beats", self.beat),
        ]

    def start(self) -> None:
        for cycle in self._cycles:
            cycle.start()

    async def stop(self) -> None:
        """End after the last run is settled: until then its lease must be kept."""
        for cycle in self._cycles:
            await cycle.stop()

    def ended(self, worker: str) -> None:
        """A worker has ended; the list of workers should not show it any longer."""
        self._gone.append(worker)
        self._cycles[-1].wake()

    async def beat(self) -> float:
        """Say which workers live, and what they do: every few seconds, and when one is new or begins to drain."""
        known = {worker: board.draining for worker, board in self._boards.items()}
        due = self.heard_at is None or time.monotonic() - self.heard_at >= BEAT_EVERY - NEWS_LOOK_EVERY_S / 2
        if not due and not self._gone and known == self._said:
            return Unasked(NEWS_LOOK_EVERY_S)
        queues = tuple(queue.name for queue in self._options.queues)
        beats = [
            Beat(
                worker=worker,
                host=socket.gethostname(),
                pid=self._pids.get(worker, os.getpid()),
                version=_version(),
                app_version=self._app_version,
                queues=queues,
                slots=self._options.slots,
                running=board.running,
                stuck=board.stuck,
                draining=board.draining,
                tasks=self._tasks,
            )
            for worker, board in self._boards.items()
        ]
        gone, self._gone = self._gone, []
        try:
            await self._store.beat(beats, gone)
        except BaseException:
            self._gone += gone
            raise
        self.heard_at, self._said = time.monotonic(), known
        return NEWS_LOOK_EVERY_S


def _version() -> str:
    """Of Hawser itself."""
    from hawser import __version__  # noqa: PLC0415  # the package itself imports the app, and the app us

    return __version__
