"""A schedule and what becomes of it: pure. Each function takes a schedule as it stands and the store's time, and gives the
`Advance` to be written: the schedule as it shall stand, with the jobs of its ticks, in one write that is refused when
another process was faster.

Every change first deals with the ticks that are due, under the rule that stood until now; so an edit, a pause or a deploy
loses none and repeats none. `handled_us` says up to where ticks have been dealt with. It never goes back, also when the
clock does: that is why a tick has one job at the most.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from hawser.clock import at, to_us
from hawser.errors import ConfigError
from hawser.job import DEFAULT_TIMEOUT, NewJob
from hawser.schedule.rule import AnyRule, rule_of, tick_after
from hawser.value.ids import new_id

MISSED_AFTER_S: Final = 60.0
"""Seconds after which a tick counts as missed for `missed="skip"`."""

COUNTED: Final = 10_000
"""Ticks that are looked at one by one after an outage. When there are more, only the latest are, and `missed` is too low."""


LEFT_OUT_KEPT: Final = 50
"""Ticks without a job that a schedule remembers, the latest."""

Cause = Literal["missed", "skipped", "paused"]
"""Why a tick made no job: it was dropped as `missed` of the rule says; an operator skipped it, or the last job was still live; it
fell into a pause."""


class LeftOut(msgspec.Struct, frozen=True, array_like=True):
    """A tick that made no job."""

    tick_us: int
    cause: Cause


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """What code or an operator defined: the rule, and the job that each tick makes."""

    name: str
    rule_text: str
    """The rule as JSON; only code that works with ticks has to understand it."""
    task: str
    body: bytes = b"{}"
    """The payload as JSON text."""
    queue: str = "default"
    priority: int = 5
    max_attempts: int | None = None
    timeout: float = DEFAULT_TIMEOUT
    tags: tuple[str, ...] = ()
    confirm_replay: bool = False

    @property
    def rule(self) -> AnyRule:
        return rule_of(self.rule_text)

    @property
    def payload(self) -> Any:
        return msgspec.json.decode(self.body)


class Halt(msgspec.Struct, frozen=True, kw_only=True):
    """A pause of one schedule."""

    since: datetime
    by: str
    reason: str | None = None


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it stands. Instants are microseconds; the properties have them as datetimes."""

    definition: Definition
    revision: str
    """New with every change: what a change was decided on."""
    created_us: int
    handled_us: int
    """Ticks up to here have been dealt with."""
    next_us: int | None = None
    """The first tick that has not been dealt with; None when no tick is left."""
    declared: bool = False
    """Declared in code, rather than created at run time."""
    retired: bool = False
    """Declared by no living worker."""
    pause: Halt | None = None
    last_us: int | None = None
    """The last tick that made a job."""
    last_job_id: str | None = None
    """The last job, also of a `run`."""
    fired: int = 0
    """Ticks that made a job."""
    missed: int = 0
    """Ticks that were dropped, as `missed` of the rule says."""
    skipped: int = 0
    """Ticks that were left out: an operator skipped them, or the last job was still live."""
    left_out: tuple[LeftOut, ...] = ()
    """The last `LEFT_OUT_KEPT` ticks that made no job, oldest first."""
    error: str | None = None
    """Why the rule could not be followed, lately."""
    retry_us: int | None = None

    def leaving_out(self, ticks: Iterable[int], cause: Cause) -> tuple[LeftOut, ...]:
        """`left_out` with further ticks."""
        return (*self.left_out, *(LeftOut(tick, cause) for tick in ticks))[-LEFT_OUT_KEPT:]

    @property
    def name(self) -> str:
        """What it is known by."""
        return self.definition.name

    @property
    def rule(self) -> AnyRule:
        """When it fires: a `Cron` or an `Every`."""
        return self.definition.rule

    @property
    def task(self) -> str:
        """The task of its jobs."""
        return self.definition.task

    @property
    def words(self) -> str:
        """The rule for a person to read; as it is written, where this machine cannot follow it."""
        try:
            return self.rule.words
        except (ConfigError, msgspec.ValidationError):
            return self.definition.rule_text

    @property
    def due_us(self) -> int | None:
        """When a scheduler has to look at it."""
        if self.pause is not None or self.retired:
            return None
        return self.next_us if self.retry_us is None else self.retry_us

    @property
    def next_tick(self) -> datetime | None:
        """When it fires next; None while it is paused, and when it has ended."""
        return None if self.next_us is None or self.due_us is None else at(self.next_us)

    @property
    def last_tick(self) -> datetime | None:
        """When it fired last; None before its first tick."""
        return None if self.last_us is None else at(self.last_us)

    @property
    def created_at(self) -> datetime:
        """When it was made."""
        return at(self.created_us)

    @property
    def state(self) -> str:
        """active, paused, retired or ended."""
        if self.retired:
            return "retired"
        if self.pause is not None:
            return "paused"
        return "ended" if self.next_us is None else "active"


class Advance(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one schedule, together with the jobs that follow from it."""

    schedule: Schedule
    """As it shall stand, with a new revision."""
    expect: str | None
    """The revision that this was decided on; None when there was no schedule of that name."""
    jobs: tuple[NewJob, ...] = ()
    unless_live: str | None = None
    """A job: while it is live, `otherwise` is written instead, and no job is added."""
    otherwise: Schedule | None = None


# Ticks.


def create(definition: Definition, now: int, *, declared: bool = False) -> Advance:
    """A new schedule. Its first tick is the first one after now."""
    schedule = Schedule(
        definition=definition,
        revision=new_id(),
        created_us=now,
        handled_us=now,
        next_us=definition.rule.after(now),
        declared=declared,
    )
    return Advance(schedule=schedule, expect=None)


def plan(schedule: Schedule, now: int) -> Advance:
    """Deal with the ticks that are due."""
    rule = schedule.rule
    due, dropped, lost, following = _due(rule, schedule.next_us, now)
    wanted = _wanted(rule, due, now)
    missed = [*lost, *(tick for tick in due if tick not in wanted)]
    done = replace(
        schedule,
        revision=new_id(),
        handled_us=due[-1] if due else schedule.handled_us,
        next_us=following,
        missed=schedule.missed + dropped + len(due) - len(wanted),
        left_out=schedule.leaving_out(missed, "missed"),
        error=None,
        retry_us=None,
    )
    if not wanted:
        return Advance(schedule=done, expect=schedule.revision)
    jobs = tuple(job_of(schedule.definition, tick) for tick in wanted)
    fired = replace(done, last_us=wanted[-1], last_job_id=jobs[-1].id, fired=schedule.fired + len(jobs))
    if rule.overlap == "skip" and schedule.last_job_id is not None:
        skipped = replace(done, skipped=schedule.skipped + len(jobs), left_out=done.leaving_out(wanted, "skipped"))
        return Advance(schedule=fired, expect=schedule.revision, jobs=jobs, unless_live=schedule.last_job_id, otherwise=skipped)
    return Advance(schedule=fired, expect=schedule.revision, jobs=jobs)


def _due(rule: AnyRule, tick: int | None, now: int) -> tuple[list[int], int, Iterable[int], int | None]:
    """The ticks from `tick` up to now, the latest if they are very many; how many more there were, and the last of those; and the
    next one."""
    due: deque[int] = deque(maxlen=rule.most_missed)
    lost: deque[int] = deque(maxlen=LEFT_OUT_KEPT)
    dropped = counted = 0
    while tick is not None and tick <= now:
        if counted == COUNTED:
            latest = _latest(rule, tick, now, rule.most_missed + LEFT_OUT_KEPT)
            due.extend(latest)
            lost.extend(latest[: -rule.most_missed])
            tick = rule.after(due[-1])
            break
        if len(due) == due.maxlen:
            dropped += 1
            lost.append(due[0])
        due.append(tick)
        counted += 1
        tick = tick_after(rule, tick)
    return list(due), dropped, lost, tick


def _latest(rule: AnyRule, first: int, now: int, count: int) -> list[int]:
    """Some of the latest ticks, `count` at least if there are so many, without a walk through all since `first`."""
    back = to_us(count)
    while True:
        since = max(first - 1, now - back)
        ticks = list(_between(rule, since, now))
        if len(ticks) >= count or since < first:
            return ticks
        back *= 8


def _between(rule: AnyRule, after: int, until: int) -> Iterable[int]:
    while (tick := rule.after(after)) is not None and tick <= until:
        yield tick
        after = tick


def _wanted(rule: AnyRule, due: list[int], now: int) -> list[int]:
    """The due ticks that make a job."""
    match rule.missed:
        case "skip":
            wanted = [tick for tick in due[-1:] if now - tick <= to_us(MISSED_AFTER_S)]
        case "once":
            wanted = due[-1:]
        case "all":
            wanted = due
    return wanted if rule.overlap == "allow" else wanted[-1:]


def job_of(definition: Definition, tick: int | None) -> NewJob:
    """The job of a tick, or one beside the ticks that an operator asked for."""
    due = None if tick is None else at(tick + _jitter(definition, tick))
    return NewJob(
        task=definition.task,
        body=definition.body,
        queue=definition.queue,
        priority=definition.priority,
        max_attempts=definition.max_attempts,
        timeout=definition.timeout,
        tags=definition.tags,
        confirm_replay=definition.confirm_replay,
        run_at=due,
        schedule=definition.name,
        tick=None if tick is None else at(tick),
    )


def _jitter(definition: Definition, tick: int) -> int:
    jitter = definition.rule.jitter
    assert isinstance(jitter, (int, float))
    if not jitter:
        return 0
    dice = hashlib.sha256(f"{definition.name}/{tick}".encode()).digest()
    return to_us(jitter * int.from_bytes(dice[:6], "big") / 2**48)


def preview(rule: AnyRule, after: int, count: int) -> list[datetime]:
    """The next ticks."""
    return [at(tick) for tick in islice(_between(rule, after, 2**62), count)]


def during(schedule: Schedule, until: int) -> list[int]:
    """The last ticks behind those that have been dealt with, as many as are remembered."""
    return _latest(schedule.rule, schedule.handled_us + 1, until, LEFT_OUT_KEPT)[-LEFT_OUT_KEPT:]


def past(schedule: Schedule, now: int, count: int) -> list[datetime]:
    """The last ticks that were dealt with, newest first, as the present rule has them. One that was skipped may be to come."""
    ticks = _latest(schedule.rule, schedule.created_us + 1, min(now, schedule.handled_us), count)
    return [at(tick) for tick in reversed(ticks[-count:])]
