"""The options of a task and of a job: what may be given, and how it is checked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import (
    Any,
    Final,
    Literal,
    TypedDict,
)

import msgspec

from hawser.backoff import Backoff
from hawser.breaker import Breaker
from hawser.config import checked_retention
from hawser.errors import ConfigError, FieldError, InvalidJob, did_you_mean
from hawser.job import DEFAULT_TIMEOUT, MAX_GROUP, NewJob, new_job
from hawser.limit import Limit
from hawser.schedule.rule import AnyRule, Cron, Every
from hawser.store import Retention
from hawser.value.name import name_fault, text_fault
from hawser.value.upstream import HasId, UpstreamJob, upstream_id

GroupOf = Callable[[Mapping[str, Any]], Any]
"""The group of a job, by its arguments."""


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for all jobs of a task, unless `using` says otherwise."""

    queue: str = "default"
    priority: int = 5
    """0 to 9; higher goes first."""
    max_attempts: int | None = None
    """How often a job may be started; None is what its queue says, else 5."""
    timeout: float | timedelta = DEFAULT_TIMEOUT
    """Seconds that one attempt may take."""
    backoff: Backoff | None = None
    """The wait between two attempts; None is what the queue says, else exponential from 30 s to 1 h."""
    isolate: bool = False
    """Run in a child process, which can be killed at the timeout and may crash without harm. Costs a process per slot."""
    memory_limit: int | None = None
    """Bytes that an isolated run may take beyond what its process has when it starts; over it, it gets a MemoryError."""
    concurrency: int | None = None
    """How many of its jobs one worker process runs at once; None is as many as it has slots. A queue's policy holds, too. For a
    limit over all workers see `limit`."""
    limit: Limit | None = None
    """How many of its jobs run at once and start in a period, over all workers. It is in force once a worker has started with it;
    what an operator sets wins."""
    singleton: bool = False
    """At most one of its jobs runs at once, over all workers: the same as `limit=Limit(running=1)`."""
    breaker: Breaker | None = None
    """When most of its attempts fail, over all workers, its jobs wait, but for a probe now and then."""
    retention: Retention | None = None
    """How long its finished jobs are kept; None is the app's setting."""
    confirm_replay: bool = False
    """Replay its dead jobs only with an explicit confirmation: for payments and the like."""
    tags: Collection[str] = ()
    group: str | GroupOf | None = None
    """Whose job it is: the name of the parameter that says so, or a function of the arguments by name. The groups of a queue take
    turns. `using(group=…)` names the group itself."""
    index: Collection[str] = ()
    """Up to three parameters that its jobs are found by, however many jobs there are: `app.find(argument={"user_id": 42})`."""
    redact: Collection[str] = ()
    """Parameters whose values are never shown, such as the number of a card: lists, exports, the dashboard and the command line
    have `•••` in their place. The store keeps them, and runs get them."""
    schedule: AnyRule | Mapping[str, AnyRule] | None = None
    """When jobs of it are made by themselves: a `Cron` or an `Every`. The schedule is called what the task is called; of
    several, give a dict by name."""


class TaskSettings(TypedDict, total=False):
    """What `@app.task(…)` takes by keyword; `TaskOptions` says what each means."""

    name: str
    queue: str
    priority: int
    max_attempts: int | None
    timeout: float | timedelta
    backoff: Backoff | None
    isolate: bool
    memory_limit: int | None
    concurrency: int | None
    limit: Limit | None
    singleton: bool
    breaker: Breaker | None
    retention: Retention | None
    confirm_replay: bool
    tags: Collection[str]
    group: str | GroupOf | None
    index: Collection[str]
    redact: Collection[str]
    schedule: AnyRule | Mapping[str, AnyRule] | None


class JobSettings(TypedDict, total=False):
    """What one job may have of its own, but for its id. `NewJob` says what each means."""

    queue: str
    priority: int
    delay: float | timedelta
    run_at: datetime | None
    expires: float | timedelta | None
    key: str | None
    key_ttl: float | timedelta | Literal["forever", "start"]
    debounce: float | timedelta | None
    at_most: float | timedelta | None
    max_attempts: int | None
    timeout: float | timedelta
    tags: Collection[str]
    group: str | None
    parent_id: str | None
    after: Sequence[UpstreamJob]
    """Jobs that it waits for until they are done; `NewJob.after` takes any end, too."""
    batch: HasId | str | None
    """The batch that it counts in."""


class JobOptions(JobSettings, total=False):
    """What one job may have of its own."""

    id: str
    """A UUIDv7 made by the caller, for one job: repeated, it makes no second one for as long as the job is kept."""


METHODS_ELSEWHERE: Final = {
    "delay": "task.enqueue(…), or task.using(delay=60).enqueue(…) for a job that is due later",
    "apply_async": "task.enqueue(…), with options: task.using(queue=…, delay=…).enqueue(…)",
    "apply": "task(…), which runs it here and now",
    "s": "task.job(…)",
    "si": "task.job(…)",
    "signature": "task.job(…)",
    "send": "task.enqueue(…)",
    "send_with_options": "task.using(…).enqueue(…)",
    "message": "task.job(…)",
    "defer": "task.enqueue(…)",
    "defer_async": "task.aenqueue(…)",
    "configure": "task.using(…)",
    "kiq": "task.aenqueue(…)",
    "schedule": "task.using(run_at=…).enqueue(…)",
    "enqueue_async": "task.aenqueue(…)",
    "perform_async": "task.enqueue(…)",
}
"""What tasks are told to do in Celery, Dramatiq, Procrastinate, Huey, Taskiq, and what it is here."""


JOB_OPTIONS: Final = frozenset(JobOptions.__annotations__)


def fields_of(options: JobOptions) -> dict[str, Any]:
    """The fields of `NewJob` that options mean."""
    fields: dict[str, Any] = {**options}
    if "after" in fields:
        after = fields.pop("after")
        listed = isinstance(after, Collection) and not isinstance(after, str)
        fields["waits_for"] = tuple(dict.fromkeys(map(upstream_id, after))) if listed else after
    if fields.get("batch") is not None:
        fields["batch"] = upstream_id(fields["batch"])
    return fields


def refuse_unknown(options: JobOptions) -> None:
    if unknown := sorted(options.keys() - JOB_OPTIONS):
        known = sorted(JOB_OPTIONS)
        raise InvalidJob(*(FieldError(name, f"no such option; {did_you_mean(name, known)}") for name in unknown))


def _check_limit(name: str, options: TaskOptions) -> None:
    if options.breaker is not None and not isinstance(options.breaker, Breaker):
        raise ConfigError(f"task {name!r}: breaker: {options.breaker!r} is not a breaker; use Breaker(share=0.8, probe_every=60)")
    limit = options.limit
    if limit is None:
        return
    if not isinstance(limit, Limit):
        raise ConfigError(f"task {name!r}: limit: {limit!r} is not a limit; use Limit(running=5, rate='100/m')")
    if options.singleton:
        raise ConfigError(f"task {name!r}: singleton: it has a limit already; leave one of the two out")
    if limit.max_depth is not None:
        raise ConfigError(f"task {name!r}: limit: max_depth: only a queue has a depth; use app.set_limit(queue=…, max_depth=…)")
    if not limit.binds_claims:
        raise ConfigError(f"task {name!r}: limit: it says nothing; give running, rate, or both")
    if limit.per_group and options.group is None:
        raise ConfigError(
            f"task {name!r}: limit: per_group: the task names no group, and jobs without one are not counted; add group= with the"
            " name of a parameter or a function of the arguments, or leave per_group out"
        )


def check_options(name: str, options: TaskOptions) -> None:
    """What `new_job` does not judge."""
    if options.backoff is not None and not isinstance(options.backoff, Backoff):
        raise ConfigError(f"task {name!r}: backoff: {options.backoff!r} is not a backoff; use Exponential, Linear or Fixed")
    _check_limit(name, options)
    if options.group is not None and not isinstance(options.group, str) and not callable(options.group):
        raise ConfigError(
            f"task {name!r}: group: {options.group!r} is not the name of a parameter; give that, or a function of the arguments"
        )
    for field in ("isolate", "confirm_replay", "singleton"):
        if not isinstance(getattr(options, field), bool):
            raise ConfigError(f"task {name!r}: {field}: {getattr(options, field)!r} is not True or False")
    memory = options.memory_limit
    if memory is not None:
        if not isinstance(memory, int) or isinstance(memory, bool) or memory < 1:
            raise ConfigError(f"task {name!r}: memory_limit: {memory!r} is not a number of bytes; None is no limit")
        if not options.isolate:
            raise ConfigError(f"task {name!r}: memory_limit: only an isolated run can be limited; add isolate=True")
    limit = options.concurrency
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise ConfigError(f"task {name!r}: concurrency: {limit!r} is not a whole number from 1; None is no limit")
    if options.retention is not None:
        checked_retention(f"task {name!r}: retention", options.retention)


def template_of(name: str, options: TaskOptions) -> NewJob:
    return new_job(
        task=name,
        body=b"{}",
        queue=options.queue,
        priority=options.priority,
        max_attempts=options.max_attempts,
        timeout=options.timeout,
        tags=options.tags,
        confirm_replay=options.confirm_replay,
    )


def schedules_of(task: str, declared: AnyRule | Mapping[str, AnyRule] | None) -> Mapping[str, AnyRule]:
    if declared is None:
        return {}
    named = declared if isinstance(declared, Mapping) else {task: declared}
    for name, rule in named.items():
        if fault := name_fault(name):
            raise ConfigError(f"task {task!r}: schedule: {fault}")
        if not isinstance(rule, Cron | Every):
            raise ConfigError(f"task {task!r}: schedule: {rule!r} is not a schedule; use Cron('30 2 * * *') or Every(minutes=5)")
    return dict(named)


def group_of(task: str, how: str | GroupOf | None, arguments: Mapping[str, Any]) -> str | None:
    """The group that a task's jobs with these arguments have; `InvalidJob` when it cannot be a text."""
    if how is None:
        return None
    if isinstance(how, str):
        group: object = arguments.get(how)
    else:
        try:
            group = how(arguments)
        except Exception as error:
            raise InvalidJob(
                FieldError("group", f"the function of task {task!r} failed: {type(error).__name__}: {error}")
            ) from error
    if group is None:
        return None
    plain = msgspec.to_builtins(group) if not isinstance(group, (str, bool, int)) else group
    if isinstance(plain, bool) or not isinstance(plain, (str, int)):
        kind = type(group).__name__
        raise InvalidJob(FieldError("group", f"{group!r} of type {kind} cannot be a group; use a text, a whole number or a UUID"))
    if wrong := text_fault(str(plain), MAX_GROUP):
        raise InvalidJob(FieldError("group", wrong))
    return str(plain)
