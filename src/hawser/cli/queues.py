"""`hawser queues`: what each holds, and its controls."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import click
import msgspec

from hawser.cli import options, show
from hawser.cli.group import Listing
from hawser.cli.pausing import pause_json, pausing, print_pause, until_of
from hawser.cli.record import pause_words
from hawser.cli.show import Cell, Column
from hawser.cli.target import Opened, needs_store
from hawser.cli.words import duration, now, per_second
from hawser.store import Limits, Pause, QueueStats

_DROPPED: Final = {"done": 1, "rate": 2, "limit": 3, "scheduled": 4, "oldest": 5, "retrying": 6}

COLUMNS: Final = (
    Column("queue"),
    *(
        Column(title, right=True, whole=True, drop=_DROPPED.get(title, 0))
        for title in ("ready", "scheduled", "retrying", "running", "dead", "done", "oldest", "rate", "limit")
    ),
    Column("paused", flexible=True),
)


@click.group(cls=Listing)
def queues() -> None:
    """List, pause, resume and limit queues.

    Without a subcommand it lists.
    """


@queues.command()
@options.as_json
@needs_store
def ls(target: Opened, /, *, as_json: bool) -> None:
    """List every queue that holds jobs, is paused or has a limit."""
    found, limits = target.ask(target.store.queues()), target.ask(target.store.limits())
    pauses = {pause.target.name: pause for pause in target.ask(target.store.pauses()) if pause.target.kind == "queue"}
    if as_json:
        show.document({"queues": [_as_json(name, stats, limits, pauses) for name, stats in found.items()]})
    elif found:
        show.table(COLUMNS, rows(found, limits, pauses))
    else:
        show.note("no queue holds a job")


def rows(found: Mapping[str, QueueStats], limits: Mapping[str, Limits], pauses: Mapping[str, Pause]) -> list[list[Cell | str]]:
    at = now()
    return [
        [
            name,
            _count(stats.ready, "ready", exact=stats.exact),
            _count(stats.scheduled, "scheduled"),
            _count(stats.retrying, "retrying"),
            _count(stats.running, "running"),
            _count(stats.dead, "dead"),
            _count(stats.done, ""),
            duration(stats.oldest_age_s, units=1) if stats.due else "-",
            per_second(stats.rates.get("done", 0.0)),
            "-" if name not in limits or limits[name].max_depth is None else f"{limits[name].max_depth:,}",
            Cell(pause_words(pauses[name], at), show.STYLES["paused"]) if name in pauses else "",
        ]
        for name, stats in found.items()
    ]


def _count(number: int, style: str, *, exact: bool = True) -> Cell:
    text = f"{number:,}" if exact else f"≥{number:,}"
    return Cell(text, show.STYLES.get(style, "") if number else "dim")


def _as_json(name: str, stats: QueueStats, limits: Mapping[str, Limits], pauses: Mapping[str, Pause]) -> dict[str, Any]:
    return {
        "queue": name,
        **msgspec.structs.asdict(stats),
        "max_depth": limits[name].max_depth if name in limits else None,
        "pause": pause_json(pauses[name]) if name in pauses else None,
    }


@queues.command()
@click.argument("queue")
@pausing
@options.as_json
@needs_store
def pause(
    target: Opened, /, *, queue: str, reason: str | None, until: datetime | None, pause_for: float | None, as_json: bool
) -> None:
    """Start no more jobs of a queue, in any worker. Its jobs stay safe; those that run go on."""
    ends = until_of(until, pause_for)
    target.app.pause(queue=queue, reason=reason, until=ends, by=options.by())
    print_pause("queue", queue, ends, as_json=as_json)


@queues.command()
@click.argument("queue")
@options.reason
@options.as_json
@needs_store
def resume(target: Opened, /, *, queue: str, reason: str | None, as_json: bool) -> None:
    """End the pause of a queue."""
    resumed = target.app.resume(queue=queue, reason=reason, by=options.by())
    if as_json:
        show.document({"queue": queue, "resumed": resumed})
    else:
        show.say(f"queue {queue} goes on" if resumed else f"queue {queue} was not paused")


def depth(text: str) -> int | None:
    """A number of jobs, or none."""
    if text == "none":
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise click.BadParameter(f"{text!r} is not a whole number from 0; write none for no limit")
    return int(text)


@queues.command()
@click.argument("queue")
@click.argument("max_depth", type=depth, metavar="MAX_DEPTH|none")
@options.reason
@options.as_json
@needs_store
def limit(target: Opened, /, *, queue: str, max_depth: int | None, reason: str | None, as_json: bool) -> None:
    """Limit how many jobs may wait in a queue; beyond it enqueue is refused."""
    target.app.set_limits(queue, max_depth=max_depth, reason=reason, by=options.by())
    if as_json:
        show.document({"queue": queue, "max_depth": max_depth})
    elif max_depth is None:
        show.say(f"queue {queue} has no limit")
    else:
        show.say(f"queue {queue} takes at most {max_depth:,} waiting jobs")
