"""`hawser schedules`: what is to be fired, when, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import click
import msgspec

from hawser.cli import options, show
from hawser.cli.format import ago, instant, now
from hawser.cli.group import Listing
from hawser.cli.opened_app import Opened, needs_store, opened
from hawser.cli.show import Cell, TableColumn
from hawser.client.schedules import MOST_SHOWN
from hawser.clock import from_datetime
from hawser.redaction import names_of, redacted
from hawser.schedule.rule import Cron
from hawser.schedule.schedule import Schedule, preview

_STYLES: Final = {"active": "green", "paused": "bold yellow", "retired": "dim", "ended": "dim"}

SCHEDULE_COLUMNS: Final = (
    TableColumn("schedule"),
    TableColumn("task", drop=3),
    TableColumn("state", whole=True),
    TableColumn("next", whole=True),
    TableColumn("last", whole=True, drop=2),
    TableColumn("fired", right=True, drop=1),
    TableColumn("rule", flexible=True),
)

_name = click.argument("name")


@click.group(cls=Listing)
def schedules() -> None:
    """List, show, run, skip, pause, resume and remove schedules.

    Without a subcommand it lists.
    """


@schedules.command()
@options.as_json
@needs_store
def ls(target: Opened, /, *, as_json: bool) -> None:
    """List all schedules: when the next tick is, when the last was."""
    found, at = target.app.schedules.list(), now()
    known = {schedule.name for schedule in found}
    only_declared = [definition.name for definition in target.app.declared() if definition.name not in known]
    if as_json:
        show.document({"schedules": [as_document(target, schedule) for schedule in found]})
    elif found:
        show.table(SCHEDULE_COLUMNS, [_row(schedule, at) for schedule in found])
    if only_declared:
        names = ", ".join(only_declared)
        show.note(f"declared in the app, and not yet in the store: {names}; start a worker, or: hawser scheduler APP")
    elif not found and not as_json:
        show.note("no schedules; declare one with @app.task(schedule=Every(minutes=5)), or create one with app.schedules")


def _row(schedule: Schedule, at: datetime) -> list[Cell | str]:
    return [
        schedule.name,
        schedule.task,
        Cell(schedule.state, _STYLES[schedule.state]),
        "-" if schedule.next_tick is None else ago(schedule.next_tick, at),
        "-" if schedule.last_tick is None else ago(schedule.last_tick, at),
        f"{schedule.fired:,}",
        Cell(schedule.error, "bold red") if schedule.error else schedule.words,
    ]


def as_document(target: Opened, schedule: Schedule) -> dict[str, Any]:
    definition = schedule.definition
    return {
        "name": schedule.name,
        "task": schedule.task,
        "queue": definition.queue,
        "priority": definition.priority,
        "payload": msgspec.Raw(_payload(target, schedule)),
        "words": schedule.words,
        "rule": msgspec.Raw(definition.rule_text.encode()),
        "state": schedule.state,
        "declared": schedule.declared,
        "pause": schedule.pause,
        "next_tick": schedule.next_tick,
        "last_tick": schedule.last_tick,
        "last_job_id": schedule.last_job_id,
        "fired": schedule.fired,
        "missed": schedule.missed,
        "skipped": schedule.skipped,
        "error": schedule.error,
        "created_at": schedule.created_at,
    }


@schedules.command(name="show")
@_name
@options.as_json
@needs_store
def show_(target: Opened, /, *, name: str, as_json: bool) -> None:
    """Show one schedule in full, with its next ticks."""
    schedule = target.app.schedules.get(name)
    ticks = target.app.schedules.preview(name, 5) if schedule.due_us is not None and not schedule.error else []
    if as_json:
        show.document({**as_document(target, schedule), "ticks": ticks})
        return
    show.facts(_facts(target, schedule, now()))
    _print_ticks(ticks)


def _payload(target: Opened, schedule: Schedule) -> bytes:
    return redacted(names_of(target.app.tasks, schedule.task), schedule.definition.body)


def _facts(target: Opened, schedule: Schedule, at: datetime) -> Iterator[tuple[str, Cell | str]]:
    definition = schedule.definition
    yield "schedule", Cell(schedule.name, "bold")
    yield "task", Cell(schedule.task, "bold")
    yield "rule", schedule.words
    yield "state", Cell(schedule.state, _STYLES[schedule.state])
    if schedule.pause is not None:
        reason = f": {schedule.pause.reason}" if schedule.pause.reason else ""
        yield "paused", f"by {schedule.pause.by} {ago(schedule.pause.since, at)}{reason}"
    yield "queue", f"{definition.queue}, priority {definition.priority}"
    yield "payload", _payload(target, schedule).decode(errors="replace")
    yield "declared", "in code" if schedule.declared else "at run time"
    yield "created", instant(schedule.created_at, at)
    if schedule.last_tick is not None:
        yield "last tick", instant(schedule.last_tick, at)
    if schedule.last_job_id is not None:
        yield "last job", schedule.last_job_id
    yield "ticks", f"{schedule.fired:,} fired, {schedule.missed:,} missed, {schedule.skipped:,} skipped"
    if schedule.error is not None:
        yield "error", Cell(schedule.error, "bold red")


def _print_ticks(ticks: Sequence[datetime]) -> None:
    if ticks:
        show.heading("next ticks")
        for tick in ticks:
            show.block(f"{tick:%a %Y-%m-%d %H:%M:%S %Z}, {ago(tick, now())}")


@schedules.command(name="preview")
@click.argument("what", metavar="NAME|EXPRESSION")
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="The time zone of an expression.")
@click.option("--count", type=click.IntRange(1, MOST_SHOWN), default=5, show_default=True, help="How many ticks.")
@click.option("--app", metavar="APP", help="Use the store of this app: module:attribute or file.py:attribute.")
@click.option("--store", "url", metavar="URL", help="The store, for example sqlite:///jobs.db.  [default: $HAWSER_STORE]")
@options.as_json
def preview_(what: str, tz: str, count: int, app: str | None, url: str | None, as_json: bool) -> None:
    """Show the next ticks of a schedule, or of a cron expression: "30 2 * * *" or @daily. The latter needs no store."""
    if " " in what or what.startswith("@"):
        rule = Cron(what, tz)
        words = rule.words
        ticks = [tick.astimezone(rule.zone) for tick in preview(rule, from_datetime(now()), count)]
    else:
        with opened(url, app) as target:
            words = target.app.schedules.get(what).words
            ticks = list(target.app.schedules.preview(what, count))
    if as_json:
        show.document({"words": words, "ticks": ticks})
        return
    show.say(words)
    _print_ticks(ticks)
    if not ticks:
        show.note("no further tick comes")


@schedules.command(name="past")
@_name
@click.option("--count", type=click.IntRange(1, MOST_SHOWN), default=20, show_default=True, help="How many ticks.")
@options.as_json
@needs_store
def past_(target: Opened, /, *, name: str, count: int, as_json: bool) -> None:
    """Show the last ticks of a schedule, and what became of their jobs."""
    ticks = target.app.schedules.past(name, count)
    if as_json:
        told = [
            {"tick": tick, "job_id": job and job.id, "state": job and job.state.value, "left_out": cause}
            for tick, job, cause in ticks
        ]
        show.document({"schedule": name, "ticks": told})
        return
    for tick, job, cause in ticks:
        became = (cause or "its job is not kept") if job is None else f"{job.state}, job {job.id}"
        show.say(f"{tick:%a %Y-%m-%d %H:%M:%S %Z}: {became}")
    if not ticks:
        show.note("no tick has come yet")


@schedules.command()
@_name
@options.reason
@options.as_json
@needs_store
def run(target: Opened, /, *, name: str, reason: str | None, as_json: bool) -> None:
    """Make a job now, beside the ticks, also while the schedule is paused."""
    id = target.app.schedules.run(name, reason=reason, by=options.by())
    if as_json:
        show.document({"name": name, "job_id": id})
    else:
        show.say(f"schedule {name}: job {id}")


@schedules.command()
@_name
@options.reason
@options.as_json
@needs_store
def skip(target: Opened, /, *, name: str, reason: str | None, as_json: bool) -> None:
    """Leave out the next tick."""
    _say(target, target.app.schedules.skip(name, reason=reason, by=options.by()), "skips a tick", as_json=as_json)


@schedules.command()
@_name
@options.reason
@options.as_json
@needs_store
def pause(target: Opened, /, *, name: str, reason: str | None, as_json: bool) -> None:
    """Fire no ticks until the schedule is resumed. Its jobs go on."""
    _say(target, target.app.schedules.pause(name, reason=reason, by=options.by()), "is paused", as_json=as_json)


@schedules.command()
@_name
@options.reason
@options.as_json
@needs_store
def resume(target: Opened, /, *, name: str, reason: str | None, as_json: bool) -> None:
    """Fire again, from the next tick on."""
    _say(target, target.app.schedules.resume(name, reason=reason, by=options.by()), "goes on", as_json=as_json)


def _say(target: Opened, schedule: Schedule, what: str, *, as_json: bool) -> None:
    if as_json:
        show.document(as_document(target, schedule))
        return
    next_ = "" if schedule.next_tick is None else f"; the next tick is {instant(schedule.next_tick, now())}"
    show.say(f"schedule {schedule.name} {what}{next_}")


@schedules.command()
@_name
@options.reason
@options.as_json
@needs_store
def rm(target: Opened, /, *, name: str, reason: str | None, as_json: bool) -> None:
    """Remove a schedule that was made at run time, or that no worker declares any longer. Its jobs stay."""
    target.app.schedules.delete(name, reason=reason, by=options.by())
    if as_json:
        show.document({"name": name, "removed": True})
    else:
        show.say(f"schedule {name} is removed")
