"""`hawser audit`: who did what, to what, and why."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

import click
import msgspec

from hawser.cli import options, show
from hawser.cli.format import instant, now
from hawser.cli.group import Listing
from hawser.cli.opened_app import Opened, needs_store
from hawser.cli.show import TableColumn
from hawser.cli.when import past
from hawser.store import MAX_PAGE, AuditRecord

_AUDIT_COLUMNS: Final = (
    TableColumn("number", right=True, drop=3),
    TableColumn("when", whole=True),
    TableColumn("by", whole=True),
    TableColumn("action", whole=True),
    TableColumn("target", flexible=True),
    TableColumn("jobs", right=True),
    TableColumn("filter", flexible=True, drop=2),
    TableColumn("reason", flexible=True, drop=1),
)


class AuditChoice(NamedTuple):
    """Which records; None means all."""

    action: str | None
    by: str | None
    target: str | None
    since: datetime | None


@click.group(cls=Listing)
def audit() -> None:
    """List what operators did.

    Without a subcommand it lists: `hawser audit --by cli` is `hawser audit ls --by cli`.
    """


@audit.command()
@click.option("--action", metavar="NAME", help="Only these actions, as they are listed: cancel, requeue, pause, ….")
@click.option("--by", metavar="NAME", help="Only by NAME, or by NAME and a colon and more: cli, or the name of a key.")
@click.option("--target", "of", metavar="TARGET", help="Only of this: a job's id, queue:NAME, …, as they are listed.")
@click.option("--since", type=past, metavar="WHEN", help="Only since a time, or for example 1h ago: --since 1h.")
@click.option(
    "--limit", type=click.IntRange(1, MAX_PAGE), default=options.JOBS_LISTED, show_default=True, help="Records at once."
)
@click.option("--after", type=click.IntRange(1, 2**53), metavar="NUMBER", help="Go on behind this record: the page's `next`.")
@options.as_json
@needs_store
def ls(
    target: Opened,
    /,
    *,
    action: str | None,
    by: str | None,
    of: str | None,
    since: datetime | None,
    limit: int,
    after: int | None,
    as_json: bool,
) -> None:
    """List what operators did, newest first: who, what, to what, to how many jobs, and why.

    With --json each record of a bulk action also has its filter, its operation, and the ids of the jobs that it changed, up to
    1,000.
    """
    found, more = _chosen(target, AuditChoice(action, by, of, since), limit, after)
    if as_json:
        show.document({"audit": [msgspec.to_builtins(record) for record in found], "next": more})
        return
    if found:
        at = now()
        show.table(_AUDIT_COLUMNS, [_row(record, instant(record.at, at)) for record in found])
    else:
        show.note("no records match" if action or by or of or since or after else "no operator has done anything yet")
    if more is not None:
        show.note(f"there are more: add --after {more}")


def _chosen(target: Opened, choice: AuditChoice, limit: int, after: int | None) -> tuple[list[AuditRecord], int | None]:
    """The newest that match, and the record behind which there may be more."""
    found: list[AuditRecord] = []
    size = limit if choice.target is None else MAX_PAGE
    while True:
        page = target.ask(target.store.audit(size, after, choice.action, choice.by))
        recent = [each for each in page if choice.since is None or each.at >= choice.since]
        found += [each for each in recent if choice.target in (None, each.target, *each.ids)]
        if len(found) > limit:
            return found[:limit], found[limit - 1].number
        if len(page) < size or len(recent) < size:
            return found, None
        after = page[-1].number
        if len(found) == limit:
            return found, after


def _row(record: AuditRecord, when: str) -> list[str]:
    filter = " ".join(f"{name}={value}" for name, value in (record.filter or {}).items())
    return [
        str(record.number),
        when,
        record.by,
        record.action,
        record.target,
        f"{record.count:,}" if record.count else "",
        filter,
        record.reason or "",
    ]
