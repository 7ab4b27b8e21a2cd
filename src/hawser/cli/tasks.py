"""`hawser tasks`: pause a task wherever its jobs wait."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from hawser.cli import options, show
from hawser.cli.format import duration, now
from hawser.cli.group import Listing
from hawser.cli.job_view import pause_words
from hawser.cli.opened_app import Opened, needs_store
from hawser.cli.pausing import doubt, pause_json, pausing, print_pause, until_of
from hawser.cli.show import Cell, TableColumn
from hawser.client import operator_fields
from hawser.store import Pause
from hawser.task import Task


@click.group(cls=Listing)
def tasks() -> None:
    """List, pause and resume tasks.

    Without a subcommand it lists: the paused ones, and with --app all that the app has.
    """


@tasks.command()
@options.as_json
@needs_store
def ls(target: Opened, /, *, as_json: bool) -> None:
    """List the paused tasks, and with --app all that the app has."""
    pauses = {pause.target.name: pause for pause in target.ask(target.store.pauses()) if pause.target.kind == "task"}
    registered = target.app.tasks
    names = sorted({*pauses, *registered})
    if as_json:
        show.document({"tasks": [_as_json(name, registered.get(name), pauses.get(name)) for name in names]})
    elif names:
        columns = [TableColumn("task")]
        if target.named:
            columns += [TableColumn("queue"), *(TableColumn(title, right=True) for title in ("priority", "attempts", "timeout"))]
        columns.append(TableColumn("paused", flexible=True))
        show.table(columns, [_row(target, name, pauses.get(name)) for name in names])
    else:
        show.note("the app has no tasks" if target.named else "no task is paused; add --app APP to see all that an app has")


def _row(target: Opened, name: str, pause: Pause | None) -> list[Cell | str]:
    row: list[Cell | str] = [name]
    if target.named:
        task = target.app.tasks.get(name)
        job = task.template if task else None
        row += (
            [
                job.queue,
                f"{job.priority}",
                "queue's" if job.max_attempts is None else f"{job.max_attempts}",
                duration(job.timeout),
            ]
            if job
            else ["not in the app", "", "", ""]
        )
    return [*row, Cell(pause_words(pause, now()), show.STYLES["paused"]) if pause else ""]


def _as_json(name: str, task: Task[..., Any] | None, pause: Pause | None) -> dict[str, Any]:
    job = task.template if task else None
    return {
        "task": name,
        "queue": job and job.queue,
        "priority": job and job.priority,
        "max_attempts": job and job.max_attempts,
        "timeout": job and job.timeout,
        "confirm_replay": task and task.options.confirm_replay,
        "pause": pause and pause_json(pause),
    }


@tasks.command()
@click.argument("task")
@pausing
@options.as_json
@needs_store
def pause(
    target: Opened, /, *, task: str, reason: str | None, until: datetime | None, pause_for: float | None, as_json: bool
) -> None:
    """Start no more jobs of a task, in any worker. Its jobs stay safe; those that run go on."""
    ends = until_of(until, pause_for)
    operator_fields.checked_name("task", task)
    doubted = doubt(target, "task", task)
    target.app.pause(task=task, reason=reason, until=ends, by=options.by())
    print_pause("task", task, ends, doubted, as_json=as_json)


@tasks.command()
@click.argument("task")
@options.reason
@options.as_json
@needs_store
def resume(target: Opened, /, *, task: str, reason: str | None, as_json: bool) -> None:
    """End the pause of a task."""
    resumed = target.app.resume(task=task, reason=reason, by=options.by())
    if as_json:
        show.document({"task": task, "resumed": resumed})
    else:
        show.say(f"task {task} goes on" if resumed else f"task {task} was not paused")
