"""`hawser workers`: who works, and on what."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import click
import msgspec

from hawser.cli import options, show
from hawser.cli.format import duration, now, plural
from hawser.cli.group import Listing
from hawser.cli.opened_app import Opened, needs_store
from hawser.cli.show import Cell, TableColumn
from hawser.store import WorkerSeen

SILENT_AFTER_S: Final = 15.0
"""Seconds without a sign of life after which a worker is shown as silent: three beats were missed."""

WORKER_COLUMNS: Final = (
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
    """List the workers that live, and take back the runs of dead ones.

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
        show.table(WORKER_COLUMNS, rows(found, at))
    else:
        show.note("no worker is running; start one with: hawser worker APP")


@workers.command()
@click.argument("name")
@options.reason
@options.yes
@options.as_json
@needs_store
def reclaim(target: Opened, /, *, name: str, reason: str | None, yes: bool, as_json: bool) -> None:
    """Take back the runs of a worker that is known to be dead, at once, without waiting for their leases to run out.

    NAME is as `hawser workers` lists it. Each run counts as a crash of its job, which is ready again or, without attempts left,
    dead. If the worker lives after all, what it still writes of these runs is refused.
    """
    seen = next((seen for seen in target.ask(target.store.workers()) if seen.beat.worker == name), None)
    if seen is not None and not yes and (age := (now() - seen.seen_at).total_seconds()) <= SILENT_AFTER_S:
        raise click.UsageError(
            f"worker {name} gave a sign of life {duration(max(0.0, age), units=1)} ago; its handlers would go on beside the new"
            " runs. Stop it first, or add --yes"
        )
    taken = target.app.reclaim_worker(name, reason=reason, by=options.by())
    if as_json:
        show.document({"worker": name, "reclaimed": taken})
    elif taken:
        show.say(f"{plural(taken, 'run')} of {name} taken back")
    else:
        show.note(f"no run of {name} is under a lease; hawser workers lists the names")


def rows(found: Sequence[WorkerSeen], at: datetime) -> list[list[Cell | str]]:
    return [_row(seen, at) for seen in found]


def _state(seen: WorkerSeen, at: datetime) -> str:
    if (at - seen.seen_at).total_seconds() > SILENT_AFTER_S:
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
