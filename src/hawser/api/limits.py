"""Limits on queues and tasks: what is in force, how much of it is in use, and setting it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta

from hawser.api.bodies import Controlled, In, Out, Reason, ReasonQuery, or_none
from hawser.api.call import Answer, Call, NoBody, NoQuery
from hawser.api.control import named
from hawser.api.problem import Problem
from hawser.client.operations import LimitFields, need_task, set_limit
from hawser.errors import ConfigError, FieldError
from hawser.limit import LARGEST_LIMIT, RATE_PATTERN
from hawser.store import LimitUse, QueueStats, Target

# Judged by `Limit`, whose words are the same in Python; here they are described.
_Rate = Annotated[str, Meta(extra_json_schema={"maxLength": 32, "pattern": RATE_PATTERN})]
_Running = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": LARGEST_LIMIT})]
_Depth = Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": LARGEST_LIMIT})]


class LimitIn(In):
    """What holds over all workers; null is no limit. It stands in place of what was set before."""

    running: _Running | None = None
    """How many may run at once."""
    rate: _Rate | None = None
    """How many may start in any span of a period: 20/s, 100/m, 1000/h, 100/10s."""
    reason: Reason | None = None


class TaskLimitIn(LimitIn):
    """What holds for all jobs of a task, over all workers; null is no limit. It stands in place of what was set before."""

    per_group: bool = False
    """Count the jobs of each group for themselves."""
    ordered: bool = False
    """Start the jobs of a group strictly in their order; with `running` 1 and `per_group`."""


class QueueLimitIn(LimitIn):
    """What holds for all jobs of a queue, over all workers; null is no limit. It stands in place of what was set before."""

    max_depth: _Depth | None = None
    """How many may wait: beyond that, enqueue is refused with 429."""


class LimitSetOut(Controlled):
    """`warning` is there when no job, worker or task has used the queue so far, or when a task has a limit per group and names no
    group."""

    warning: str | None = None


class LimitView(Out):
    """A limit, and how much of it is in use."""

    kind: Literal["queue", "task"]
    name: str
    max_running: int | None
    rate: str | None
    max_depth: int | None
    per_group: bool
    """Whether the jobs of each group are counted for themselves; then `running` is that of the whole task."""
    ordered: bool
    """Whether the jobs of a group start strictly in their order."""
    set: bool
    """Whether an operator set it; else the code of the task declares it."""
    by: str
    since: datetime | None
    running: int
    started: int
    """Starts that count against the rate now."""
    opens_at: datetime | None
    """When the rate lets the next job start; null when it keeps none back."""
    shut: bool
    """Whether it keeps jobs back now; false of a limit per group."""
    shut_groups: int
    """Groups that a limit per group keeps back now, by queue and priority, counted up to 10,000."""
    waiting: int | None
    """Of a queue: the jobs that count against `max_depth`; null of a task."""


class LimitsOut(Out):
    """All limits."""

    limits: list[LimitView]


async def ls(call: Call[NoBody, NoQuery]) -> Answer:
    """The limits on queues and tasks, each with how much of it is in use."""
    uses = await call.store.limits()
    figures = await call.store.queues() if any(use.target.kind == "queue" for use in uses) else {}
    return Answer(LimitsOut(limits=[limit_view(use, figures.get(use.target.name)) for use in uses]))


def limit_view(use: LimitUse, figures: QueueStats | None = None) -> LimitView:
    limit = use.limit
    stats, of_queue = figures or QueueStats(), use.target.kind == "queue"
    return LimitView(
        kind=use.target.kind,
        name=use.target.name,
        max_running=limit.running,
        rate=limit.rate,
        max_depth=limit.max_depth,
        per_group=limit.per_group,
        ordered=limit.ordered,
        set=use.set,
        by=use.by,
        since=use.since,
        running=stats.running if of_queue and limit.running is None else use.running,
        started=use.started,
        opens_at=use.opens_at,
        shut=use.shut,
        shut_groups=use.shut_groups,
        waiting=stats.ready + stats.scheduled + stats.retrying + stats.held if of_queue else None,
    )


async def set_of_queue(call: Call[QueueLimitIn, NoQuery]) -> Answer:
    """Limit how many jobs of a queue run at once, start in a period and wait."""
    body = call.body
    return await _set(call, (named("queue", call.path["queue"]), None), LimitFields(body.running, body.rate, body.max_depth))


async def set_of_task(call: Call[TaskLimitIn, NoQuery]) -> Answer:
    """Limit how many jobs of a task run at once and start in a period; it wins over what the code declares."""
    body, name = call.body, named("task", call.path["task"])
    try:
        await need_task(call.store, call.app.tasks, name)
    except ConfigError as error:
        field, _, told = str(error).partition(": ")
        raise Problem(404, str(error), FieldError(field, told)) from None
    return await _set(call, (None, name), LimitFields(body.running, body.rate, per_group=body.per_group, ordered=body.ordered))


async def _set(call: Call[Any, NoQuery], limited: tuple[str | None, str | None], fields: LimitFields) -> Answer:
    """As in Python, with the same words for what is wrong."""
    _, doubted = await set_limit(call.store, call.app.tasks, limited, fields, call.actor(call.body.reason))
    return Answer(LimitSetOut(changed=True, warning=doubted))


async def clear_of_queue(call: Call[NoBody, ReasonQuery]) -> Answer:
    """Take back the limit of a queue."""
    return await _clear(call, Target("queue", named("queue", call.path["queue"])))


async def clear_of_task(call: Call[NoBody, ReasonQuery]) -> Answer:
    """Take back the limit of a task that was set: what the code declares holds again."""
    return await _clear(call, Target("task", named("task", call.path["task"])))


async def _clear(call: Call[NoBody, ReasonQuery], target: Target) -> Answer:
    return Answer(Controlled(changed=await call.store.set_limit(target, None, call.actor(or_none(call.query.reason)))))
