"""What a server does beside requests: HTTP workers have leases that run out, too, and nobody else to speak for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hawser.api.roster import Roster
from hawser.cycle import Cycle
from hawser.telemetry.events import Listeners
from hawser.telemetry.meter import Meter
from hawser.upkeep.pruner import Pruner
from hawser.upkeep.reclaimer import Reclaimer
from hawser.upkeep.rollup import RollupWriter
from hawser.worker.worker import retentions

if TYPE_CHECKING:
    from hawser.app import Hawser
    from hawser.store import Store

RECLAIM_EVERY: Final = 2.0


class Upkeep:
    """The reclaimer, the pruner, and the signs of life and the times of HTTP workers; none without a store."""

    def __init__(self, app: Hawser, store: Store | None, meter: Meter, roster: Roster) -> None:
        self._cycles: list[Cycle] = []
        if store is not None:
            self._cycles = [
                Cycle("reclaimer", Reclaimer(store, RECLAIM_EVERY, Listeners(app.events, meter)).turn),
                Cycle("pruner", Pruner(store, app.config.retention, retentions(app)).turn),
                Cycle("roster", lambda: roster.turn(store)),
                Cycle("rollup", RollupWriter(store, meter).turn),
            ]

    def start(self) -> None:
        for cycle in self._cycles:
            cycle.start()

    async def stop(self) -> None:
        for cycle in self._cycles:
            await cycle.stop()
