"""`hawser queues`: what each holds, and its controls."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import click
import msgspec

from hawser.backoff import JITTERS, Backoff
from hawser.cli import options, show
from hawser.cli.format import duration, now, per_second
from hawser.cli.group import Listing
from hawser.cli.job_view import pause_words
from hawser.cli.opened_app import Opened, needs_store
from hawser.cli.pausing import doubt, pause_json, pausing, print_pause, until_of
from hawser.cli.policy import ageing, backoff, or_none, policy_words
from hawser.cli.show import Cell, TableColumn
from hawser.client import operator_fields
from hawser.client.explain import is_alive
from hawser.limit import Limit
from hawser.policy import NO_POLICY, QueuePolicy
from hawser.store import EVERY_QUEUE, Pause, QueueStats

NO_LIMIT: Final = Limit()

_DROPPED: Final = {"done": 1, "rate": 2, "limit": 3, "scheduled": 4, "oldest": 5, "retrying": 6}

QUEUE_COLUMNS: Final = (
    TableColumn("queue"),
    *(
        TableColumn(title, right=True, whole=True, drop=_DROPPED.get(title, 0))
        for title in ("ready", "scheduled", "retrying", "running", "dead", "done", "oldest", "rate", "limit")
    ),
    TableColumn("policy", drop=7),
    TableColumn("paused", flexible=True),
)


@click.group(cls=Listing)
def queues() -> None:
    """List, pause, resume and set queues.

    Without a subcommand it lists.
    """


class QueueControls(NamedTuple):
    """What is set, by queue."""

    limits: Mapping[str, Limit]
    policies: Mapping[str, QueuePolicy]
    pauses: Mapping[str, Pause]


def controls(target: Opened) -> QueueControls:
    pauses = {pause.target.name: pause for pause in target.ask(target.store.pauses()) if pause.target.kind == "queue"}
    return QueueControls(limits_of(target), target.ask(target.store.policies()), pauses)


def limits_of(target: Opened) -> dict[str, Limit]:
    """By queue."""
    return {use.target.name: use.limit for use in target.ask(target.store.limits()) if use.target.kind == "queue"}


@queues.command()
@options.as_json
@needs_store
def ls(target: Opened, /, *, as_json: bool) -> None:
    """List every queue that holds jobs, is paused, is served by a worker, or has a limit or a policy; with --app also
    those of its tasks."""
    found, set_ = _found(target), controls(target)
    if as_json:
        show.document({"queues": [_as_json(name, stats, set_) for name, stats in found.items()]})
    elif found:
        show.table(QUEUE_COLUMNS, rows(found, set_))
    else:
        show.note(
            "no queue holds a job" if target.named else "no queue holds a job; add --app APP to see those that its tasks name"
        )


def _found(target: Opened) -> dict[str, QueueStats]:
    """By name. The store does not know of a queue before its first job: what a task names is known to its app only."""
    declared = {task.options.queue for task in target.app.tasks.values()} if target.named else set()
    alive = (seen.beat for seen in target.ask(target.store.workers()) if is_alive(seen, now()))
    served = {queue for beat in alive for queue in beat.queues if queue != EVERY_QUEUE}
    return dict(sorted({**dict.fromkeys(declared | served, QueueStats()), **target.ask(target.store.queues())}.items()))


def rows(found: Mapping[str, QueueStats], set_: QueueControls) -> list[list[Cell | str]]:
    at = now()
    return [
        [
            name,
            _count(stats.ready, "ready", exact=stats.exact),
            _count(stats.scheduled, "scheduled"),
            _count(stats.retrying, "retrying"),
            _count(stats.running, "running"),
            _count(stats.dead, "dead"),
            _count(stats.done, ""),
            duration(stats.oldest_age_s, units=1) if stats.due else "-",
            per_second(stats.rates.get("done", 0.0)),
            limit_words(set_.limits.get(name, NO_LIMIT)) or "-",
            policy_words(set_.policies.get(name, NO_POLICY)),
            Cell(pause_words(set_.pauses[name], at), show.STYLES["paused"]) if name in set_.pauses else "",
        ]
        for name, stats in found.items()
    ]


def limit_words(limit: Limit) -> str:
    """In short: what runs at once, what starts in a period, what waits; empty when a queue has none."""
    running = None if limit.running is None else f"{limit.running:,} at once"
    waiting = None if limit.max_depth is None else f"{limit.max_depth:,} waiting"
    return ", ".join(word for word in (running, limit.rate, waiting) if word is not None)


def limit_fields(limit: Limit) -> dict[str, Any]:
    return {"max_running": limit.running, "rate": limit.rate, "max_depth": limit.max_depth}


def _count(number: int, style: str, *, exact: bool = True) -> Cell:
    text = f"{number:,}" if exact else f"≥{number:,}"
    return Cell(text, show.STYLES.get(style, "") if number else "dim")


def _as_json(name: str, stats: QueueStats, set_: QueueControls) -> dict[str, Any]:
    return {
        "queue": name,
        **msgspec.structs.asdict(stats),
        **limit_fields(set_.limits.get(name, NO_LIMIT)),
        "policy": set_.policies.get(name, NO_POLICY),
        "pause": pause_json(set_.pauses[name]) if name in set_.pauses else None,
    }


@queues.command()
@click.argument("queue")
@pausing
@options.as_json
@needs_store
def pause(
    target: Opened, /, *, queue: str, reason: str | None, until: datetime | None, pause_for: float | None, as_json: bool
) -> None:
    """Start no more jobs of a queue, in any worker. Its jobs stay safe; those that run go on."""
    ends = until_of(until, pause_for)
    operator_fields.checked_name("queue", queue)
    doubted = doubt(target, "queue", queue)
    target.app.pause(queue=queue, reason=reason, until=ends, by=options.by())
    print_pause("queue", queue, ends, doubted, as_json=as_json)


@queues.command()
@click.argument("queue")
@options.reason
@options.as_json
@needs_store
def resume(target: Opened, /, *, queue: str, reason: str | None, as_json: bool) -> None:
    """End the pause of a queue."""
    resumed = target.app.resume(queue=queue, reason=reason, by=options.by())
    if as_json:
        show.document({"queue": queue, "resumed": resumed})
    else:
        show.say(f"queue {queue} goes on" if resumed else f"queue {queue} was not paused")


@queues.command()
@click.argument("queue")
@click.argument("group")
@click.argument("places", type=int, metavar="WEIGHT")
@options.reason
@options.as_json
@needs_store
def weight(target: Opened, /, *, queue: str, group: str, places: int, reason: str | None, as_json: bool) -> None:
    """Say how many places a turn a group of a queue is offered; every group has 1 otherwise."""
    target.app.set_weight(queue=queue, group=group, weight=places, reason=reason, by=options.by())
    if as_json:
        show.document({"queue": queue, "group": group, "weight": places})
    else:
        show.say(f"group {group} of queue {queue} is offered {places:,} places a turn")


@queues.command(name="set")
@click.argument("queue")
@click.option("--max-attempts", type=or_none, metavar="N|none", help="Starts of a job that is enqueued from now on.")
@click.option("--backoff", type=backoff, metavar="RULE|none", help="exponential:30:3600, linear:30:3600 or fixed:30, in seconds.")
@click.option(
    "--jitter",
    type=click.Choice(JITTERS),
    help="With --backoff: how its wait w is spread: full 0 to w, equal w/2 to w, added w to 1.5 w, none.  [default: full]",
)
@click.option("--concurrency", type=or_none, metavar="N|none", help="Jobs of the queue that one process runs at once.")
@click.option(
    "--ageing",
    type=ageing,
    metavar="TIME|none",
    help="Time after which a tenth of the places goes to lower priorities that wait; none: strict priority.  [default: 10m]",
)
@options.reason
@options.as_json
@needs_store
def set_(target: Opened, /, *, queue: str, jitter: str | None, reason: str | None, as_json: bool, **given: Any) -> None:
    """Say how a queue's jobs are run, where neither the job nor its task says so.

    What is not named stays as it is; none takes it back, and of --ageing is strict priority. Workers hear of it within seconds.
    """
    said = {name: value for name, value in given.items() if value is not None}
    if jitter is not None:
        if not isinstance(said.get("backoff"), Backoff):
            raise click.UsageError("--jitter goes with --backoff")
        said["backoff"] = msgspec.structs.replace(said["backoff"], jitter=jitter)
    if not said:
        raise click.UsageError("nothing to set; give --max-attempts, --backoff, --concurrency or --ageing")
    known = msgspec.structs.asdict(target.ask(target.store.policies()).get(queue, NO_POLICY))
    policy = {**known, **{name: None if value == "none" else value for name, value in said.items()}}
    target.app.set_policy(queue, **policy, reason=reason, by=options.by())
    if as_json:
        show.document({"queue": queue, "policy": policy})
    else:
        show.say(f"queue {queue}: {policy_words(QueuePolicy(**policy)) or 'nothing is set'}")
