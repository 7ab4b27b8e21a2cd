"""What a run may ask of the worker that runs it."""

from __future__ import annotations

from typing import Protocol

from hawser.handler.output import RunOutput


class RunControl(Protocol):
    """What a worker does for a run. Each call returns at once, from the loop and from threads alike."""

    @property
    def cancelled(self) -> bool:
        """Whether the run should end: the job was cancelled, or the lease is gone."""

    @property
    def lost(self) -> bool:
        """Whether the run has no right to write any more, as far as the worker knows."""

    @property
    def draining(self) -> bool:
        """Whether the worker is to end: a run with steps goes on elsewhere, from its last one."""

    def extend(self, seconds: float | None) -> None:
        """Keep the lease for so many seconds from now; None for one more lease."""

    def progress(self, body: bytes) -> None:
        """Keep what the run says of its progress, as JSON text, for the next extension."""

    def write(self, body: bytes) -> None:
        """Add a chunk of JSON text to what the run writes. `OutputFull` or `LeaseLost` when it is not taken."""

    @property
    def output(self) -> RunOutput | None:
        """What it writes, if it has written anything."""


class InlineRun:
    """The run of a task that was called like a function: there is no lease, so it only remembers."""

    cancelled = False
    lost = False
    draining = False

    def __init__(self) -> None:
        self.extended: float | None = None
        self.progressed: bytes | None = None
        self.output: RunOutput | None = None

    def extend(self, seconds: float | None) -> None:
        self.extended = seconds

    def progress(self, body: bytes) -> None:
        self.progressed = body

    def write(self, body: bytes) -> None:
        if self.output is None:
            self.output = RunOutput()
        self.output.add(body)
