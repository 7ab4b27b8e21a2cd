"""What a supervisor shows of itself on its metrics port."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from hawser.telemetry import exposition, metric
from hawser.telemetry.exposition import Gauge
from hawser.telemetry.meter import Meter
from hawser.telemetry.page import Pages, Sheet
from hawser.worker.board import Board
from hawser.worker.metering import Gathered
from hawser.worker.minder import Minder

AWAY_FOR: Final = 30.0
"""Seconds without an answer of the store after which a worker is not ready."""


class Looking:
    """The pages of a worker: `/metrics` of all its processes, `/healthz`, `/readyz`."""

    def __init__(
        self, gathered: Gathered, meter: Meter, boards: Mapping[str, Board], slots: int, minder: Callable[[], Minder | None]
    ) -> None:
        self._gathered = gathered
        self._meter = meter
        self._boards = boards
        self._slots = slots
        self._minder = minder
        """There is one as soon as a process is ready."""
        self._pages = Pages({"/metrics": self.metrics, "/healthz": self.healthz, "/readyz": self.readyz})

    async def start(self, host: str, port: int) -> int:
        exposition.expose(self._meter.readings)  # says at once when the extra is missing
        return await self._pages.start(host, port)

    async def stop(self) -> None:
        await self._pages.stop()

    async def metrics(self) -> Sheet:
        readings = self._gathered.readings()
        readings.merge(self._meter.readings)
        if (minder := self._minder()) is not None:
            readings.count(metric.EXTENDED, (), minder.keeper.extensions)
        boards = list(self._boards.values())
        gauges = [
            Gauge(metric.PROCESSES, len(boards)),
            Gauge(metric.RUNNING, sum(board.running for board in boards)),
            Gauge(metric.SLOTS, self._slots * len(boards)),
        ]
        return Sheet(200, exposition.expose(readings, gauges), exposition.MEDIA_TYPE)

    async def healthz(self) -> Sheet:
        return Sheet(200, b"ok\n")

    async def readyz(self) -> Sheet:
        minder = self._minder()
        if minder is None or minder.heard_at is None:
            return Sheet(503, b"no process is ready yet\n")
        away = time.monotonic() - minder.heard_at
        if away > AWAY_FOR:
            return Sheet(503, f"the store has been away for {away:.0f} s\n".encode())
        return Sheet(200, b"ready\n")
