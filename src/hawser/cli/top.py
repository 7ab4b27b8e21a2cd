"""`hawser top`: everything at a glance, again and again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from hawser.cli import queues, show, workers
from hawser.cli.format import ago, now, per_second
from hawser.cli.opened_app import Opened, needs_store
from hawser.cli.show import Cell, TableColumn
from hawser.cli.when import duration as duration_of
from hawser.job import State
from hawser.store import Filter

if TYPE_CHECKING:
    from rich.console import RenderableType

FASTEST: Final = 0.2
DEAD_SHOWN: Final = 5
"""Dead letters shown, the latest ones."""

DEAD_COLUMNS: Final = (
    TableColumn("dead"),
    TableColumn("task"),
    TableColumn("queue", drop=1),
    TableColumn("error", flexible=True),
)


@click.command()
@click.option("--every", type=duration_of, default="2s", show_default=True, metavar="TIME", help="How often to look.")
@needs_store
def top(target: Opened, /, *, every: float) -> None:
    """Watch queues, workers and the latest dead letters, until Ctrl-C."""
    if every < FASTEST:
        raise click.BadParameter(f"too often; the least is {FASTEST:g} s", param_hint="'--every'")
    if not show.on_terminal():
        raise click.UsageError("top draws on a terminal; for lines use: hawser stats --watch")
    from rich.console import Group  # noqa: PLC0415  # 60 ms that a pipe does without
    from rich.live import Live  # noqa: PLC0415  # as above

    with Live(Group(*view(target)), console=show.console(), auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(every)
            live.update(Group(*view(target)), refresh=True)


def view(target: Opened) -> Iterator[RenderableType]:
    """One look."""
    at, all_ = now(), target.ask(target.store.stats())
    rates = (
        f"{name} {per_second(all_.rates.get(name, 0.0))}" for name in ("enqueued", "done", "failed", "dead", "lost", "stale")
    )
    yield show.rich_facts([(f"{at:%H:%M:%SZ}", "  ".join(rates))])
    yield ""
    yield show.rich_table(queues.QUEUE_COLUMNS, queues.rows(target.ask(target.store.queues()), queues.controls(target)))
    yield ""
    seen = target.ask(target.store.workers())
    yield show.rich_table(workers.WORKER_COLUMNS, workers.rows(seen, at)) if seen else "no worker is running"
    dead = target.ask(target.store.find(Filter(state=State.DEAD), None, DEAD_SHOWN)).jobs
    if dead:
        yield ""
        yield show.rich_table(
            DEAD_COLUMNS,
            [
                [
                    ago(job.finished_at or at, at),
                    job.task,
                    job.queue,
                    Cell(job.errors[-1].error or "", "red") if job.errors else "",
                ]
                for job in dead
            ],
        )
