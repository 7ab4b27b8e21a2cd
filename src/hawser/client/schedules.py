"""The schedules of an app: declared on its tasks, or made and changed at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from hawser.client.connection import Connection, sync
from hawser.client.operator_fields import checked_name, checked_priority, checked_time
from hawser.clock import at, from_datetime
from hawser.errors import ConfigError, InvalidJob, OutcomeUnknown, ScheduleNotFound, StoreUnavailable, WrongState
from hawser.job import Job
from hawser.schedule import change
from hawser.schedule.rule import AnyRule, Cron, Every, text_of
from hawser.schedule.schedule import Advance, Cause, Definition, Schedule, create, past, preview
from hawser.store import Actor, Filter, Store
from hawser.store.schedules import Advanced
from hawser.task import Task, find_task

SCHEDULE_EDIT_TRIES: Final = 20
"""How often a change is decided again because another process, such as a scheduler that fires, was faster."""

MOST_SHOWN: Final = 1_000
"""Ticks that one preview may have."""


class PastTick(NamedTuple):
    """A tick that is over, on the wall clock of its zone, and its job. None: it was left out, or its job is not kept."""

    tick: datetime
    job: Job | None
    left_out: Cause | None = None
    """Why it made no job; None when it made one, or is older than the last 50 that made none."""


class Schedules:
    """What an app does with schedules. Every method has an awaitable twin whose name begins with `a`.

    `by` and `reason` go into the audit record.
    """

    def __init__(self, connection: Connection, tasks: Mapping[str, Task[..., Any]]) -> None:
        self._connection = connection
        self._tasks = tasks

    # Look.

    async def aget(self, name: str) -> Schedule:
        """The schedule; `ScheduleNotFound` when the name is unknown."""
        return await _found(await self._connection.ready(), checked_name("schedule", name))

    async def alist(self) -> Sequence[Schedule]:
        """All schedules, by name."""
        return await (await self._connection.ready()).schedules()

    async def apreview(self, what: str | AnyRule, count: int = 5, *, after: datetime | None = None) -> Sequence[datetime]:
        """The next ticks of a schedule, or of a rule that is only tried out, on the wall clock of its zone."""
        _check_count(count)
        checked_time("after", after)
        store = await self._connection.ready()
        since = (await store.due_schedules(0)).now if after is None else from_datetime(after)
        rule = what if isinstance(what, Cron | Every) else None
        if rule is None:
            standing = await _found(store, checked_name("schedule", what))
            rule, since = standing.rule, max(since, standing.handled_us)
        return [tick.astimezone(rule.zone) for tick in preview(rule, since, count)]

    async def apast(self, name: str, count: int = 50) -> Sequence[PastTick]:
        """The last ticks of a schedule, newest first, each with its job; as the present rule has them."""
        _check_count(count)
        store = await self._connection.ready()
        standing = await _found(store, checked_name("schedule", name))
        jobs = {job.tick: job for job in (await store.find(Filter(schedule=name), None, count)).jobs}
        zone, now = standing.rule.zone, (await store.due_schedules(0)).now
        causes = {at(each.tick_us): each.cause for each in standing.left_out}

        def told(tick: datetime) -> PastTick:
            job = jobs.get(tick)
            return PastTick(tick.astimezone(zone), job, None if job else causes.get(tick))

        return [told(tick) for tick in past(standing, now, count)]

    # Act.

    async def acreate(
        self,
        name: str,
        task: str,
        rule: AnyRule,
        *,
        queue: str | None = None,
        priority: int | None = None,
        reason: str | None = None,
        by: str = "app",
    ) -> Schedule:
        """Run a task by a rule from now on; `WrongState` when the name is taken. Its queue and priority are the task's
        unless given."""
        new = define(
            checked_name("schedule", name), find_task(self._tasks, task), checked_rule(rule), self._connection.max_payload
        )
        new = _placed(new, queue, priority)
        store = await self._connection.ready()
        advance = create(new, (await store.due_schedules(0)).now)
        if await self._put(store, advance, "create_schedule", Actor(by, reason)) is Advanced.STALE:
            raise WrongState(f"schedule {name!r} exists already; edit it, or choose another name")
        return advance.schedule

    async def aedit(
        self,
        name: str,
        rule: AnyRule | None = None,
        *,
        payload: Mapping[str, Any] | None = None,
        queue: str | None = None,
        priority: int | None = None,
        reason: str | None = None,
        by: str = "app",
    ) -> Schedule:
        """Give a schedule another rule, payload, queue or priority from now on; what is not given stays."""
        if rule is None and payload is None and queue is None and priority is None:
            raise ConfigError("rule, payload, queue, priority: nothing to change; give at least one of them")
        if payload is not None and rule is not None:
            rule = replace(checked_rule(rule), payload=payload)

        def decide(standing: Schedule, now: int) -> Advance:
            _refuse_declared(standing, "change it there")
            other = standing.definition if rule is None else replace(standing.definition, rule_text=text_of(checked_rule(rule)))
            arguments = payload if rule is None else rule.payload
            if arguments is not None:
                task = find_task(self._tasks, standing.task)
                other = replace(other, body=task.parameters.pack((), arguments, self._connection.max_payload))
            return change.redefine(standing, _placed(other, queue, priority), now)

        return await self._change(name, "edit_schedule", decide, Actor(by, reason))

    async def apause(self, name: str, *, reason: str | None = None, by: str = "app") -> Schedule:
        """Fire no ticks until it is resumed. Jobs that were made go on."""
        return await self._change(
            name, "pause_schedule", lambda standing, now: change.pause(standing, now, by, reason), Actor(by, reason)
        )

    async def aresume(self, name: str, *, reason: str | None = None, by: str = "app") -> Schedule:
        """Fire again, from the next tick on; those of the pause are dropped."""

        def decide(standing: Schedule, now: int) -> Advance:
            if standing.pause is None:
                raise WrongState(f"schedule {standing.name!r} is not paused; nothing was changed")
            return change.resume(standing, now)

        return await self._change(name, "resume_schedule", decide, Actor(by, reason))

    async def arun(self, name: str, *, reason: str | None = None, by: str = "app") -> str:
        """Make a job now, beside the ticks, also while it is paused; its id."""
        done = await self._change(name, "run_schedule", change.run_now, Actor(by, reason))
        assert done.last_job_id is not None
        return done.last_job_id

    async def askip(self, name: str, *, reason: str | None = None, by: str = "app") -> Schedule:
        """Leave out the next tick."""

        def decide(standing: Schedule, now: int) -> Advance:
            if standing.due_us is None:
                raise WrongState(f"schedule {standing.name!r} is {standing.state}: there is no next tick to skip")
            return change.skip_next(standing, now)

        return await self._change(name, "skip_tick", decide, Actor(by, reason))

    async def adelete(self, name: str, *, reason: str | None = None, by: str = "app") -> None:
        """Remove a schedule; its jobs stay."""
        store = await self._connection.ready()
        standing = await _found(store, checked_name("schedule", name))
        if not standing.retired:
            _refuse_declared(standing, "remove it there, or pause it here")
        await store.delete_schedule(name, Actor(by, reason))

    async def _change(self, name: str, action: str, decide: Callable[[Schedule, int], Advance], actor: Actor) -> Schedule:
        """Decide on what stands, and decide anew when that has changed meanwhile."""
        checked_name("schedule", name)
        store = await self._connection.ready()
        for _ in range(SCHEDULE_EDIT_TRIES):
            now = (await store.due_schedules(0)).now
            advance = decide(await _found(store, name), now)
            match await self._put(store, advance, action, actor):
                case Advanced.DONE | Advanced.REPEATED:
                    return advance.schedule
                case Advanced.SKIPPED:
                    assert advance.otherwise is not None
                    return advance.otherwise
                case Advanced.STALE:
                    continue
        raise StoreUnavailable(
            f"schedule {name!r} was changed by others {SCHEDULE_EDIT_TRIES} times meanwhile; nothing was written: try again"
        )

    async def _put(self, store: Store, advance: Advance, action: str, actor: Actor) -> Advanced:
        """A lost answer is asked for again: the same change is made once only."""
        for _ in range(self._connection.config.enqueue_tries - 1):
            try:
                return await store.put_schedule(advance, action, actor)
            except OutcomeUnknown:
                continue
        return await store.put_schedule(advance, action, actor)

    # The synchronous twins.

    get = sync(aget)
    list = sync(alist)
    preview = sync(apreview)
    past = sync(apast)
    create = sync(acreate)
    edit = sync(aedit)
    pause = sync(apause)
    resume = sync(aresume)
    run = sync(arun)
    skip = sync(askip)
    delete = sync(adelete)


def declared(tasks: Mapping[str, Task[..., Any]], max_payload: int) -> Sequence[Definition]:
    """The schedules that the tasks declare; `ConfigError` names the task whose schedule is wrong."""
    found: dict[str, Definition] = {}
    for task in tasks.values():
        for name, rule in task.schedules.items():
            if name in found:
                raise ConfigError(f"schedule {name!r} is declared by {found[name].task!r} and by {task.name!r}; rename one")
            try:
                found[name] = define(name, task, rule, max_payload)
            except InvalidJob as error:
                raise ConfigError(f"task {task.name!r}: schedule {name!r}: {error}") from None
    return tuple(found.values())


def define(name: str, task: Task[..., Any], rule: AnyRule, max_payload: int) -> Definition:
    """A schedule of a task; `InvalidJob` when the payload does not fit it."""
    job = task.template
    return Definition(
        name=name,
        rule_text=text_of(rule),
        task=job.task,
        body=task.parameters.pack((), rule.payload or {}, max_payload),
        queue=job.queue,
        priority=job.priority,
        max_attempts=job.max_attempts,
        timeout=job.timeout,
        tags=job.tags,
        confirm_replay=job.confirm_replay,
    )


def _placed(definition: Definition, queue: str | None, priority: int | None) -> Definition:
    """With another queue or priority, where one is given."""
    if queue is not None:
        definition = replace(definition, queue=checked_name("queue", queue))
    if priority is not None:
        definition = replace(definition, priority=checked_priority(priority))
    return definition


def checked_rule(rule: object) -> AnyRule:
    if not isinstance(rule, Cron | Every):
        raise ConfigError(f"rule: {rule!r} is not a schedule; use Cron('30 2 * * *', tz='Europe/Berlin') or Every(minutes=5)")
    return rule


def _check_count(count: object) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_SHOWN:
        raise ConfigError(f"count: {count!r} is not a whole number from 1 to {MOST_SHOWN:,}")


async def _found(store: Store, name: str) -> Schedule:
    found = await store.schedules([name])
    if not found:
        raise ScheduleNotFound(name)
    return found[0]


def _refuse_declared(standing: Schedule, hint: str) -> None:
    if standing.declared:
        raise WrongState(f"schedule {standing.name!r} is declared in code, on task {standing.task!r}; {hint}")
