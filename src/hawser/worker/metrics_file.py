"""What a worker process counts, and where it goes: into the store's rollups, and into a file that the supervisor reads."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final

import msgspec

from hawser.cycle import Cycle
from hawser.errors import StoreError
from hawser.store import Store
from hawser.telemetry import metric
from hawser.telemetry.events import Events, Listeners
from hawser.telemetry.logs import dropped_lines
from hawser.telemetry.meter import Meter, Readings
from hawser.upkeep.rollup import RollupWriter

UNFINISHED: Final = ".new"
"""How the name of a file ends that is being written."""

LAST_WRITE_WITHIN_S: Final = 0.5
"""Seconds that a worker which ends gives to its last figures."""

METRICS_WRITE_EVERY_S: Final = 1.0
"""Seconds between two writes of the file: how old a scrape's figures may be."""


class ProcessMeter:
    """The meter of one process. Its figures leave it in the background, never on the path of a job."""

    def __init__(self, store: Store, events: Events, file: str | None = None) -> None:
        self.meter = Meter()
        self.events = Listeners(events, self.meter)
        self._file = Path(file) if file else None
        self._dropped = 0
        self._rollup = RollupWriter(store, self.meter)
        self._cycles = [Cycle("rollup", self._rollup.turn)]
        if self._file is not None:
            self._cycles.append(Cycle("readings", self.write))

    def start(self) -> None:
        for cycle in self._cycles:
            cycle.start()

    async def stop(self) -> None:
        """After the last settlement: what it counted goes along, unless the store is away."""
        if self._file is not None:
            await self.write()
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(LAST_WRITE_WITHIN_S):
                for cycle in self._cycles:
                    await cycle.stop()
                await self._rollup.turn()

    async def write(self) -> float:
        """Leave what was counted in the file."""
        assert self._file is not None
        dropped = dropped_lines()
        self.meter.readings.count(metric.LOG_LINES, (), dropped - self._dropped)
        self._dropped = dropped
        _write(self._file, self.meter.readings)
        return METRICS_WRITE_EVERY_S


def _write(file: Path, readings: Readings) -> None:
    """Whole or not at all: a scrape may come at any moment. Some kilobytes, in a folder that is hardly ever on a disk."""
    new = Path(f"{file}{UNFINISHED}")
    new.write_bytes(msgspec.msgpack.encode(readings))
    new.replace(file)


def read_metrics(file: Path) -> Readings:
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.msgpack.decode(file.read_bytes(), type=Readings)
    return Readings()
