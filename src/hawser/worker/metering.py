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
from hawser.telemetry.events import Events, Listeners
from hawser.telemetry.meter import Meter, Readings
from hawser.upkeep.rollup import RollupWriter

UNFINISHED: Final = ".new"
"""How the name of a file ends that is being written."""

PATIENCE: Final = 0.5
"""Seconds that a worker which ends gives to its last figures."""

EVERY: Final = 1.0
"""Seconds between two writes of the file: how old a scrape's figures may be."""


class Metering:
    """The meter of one process. Its figures leave it in the background, never on the path of a job."""

    def __init__(self, store: Store, events: Events, file: str | None = None) -> None:
        self.meter = Meter()
        self.events = Listeners(events, self.meter)
        self._file = Path(file) if file else None
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
            async with asyncio.timeout(PATIENCE):
                for cycle in self._cycles:
                    await cycle.stop()
                await self._rollup.turn()

    async def write(self) -> float:
        """Leave what was counted in the file."""
        assert self._file is not None
        _write(self._file, self.meter.readings)
        return EVERY


class Gathered:
    """The readings of all processes of a supervisor, those that have ended too: counters never go back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._past = Readings()

    def file(self, worker: str) -> str:
        return str(self._folder / worker)

    def ended(self, worker: str) -> None:
        """Keep what a process counted that is gone."""
        file = Path(self.file(worker))
        self._past.merge(_read(file))
        file.unlink(missing_ok=True)

    def readings(self) -> Readings:
        total = Readings()
        total.merge(self._past)
        for file in self._folder.iterdir():
            if not file.name.endswith(UNFINISHED):
                total.merge(_read(file))
        return total


def _write(file: Path, readings: Readings) -> None:
    """Whole or not at all: a scrape may come at any moment. Some kilobytes, in a folder that is hardly ever on a disk."""
    new = Path(f"{file}{UNFINISHED}")
    new.write_bytes(msgspec.msgpack.encode(readings))
    new.replace(file)


def _read(file: Path) -> Readings:
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.msgpack.decode(file.read_bytes(), type=Readings)
    return Readings()
