"""What an operator does through an app. The store's short answers become errors that say what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypedDict

from msgspec import structs

from hawser.client.operator_fields import checked_group, checked_name, checked_priority, checked_time
from hawser.clock import MAX_DELAY
from hawser.errors import ConfigError, ConfirmationNeeded, JobNotFound, WrongState, did_you_mean
from hawser.handle import Handle, ResultSource
from hawser.job import Job, NewJob, State, Waiting
from hawser.limit import Limit
from hawser.store import JOBS_PER_PAGE, MAX_WEIGHT, Acted, Actor, Change, Filter, Store, Target, Weight
from hawser.store.breakers import COUNTED_ENDS, NOTHING_COUNTED, counted_in
from hawser.value.fingerprint import Group, group_named
from hawser.value.indexed import entry_of, refuse_unindexed
from hawser.value.name import text_fault

_ALLOWED: Final = {
    "cancel": "only a ready or running job can be cancelled",
    "requeue": "only a dead or cancelled job can be requeued; to run it again, enqueue a new one",
    "discard": "only a dead job can be discarded; use cancel for one that is still to run",
    "change": "only a waiting job can be changed; cancel a running one, requeue a dead one",
    "dead-letter": "only a waiting job can be dead-lettered; cancel a running one",
    "rewind": "only a dead or cancelled job can be rewound; cancel it first",
    "replay": "only a dead job can be replayed with another payload; cancel it and enqueue a new one instead",
}


MAX_WORKER: Final = 256
"""Characters of a worker's name."""

_RECLAIMED: Final = 500
"""Runs that are taken back in one write."""


class JobFilter(TypedDict, total=False):
    """What `find` takes by keyword; `Filter` says what each means."""

    state: State | Waiting | str | None
    """A state, or one of the two ways to look at `ready`: scheduled, retrying."""
    queue: str | None
    task: str | None
    key: str | None
    tag: str | None
    parent_id: str | None
    schedule: str | None
    group: str | None
    """The name of a group, such as a customer; or the id of a group of dead jobs, TASK:FINGERPRINT."""
    group_name: str | None
    """The name of a group, also one that looks like something else."""
    argument: Mapping[str, Any] | str | None
    """An argument that tasks declare as indexed, and its value: `{"user_id": 42}`, or the text `user_id=42`."""
    batch: str | None
    """The id of a batch."""
    since: datetime | None
    until: datetime | None


async def get(store: Store, id: str) -> Job:
    """The job, or `JobNotFound`."""
    job = await store.get(id)
    if job is None:
        raise JobNotFound(id)
    return job


async def cancel(store: Store, id: str, actor: Actor) -> Acted:
    [acted] = await store.cancel([id], actor)
    return await _judged("cancel", store, id, acted)


async def requeue(store: Store, id: str, actor: Actor) -> None:
    [acted] = await store.requeue([id], actor)
    await _judged("requeue", store, id, acted)


async def rewind(store: Store, id: str, to: str | None, actor: Actor) -> None:
    job, names = await get(store, id), [step.name for step in await store.steps(id)]
    if job.state not in (State.DEAD, State.CANCELLED):
        await _judged("rewind", store, id, Acted.WRONG_STATE)
    if to is not None and to not in names:
        raise WrongState(f"cannot rewind job {id}: it has no step {to!r}; it has {', '.join(map(repr, names)) or 'none'}")
    await _judged("rewind", store, id, await store.rewind(id, to, actor))


async def discard(store: Store, id: str, actor: Actor) -> None:
    [acted] = await store.discard([id], actor)
    await _judged("discard", store, id, acted)


def change_of(queue: str | None, priority: int | None, run_at: datetime | None, delay: float | timedelta | None) -> Change:
    """What to change of a waiting job, each field judged."""
    if all(given is None for given in (queue, priority, run_at, delay)):
        raise ConfigError("change: nothing to change; give queue, priority, run_at or delay")
    if run_at is not None and delay is not None:
        raise ConfigError("run_at: given together with delay; leave one of them out")
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if seconds is not None and (
        not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds <= MAX_DELAY
    ):
        raise ConfigError(f"delay: {delay!r} is not a time from 0 s to 10 years")
    checked_time("run_at", run_at)
    if run_at is not None and not 1970 < run_at.year < 9999:
        raise ConfigError(f"run_at: the year {run_at.year} is out of range; use 1971 to 9998")
    return Change(
        queue=None if queue is None else checked_name("queue", queue),
        priority=None if priority is None else checked_priority(priority),
        run_at=run_at,
        delay=seconds,
    )


async def change(store: Store, id: str, change: Change, actor: Actor) -> None:
    [acted] = await store.change([id], change, actor)
    await _judged("change", store, id, acted, queue=change.queue)


async def dead_letter(store: Store, id: str, actor: Actor) -> None:
    [acted] = await store.dead_letter([id], actor)
    await _judged("dead-letter", store, id, acted)


async def reclaim_worker(store: Store, worker: str, actor: Actor) -> int:
    """End the leases of a worker and take its runs back; how many leases that were."""
    if fault := text_fault(worker, MAX_WORKER):
        raise ConfigError(f"worker: {fault}")
    ended = await store.end_leases(worker, actor)
    left = ended
    while left > 0 and (taken := await store.reclaim(_RECLAIMED)):
        left -= sum(run.worker == worker for run in taken)
    return ended


def one_or_group(id: str | None, group: str | None) -> str | Group:
    """What to act on: exactly one of the two."""
    if id is not None and group is None:
        return id
    if group is not None and id is None:
        return group_named(group)
    raise ConfigError("id, group: give exactly one of the two; `hawser dlq groups` and GET /dlq/groups list the groups")


async def on_group(
    store: Store,
    act: Callable[[Sequence[str], Actor], Awaitable[list[Acted]]],
    group: Group,
    actor: Actor,
    check: Callable[[Job], None] | None = None,
) -> int:
    """Act on all jobs of a group that are dead now, newest first, each once; how many were changed. `check` may raise for a job:
    then nothing is done to its page and to those behind it."""
    filter = Filter(state=State.DEAD, group=group)
    actor = structs.replace(actor, filter=filter.told())
    changed, after, newest = 0, None, ""
    while True:
        page = await store.find(filter, after, JOBS_PER_PAGE)
        newest = newest or (page.jobs[0].id if page.jobs else "")
        jobs = [job for job in page.jobs if job.id <= newest]  # not those that died since
        if check is not None:
            for job in jobs:
                check(job)
        acted = await act([job.id for job in jobs], actor) if jobs else []
        changed += sum(answer is Acted.DONE for answer in acted)
        after = page.next
        if after is None:
            return changed


async def replay(store: Store, id: str, job: NewJob, actor: Actor, results: ResultSource | None = None) -> Handle[Any]:
    await _judged("replay", store, id, await store.replace(id, job, actor), wanted=job)
    return Handle(job.id, task=job.task, source=results)


def need_confirmation(job: Job, *, confirm: bool) -> None:
    """For a task marked `confirm_replay`."""
    if not confirm:
        raise ConfirmationNeeded(
            f"task {job.task!r} asks for a confirmation before job {job.id} runs again: make sure that its effect has not "
            "happened yet, then repeat with confirm=True"
        )


def target(queue: str | None, task: str | None) -> Target:
    """What to pause or resume: exactly one of the two."""
    if (queue is None) == (task is None):
        raise ConfigError("queue, task: give exactly one of the two")
    return Target("queue", checked_name("queue", queue)) if task is None else Target("task", checked_name("task", task))


class LimitFields(NamedTuple):
    """What a person says of a limit; None is nothing."""

    running: int | None = None
    rate: str | None = None
    max_depth: int | None = None
    per_group: bool = False
    ordered: bool = False


async def set_limit(
    store: Store, tasks: Mapping[str, Any], named: tuple[str | None, str | None], fields: LimitFields, actor: Actor
) -> tuple[Target, str | None]:
    """Limit a queue or a task, of which exactly one is named; what was limited, and a doubt about it, if any."""
    limited = target(*named)
    if limited.kind == "task" and fields.max_depth is not None:
        raise ConfigError("max_depth: only a queue has a depth; leave it out, or name the queue")
    for field in ("per_group", "ordered"):
        if limited.kind == "queue" and getattr(fields, field):
            raise ConfigError(f"{field}: only a task has limits per group; name the task")
    limit = Limit(**fields._asdict())
    doubted = await doubt_queue(store, tasks, limited.name) if limited.kind == "queue" else None
    if limited.kind == "task":
        await need_task(store, tasks, limited.name)
        task = tasks.get(limited.name)
        if limit.per_group and task is not None and task.options.group is None:
            doubted = f"task {limited.name!r} names no group: only its jobs that were given one with using(group=…) are counted."
    said = {name: str(value) for name, value in fields._asdict().items() if value is not None and value is not False}
    await store.set_limit(limited, limit, structs.replace(actor, filter=said or None))
    return limited, doubted


async def switch_breaker(
    store: Store, tasks: Collection[str], task: str, actor: Actor, *, open: bool
) -> bool:  # a word of breakers
    """Open or close the breaker of a task by hand; False when that was so already."""
    name = checked_name("task", task)
    await need_task(store, tasks, name)
    if open:
        return await store.open_breaker(name, actor)
    counts = await store.event_counts(1, COUNTED_ENDS)
    minutes = [each.minute for each in counts if each.task == name]
    counted = counted_in(counts, name, max(minutes)) if minutes else NOTHING_COUNTED
    return await store.close_breaker(name, actor, counted)


async def doubt_queue(store: Store, tasks: Mapping[str, Any], queue: str) -> str | None:
    """What to say of a queue that no job, worker or task has used so far; None when it is known."""
    known = {task.template.queue for task in tasks.values()} | set(await store.queues())
    known |= {name for seen in await store.workers() for name in seen.beat.queues}
    if queue in known:
        return None
    hint = did_you_mean(queue, sorted(known), "is the name right?")
    return f"queue {queue!r} was not used so far: {hint} The limit is set all the same."


async def need_task(store: Store, tasks: Collection[str], name: str) -> None:
    """A task that neither this app, nor a worker, nor a job knows is most likely misspelt."""
    known = {*tasks, *(task for seen in await store.workers() for task in seen.beat.tasks or ())}
    if name in known or (await store.find(Filter(task=name), None, 1)).jobs:
        return
    raise ConfigError(f"task: no task is called {name!r}; {did_you_mean(name, sorted(known))}")


def check_argument(filter: Filter, tasks: Mapping[str, Any]) -> None:
    """`ConfigError` when the filter asks for an argument that no known task declares as indexed."""
    if filter.argument is not None and tasks:
        refuse_unindexed(filter.argument, {name for task in tasks.values() for name in task.index})


def filter_of(fields: JobFilter) -> Filter:
    for name in fields:
        if name not in JobFilter.__annotations__:
            raise ConfigError(f"find: no such filter {name!r}; {did_you_mean(name, JobFilter.__annotations__)}")
    named = dict(fields)
    if named.get("argument") is not None:
        named["argument"] = entry_of(named["argument"])
    filter = Filter(**_with_group(_with_state(named)))
    checked_time("since", filter.since)
    checked_time("until", filter.until)
    return filter


def _with_state(fields: dict[str, Any]) -> dict[str, Any]:
    state = fields.get("state")
    if state is None:
        return fields
    try:
        if state in tuple(Waiting):
            return {**fields, "state": State.READY, "waiting": Waiting(state)}
        return {**fields, "state": State(state)}
    except ValueError:
        raise ConfigError(f"state: {state!r} is not one of them; known are {', '.join((*State, *Waiting))}") from None


def _with_group(fields: dict[str, Any]) -> dict[str, Any]:
    group = fields.get("group")
    if group is None:
        return fields
    try:
        return {**fields, "group": group_named(group)}
    except ConfigError:
        return {**fields, "group": None, "group_name": checked_group(group)}


def weight(queue: str, group: str, weight: int) -> Weight:
    if not isinstance(weight, int) or isinstance(weight, bool) or not 1 <= weight <= MAX_WEIGHT:
        raise ConfigError(f"weight: {weight!r} is not a whole number from 1 to {MAX_WEIGHT:,}; 1 is what every group has")
    return Weight(checked_name("queue", queue), checked_group(group), weight)


async def _judged(
    action: str, store: Store, id: str, acted: Acted, wanted: NewJob | None = None, queue: str | None = None
) -> Acted:
    """The answer, when it says that something was done."""
    if acted in (Acted.DONE, Acted.ASKED):
        return acted
    if acted is Acted.NOT_FOUND:
        raise JobNotFound(id)
    job = await get(store, id)
    if acted is Acted.KEY_TAKEN:
        key, queue = (wanted.key, wanted.queue) if wanted else (job.key, queue or job.queue)
        raise WrongState(
            f"cannot {action} job {id}: another job holds the key {key!r} in queue {queue!r}; "
            "wait until that one has ended, or cancel it"
        )
    state = f"{job.state} (held)" if job.held else job.state
    raise WrongState(f"cannot {action} job {id}: it is {state}; {_ALLOWED[action]}")
