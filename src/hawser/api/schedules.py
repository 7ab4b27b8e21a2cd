"""`/schedules`: what is fired when; looking at it, defining it, and stepping in."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from hawser.api.bodies import ReasonIn, ReasonQuery, or_none
from hawser.api.call import Answer, Call, NoBody, NoQuery
from hawser.api.control import named
from hawser.api.problem import Problem, bad
from hawser.api.settings import (
    TICKS_SHOWN,
    PastOut,
    PastTickView,
    Ran,
    Removed,
    ScheduleIn,
    ScheduleLine,
    SchedulesPage,
    SchedulesQuery,
    ScheduleView,
    TicksIn,
    TicksOut,
    TicksQuery,
    rule_of,
    schedule_fields,
)
from hawser.api.views import job_line
from hawser.client.schedules import PastTick
from hawser.errors import ConfigError, ScheduleNotFound, WrongState
from hawser.redaction import names_of, restored, shown
from hawser.schedule.rule import AnyRule
from hawser.schedule.schedule import Schedule
from hawser.task import find_task
from hawser.value.json_value import check_json


async def ls(call: Call[NoBody, SchedulesQuery]) -> Answer:
    """The schedules, by name."""
    limit = call.query.limit
    found = await call.store.schedules(after=or_none(call.query.after) or "", limit=limit + 1)
    lines = [ScheduleLine(**schedule_fields(schedule, names_of(call.app.tasks, schedule.task))) for schedule in found[:limit]]
    return Answer(SchedulesPage(schedules=lines, next=lines[-1].name if len(found) > limit else None))


async def show(call: Call[NoBody, NoQuery]) -> Answer:
    """One schedule in full, with its next ticks and its last job."""
    return Answer(await _view(call, await call.app.schedules.aget(_name(call))))


async def _view(call: Call[Any, Any], schedule: Schedule) -> ScheduleView:
    last = None if schedule.last_job_id is None else await call.store.get(schedule.last_job_id)
    can_tick = schedule.due_us is not None and schedule.error is None and _can_be_followed(schedule)
    ticks = await call.app.schedules.apreview(schedule.name, TICKS_SHOWN) if can_tick else []
    tasks = call.app.tasks
    fields = schedule_fields(schedule, names_of(tasks, schedule.task))
    return ScheduleView(**fields, ticks=list(ticks), last_job=job_line(shown(tasks, last)) if last else None)


def _can_be_followed(schedule: Schedule) -> bool:
    """False where this server does not know the rule's zone, though others may."""
    try:
        return bool(schedule.rule)
    except (ConfigError, msgspec.ValidationError):
        return False


async def ticks(call: Call[NoBody, TicksQuery]) -> Answer:
    """The next ticks of a schedule, whether it is paused or not."""
    schedule = await _followed(call)
    found = await call.app.schedules.apreview(schedule.name, call.query.count)
    return Answer(TicksOut(words=schedule.words, ticks=list(found)))


async def past(call: Call[NoBody, TicksQuery]) -> Answer:
    """The last ticks of a schedule, each with what became of it."""
    schedule = await _followed(call)
    found = await call.app.schedules.apast(schedule.name, call.query.count)
    return Answer(PastOut(ticks=[_past_view(each) for each in found]))


def _past_view(past: PastTick) -> PastTickView:
    if past.job is None:
        return PastTickView(tick=past.tick, job_id=None, state=None, late_s=None, left_out=past.left_out)
    started = past.job.started_at
    late = None if started is None else max(0.0, (started - past.tick).total_seconds())
    return PastTickView(tick=past.tick, job_id=past.job.id, state=past.job.state, late_s=late, left_out=None)


async def _followed(call: Call[Any, Any]) -> Schedule:
    """The schedule, when this server can follow its rule."""
    schedule = await call.app.schedules.aget(_name(call))
    if not _can_be_followed(schedule):
        raise Problem(409, f"the rule of schedule {schedule.name!r} cannot be followed here: {schedule.words}")
    return schedule


async def try_rule(call: Call[TicksIn, NoQuery]) -> Answer:
    """The next ticks of a rule that is only tried out."""
    rule = rule_of(call.body.rule)
    return Answer(TicksOut(words=rule.words, ticks=list(await call.app.schedules.apreview(rule, call.body.count))))


async def put(call: Call[ScheduleIn, NoQuery]) -> Answer:
    """Create a schedule, or give one all of this anew from now on; those of the code are changed there."""
    name, body, schedules = _name(call), call.body, call.app.schedules
    template = find_task(call.app.tasks, body.task).template
    queue = template.queue if body.queue is None else body.queue
    priority = template.priority if body.priority is None else body.priority
    _may_enqueue(call, body.task)
    payload = _payload(call)
    rule: AnyRule = msgspec.structs.replace(rule_of(body.rule), payload=payload)
    try:
        standing = await schedules.aget(name)
    except ScheduleNotFound:
        made = await schedules.acreate(
            name, body.task, rule, queue=queue, priority=priority, reason=body.reason, by=call.identity.name
        )
        return Answer(await _view(call, made), 201)
    if standing.task != body.task:
        raise WrongState(f"schedule {name!r} runs task {standing.task!r}; delete it first, or choose another name")
    kept = restored(names_of(call.app.tasks, body.task), payload, standing.definition.body)
    rule = msgspec.structs.replace(rule, payload=kept)
    edited = await schedules.aedit(name, rule, queue=queue, priority=priority, reason=body.reason, by=call.identity.name)
    return Answer(await _view(call, edited))


def _payload(call: Call[ScheduleIn, NoQuery]) -> dict[str, Any]:
    if call.body.payload is UNSET:
        return {}
    check_json("payload", bytes(call.body.payload), call.app.config.max_payload)
    payload = msgspec.json.decode(call.body.payload)
    if not isinstance(payload, dict):
        raise bad("payload", "not an object; send the arguments by name")
    return payload


async def pause(call: Call[ReasonIn, NoQuery]) -> Answer:
    """Fire no ticks until it is resumed; its jobs go on."""
    return await _changed(call, call.app.schedules.apause)


async def resume(call: Call[ReasonIn, NoQuery]) -> Answer:
    """Fire again, from the next tick on."""
    return await _changed(call, call.app.schedules.aresume)


async def skip(call: Call[ReasonIn, NoQuery]) -> Answer:
    """Leave out the next tick."""
    return await _changed(call, call.app.schedules.askip)


async def _changed(call: Call[ReasonIn, NoQuery], change: Any) -> Answer:
    changed: Schedule = await change(_name(call), reason=call.body.reason, by=call.identity.name)
    return Answer(await _view(call, changed))


async def run(call: Call[ReasonIn, NoQuery]) -> Answer:
    """Make a job now, beside the ticks, also while the schedule is paused."""
    name, schedules = _name(call), call.app.schedules
    _may_enqueue(call, (await schedules.aget(name)).task)
    made = await schedules.arun(name, reason=call.body.reason, by=call.identity.name)
    return Answer(Ran(name=name, job_id=made), 201)


async def delete(call: Call[NoBody, ReasonQuery]) -> Answer:
    """Remove a schedule that was made at run time, or that no worker declares any longer; its jobs stay."""
    name = _name(call)
    await call.app.schedules.adelete(name, reason=or_none(call.query.reason), by=call.identity.name)
    return Answer(Removed(name=name))


def _name(call: Call[Any, Any]) -> str:
    return named("schedule", call.path["schedule"])


def _may_enqueue(call: Call[Any, Any], task: str) -> None:
    """A schedule enqueues, so a key needs the same right."""
    if not call.identity.may_enqueue(task):
        raise Problem(403, f"this key may not enqueue task {task!r}")
