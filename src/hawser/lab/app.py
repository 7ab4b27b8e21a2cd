"""The app that a bench runs: jobs that do nothing, and a listener that writes down how long claims took."""

from __future__ import annotations

import os
from typing import Final

import msgspec

from hawser.app import Hawser
from hawser.telemetry.events import ClaimedBatch, Events

FOLDER: Final = "HAWSER_LAB_FOLDER"
"""The environment variable that says where measurements go."""


class Claims(Events):
    """Appends each claim to a file of this process: size and seconds, one line, one write."""

    def __init__(self, folder: str) -> None:
        self._fd = os.open(f"{folder}/claims-{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def claimed(self, batch: ClaimedBatch) -> None:
        os.write(self._fd, msgspec.json.encode((len(batch.jobs), batch.seconds)) + b"\n")


app = Hawser()

if folder := os.environ.get(FOLDER):
    app.events = Claims(folder)


@app.task
async def noop(seq: int, to: str) -> None:
    """What a queue costs when the work costs nothing."""
