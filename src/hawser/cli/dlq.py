"""`hawser dlq`: the dead letters."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, cast

import click

from hawser import operations
from hawser.cli import bulk, options, record, replaying, show
from hawser.cli.group import Listing
from hawser.cli.jobs import print_page
from hawser.cli.payload import json_object
from hawser.cli.target import Opened, needs_store
from hawser.cli.words import plural
from hawser.errors import WrongState
from hawser.job import State
from hawser.operations import JobFilter
from hawser.store import Acted

RATE: Final = 100.0
MAX_RATE: Final = 10_000.0


def per_second(text: str) -> float:
    """A rate. Unlike click's own range it knows that NaN is in none."""
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= MAX_RATE:
        raise click.BadParameter(f"{text!r} is not a number above 0 and up to {MAX_RATE:g}")
    return rate


_all = click.option("--all", "every", is_flag=True, help="Every dead job.")
_some = click.argument("ids", metavar="[ID...]", nargs=-1)
_rate = click.option(
    "--rate",
    type=per_second,
    default=f"{RATE:g}",
    metavar="N",
    show_default=True,
    help="Jobs a second, of those that were chosen by filter.",
)


@click.group(cls=Listing)
def dlq() -> None:
    """List, show, replay and discard dead jobs.

    Without a subcommand it lists: `hawser dlq --task send_email` is `hawser dlq ls --task send_email`.
    """


@dlq.command()
@options.narrow
@options.page
@options.as_json
@needs_store
def ls(target: Opened, /, *, after: str | None, limit: int, as_json: bool, **fields: Any) -> None:
    """List dead jobs, newest first, with their last error."""
    dead = {**fields, "state": State.DEAD}
    print_page(target, dead, after, limit, as_json=as_json, print_jobs=record.print_dead)


@dlq.command(name="show")
@click.argument("id")
@options.as_json
@needs_store
def show_(target: Opened, /, *, id: str, as_json: bool) -> None:
    """Show one dead job in full: payload and every attempt's error."""
    job = target.app.get(id.strip().lower())
    if job.state is not State.DEAD:
        raise WrongState(f"job {job.id} is {job.state}, not dead; see it with: hawser jobs show {job.id}")
    if as_json:
        show.document(record.as_json(job, whole=True))
    else:
        record.print_job(job)


@dlq.command()
@_some
@_all
@options.narrow
@_rate
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
    payload: dict[str, Any] | None,
    reason: str | None,
    confirm: bool,
    yes: bool,
    as_json: bool,
    **fields: Any,
) -> None:
    """Run dead jobs again, with attempts from zero: those named, or all that match a filter."""
    filter = _chosen(ids, fields, every=every)
    if payload is not None:
        _replay_edited(target, ids, payload, confirm=confirm, reason=reason, as_json=as_json)
    elif filter is None:

        def act(id: str) -> str:
            replaying.requeue(target, id, confirm=confirm, reason=reason)
            return Acted.DONE.value if as_json else "ready again"

        bulk.each(ids, act, as_json=as_json)
    else:
        _ask(target, filter, f"Replay {{}}, {rate:g} a second?", yes=yes)
        tally = bulk.matching(
            target,
            operations.filter_of(filter),
            lambda ids: target.ask(target.store.requeue(ids, options.sign(reason))),
            verb="replayed",
            rate=rate,
            refuse=lambda job: None if confirm else replaying.unconfirmed(target, job),
        )
        _sum_up(tally, "replayed", as_json=as_json)


@dlq.command()
@_some
@_all
@options.narrow
@_rate
@click.option(
    "--reason", type=options.words, metavar="TEXT", required=True, help="Why; kept with the jobs and in the audit record."
)
@options.yes
@options.as_json
@needs_store
def discard(
    target: Opened, /, *, ids: Sequence[str], every: bool, rate: float, reason: str, yes: bool, as_json: bool, **fields: Any
) -> None:
    """Turn dead jobs into cancelled ones: those named, or all that match a filter."""
    filter = _chosen(ids, fields, every=every)
    if filter is None:

        def act(id: str) -> str:
            target.app.discard(id, reason=reason, by=options.by())
            return Acted.DONE.value if as_json else "discarded"

        bulk.each(ids, act, as_json=as_json)
    else:
        _ask(target, filter, "Discard {}?", yes=yes)
        tally = bulk.matching(
            target,
            operations.filter_of(filter),
            lambda ids: target.ask(target.store.discard(ids, options.sign(reason))),
            verb="discarded",
            rate=rate,
        )
        _sum_up(tally, "discarded", as_json=as_json)


def _chosen(ids: Sequence[str], fields: dict[str, str | datetime | None], *, every: bool) -> JobFilter | None:
    """The filter, or None when jobs were named one by one."""
    narrowed = {name: value for name, value in fields.items() if value is not None}
    if ids and (every or narrowed):
        raise click.UsageError("give either the ids of jobs or a filter, not both")
    if not ids and not every and not narrowed:
        raise click.UsageError("which jobs? give their ids, or choose with --task, --queue, --tag, --since, --until or --all")
    if ids:
        return None
    return cast("JobFilter", {**narrowed, "state": State.DEAD})


def _ask(target: Opened, filter: JobFilter, question: str, *, yes: bool) -> None:
    """Have it confirmed, with the number of jobs."""
    if yes:
        return
    if not _somebody_is_there():
        raise click.UsageError("nobody is there to be asked; add --yes")
    page = bulk.fetch(target, operations.filter_of(filter), None, 100)
    count = plural(len(page.jobs), "dead job") if page.next is None else f"more than {len(page.jobs)} dead jobs"
    if not click.confirm(question.format(count), err=True):
        show.note("nothing was changed")
        raise click.exceptions.Exit(1)


def _somebody_is_there() -> bool:
    return sys.stdin.isatty()


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


def _sum_up(tally: bulk.Tally, verb: str, *, as_json: bool) -> None:
    if as_json:
        show.document({verb: tally.done, "skipped": tally.skipped, "skipped_jobs": tally.named})
    else:
        show.say(f"{plural(tally.done, 'job')} {verb}" + (f", {tally.skipped:,} skipped" if tally.skipped else ""))
        for skipped in tally.named[:10]:
            show.note(f"skipped {skipped['id']}: {_WHY.get(skipped['why'], skipped['why'])}")
        if tally.skipped > 10:
            show.note(f"… and {tally.skipped - 10:,} more")
    if any(skipped["why"] not in _GONE for skipped in tally.named):
        raise click.exceptions.Exit(1)


_GONE: Final = (Acted.NOT_FOUND.value, Acted.WRONG_STATE.value)
"""Somebody else was faster: no failure of ours."""

_WHY: Final = {
    Acted.KEY_TAKEN.value: "another job holds its key; wait until that one has ended, or cancel it",
    Acted.NOT_FOUND.value: "it was pruned meanwhile",
    Acted.WRONG_STATE.value: "it is no longer dead",
}
