"""The background work of a server: it reclaims, expires and prunes jobs, and goes on with bulk operations that were cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hawser.api.operation import BulkRunner
from hawser.api.pull_workers import PullWorkers
from hawser.cycle import Cycle
from hawser.telemetry.events import Listeners
from hawser.telemetry.meter import Meter
from hawser.upkeep.expirer import Expirer
from hawser.upkeep.pruner import Pruner, retentions
from hawser.upkeep.reclaimer import Reclaimer
from hawser.upkeep.recovery import Recovery
from hawser.upkeep.rollup import RollupWriter

if TYPE_CHECKING:
    from hawser.app import Hawser
    from hawser.store import Store

RECLAIM_EVERY: Final = 2.0


class Upkeep:
    """The reclaimer, the recovery, the expirer, the pruner, the signs of life and the times of HTTP workers, and the take-over of
    interrupted operations; none without a store."""

    def __init__(
        self, app: Hawser, store: Store | None, meter: Meter, pull_workers: PullWorkers, operations: BulkRunner | None = None
    ) -> None:
        self._cycles: list[Cycle] = []
        if store is not None:
            self._cycles = [
                Cycle("reclaimer", Reclaimer(store, RECLAIM_EVERY, Listeners(app.events, meter)).turn),
                Cycle("recovery", Recovery(store).turn),
                Cycle("expirer", Expirer(store).turn),
                Cycle("pruner", Pruner(store, app.config.retention, retentions(app.tasks)).turn),
                Cycle("pull workers", lambda: pull_workers.turn(store)),
                Cycle("rollup", RollupWriter(store, meter).turn),
            ]
            if operations is not None:
                self._cycles.append(Cycle("operations", lambda: operations.turn(store)))

    def start(self) -> None:
        for cycle in self._cycles:
            cycle.start()

    async def stop(self) -> None:
        for cycle in self._cycles:
            await cycle.stop()
