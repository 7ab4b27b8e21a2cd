"""`hawser breakers`: the breakers of tasks, opened and closed by hand."""

from __future__ import annotations

from typing import Any, Final

import click

from hawser.cli import options, show
from hawser.cli.format import instant, now
from hawser.cli.group import Listing
from hawser.cli.opened_app import Opened, needs_store
from hawser.cli.show import Cell, TableColumn
from hawser.client.operations import switch_breaker
from hawser.store import BreakerStatus

BREAKER_COLUMNS: Final = (
    TableColumn("task"),
    TableColumn("breaker"),
    TableColumn("since"),
    TableColumn("by"),
    TableColumn("about", flexible=True),
)


@click.group(cls=Listing)
def breakers() -> None:
    """List, open and close the breakers of tasks.

    Without a subcommand it lists.
    """


@breakers.command()
@options.as_json
@needs_store
def ls(target: Opened, /, *, as_json: bool) -> None:
    """List the breakers that are declared or open."""
    found = target.ask(target.store.breakers())
    if as_json:
        show.document({"breakers": [_as_json(status) for status in found]})
    elif found:
        show.table(BREAKER_COLUMNS, [_row(status) for status in found])
    else:
        show.note("no task has a breaker")


def _row(status: BreakerStatus) -> list[Cell | str]:
    at = now()
    state = Cell("open", show.STYLES["paused"]) if status.open else "closed"
    return [status.task, state, instant(status.since, at), status.by, _about(status)]


def _about(status: BreakerStatus) -> str:
    if status.open and status.by_hand:
        return "until a person closes it"
    if status.open:
        probe = "" if status.probe_at is None else f", next probe at {instant(status.probe_at, now())}"
        return f"{status.failed:,} of {status.attempts:,} attempts failed{probe}"
    rule = status.rule
    return "" if rule is None else f"opens at {rule.share:.0%} of at least {rule.least:,} attempts in {rule.window:g} s"


def _as_json(status: BreakerStatus) -> dict[str, Any]:
    return {
        "task": status.task,
        "open": status.open,
        "since": status.since,
        "by": status.by,
        "by_hand": status.by_hand,
        "rule": status.rule,
        "failed": status.failed,
        "attempts": status.attempts,
        "probe_at": status.probe_at,
        "probe": status.probe.id if status.probe else None,
    }


@breakers.command(name="open")
@click.argument("task")
@options.reason
@options.as_json
@needs_store
def open_(target: Opened, /, *, task: str, reason: str | None, as_json: bool) -> None:
    """Open the breaker of a task: none of its jobs starts until it is closed by hand."""
    changed = target.ask(switch_breaker(target.store, target.app.tasks, task, options.actor(reason), open=True))
    if as_json:
        show.document({"task": task, "open": True, "changed": changed})
    else:
        show.say(
            f"the breaker of task {task} {'is open until a person closes it' if changed else 'was opened by a person before'}"
        )


@breakers.command()
@click.argument("task")
@options.reason
@options.as_json
@needs_store
def close(target: Opened, /, *, task: str, reason: str | None, as_json: bool) -> None:
    """Close the breaker of a task; what failed before does not count."""
    changed = target.ask(switch_breaker(target.store, target.app.tasks, task, options.actor(reason), open=False))
    if as_json:
        show.document({"task": task, "open": False, "changed": changed})
    else:
        show.say(f"the breaker of task {task} {'is closed' if changed else 'was closed'}")
