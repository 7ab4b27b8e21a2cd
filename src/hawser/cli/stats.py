"""`hawser stats`: a queue, or all, in figures."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import click
import msgspec

from hawser.cli import options, queues, show
from hawser.cli.format import duration, now, per_second
from hawser.cli.opened_app import Opened, needs_store
from hawser.cli.show import Cell
from hawser.cli.when import duration as duration_of
from hawser.client import operator_fields
from hawser.limit import Limit
from hawser.store import QueueStats

FASTEST: Final = 0.2
"""Seconds between two looks: a store has more to do than to be watched."""


@click.command()
@click.argument("queue", required=False)
@options.as_json
@click.option("--watch", "-w", is_flag=True, help="Show them again and again, until Ctrl-C.")
@click.option(
    "--every",
    type=duration_of,
    default="2s",
    show_default=True,
    metavar="TIME",
    help="How often, with --watch.",
)
@needs_store
def stats(target: Opened, /, *, queue: str | None, as_json: bool, watch: bool, every: float) -> None:
    """Show a queue, or all of them, in figures.

    Ready jobs are due and were never tried; scheduled ones wait for their time, retrying ones for another attempt,
    held ones for other jobs.
    Rates are those of the last five minutes.
    """
    if as_json and watch:
        raise click.UsageError("--json prints one document and --watch does not end; choose one")
    if every < FASTEST:
        raise click.BadParameter(f"too often; the least is {FASTEST:g} s", param_hint="'--every'")
    if queue is not None:
        operator_fields.checked_name("queue", queue)
    if not watch:
        figures = _look(target, queue)
        if as_json:
            said = {**_promised(target, figures), **msgspec.structs.asdict(figures.stats), **queues.limit_fields(figures.limit)}
            show.document({"queue": queue, **said})
        else:
            _print(target, figures)
        _doubt(queue, figures)
    elif show.on_terminal():
        _watch(target, queue, every)
    else:
        while True:
            show.say(_line(_look(target, queue).stats, now()))
            time.sleep(every)


class _Figures(msgspec.Struct):
    """What one look found."""

    queue: str | None
    stats: QueueStats
    by_queue: dict[str, QueueStats]
    failovers: int
    limit: Limit
    """Of the queue; of all queues there is none."""


def _look(target: Opened, queue: str | None) -> _Figures:
    limit = queues.NO_LIMIT if queue is None else queues.limits_of(target).get(queue, queues.NO_LIMIT)
    stats, by_queue = target.ask(target.store.stats(queue)), target.ask(target.store.queues())
    return _Figures(queue, stats, by_queue, target.ask(target.store.failovers()), limit)


def _promised(target: Opened, figures: _Figures) -> dict[str, Any]:
    """What the store says of itself, and for how long it keeps what is over."""
    store = target.store
    retention = target.app.config.retention or store.retention
    return {
        "durability": store.durability,
        "retention": msgspec.structs.asdict(retention),
        "done_most": store.done_most,
        "failovers": figures.failovers,
    }


def _doubt(queue: str | None, figures: _Figures) -> None:
    """A queue that the store does not know is most likely misspelt."""
    if queue is not None and queue not in figures.by_queue:
        there = ", ".join(figures.by_queue) or "none"
        show.note(f"queue {queue} holds nothing; the queues that do: {there}")


def _facts(target: Opened, figures: _Figures) -> Iterator[tuple[str, Cell | str]]:
    stats = figures.stats
    least = "" if stats.exact else "at least "
    yield "queue", Cell(figures.queue or "all", "bold")
    if stats.paused:
        paused = "paused" if figures.queue else ", ".join(name for name, one in figures.by_queue.items() if one.paused)
        yield "paused", Cell(paused, show.STYLES["paused"])
    oldest = f", the oldest due for {duration(stats.oldest_age_s)}" if stats.due else ""
    yield "ready", _count(stats.ready, "ready", before=least)
    yield "scheduled", _count(stats.scheduled, "scheduled")
    yield "retrying", _count(stats.retrying, "retrying")
    if stats.held:
        yield "held", _count(stats.held, "held")
    yield "due now", f"{least}{stats.due:,}{oldest}"
    yield "running", _count(stats.running, "running")
    if words := queues.limit_words(figures.limit):
        yield "limit", words
    yield "done", _count(stats.done, "done")
    yield "dead", _count(stats.dead, "dead")
    yield "cancelled", _count(stats.cancelled, "cancelled")
    yield "keys held", f"{stats.keys:,}"
    if stats.attempts_p99:
        yield "attempts", f"{stats.attempts_p99} or fewer in 99 % of the jobs that ended in the last hour"
    yield (
        "rates",
        ", ".join(f"{event} {per_second(rate)}" for event, rate in stats.rates.items() if rate) or "nothing happened lately",
    )
    yield "store", target.store.durability
    if target.store.done_most is not None:
        kept = (target.app.config.retention or target.store.retention).done
        yield "kept", f"done jobs for {duration(kept)}, {target.store.done_most:,} at most"
    if figures.failovers:
        yield "failovers", Cell(f"{figures.failovers:,}: what was accepted last may be lost", show.STYLES["dead"])


def _count(number: int, style: str, before: str = "") -> Cell:
    return Cell(f"{before}{number:,}", show.STYLES[style] if number else "dim")


def _print(target: Opened, figures: _Figures) -> None:
    show.facts(_facts(target, figures))
    if figures.queue is None and len(figures.by_queue) > 1:
        show.say("")
        show.table(*_table(target, figures))


def _table(target: Opened, figures: _Figures) -> Any:
    return queues.QUEUE_COLUMNS, queues.rows(figures.by_queue, queues.controls(target))


def _watch(target: Opened, queue: str | None, every: float) -> None:
    from rich.console import Group, RenderableType  # noqa: PLC0415  # 60 ms that a pipe does without
    from rich.live import Live  # noqa: PLC0415

    def view() -> RenderableType:
        figures = _look(target, queue)
        facts = show.rich_facts(_facts(target, figures))
        return facts if queue is not None else Group(facts, "", show.rich_table(*_table(target, figures)))

    with Live(view(), console=show.console(), auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(every)
            live.update(view(), refresh=True)


def _line(stats: QueueStats, at: datetime) -> str:
    figures = (
        (name, getattr(stats, name))
        for name in ("ready", "scheduled", "retrying", "held", "running", "done", "dead", "cancelled")
    )
    rates = (f"{name} {per_second(stats.rates.get(name, 0.0))}" for name in ("enqueued", "done", "failed"))
    return f"{at:%H:%M:%SZ}  {'  '.join(f'{name} {count:,}' for name, count in figures)}  {'  '.join(rates)}"
