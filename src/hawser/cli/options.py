"""Options that several commands share."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from hawser.cli.when import past
from hawser.job import State, Waiting
from hawser.store import MAX_PAGE, Actor, Filter
from hawser.value.fingerprint import group_named
from hawser.value.name import text_fault

F = TypeVar("F", bound=Callable[..., Any])

JOBS_LISTED: Final = 20
"""Jobs listed at once unless told otherwise: what fits on a screen."""

MAX_REASON: Final = 500

DEFAULT_BULK_RATE: Final = 100.0
MAX_RATE: Final = 10_000.0


def words(text: str) -> str:
    """The reason of an action."""
    if fault := text_fault(text.strip(), MAX_REASON):
        raise click.BadParameter(fault)
    return text.strip()


as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
brief = click.option("--brief", is_flag=True, help="With --json: no payloads and results, and long errors cut.")
reason = click.option("--reason", type=words, metavar="TEXT", help="Why; goes into the audit record.")
yes = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
confirm = click.option("--confirm", is_flag=True, help="Confirm for tasks that ask for it (confirm_replay).")
ids = click.argument("ids", metavar="ID...", nargs=-1, required=True)
some = click.argument("ids", metavar="[ID...]", nargs=-1)


def every(told: str) -> Callable[[F], F]:
    """The option that stands for no filter at all."""
    return click.option("--all", "every", is_flag=True, help=told)


def per_second(text: str) -> float:
    """A rate. Unlike click's own range it knows that NaN is in none."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= MAX_RATE:
        raise click.BadParameter(f"{text!r} is not a number above 0 and up to {MAX_RATE:g}")
    return found


rate = click.option(
    "--rate",
    type=per_second,
    default=f"{DEFAULT_BULK_RATE:g}",
    metavar="N",
    show_default=True,
    help="Jobs a second, of those that were chosen by filter.",
)
most = click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help="No more than so many of those that were chosen by filter, the newest first.",
)
group = click.option(
    "--group",
    metavar="GROUP",
    callback=lambda _context, _option, named: None if named is None else group_named(named).id,
    help="Only of this group: one task and kind of error, as `dlq groups` lists them.",
)
key = click.option("--key", metavar="KEY", help="Only with this key.")


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
            click.option(
                "--limit", type=click.IntRange(1, MAX_PAGE), default=JOBS_LISTED, show_default=True, help="Jobs at once."
            ),
            click.option("--after", metavar="ID", help="Go on behind this job: the `next` of the page before."),
        )
    ):
        command = option(command)
    return command


state = click.option("--state", type=click.Choice([*map(str, State), *map(str, Waiting)]), help="Only in this state.")


def actor(reason: str | None = None, filter: Filter | None = None) -> Actor:
    """Who acts here, for the audit record."""
    return Actor(by(), reason, None if filter is None else filter.told())


def by() -> str:
    try:
        return f"cli:{getpass.getuser()}"[:128]
    except (KeyError, OSError):
        # A container's user may have no name.
        return "cli"
