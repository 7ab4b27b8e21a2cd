"""What a supervisor and its processes say to each other at the start."""

from __future__ import annotations

from typing import Final

import msgspec

from hawser.schedule import Definition
from hawser.store import Retention
from hawser.telemetry.logs import LogOptions
from hawser.worker.options import WorkerOptions

VARIABLE = "HAWSER_CHILD"
"""The environment variable that carries the orders."""


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor tells a child."""

    app: str
    store: str | None
    name: str
    parent: int
    board: int
    """A file descriptor: the memory of the board."""
    cells: int
    notice: int
    """A file descriptor: the memory of the supervisor's notice."""
    status: int
    """A file descriptor: where `Status` is written, once."""
    options: WorkerOptions
    logs: LogOptions
    readings: str | None = None
    """A file: where the process leaves what it counted."""


AWAY: Final = 75
"""The exit code of a process that finds no store; it may be there later."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What a child says when it is ready, or why it never will be."""

    error: str | None = None
    store: str = ""
    retention: Retention = Retention()
    by_task: dict[str, Retention] = {}
    unserved: dict[str, list[str]] = {}
    schedules: tuple[Definition, ...] = ()
