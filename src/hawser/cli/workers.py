"""`hawser workers`: who works, and on what."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import click
import msgspec

from hawser.cli import options, show
from hawser.cli.format import duration, now
from hawser.cli.group import Listing
from hawser.cli.show import Cell, TableColumn
from hawser.cli.target import Opened, needs_store
from hawser.store import WorkerSeen

LATE: Final = 15.0
"""Seconds without a sign of life after which a worker is shown as silent: three beats were missed."""

COLUMNS: Final = (
    TableColumn("worker"),
    TableColumn("state"),
    TableColumn("running", right=True),
    TableColumn("slots", right=True),
    TableColumn("stuck", right=True, drop=3),
    TableColumn("pid", right=True, drop=4),
    TableColumn("up", right=True, drop=2),
    TableColumn("seen", right=True),
    TableColumn("queues", flexible=True, drop=1),
)


@click.group(cls=Listing)
def workers() -> None:
    """List the workers that live.

    Without a subcommand it lists.
    """


@workers.command()
@options.as_json
@needs_store
def ls(target: Opened, /, *, as_json: bool) -> None:
    """List the worker processes that gave a sign of life within the hour and did not say that they ended."""
    found, at = target.ask(target.store.workers()), now()
    if as_json:
        show.document({"workers": [_as_json(seen, at) for seen in found]})
    elif found:
        show.table(COLUMNS, rows(found, at))
    else:
        show.note("no worker is running; start one with: hawser worker APP")


def rows(found: Sequence[WorkerSeen], at: datetime) -> list[list[Cell | str]]:
    return [_row(seen, at) for seen in found]


def _state(seen: WorkerSeen, at: datetime) -> str:
    if (at - seen.seen_at).total_seconds() > LATE:
        return "silent"
    return "draining" if seen.beat.draining else "working"


def _as_json(seen: WorkerSeen, at: datetime) -> dict[str, Any]:
    about: dict[str, Any] = msgspec.to_builtins(seen.beat)
    return {**about, "state": _state(seen, at), "since": seen.since.isoformat(), "seen_at": seen.seen_at.isoformat()}


def _row(seen: WorkerSeen, at: datetime) -> list[Cell | str]:
    beat, state = seen.beat, _state(seen, at)
    return [
        beat.worker,
        Cell(state, {"silent": "bold red", "draining": "yellow"}.get(state, "green")),
        f"{beat.running:,}",
        f"{beat.slots:,}",
        Cell(str(beat.stuck), "bold red" if beat.stuck else "dim"),
        str(beat.pid),
        duration((at - seen.since).total_seconds(), units=1),
        f"{duration(max(0.0, (at - seen.seen_at).total_seconds()), units=1)} ago",
        ",".join(beat.queues),
    ]
