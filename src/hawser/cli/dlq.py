"""`hawser dlq`: the dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import click

from hawser.cli import bulk, job_view, options, replaying, show
from hawser.cli.format import ago, clean, now, plural
from hawser.cli.format import duration as told
from hawser.cli.group import Listing
from hawser.cli.jobs import print_page
from hawser.cli.opened_app import Opened, needs_store
from hawser.cli.payload import json_object
from hawser.cli.show import Cell, TableColumn
from hawser.cli.when import duration
from hawser.client import operations, spreading
from hawser.errors import WrongState
from hawser.job import Job, State
from hawser.store import MAX_PAGE, Acted, DeadGroup
from hawser.value.fingerprint import NO_ERROR_TOLD, Group, pattern

_CHANGED: Final = "it is no longer dead"

_every = options.every("Every dead job.")


@click.group(cls=Listing)
def dlq() -> None:
    """List, show, replay and discard dead jobs.

    Without a subcommand it lists: `hawser dlq --task send_email` is `hawser dlq ls --task send_email`.
    """


@dlq.command()
@options.narrow
@options.group
@options.page
@options.brief
@options.as_json
@needs_store
def ls(target: Opened, /, *, after: str | None, limit: int, brief: bool, as_json: bool, **fields: Any) -> None:
    """List dead jobs, newest first, with their last error."""
    dead = {**fields, "state": State.DEAD}
    print_page(target, dead, after, limit, brief=brief, as_json=as_json, print_jobs=job_view.print_dead)


_GROUP_COLUMNS: Final = (
    TableColumn("count", right=True),
    TableColumn("task"),
    TableColumn("last", whole=True),
    TableColumn("error", flexible=True),
    TableColumn("group", whole=True),
)


@dlq.command()
@click.option("--queue", metavar="NAME", help="Only of this queue.")
@click.option("--task", metavar="NAME", help="Only of this task.")
@click.option("--limit", type=click.IntRange(1, MAX_PAGE), default=options.JOBS_LISTED, show_default=True, help="Groups at once.")
@options.as_json
@needs_store
def groups(target: Opened, /, *, queue: str | None, task: str | None, limit: int, as_json: bool) -> None:
    """Group dead jobs by task and kind of error, the largest group first.

    `hawser dlq ls`, `replay` and `discard` take --group.
    """
    found = target.ask(target.store.dead_groups(queue, task, limit))
    if as_json:
        listed = [_as_document(group) for group in found.groups]
        show.document({"groups": listed, "ungrouped": found.ungrouped, "more": found.more})
        return
    if found.groups:
        at = now()
        show.table(_GROUP_COLUMNS, [_group_row(group, at) for group in found.groups])
    else:
        show.note("no dead jobs match")
    if found.ungrouped:
        show.note(f"{plural(found.ungrouped, 'dead job')} of an older version will be grouped by a worker or server")
    if found.more:
        show.note("there are smaller groups: raise --limit")


def _as_document(group: DeadGroup) -> dict[str, Any]:
    error = group.sample.error or NO_ERROR_TOLD
    return {
        "id": Group(group.task, group.fingerprint).id,
        "task": group.task,
        "fingerprint": pattern(error),
        "count": group.count,
        "first_at": group.first_at,
        "last_at": group.sample.finished_at,
        "sample_id": group.sample.id,
        "sample_error": error,
    }


def _group_row(group: DeadGroup, at: datetime) -> list[Cell | str]:
    text = clean(pattern(group.sample.error), 200)
    return [f"{group.count:,}", group.task, ago(group.sample.finished_at, at), text, Group(group.task, group.fingerprint).id]


@dlq.command(name="show")
@click.argument("id")
@options.as_json
@needs_store
def show_(target: Opened, /, *, id: str, as_json: bool) -> None:
    """Show one dead job in full: payload and every attempt's error."""
    job = target.shown(target.app.get(id.strip().lower()))
    if job.state is not State.DEAD:
        raise WrongState(f"job {job.id} is {job.state}, not dead; see it with: hawser jobs show {job.id}")
    if as_json:
        show.document(job_view.as_json(job, whole=True))
    else:
        job_view.print_job(job)


@dlq.command()
@options.some
@_every
@options.narrow
@options.group
@options.rate
@options.most
@click.option(
    "--spread",
    type=duration,
    metavar="TIME",
    help="Instead of a rate: those that were chosen by filter fall due evenly over this time. Nothing has to wait for it.",
)
@click.option(
    "--payload", type=json_object, metavar="JSON", help="Replay one job with other arguments, as a new job. Needs --app."
)
@options.reason
@options.confirm
@options.yes
@options.as_json
@needs_store
def replay(
    target: Opened,
    /,
    *,
    ids: Sequence[str],
    every: bool,
    rate: float,
    limit: int | None,
    spread: float | None,
    payload: dict[str, Any] | None,
    reason: str | None,
    confirm: bool,
    yes: bool,
    as_json: bool,
    **fields: Any,
) -> None:
    """Run dead jobs again, with attempts from zero: those named, or all that match a filter."""
    filter = bulk.chosen(ids, fields, every=every, state=State.DEAD)
    if spread is not None and (filter is None or payload is not None):
        raise click.UsageError("--spread goes with a filter or --all; leave it out for jobs that are named")
    if payload is not None:
        _replay_edited(target, ids, payload, confirm=confirm, reason=reason, as_json=as_json)
    elif filter is None:

        def act(id: str) -> str:
            replaying.requeue(target, id, confirm=confirm, reason=reason)
            return Acted.DONE.value if as_json else "ready again"

        bulk.each(ids, act, as_json=as_json)
    else:
        how = f"{rate:g} a second" if spread is None else f"due over {told(spread)}"
        bulk.confirm(target, filter, f"Replay {bulk.at_most(limit)}{{}}, {how}?", "dead job", yes=yes)
        wanted = operations.filter_of(filter)
        actor = options.actor(reason, wanted)

        def refuse(job: Job) -> str | None:
            return None if confirm else replaying.unconfirmed(target, job)

        if spread is None:
            tally = bulk.matching(
                target,
                wanted,
                lambda ids: target.ask(target.store.requeue(ids, actor)),
                verb="replayed",
                rate=rate,
                limit=limit,
                refuse=refuse,
            )
        else:
            tally = bulk.spread(target, wanted, actor, spreading.checked_spread(spread), limit, refuse)
        bulk.sum_up(tally, "replayed", as_json=as_json, changed=_CHANGED)


@dlq.command()
@options.some
@_every
@options.narrow
@options.group
@options.rate
@options.most
@click.option(
    "--reason", type=options.words, metavar="TEXT", required=True, help="Why; kept with the jobs and in the audit record."
)
@options.yes
@options.as_json
@needs_store
def discard(
    target: Opened,
    /,
    *,
    ids: Sequence[str],
    every: bool,
    rate: float,
    limit: int | None,
    reason: str,
    yes: bool,
    as_json: bool,
    **fields: Any,
) -> None:
    """Turn dead jobs into cancelled ones: those named, or all that match a filter."""
    filter = bulk.chosen(ids, fields, every=every, state=State.DEAD)
    if filter is None:

        def act(id: str) -> str:
            target.app.discard(id, reason=reason, by=options.by())
            return Acted.DONE.value if as_json else "discarded"

        bulk.each(ids, act, as_json=as_json)
    else:
        bulk.confirm(target, filter, f"Discard {bulk.at_most(limit)}{{}}?", "dead job", yes=yes)
        tally = bulk.matching(
            target,
            wanted := operations.filter_of(filter),
            lambda ids: target.ask(target.store.discard(ids, options.actor(reason, wanted))),
            verb="discarded",
            rate=rate,
            limit=limit,
        )
        bulk.sum_up(tally, "discarded", as_json=as_json, changed=_CHANGED)


def _replay_edited(
    target: Opened, ids: Sequence[str], payload: dict[str, Any], *, confirm: bool, reason: str | None, as_json: bool
) -> None:
    if len(ids) != 1:
        raise click.UsageError("--payload goes with the id of exactly one job")
    if not target.named:
        raise click.UsageError("--payload needs --app APP, so that the arguments can be checked against the task")
    id = ids[0].strip().lower()
    handle = replaying.replay(target, id, payload, confirm=confirm, reason=reason)
    if as_json:
        show.document({"id": handle.id, "created": handle.created, "parent_id": id})
    else:
        show.say(f"{id}  discarded; {handle.id} stands in its place")
