"""Queues, tasks and workers: how they stand, and pausing, resuming and limiting them."""

from __future__ import annotations

import time
from typing import Any, Final

from msgspec import UNSET

from hawser.api.bodies import (
    AuditQuery,
    Controlled,
    PauseIn,
    QueueQuery,
    ReasonIn,
    WeightIn,
    WeightsOut,
    WeightView,
    WorkerReclaimed,
    or_none,
)
from hawser.api.call import Answer, Call, NoBody, NoQuery
from hawser.api.listing import SEARCH_FOR_S
from hawser.api.problem import Problem, bad
from hawser.api.settings import PolicyIn, policy_of
from hawser.api.views import (
    AuditOut,
    Controls,
    QueuesOut,
    StatsOut,
    TasksOut,
    TaskView,
    WorkersOut,
    audit_view,
    limit_fields,
    pause_view,
    queue_view,
    stats_fields,
    worker_view,
)
from hawser.client.operations import MAX_WORKER, weight
from hawser.limit import Limit
from hawser.store import AuditRecord, Pause, QueueStats, Store, Target
from hawser.value.name import name_fault, text_fault

_AUDIT_AT_ONCE: Final = 500
"""Records that are read at once when most of them may be left out."""


async def stats(call: Call[NoBody, QueueQuery]) -> Answer:
    """A queue, or all of them, in figures; its cost does not grow with the backlog."""
    queue, store = or_none(call.query.queue), call.store
    figures = await call.app.astats(queue)
    limit = None if queue is None else (await _limits(store)).get(queue)
    fields = stats_fields(figures) | limit_fields(limit)
    failovers = await store.failovers()
    return Answer(StatsOut(**fields, durability=store.durability, done_most=store.done_most, failovers=failovers))


async def queues(call: Call[NoBody, NoQuery]) -> Answer:
    """Every queue that holds jobs, is paused, or has a limit or a policy."""
    figures, controls = await call.store.queues(), await _controls(call.store)
    return Answer(QueuesOut(queues=[queue_view(queue, each, controls) for queue, each in figures.items()]))


async def queue(call: Call[NoBody, NoQuery]) -> Answer:
    """One queue."""
    name = named("queue", call.path["queue"])
    figures: QueueStats = await call.store.stats(name)
    return Answer(queue_view(name, figures, await _controls(call.store)))


async def weights(call: Call[NoBody, NoQuery]) -> Answer:
    """The groups of a queue whose weight is not 1."""
    found = await call.store.weights(named("queue", call.path["queue"]))
    return Answer(WeightsOut(groups=[WeightView(group=each.group, weight=each.weight) for each in found]))


async def set_weight(call: Call[WeightIn, NoQuery]) -> Answer:
    """Say how many places a turn a group of a queue is offered, as against 1 of the others."""
    said = weight(call.path["queue"], call.path["group"], call.body.weight)
    await call.store.set_weight(said, call.actor(call.body.reason))
    return Answer(Controlled(changed=True))


async def set_policy(call: Call[PolicyIn, NoQuery]) -> Answer:
    """Say how a queue's jobs are run; workers hear of it within seconds."""
    name = named("queue", call.path["queue"])
    await call.store.set_policy(name, policy_of(call.body), call.actor(call.body.reason))
    return Answer(Controlled(changed=True))


async def tasks(call: Call[NoBody, NoQuery]) -> Answer:
    """The tasks of the app, with the schema of their arguments."""
    pauses = await _pauses(call.store, "task")
    return Answer(TasksOut(tasks=[_task_view(call, name, pauses) for name in sorted(call.app.tasks)]))


def _task_view(call: Call[Any, Any], name: str, pauses: dict[str, Pause]) -> TaskView:
    task = call.app.tasks[name]
    template, options = task.template, task.options
    return TaskView(
        task=name,
        queue=template.queue,
        priority=template.priority,
        max_attempts=template.max_attempts,
        timeout=template.timeout,
        isolate=options.isolate,
        confirm_replay=options.confirm_replay,
        tags=template.tags,
        index=task.index,
        redact=task.redact,
        payload_schema=task.parameters.schema(),
        pause=pause_view(pauses.get(name)),
    )


async def workers(call: Call[NoBody, NoQuery]) -> Answer:
    """The workers that live, or were heard of within the hour."""
    return Answer(WorkersOut(workers=[worker_view(seen) for seen in await call.store.workers()]))


async def reclaim_worker(call: Call[ReasonIn, NoQuery]) -> Answer:
    """Take back the runs of a worker that is known to be dead, without waiting for their leases to run out."""
    name = call.path["worker"]
    if fault := text_fault(name, MAX_WORKER):
        raise bad("worker", fault)
    taken = await call.app.areclaim_worker(name, reason=call.body.reason, by=call.identity.name)
    return Answer(WorkerReclaimed(worker=name, reclaimed=taken))


async def audit(call: Call[NoBody, AuditQuery]) -> Answer:
    """What operators did, newest first."""
    query, since = call.query, or_none(call.query.since)
    found: list[AuditRecord] = []
    after, end = or_none(query.after), time.monotonic() + SEARCH_FOR_S
    while True:
        size = query.limit if query.target is UNSET else _AUDIT_AT_ONCE
        records = await call.store.audit(size, after, or_none(query.action), or_none(query.by))
        recent = [each for each in records if since is None or each.at >= since]
        found += [each for each in recent if query.target is UNSET or query.target in (each.target, *each.ids)]
        after = records[-1].number if len(records) == size and len(recent) == size else None
        if after is None or len(found) >= query.limit or time.monotonic() >= end:
            break
    if len(found) > query.limit:
        found = found[: query.limit]
        after = found[-1].number
    return Answer(AuditOut(audit=[audit_view(record) for record in found], next=after))


async def pause_queue(call: Call[PauseIn, NoQuery]) -> Answer:
    """Stop starting jobs of a queue, in every worker."""
    return await _pause(call, Target("queue", named("queue", call.path["queue"])))


async def resume_queue(call: Call[ReasonIn, NoQuery]) -> Answer:
    """End the pause of a queue."""
    return await _resume(call, Target("queue", named("queue", call.path["queue"])))


async def pause_task(call: Call[PauseIn, NoQuery]) -> Answer:
    """Stop starting jobs of a task, in every worker."""
    return await _pause(call, Target("task", known_task(call)))


async def resume_task(call: Call[ReasonIn, NoQuery]) -> Answer:
    """End the pause of a task."""
    return await _resume(call, Target("task", known_task(call)))


def known_task(call: Call[Any, Any]) -> str:
    """The task that a path names."""
    name = named("task", call.path["task"])
    if name not in call.app.tasks:
        raise Problem(404, f"the app has no task {name!r}; GET /tasks lists them")
    return name


async def _pause(call: Call[PauseIn, NoQuery], target: Target) -> Answer:
    await call.store.pause(target, call.actor(call.body.reason), call.body.until)
    return Answer(Controlled(changed=True))


async def _resume(call: Call[ReasonIn, NoQuery], target: Target) -> Answer:
    return Answer(Controlled(changed=await call.store.resume(target, call.actor(call.body.reason))))


def named(field: str, name: str) -> str:
    """A name out of a path."""
    if fault := name_fault(name):
        raise bad(field, fault)
    return name


async def _controls(store: Store) -> Controls:
    return Controls(await _limits(store), await store.policies(), await _pauses(store, "queue"))


async def _limits(store: Store) -> dict[str, Limit]:
    """By queue."""
    return {use.target.name: use.limit for use in await store.limits() if use.target.kind == "queue"}


async def _pauses(store: Store, kind: str) -> dict[str, Pause]:
    return {pause.target.name: pause for pause in await store.pauses() if pause.target.kind == kind}
