"""One run of one job in this process."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING

from hawser.job import Claimed

if TYPE_CHECKING:
    from collections.abc import Callable

    from hawser.context import Context
    from hawser.task import Task


class Stop(Enum):
    """Why a run is to end before its handler does."""

    TIMEOUT = "timeout"
    LOST = "lost"
    CANCEL = "cancel"
    DRAIN = "drain"


class Run:
    """What the worker knows of a run; also what its handler's context asks. Belongs to the event loop."""

    __slots__ = (
        "begun",
        "came_at",
        "cap",
        "cell",
        "ctx",
        "deadline",
        "job",
        "note",
        "notify",
        "settled",
        "stop",
        "stopped_at",
        "stuck",
        "task",
        "until",
        "work",
    )

    def __init__(
        self, job: Claimed, task: Task[..., object] | None, cell: int, until: float, notify: Callable[[Run, float], None]
    ) -> None:
        self.job = job
        self.task = task
        self.cell = cell
        self.until = until
        """Monotonic time at which the right to run ends, if nobody extends it."""
        self.cap = float("inf")
        """Monotonic time beyond which no lease reaches."""
        self.begun = False
        """Whether the first step of its work was made."""
        self.came_at = 0.0
        """Monotonic time at which its claim was answered."""
        self.deadline = float("inf")
        """Monotonic time at which the attempt's timeout is over; set at the start."""
        self.settled = False
        self.stop: Stop | None = None
        self.stopped_at = 0.0
        self.stuck = False
        """A thread that went on after it should have ended."""
        self.work: asyncio.Task[None] | None = None
        self.ctx: Context | None = None
        self.notify = notify
        self.note: bytes | None = None

    @property
    def cancelled(self) -> bool:
        return self.stop is not None

    def extend(self, seconds: float | None) -> None:
        """Asked for by the handler, perhaps in a thread: the courier takes it to the store."""
        self.notify(self, seconds or 0.0)

    def progress(self, body: bytes) -> None:
        self.note = body
        self.notify(self, 0.0)
