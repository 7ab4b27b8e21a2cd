"""`hawser jobs`: look at jobs, cancel and change them, run them again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import click
import msgspec

from hawser.cli import bulk, chunk, job_view, options, show
from hawser.cli.format import instant, now
from hawser.cli.group import Listing
from hawser.cli.opened_app import Opened, needs_store
from hawser.cli.replaying import requeue
from hawser.cli.when import duration
from hawser.cli.when import instant as instant_of
from hawser.client import operations
from hawser.client.explain import holds
from hawser.job import MAX_PRIORITY, Job, State
from hawser.store import Acted
from hawser.value.ids import made_at

FOLLOW_EVERY: Final = 0.5
"""Seconds between two looks of a command that follows a job."""


@click.group(cls=Listing)
def jobs() -> None:
    """List, show, explain, cancel, change and retry jobs.

    Without a subcommand it lists: `hawser jobs --state dead` is `hawser jobs ls --state dead`.
    """


@jobs.command()
@options.state
@options.narrow
@options.key
@click.option("--schedule", metavar="NAME", help="Only those that this schedule made.")
@click.option("--group", "group_name", metavar="NAME", help="Only those of this group, such as a customer.")
@click.option("--arg", "argument", metavar="NAME=VALUE", help="Only with this argument, which a task declares as indexed.")
@click.option("--parent", "parent_id", metavar="ID", help="Only the jobs that this one enqueued.")
@click.option("--batch", metavar="ID", help="Only those of this batch.")
@options.page
@options.brief
@options.as_json
@needs_store
def ls(target: Opened, /, *, after: str | None, limit: int, brief: bool, as_json: bool, **fields: Any) -> None:
    """List jobs, newest first.

    `when` is when a waiting job is due, a running one was started, a finished one ended.
    """
    print_page(target, fields, after, limit, brief=brief, as_json=as_json)


def print_page(
    target: Opened,
    fields: dict[str, Any],
    after: str | None,
    limit: int,
    *,
    brief: bool,
    as_json: bool,
    print_jobs: Callable[[Sequence[Job]], None] = job_view.print_jobs,
) -> None:
    page = bulk.fetch(target, operations.filter_of(fields), after, limit)  # type: ignore[arg-type]  # JobFilter's fields
    page = msgspec.structs.replace(page, jobs=[target.shown(job) for job in page.jobs])
    if as_json:
        show.document(job_view.page_as_json(page, brief=brief))
        return
    if page.jobs:
        print_jobs(page.jobs)
    elif page.next is None:
        show.note("no jobs match" if after is None else "no more jobs match")
    if page.next is not None and len(page.jobs) < limit:
        show.note(f"{page.searched:,} jobs were searched, back to {instant(made_at(page.next), now())}: add --after {page.next}")
    elif page.next is not None:
        show.note(f"there are more: add --after {page.next}")


@jobs.command(name="show")
@click.argument("id")
@options.as_json
@needs_store
def show_(target: Opened, /, *, id: str, as_json: bool) -> None:
    """Show one job in full: payload, result, every attempt; and why it waits, if it does."""
    job = target.shown(target.app.get(id.strip().lower()))
    held_by = target.ask(holds(target.store, job, now()))
    if as_json:
        show.document({**job_view.as_json(job, whole=True), "why": "; ".join(held_by) or None})
    else:
        job_view.print_job(job, held_by)


@jobs.command()
@click.argument("id")
@options.as_json
@needs_store
def why(target: Opened, /, *, id: str, as_json: bool) -> None:
    """Say why a job is not running: one line for each reason."""
    job = target.app.get(id.strip().lower())
    held_by = target.ask(holds(target.store, job, now()))
    if as_json:
        show.document({"id": job.id, "state": job.state, "why": list(held_by)})
    for line in () if as_json else held_by or (f"nothing keeps it from running: it is {job.state}",):
        show.say(line)


@jobs.command()
@click.argument("id")
@click.option("--after", type=click.IntRange(0), default=0, metavar="N", help="Go on behind the chunk with this number.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the job has ended.")
@options.as_json
@needs_store
def output(target: Opened, /, *, id: str, after: int, follow: bool, as_json: bool) -> None:
    """Print what the runs of a job write: texts as they are, other values as JSON, one a line."""
    if follow and as_json:
        raise click.UsageError("--follow and --json say different things; leave one of them out")
    job = target.app.get(id.strip().lower())
    if as_json:
        show.document({"output": [chunk.as_builtins(each) for each in target.app.output(job.id, after=after)]})
        return
    printer = chunk.Printer()
    while True:
        ended = job.state.finished
        for each in target.app.output(job.id, after=after):
            after = each.number
            printer.print(each)
        if ended or not follow:
            break
        time.sleep(FOLLOW_EVERY)
        job = target.app.get(job.id)
    printer.end()
    if not after:
        show.note("the job has written nothing")


@jobs.command()
@options.some
@options.every("Every waiting job.")
@options.narrow
@options.key
@options.rate
@options.reason
@options.yes
@options.as_json
@needs_store
def cancel(
    target: Opened,
    /,
    *,
    ids: Sequence[str],
    every: bool,
    rate: float,
    reason: str | None,
    yes: bool,
    as_json: bool,
    **fields: Any,
) -> None:
    """Cancel jobs: those named, or all waiting ones that match a filter.

    A waiting job ends at once. A running one that is named is asked to stop: it ends when its worker has heard of it, or is
    done if that comes first.
    """
    filter = bulk.chosen(ids, fields, every=every, state=State.READY)
    if filter is not None:
        bulk.confirm(target, filter, "Cancel {}?", "waiting job", yes=yes)
        tally = bulk.matching(
            target,
            wanted := operations.filter_of(filter),
            lambda ids: target.ask(target.store.cancel(ids, options.actor(reason, wanted))),
            verb="cancelled",
            rate=rate,
        )
        bulk.sum_up(tally, "cancelled", as_json=as_json, changed="it does not wait any longer")
        return

    def act(id: str) -> str:
        acted = target.app.cancel(id, reason=reason, by=options.by())
        if as_json:
            return acted.value
        return "cancelled" if acted is Acted.DONE else "running; its worker was asked to stop it"

    bulk.each(ids, act, as_json=as_json)


@jobs.command()
@options.ids
@click.option("--queue", metavar="NAME", help="Into another queue.")
@click.option("--priority", type=click.IntRange(0, MAX_PRIORITY), metavar="N", help="0 to 9; higher goes first.")
@click.option("--run-at", type=instant_of, metavar="WHEN", help="Due at a time: 2026-08-01T09:00+02:00.")
@click.option("--delay", type=duration, metavar="TIME", help="Due after so long from now: 90, 5m, 1h30m; 0 is now.")
@click.option("--now", "at_once", is_flag=True, help="Due now; the same as --delay 0.")
@options.reason
@options.as_json
@needs_store
def change(
    target: Opened,
    /,
    *,
    ids: Sequence[str],
    delay: float | None,
    at_once: bool,
    reason: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Give waiting jobs another queue, priority or due time.

    Also those that wait for another attempt. A running or finished job is refused.
    """
    when = [
        name for name, said in (("--run-at", given["run_at"]), ("--delay", delay), ("--now", at_once or None)) if said is not None
    ]
    if len(when) > 1:
        raise click.UsageError(f"{' and '.join(when)} say different things; leave one of them out")
    due = 0.0 if at_once else delay
    if due is None and not any(value is not None for value in given.values()):
        raise click.UsageError("nothing to change; give --queue, --priority, --run-at, --delay or --now")

    def act(id: str) -> str:
        target.app.change(id, **given, delay=due, reason=reason, by=options.by())
        return Acted.DONE.value if as_json else "changed"

    bulk.each(ids, act, as_json=as_json)


@jobs.command(name="dead-letter")
@options.ids
@options.reason
@options.as_json
@needs_store
def dead_letter(target: Opened, /, *, ids: Sequence[str], reason: str | None, as_json: bool) -> None:
    """End waiting jobs as dead, for example those that fail at every attempt and would go on to be tried."""

    def act(id: str) -> str:
        target.app.dead_letter(id, reason=reason, by=options.by())
        return Acted.DONE.value if as_json else "dead"

    bulk.each(ids, act, as_json=as_json)


@jobs.command()
@options.ids
@options.reason
@options.confirm
@options.as_json
@needs_store
def retry(target: Opened, /, *, ids: Sequence[str], reason: str | None, confirm: bool, as_json: bool) -> None:
    """Run dead or cancelled jobs again, with attempts from zero."""

    def act(id: str) -> str:
        requeue(target, id, confirm=confirm, reason=reason)
        return Acted.DONE.value if as_json else "ready again"

    bulk.each(ids, act, as_json=as_json)
