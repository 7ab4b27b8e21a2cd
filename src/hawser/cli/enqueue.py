"""`hawser enqueue`: a job from the shell."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from hawser.cli import show
from hawser.cli.opened_app import Opened, needs_app
from hawser.cli.payload import json_object
from hawser.cli.when import duration, instant, key_ttl
from hawser.errors import FieldError, UnknownTask, did_you_mean


@click.command()
@needs_app
@click.argument("task")
@click.option("--json", "payload", type=json_object, metavar="JSON", help="The arguments by name; - reads them from stdin.")
@click.option("--queue", metavar="NAME", help="Another queue than the task's own.")
@click.option("--priority", type=int, help="0 to 9; higher goes first.")
@click.option("--delay", type=duration, metavar="TIME", help="Due after so long: 90, 90s, 5m, 1h30m.")
@click.option("--run-at", type=instant, metavar="WHEN", help="Due at a time: 2026-08-01T09:00+02:00.")
@click.option("--expires", type=duration, metavar="TIME", help="Not started later than this from now; then it is cancelled.")
@click.option("--key", metavar="KEY", help="No second job of this task while the key is held in the queue.")
@click.option(
    "--key-ttl",
    type=key_ttl,
    metavar="TIME",
    help="Hold the key at least for this time; or forever; or until the start.  [default: while it is live]",
)
@click.option("--debounce", type=duration, metavar="TIME", help="Due when no other call with the key has come for so long.")
@click.option("--at-most", type=duration, metavar="TIME", help="With --debounce: due this long after the first at the latest.")
@click.option("--max-attempts", type=int, help="How often it is tried.")
@click.option("--timeout", type=duration, metavar="TIME", help="How long one attempt may take.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A label to find it by; may be repeated.")
@click.option("--group", metavar="NAME", help="Whose job it is, such as a customer's: groups take turns.")
@click.option("--after", multiple=True, metavar="ID", help="Due when this job or batch is done; may be repeated.")
@click.option("--batch", metavar="ID", help="The batch that it counts in: one that is open or runs.")
@click.option("--id", "id_", metavar="ID", help="A UUIDv7 of your own: the same again makes no second job.")
@click.option(
    "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How the answer is printed."
)
def enqueue(
    target: Opened,
    /,
    *,
    task: str,
    payload: dict[str, Any] | None,
    run_at: datetime | None,
    tags: tuple[str, ...],
    after: tuple[str, ...],
    id_: str | None,
    output: str,
    **fields: Any,
) -> None:
    """Add a job of one of the app's tasks.

    APP is module:attribute or path/to/file.py:attribute. The arguments are checked against the task's signature.
    In a pipe the job's id is printed alone.

    \b
      hawser enqueue shop.tasks:app send_email --json '{"to": "ann@example.com"}' --delay 5m
    """
    _must_know(target, task)
    given = {name: value for name, value in {**fields, "run_at": run_at, "id": id_}.items() if value is not None}
    given |= {name: values for name, values in {"tags": tags, "after": list(after)}.items() if values}
    handle = target.app.enqueue(task, payload, **given)
    if output == "json":
        show.document({"id": handle.id, "created": handle.created, "replaced": handle.replaced})
        return
    show.say(f"{handle.id}  enqueued" if handle.created and show.on_terminal() else handle.id)
    if handle.replaced:
        show.note("nothing was added: that job waits with the same key, and has this payload now")
    elif not handle.created and handle.id == id_:
        show.note("nothing was added: that job was enqueued before, with the same id")
    elif not handle.created:
        show.note(f"nothing was added: that job holds the key {given['key']!r}")


def _must_know(target: Opened, task: str) -> None:
    tasks = sorted(target.app.tasks)
    if task in tasks:
        return
    rest = "the app has none: import the modules that register them where it is made"
    if tasks:
        rest = f"the app has {', '.join(tasks[:20])}{' …' if len(tasks) > 20 else ''}"
    raise UnknownTask(FieldError("task", f"no task is called {task!r}; {did_you_mean(task, tasks, rest, most=3)}"))
