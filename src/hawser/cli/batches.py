"""`hawser batches`: look at batches, close one that its producer has left open, cancel one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import click

from hawser.batch import Batch, BatchState
from hawser.cli import options, show
from hawser.cli.format import ago, instant, now
from hawser.cli.group import Listing
from hawser.cli.opened_app import Opened, needs_store
from hawser.cli.show import Cell, TableColumn
from hawser.client import batch_calls
from hawser.store import MAX_PAGE

BATCH_COLUMNS: Final = (
    TableColumn("id", whole=True),
    TableColumn("name", flexible=True),
    TableColumn("state", whole=True),
    TableColumn("ended", right=True),
    TableColumn("running", right=True, drop=2),
    TableColumn("dead", right=True),
    TableColumn("cancelled", right=True, drop=3),
    TableColumn("opened", whole=True, drop=1),
)

_LOOKS: Final = {"open": "paused"}
"""States of batches that look like something else: an open one waits for a person, if its producer is gone."""


@click.group(cls=Listing)
def batches() -> None:
    """List, show, close and cancel batches.

    Without a subcommand it lists: `hawser batches --state open` is `hawser batches ls --state open`.
    """


@batches.command()
@click.option("--state", type=click.Choice([*map(str, BatchState)]), help="Only in this state.")
@click.option(
    "--limit", type=click.IntRange(1, MAX_PAGE), default=options.JOBS_LISTED, show_default=True, help="Batches at once."
)
@click.option("--after", metavar="ID", help="Go on behind this batch: the `next` of the page before.")
@options.as_json
@needs_store
def ls(target: Opened, /, *, state: str | None, limit: int, after: str | None, as_json: bool) -> None:
    """List batches, newest first."""
    page = target.app.find_batches(state=state, after=after, limit=limit)
    if as_json:
        show.document({"batches": [batch_json(batch) for batch in page.batches], "next": page.next})
        return
    at = now()
    if page.batches:
        show.table(BATCH_COLUMNS, [_row(batch, at) for batch in page.batches])
    else:
        show.note("no batches match" if after is None else "no more batches match")
    if page.next is not None:
        show.note(f"there are more: add --after {page.next}")


@batches.command(name="show")
@click.argument("id")
@options.as_json
@needs_store
def show_(target: Opened, /, *, id: str, as_json: bool) -> None:
    """Show one batch: its counts, and the jobs that it releases."""
    batch = target.app.get_batch(id.strip().lower())
    if as_json:
        show.document(batch_json(batch))
    else:
        show.facts(_facts(target, batch, now()))


@batches.command()
@click.argument("id")
@options.reason
@options.as_json
@needs_store
def close(target: Opened, /, *, id: str, reason: str | None, as_json: bool) -> None:
    """Close a batch that its producer has left open: it ends when all its jobs have ended."""
    batch = _acted(target, id, reason, cancel=False)
    if as_json:
        show.document(batch_json(batch))
    else:
        show.say(f"batch {batch.name} is closed: {_left(batch)}")


@batches.command()
@click.argument("id")
@options.reason
@options.as_json
@needs_store
def cancel(target: Opened, /, *, id: str, reason: str | None, as_json: bool) -> None:
    """Close a batch, cancel its jobs that wait, and ask the workers of those that run to stop; so in batches inside it."""
    batch = _acted(target, id, reason, cancel=True)
    if as_json:
        show.document(batch_json(batch))
    else:
        show.say(f"batch {batch.name} is cancelled: {_left(batch)}")


def _acted(target: Opened, id: str, reason: str | None, *, cancel: bool) -> Batch:
    act = batch_calls.cancel_batch if cancel else batch_calls.close_batch
    id = id.strip().lower()
    target.ask(act(target.store, id, options.actor(reason)))
    return target.app.get_batch(id)


def _left(batch: Batch) -> str:
    left = batch.waiting + batch.running
    return f"it has ended, and is {batch.state}" if not left else f"{left:,} of {batch.total:,} jobs have not ended"


def batch_json(batch: Batch) -> dict[str, Any]:
    """The batch's own field names, and its state."""
    names = Batch.__struct_fields__
    return {"state": batch.state, **{name: getattr(batch, name) for name in names}}


def _row(batch: Batch, at: datetime) -> list[Cell | str]:
    return [
        batch.id,
        batch.name,
        _state(batch),
        f"{batch.total - batch.waiting - batch.running:,} of {batch.total:,}",
        f"{batch.running:,}",
        Cell(f"{batch.dead:,}", show.STYLES["dead"] if batch.dead else ""),
        f"{batch.cancelled:,}",
        ago(batch.created_at, at),
    ]


def _state(batch: Batch) -> Cell:
    name = batch.state.value
    return Cell(name, show.STYLES[_LOOKS.get(name, name)])


def _facts(target: Opened, batch: Batch, at: datetime) -> Iterator[tuple[str, Cell | str]]:
    yield "id", Cell(batch.id, "bold")
    yield "name", Cell(batch.name, "bold")
    yield "state", _state(batch)
    if batch.state is BatchState.OPEN:
        yield "waits", Cell(f"its producer has not closed it; hawser batches close {batch.id}", "bold yellow")
    yield "opened", instant(batch.created_at, at)
    if batch.ended_at is not None:
        yield "ended", instant(batch.ended_at, at)
    yield "jobs", f"{batch.total:,}"
    for word in ("waiting", "running", "done", "dead", "cancelled"):
        yield f"  {word}", f"{getattr(batch, word):,}"
    if batch.cancel_asked:
        yield "cancel", "asked for" + (f": {batch.reason}" if batch.reason else "")
    if batch.parent is not None:
        yield "parent", batch.parent
    for word, id in (("then", batch.then), ("on_success", batch.on_success), ("on_dead", batch.on_dead)):
        if id is not None:
            yield word, _follow_up(target, id)


def _follow_up(target: Opened, id: str) -> str:
    job = target.ask(target.store.get(id))
    if job is None:
        return f"{id} (ended, and not kept)"
    return f"{id} ({job.task}, {'held' if job.held else job.state})"
