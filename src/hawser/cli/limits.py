"""`hawser limits`: how many jobs of a queue or task run at once, start in a period and wait."""

from __future__ import annotations

from typing import Any, Final

import click

from hawser.cli import options, show
from hawser.cli.format import instant, now
from hawser.cli.group import Listing
from hawser.cli.opened_app import Opened, needs_store
from hawser.cli.show import Cell, TableColumn
from hawser.client import operations
from hawser.store import LimitUse

LIMIT_COLUMNS: Final = (
    TableColumn("of"),
    TableColumn("running", right=True),
    TableColumn("started", right=True),
    TableColumn("max depth", right=True, drop=2),
    TableColumn("from", drop=1),
    TableColumn("now", flexible=True),
)


@click.group(cls=Listing)
def limits() -> None:
    """List, set and clear the limits of queues and tasks, over all workers.

    Without a subcommand it lists.
    """


@limits.command()
@options.as_json
@needs_store
def ls(target: Opened, /, *, as_json: bool) -> None:
    """List the limits that are set or declared, and how much of each is in use."""
    uses = target.ask(target.store.limits())
    if as_json:
        show.document({"limits": [limit_json(use) for use in uses]})
    elif uses:
        show.table(LIMIT_COLUMNS, [_row(use) for use in uses])
    else:
        show.note("no queue and no task has a limit")


def _row(use: LimitUse) -> list[Cell | str]:
    limit = use.limit
    return [
        f"{use.target.kind} {use.target.name}",
        _running(use),
        "-" if limit.rate is None else f"{limit.rate} each" if limit.per_group else f"{use.started:,} of {limit.rate}",
        "-" if limit.max_depth is None else f"{limit.max_depth:,}",
        use.by if use.set else "code",
        _now(use),
    ]


def _running(use: LimitUse) -> str:
    most = use.limit.running
    if most is None:
        return f"{use.running:,}"
    return f"{use.running:,}, {most:,} each" if use.limit.per_group else f"{use.running:,} of {most:,}"


def _now(use: LimitUse) -> Cell | str:
    if use.shut_groups:
        return Cell(f"keeps {use.shut_groups:,} group{'s' if use.shut_groups > 1 else ''} back", show.STYLES["paused"])
    if not use.shut:
        return "open"
    when = "until a run ends" if use.opens_at is None else f"until {instant(use.opens_at, now())}"
    return Cell(f"shut {when}", show.STYLES["paused"])


def limit_json(use: LimitUse) -> dict[str, Any]:
    limit = use.limit
    return {
        "kind": use.target.kind,
        "name": use.target.name,
        "max_running": limit.running,
        "rate": limit.rate,
        "max_depth": limit.max_depth,
        "per_group": limit.per_group,
        "ordered": limit.ordered,
        "set": use.set,
        "by": use.by,
        "since": use.since,
        "running": use.running,
        "started": use.started,
        "opens_at": use.opens_at,
        "shut": use.shut,
        "shut_groups": use.shut_groups,
    }


@limits.command(name="set")
@click.option("--queue", help="The queue to limit.")
@click.option("--task", help="The task to limit, in all queues.")
@click.option("--running", type=int, metavar="N", help="How many may run at once.")
@click.option("--rate", metavar="N/PERIOD", help="How many may start in a period: 20/s, 100/m, 1000/h, 100/10s.")
@click.option("--max-depth", type=int, metavar="N", help="How many may wait in the queue; beyond it enqueue is refused.")
@click.option("--per-group", is_flag=True, help="Count the jobs of each group of the task for themselves.")
@click.option("--ordered", is_flag=True, help="Start the jobs of a group strictly in their order; with --running 1 --per-group.")
@options.reason
@options.as_json
@needs_store
def set_(  # one parameter for each option
    target: Opened,
    /,
    *,
    queue: str | None,
    task: str | None,
    running: int | None,
    rate: str | None,
    max_depth: int | None,
    per_group: bool,
    ordered: bool,
    reason: str | None,
    as_json: bool,
) -> None:
    """Set the limit of a queue or a task, in place of what was set before.

    It wins over what the task declares; without --running, --rate and --max-depth there is no limit at all.
    """
    given = operations.LimitFields(running=running, rate=rate, max_depth=max_depth, per_group=per_group, ordered=ordered)
    limited, doubted = target.ask(
        operations.set_limit(target.store, target.app.tasks, (queue, task), given, options.actor(reason))
    )
    if as_json:
        named = {"kind": limited.kind, "name": limited.name, "max_running": running, "rate": rate, "max_depth": max_depth}
        show.document({**named, "per_group": per_group, "ordered": ordered})
    else:
        words = [f"{running:,} at once" if running else "", rate or "", "" if max_depth is None else f"{max_depth:,} waiting"]
        told = ", ".join(word for word in words if word)
        told += (", in each group" if per_group else "") + (", in order" if ordered else "")
        show.say(f"{limited.kind} {limited.name}: {f'at most {told}' if told else 'no limit'}")
    if doubted is not None:
        show.note(doubted)


@limits.command()
@click.option("--queue", help="The queue whose limit is taken back.")
@click.option("--task", help="The task whose limit is taken back; what its code declares holds again.")
@options.reason
@options.as_json
@needs_store
def clear(target: Opened, /, *, queue: str | None, task: str | None, reason: str | None, as_json: bool) -> None:
    """Take back a limit that was set."""
    limited = operations.target(queue, task)
    cleared = target.ask(target.store.set_limit(limited, None, options.actor(reason)))
    if as_json:
        show.document({"kind": limited.kind, "name": limited.name, "cleared": cleared})
    else:
        show.say(f"{limited.kind} {limited.name}: {'what was set is taken back' if cleared else 'nothing was set'}")
