"""Takes what a worker has measured to the store, where charts find it minute by minute."""

from __future__ import annotations

from typing import Final

from hawser.cycle import Unasked
from hawser.store.rollup import Watcher
from hawser.telemetry.meter import Meter

ROLLUP_EVERY_S: Final = 5.0


class RollupWriter:
    """One small write every few seconds, none when nothing happened. What cannot be written goes along with the next."""

    def __init__(self, store: Watcher, meter: Meter) -> None:
        self._store = store
        self._meter = meter

    async def turn(self) -> float:
        measured = self._meter.take_measured()
        if measured:
            try:
                await self._store.measure(measured)
            except BaseException:
                self._meter.give_back(measured)
                raise
        return ROLLUP_EVERY_S if measured else Unasked(ROLLUP_EVERY_S)
