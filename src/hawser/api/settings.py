"""What is set for a time to come, as types: schedules with their rules, and the policies of queues."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from hawser.api.bodies import TEXT, In, Name, Out, Reason, Seconds, said
from hawser.api.problem import bad
from hawser.api.views import JobLine
from hawser.backoff import BackoffRule, Jitter
from hawser.errors import ConfigError
from hawser.job import MAX_ATTEMPTS, MAX_PRIORITY, State
from hawser.policy import DEFAULT_AGEING, LONGEST_AGEING, MOST_AT_ONCE, QueuePolicy, checked
from hawser.redaction import redacted
from hawser.schedule.rule import EXPRESSION_CHARACTERS, MOST_MISSED, AnyRule
from hawser.schedule.schedule import Schedule

TICKS_SHOWN: Final = 5
"""Ticks to come that are shown with a schedule."""

MAX_TICKS: Final = 100
MAX_SCHEDULES: Final = 500

_Amount = Annotated[float, Meta(ge=0, le=1e9)]
_Instant = Annotated[datetime, Meta(tz=True, extra_json_schema={"pattern": "^(197[1-9]|19[89]|[2-8])"})]


# Rules and schedules.


class _RuleIn(In, tag_field="kind"):
    missed: Literal["skip", "once", "all"] = "once"
    """What happens to ticks that no scheduler fired in time."""
    most_missed: Annotated[int, Meta(ge=1, le=MOST_MISSED)] = 100
    overlap: Literal["allow", "skip"] = "allow"
    """`skip`: no job while the last one is live."""
    jitter: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    start: _Instant | None = None
    end: _Instant | None = None


class CronIn(_RuleIn, kw_only=True, tag="cron"):
    """A cron expression in a time zone."""

    expression: Annotated[str, Meta(min_length=1, max_length=EXPRESSION_CHARACTERS, pattern=TEXT)]
    tz: Annotated[str, Meta(min_length=1, max_length=EXPRESSION_CHARACTERS, pattern=TEXT)] = "UTC"


class EveryIn(_RuleIn, tag="every"):
    """An interval: the sum of its parts, 1 s to 10 years."""

    days: _Amount = 0.0
    hours: _Amount = 0.0
    minutes: _Amount = 0.0
    seconds: _Amount = 0.0


class ScheduleIn(In):
    """Have a task run by a rule; `payload` has its arguments. Queue and priority that are left out are the task's own."""

    task: Name
    rule: CronIn | EveryIn
    payload: Annotated[Raw, Meta(extra_json_schema={"type": "object"})] | UnsetType = UNSET
    queue: Name | None = None
    priority: Annotated[int, Meta(ge=0, le=MAX_PRIORITY)] | None = None
    reason: Reason | None = None


class TicksIn(In):
    """A rule that is only tried out."""

    rule: CronIn | EveryIn
    count: Annotated[int, Meta(ge=1, le=MAX_TICKS)] = TICKS_SHOWN


class TicksQuery(In):
    count: Annotated[int, Meta(ge=1, le=MAX_TICKS)] = TICKS_SHOWN


class SchedulesQuery(In):
    """By name. Go on with `after` set to the page's `next` until that is null."""

    after: Name | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_SCHEDULES)] = 100


class HaltView(Out):
    since: datetime
    by: str
    reason: str | None


class ScheduleLine(Out):
    """A schedule in a list. `rule` is as it was given, `words` says the same to a person."""

    name: str
    task: str
    queue: str
    priority: int
    payload: Raw
    rule: Raw
    words: str
    state: Literal["active", "paused", "retired", "ended"]
    declared: bool
    """In code: it cannot be changed or deleted here."""
    pause: HaltView | None
    next_tick: datetime | None
    last_tick: datetime | None
    last_job_id: str | None
    fired: int
    missed: int
    skipped: int
    error: str | None
    created_at: datetime


class ScheduleView(ScheduleLine):
    """A schedule in full: its next ticks, on the wall clock of its zone, and its last job if that is still kept."""

    ticks: list[datetime]
    last_job: JobLine | None


class SchedulesPage(Out):
    """`next` is where to go on; null at the end."""

    schedules: list[ScheduleLine]
    next: str | None


class TicksOut(Out):
    """On the wall clock of the rule's zone."""

    words: str
    ticks: list[datetime]


class PastTickView(Out):
    """`job_id` is null when the tick was left out, or its job is not kept. `late_s` is null while it has not started."""

    tick: datetime
    job_id: str | None
    state: State | None
    late_s: float | None
    left_out: Literal["missed", "skipped", "paused"] | None
    """Why it made no job: the rule drops missed ones; an operator skipped it, or the last job was still live; it fell into a
    pause. Null when it made one, or is older than the last 50 that made none."""


class PastOut(Out):
    """Newest first, on the wall clock of the rule's zone."""

    ticks: list[PastTickView]


class Ran(Out):
    """The job that was made."""

    name: str
    job_id: str


class Removed(Out):
    """The schedule that is gone."""

    name: str


def rule_of(given: CronIn | EveryIn) -> AnyRule:
    """The rule that a body describes, judged as the Python API would."""
    try:
        rule: AnyRule = msgspec.convert(msgspec.to_builtins(given), AnyRule)
    except ConfigError as error:
        field, _, message = str(error).removeprefix("schedule: ").partition(": ")
        raise (bad(f"rule.{field}", message) if message else bad("rule", field)) from None
    return rule


def schedule_fields(schedule: Schedule, secret: Collection[str] = ()) -> dict[str, Any]:
    """What a list says of a schedule; of its arguments the secret ones are masked."""
    made = {"payload", "rule", "queue", "priority", "pause"}
    fields = {name: getattr(schedule, name) for name in ScheduleLine.__struct_fields__ if name not in made}
    definition, pause = schedule.definition, schedule.pause
    return fields | {
        "payload": Raw(redacted(secret, definition.body)),
        "rule": Raw(definition.rule_text.encode()),
        "queue": definition.queue,
        "priority": definition.priority,
        "pause": None if pause is None else HaltView(since=pause.since, by=pause.by, reason=pause.reason),
    }


# Policies.


class _BackoffIn(In, tag_field="kind"):
    jitter: Jitter = "full"
    """Where the wait lies, when the rule gives c seconds: full 0 to c, equal c/2 to c, added c to 1.5 c, none c."""


class ExponentialIn(_BackoffIn, tag="exponential"):
    base: Seconds = 30.0
    cap: Seconds = 3600.0


class LinearIn(_BackoffIn, tag="linear"):
    step: Seconds = 30.0
    cap: Seconds = 3600.0


class FixedIn(_BackoffIn, tag="fixed"):
    every: Seconds = 30.0


class PolicyIn(In):
    """How a queue's jobs are run where neither the job nor its task says so, in place of what was said before."""

    max_attempts: Annotated[int, said(minimum=1, maximum=MAX_ATTEMPTS)] | None = None
    backoff: ExponentialIn | LinearIn | FixedIn | None = None
    concurrency: Annotated[int, said(minimum=1, maximum=MOST_AT_ONCE)] | None = None
    """How many of the queue's jobs one worker process runs at once."""
    ageing: Annotated[float, said(minimum=1, maximum=LONGEST_AGEING)] | None = DEFAULT_AGEING
    """Seconds after which jobs that higher priorities hold up get a tenth of the places; null is strict priority."""
    reason: Reason | None = None


def policy_of(given: PolicyIn) -> QueuePolicy:
    backoff = None if given.backoff is None else msgspec.convert(msgspec.to_builtins(given.backoff), BackoffRule)
    fields = {"max_attempts": given.max_attempts, "concurrency": given.concurrency, "ageing": given.ageing}
    return checked({**fields, "backoff": backoff})
