"""What the processes of a supervisor have counted."""

from __future__ import annotations

from pathlib import Path

from hawser.telemetry.meter import Readings
from hawser.worker.metrics_file import UNFINISHED, read_metrics


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
        self._past.merge(read_metrics(file))
        file.unlink(missing_ok=True)

    def readings(self) -> Readings:
        total = Readings()
        total.merge(self._past)
        for file in self._folder.iterdir():
            if not file.name.endswith(UNFINISHED):
                total.merge(read_metrics(file))
        return total
