"""What a supervisor and its processes say to each other at the start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from hawser.schedule.schedule import Definition
from hawser.store import Retention
from hawser.telemetry.logs import LogOptions
from hawser.upkeep.pruner import retentions
from hawser.worker.options import WorkerOptions
from hawser.worker.refusals import marks
from hawser.worker.served import chosen

if TYPE_CHECKING:
    from hawser.app import Hawser

CHILD_VARIABLE = "HAWSER_CHILD"
"""The environment variable that carries the handshake."""


class Handshake(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor tells a child."""

    app: str
    store: str | None
    name: str
    parent_pid: int
    board_fd: int
    """The memory of the board."""
    cells: int
    broadcast_fd: int
    """The memory of the supervisor's broadcast."""
    status_fd: int
    """Where `Status` is written, once."""
    options: WorkerOptions
    logs: LogOptions
    metrics_file: str | None = None
    """Where the process leaves what it counted."""


NO_STORE_EXIT_CODE: Final = 75
"""The exit code of a process that finds no store; it may be there later."""


class AppFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a supervisor must know of an app that it may not have imported."""

    retention: Retention | None = None
    """None leaves it to the store."""
    by_task: dict[str, Retention] = {}
    schedules: tuple[Definition, ...] = ()
    tasks: dict[str, str] = {}
    """Those that it knows, with a mark of each signature."""
    version: str | None = None
    """As the app's deploys call it."""


def facts_of(app: Hawser, options: WorkerOptions) -> AppFacts:
    return AppFacts(
        retention=app.config.retention,
        by_task=retentions(app.tasks),
        schedules=tuple(app.declared()),
        tasks=marks(chosen(app.tasks, options)),
        version=options.app_version or app.config.app_version,
    )


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What a child says when it is ready, or why it never will be."""

    error: str | None = None
    store: str = ""
    app: AppFacts = AppFacts()
    unserved: dict[str, list[str]] = {}
    unknown: dict[str, str] = {}
    """Queues that it serves and that do not exist, with what may be meant."""
