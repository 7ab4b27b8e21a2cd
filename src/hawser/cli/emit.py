"""`hawser emit`: an event from the shell."""

from __future__ import annotations

from typing import Any

import click

from hawser.cli import options, show
from hawser.cli.format import instant, now
from hawser.cli.opened_app import Opened, needs_store
from hawser.cli.payload import json_value
from hawser.cli.when import duration
from hawser.store import EVENT_KEPT


@click.command()
@click.argument("name")
@click.option("--body", type=json_value, metavar="JSON", help="What it says: any JSON; - reads it from stdin.  [default: null]")
@click.option("--keep", type=duration, metavar="TIME", default=None, help="How long it is kept.  [default: 7 days]")
@options.as_json
@needs_store
def emit(target: Opened, /, *, name: str, body: Any, keep: float | None, as_json: bool) -> None:
    """Say that an event has come: every job whose handler waits for it goes on.

    The first event of a name stays. Of another one is told when the first came.

    \b
      hawser emit packed:42 --body '{"parcels": 2}'
    """
    emitted = target.app.emit(name, body, keep=EVENT_KEPT if keep is None else keep)
    if as_json:
        show.document({"name": name, "created": emitted.created, "at": emitted.at.isoformat(), "same": emitted.same})
    elif emitted.created:
        show.say(f"{name}  emitted")
    else:
        says = "says the same" if emitted.same else "says something else"
        show.note(f"nothing was emitted: an event {name!r} came {instant(emitted.at, now())} and {says}; the first stays")
