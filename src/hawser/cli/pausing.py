"""Pausing a queue or a task: the same options, the same answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar

import click

from hawser.cli import options, show, when
from hawser.cli.format import instant, now
from hawser.cli.opened_app import Opened
from hawser.errors import did_you_mean
from hawser.store import Filter, Pause

F = TypeVar("F", bound=Callable[..., Any])


def pausing(command: F) -> F:
    for option in (
        click.option("--until", type=when.instant, metavar="WHEN", help="End it at a time: 2026-08-01T09:00+02:00."),
        click.option("--for", "pause_for", type=when.duration, metavar="TIME", help="End it after so long: 30m, 2h."),
        options.reason,
    ):
        command = option(command)
    return command


def until_of(until: datetime | None, pause_for: float | None) -> datetime | None:
    """When the pause ends; None is until it is resumed."""
    if until is not None and pause_for is not None:
        raise click.UsageError("give --until or --for, not both")
    if pause_for is not None:
        if not pause_for:
            raise click.BadParameter("a pause of no time; give more, or leave it out", param_hint="'--for'")
        return now() + timedelta(seconds=pause_for)
    if until is not None and until <= now():
        raise click.BadParameter(f"{until.isoformat()} is past; give a time to come", param_hint="'--until'")
    return until


def print_pause(kind: Literal["queue", "task"], name: str, until: datetime | None, doubt: str | None, *, as_json: bool) -> None:
    if as_json:
        show.document({kind: name, "paused": True, "until": until})
    elif until is None:
        show.say(f"{kind} {name} is paused until it is resumed: hawser {kind}s resume {name}")
    else:
        show.say(f"{kind} {name} is paused until {instant(until, now())}")
    if doubt is not None:
        show.note(doubt)


def doubt(target: Opened, kind: Literal["queue", "task"], name: str) -> str | None:
    """Asked before a pause, told after it. A name that the store does not know may still come; but most likely it is misspelt."""
    known = {pause.target.name for pause in target.ask(target.store.pauses()) if pause.target.kind == kind}
    if kind == "queue":
        known |= {task.template.queue for task in target.app.tasks.values()} | set(target.ask(target.store.queues()))
        known |= {queue for seen in target.ask(target.store.workers()) for queue in seen.beat.queues}
    else:
        known |= set(target.app.tasks)
        found = target.ask(target.store.find(Filter(task=name), None, 1))
        if found.jobs or found.next is not None:
            return None
    if name in known:
        return None
    hint = did_you_mean(name, sorted(known), "is the name right?")
    return f"no {kind} called {name} is known here: {hint} It is paused all the same."


def pause_json(pause: Pause) -> dict[str, Any]:
    return {"since": pause.since, "until": pause.until, "reason": pause.reason, "by": pause.by}
