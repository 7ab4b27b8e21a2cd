"""What operators and code change of a schedule: pause, resume, redefine, skip, run, retire. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from hawser.clock import at, to_us
from hawser.errors import ConfigError
from hawser.schedule.schedule import Advance, Definition, Halt, Schedule, during, job_of, plan
from hawser.value.ids import new_id

TRY_AGAIN: Final = 60.0
"""Seconds until a schedule is looked at again whose rule this machine cannot follow."""


def pause(schedule: Schedule, now: int, by: str, reason: str | None) -> Advance:
    """No ticks until it is resumed."""
    return _then(_settled(schedule, now), lambda s: replace(s, pause=Halt(since=at(now), by=by, reason=reason)))


def resume(schedule: Schedule, now: int) -> Advance:
    """Ticks again, from the next one on: those of the pause are dropped."""

    def resumed(s: Schedule) -> Schedule:
        if s.pause is not None:
            s = replace(s, pause=None, left_out=s.leaving_out(during(s, now), "paused"))
        return _from_now_on(s, now)

    return _then(_settled(schedule, now), resumed)


def redefine(schedule: Schedule, definition: Definition, now: int, *, declared: bool = False) -> Advance:
    """Another definition from now on."""
    changed = {"definition": definition, "declared": declared, "retired": False}
    return _then(_settled(schedule, now), lambda s: _from_now_on(replace(s, **changed), now))


def skip_next(schedule: Schedule, now: int) -> Advance:
    """Leave the next tick out."""

    def skipped(s: Schedule) -> Schedule:
        if s.next_us is None:
            raise ConfigError(f"schedule {s.name!r} has no tick left to skip")
        left_out = s.leaving_out([s.next_us], "skipped")
        return replace(s, handled_us=s.next_us, next_us=s.rule.after(s.next_us), skipped=s.skipped + 1, left_out=left_out)

    return _then(_settled(schedule, now), skipped)


def run_now(schedule: Schedule, now: int) -> Advance:
    """A job beside the ticks; the overlap rule is for ticks, so it counts as the last job but waits for none."""
    settled = _settled(schedule, now)
    job = job_of(schedule.definition, None)
    jobs = settled.jobs if settled.unless_live is None else ()
    # With overlap="skip" this one stands for the due ticks as well.
    kept = settled.schedule if settled.otherwise is None else settled.otherwise
    return replace(settled, schedule=replace(kept, last_job_id=job.id), jobs=(*jobs, job), unless_live=None, otherwise=None)


def retire(schedule: Schedule) -> Advance:
    """No worker declares it any longer. Its ticks wait: if a worker declares it again, they count as missed."""
    return Advance(schedule=replace(schedule, retired=True, revision=new_id()), expect=schedule.revision)


def revive(schedule: Schedule) -> Advance:
    """A worker declares it again as it was."""
    back = replace(schedule, retired=False, revision=new_id(), next_us=schedule.rule.after(schedule.handled_us))
    return Advance(schedule=back, expect=schedule.revision)


def postpone(schedule: Schedule, now: int, error: str) -> Advance:
    """Its rule cannot be followed here: look again later, and let the others go on."""
    later = replace(schedule, revision=new_id(), error=error[:500], retry_us=now + to_us(TRY_AGAIN))
    return Advance(schedule=later, expect=schedule.revision)


def _settled(schedule: Schedule, now: int) -> Advance:
    """Deal with what is due. A schedule that stands still has nothing due. One whose rule this process cannot read has nothing
    that could be fired: it may be given another rule."""
    if schedule.due_us is None or not _is_understood(schedule):
        return Advance(schedule=replace(schedule, revision=new_id()), expect=schedule.revision)
    return plan(schedule, now)


def _is_understood(schedule: Schedule) -> bool:
    try:
        return schedule.rule is not None
    except (ConfigError, msgspec.ValidationError):
        return False


def _from_now_on(schedule: Schedule, now: int) -> Schedule:
    handled = max(schedule.handled_us, now)
    return replace(schedule, handled_us=handled, next_us=schedule.rule.after(handled), error=None, retry_us=None)


def _then(advance: Advance, change: Callable[[Schedule], Schedule]) -> Advance:
    """The advance, with a further change of the schedule."""
    otherwise = None if advance.otherwise is None else change(advance.otherwise)
    return replace(advance, schedule=change(advance.schedule), otherwise=otherwise)
