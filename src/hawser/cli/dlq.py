"""`hawser dlq`: the dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from hawser import operations
from hawser.cli import bulk, options, record, replaying, show
from hawser.cli.group import Listing
from hawser.cli.jobs import print_page
from hawser.cli.payload import json_object
from hawser.cli.target import Opened, needs_store
from hawser.errors import WrongState
from hawser.job import State
from hawser.store import Acted

_CHANGED: Final = "it is no longer dead"

_every = options.every("Every dead job.")


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
@options.some
@_every
@options.narrow
@options.rate
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
    filter = bulk.chosen(ids, fields, every=every, state=State.DEAD)
    if payload is not None:
        _replay_edited(target, ids, payload, confirm=confirm, reason=reason, as_json=as_json)
    elif filter is None:

        def act(id: str) -> str:
            replaying.requeue(target, id, confirm=confirm, reason=reason)
            return Acted.DONE.value if as_json else "ready again"

        bulk.each(ids, act, as_json=as_json)
    else:
        bulk.confirm(target, filter, f"Replay {{}}, {rate:g} a second?", "dead job", yes=yes)
        tally = bulk.matching(
            target,
            operations.filter_of(filter),
            lambda ids: target.ask(target.store.requeue(ids, options.sign(reason))),
            verb="replayed",
            rate=rate,
            refuse=lambda job: None if confirm else replaying.unconfirmed(target, job),
        )
        bulk.sum_up(tally, "replayed", as_json=as_json, changed=_CHANGED)


@dlq.command()
@options.some
@_every
@options.narrow
@options.rate
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
    filter = bulk.chosen(ids, fields, every=every, state=State.DEAD)
    if filter is None:

        def act(id: str) -> str:
            target.app.discard(id, reason=reason, by=options.by())
            return Acted.DONE.value if as_json else "discarded"

        bulk.each(ids, act, as_json=as_json)
    else:
        bulk.confirm(target, filter, "Discard {}?", "dead job", yes=yes)
        tally = bulk.matching(
            target,
            operations.filter_of(filter),
            lambda ids: target.ask(target.store.discard(ids, options.sign(reason))),
            verb="discarded",
            rate=rate,
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
