"""Options that several commands share."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from hawser.cli.when import past
from hawser.job import State, Waiting, text_fault
from hawser.store import MAX_PAGE, Signature

F = TypeVar("F", bound=Callable[..., Any])

PAGE: Final = 20
"""Jobs listed at once unless told otherwise: what fits on a screen."""

MAX_REASON: Final = 500


def words(text: str) -> str:
    """Why somebody does something."""
    if fault := text_fault(text.strip(), MAX_REASON):
        raise click.BadParameter(fault)
    return text.strip()


as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
reason = click.option("--reason", type=words, metavar="TEXT", help="Why; goes into the audit record.")
yes = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
confirm = click.option("--confirm", is_flag=True, help="Confirm for tasks that ask for it (confirm_replay).")
ids = click.argument("ids", metavar="ID...", nargs=-1, required=True)


def narrow(command: F) -> F:
    """The options that choose jobs, but for their state."""
    for option in reversed(
        (
            click.option("--queue", metavar="NAME", help="Only of this queue."),
            click.option("--task", metavar="NAME", help="Only of this task."),
            click.option("--tag", metavar="TAG", help="Only with this tag."),
            click.option("--since", type=past, metavar="WHEN", help="Enqueued since a time, or for example 1h ago: --since 1h."),
            click.option("--until", type=past, metavar="WHEN", help="Enqueued before a time, or so long ago."),
        )
    ):
        command = option(command)
    return command


def page(command: F) -> F:
    """The options that page through a list."""
    for option in reversed(
        (
            click.option("--limit", type=click.IntRange(1, MAX_PAGE), default=PAGE, show_default=True, help="Jobs at once."),
            click.option("--after", metavar="ID", help="Go on behind this job: the `next` of the page before."),
        )
    ):
        command = option(command)
    return command


state = click.option("--state", type=click.Choice([*map(str, State), *map(str, Waiting)]), help="Only in this state.")


def sign(reason: str | None = None) -> Signature:
    """Who acts here, for the audit record."""
    return Signature(by(), reason)


def by() -> str:
    try:
        return f"cli:{getpass.getuser()}"[:128]
    except (KeyError, OSError):
        # A container's user may have no name.
        return "cli"
