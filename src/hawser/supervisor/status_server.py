"""What a supervisor shows of itself on its metrics port."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Final

from hawser.supervisor.board_reader import BoardReader
from hawser.supervisor.maintenance import Maintenance
from hawser.supervisor.metrics_files import Gathered
from hawser.telemetry import exposition, metric
from hawser.telemetry.exposition import Gauge
from hawser.telemetry.logs import dropped_lines
from hawser.telemetry.meter import Meter
from hawser.telemetry.page import Pages, Sheet

AWAY_FOR: Final = 10.0
"""Seconds without a write that the store took, after which a worker is not ready. Its signs of life are 5 s apart."""


class StatusServer:
    """The pages of a worker: `/metrics` of all its processes, `/healthz`, `/readyz`."""

    def __init__(
        self,
        gathered: Gathered,
        meter: Meter,
        boards: Mapping[str, BoardReader],
        slots: int,
        maintenance: Callable[[], Maintenance | None],
    ) -> None:
        self._gathered = gathered
        self._meter = meter
        self._boards = boards
        self._slots = slots
        self._maintenance = maintenance
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
        readings.count(metric.LOG_LINES, (), dropped_lines())
        if (maintenance := self._maintenance()) is not None:
            readings.count(metric.EXTENDED, (), maintenance.extender.extensions)
        boards = list(self._boards.values())
        gauges = [
            Gauge(metric.PROCESSES, len(boards)),
            Gauge(metric.RUNNING, sum(board.running for board in boards)),
            Gauge(metric.SLOTS, self._slots * len(boards)),
            Gauge(metric.UP, self._away() <= AWAY_FOR),
        ]
        return Sheet(200, exposition.expose(readings, gauges), exposition.METRICS_MEDIA_TYPE)

    async def healthz(self) -> Sheet:
        return Sheet(200, b"ok\n")

    async def readyz(self) -> Sheet:
        maintenance = self._maintenance()
        if maintenance is None or maintenance.heard_at is None:
            return Sheet(503, b"no process is ready yet\n")
        away = self._away()
        if away > AWAY_FOR:
            return Sheet(503, f"the store has been away for {away:.0f} s\n".encode())
        return Sheet(200, b"ready\n")

    def _away(self) -> float:
        """Seconds since the store last took a sign of life, which is a write."""
        maintenance = self._maintenance()
        return math.inf if maintenance is None or maintenance.heard_at is None else time.monotonic() - maintenance.heard_at
