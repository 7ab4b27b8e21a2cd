"""A task: a registered function and how to enqueue it."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    cast,
    overload,
)

import msgspec
from msgspec.structs import replace

from hawser.context import Context
from hawser.errors import ConfigError, FieldError, UnknownTask, did_you_mean
from hawser.handle import Handle, TypedJob
from hawser.handler.hooks import Hooks
from hawser.handler.ledger import StepRules, StoreAccess
from hawser.handler.run_control import InlineRun, RunControl
from hawser.job import DEFAULT_ATTEMPTS, Claimed, Job, NewJob, new_job
from hawser.limit import Limit
from hawser.redaction import checked_redact
from hawser.task_options import (
    METHODS_ELSEWHERE,
    JobOptions,
    TaskOptions,
    check_options,
    fields_of,
    group_of,
    refuse_unknown,
    schedules_of,
    template_of,
)
from hawser.value.ids import new_id
from hawser.value.indexed import checked_index, index_of
from hawser.value.payload import UNRESOLVED, Parameters, resolve, signature_of

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
C = TypeVar("C", bound=Context)
"""Bound, so that mypy does not take a first parameter of type `object` for the context."""


class Producer(Protocol):
    """What a task needs of its app: where checked jobs go."""

    @property
    def max_payload(self) -> int: ...

    def put(self, jobs: Sequence[NewJob]) -> list[Handle[Any]]: ...

    async def aput(self, jobs: Sequence[NewJob]) -> list[Handle[Any]]: ...

    def inside(self, transaction: object) -> Producer: ...


class Task(Generic[P, R]):
    """A registered function. Calling it runs it here and now; `enqueue` leaves that to a worker."""

    def __init__(
        self, name: str, fn: Callable[..., Any], options: TaskOptions, producer: Producer, hooks: Hooks | None = None
    ) -> None:
        self.name = name
        self.fn = fn
        self.options = options
        self.wants_context = _wants_context(name, fn)
        self.parameters = Parameters(name, fn, skip_first=self.wants_context)
        self.schedules = schedules_of(name, options.schedule)
        """The rules that it declares, by the names of their schedules."""
        self.is_async = inspect.iscoroutinefunction(inspect.unwrap(fn))
        self._group = options.group
        """How its jobs are grouped; None when they are not, or when `using` has named the group."""
        self.index = checked_index(name, options.index, self.parameters.names)
        """The parameters that its jobs are found by."""
        labels = (*self.index, options.group) if isinstance(options.group, str) else self.index
        self.redact = checked_redact(name, options.redact, self.parameters.names, labels)
        """The parameters whose values are redacted."""
        self.parameters.secret = frozenset(self.redact)
        self.hooks = hooks or Hooks()
        """Of its app."""
        self._producer = producer
        access = cast("StoreAccess", producer) if hasattr(producer, "ready") else None
        kept = options.retention is None or options.retention.done > 0
        ordered = options.limit is not None and options.limit.ordered
        self._steps = StepRules(access, self.is_async, kept=kept, ordered=ordered)
        self.template = template_of(name, options)
        """What all jobs made through this object have in common."""
        self._id: str | None = None
        """The id that the caller made for a job."""
        functools.update_wrapper(self, fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here. A context, if it wants one, has no lease; the jobs it enqueues are added when it returns."""
        if not self.wants_context:
            result: R = self.fn(*args, **kwargs)
            return result
        rules = StepRules(None, self.is_async, kept=True)
        ctx = Context(self._claimed(args, kwargs), InlineRun(), self.hooks.state, rules)
        result = self.fn(ctx, *args, **kwargs)
        if self.is_async:
            return self._finish_async(ctx, result)  # type: ignore[return-value,arg-type]  # R is a coroutine here
        if ctx.then:
            self._producer.put(ctx.then)
        return result

    def context(self, job: Claimed, run: RunControl) -> Context | None:
        """What a run of the job is told and may ask for; None when nothing would use it."""
        return self.new_context(job, run) if self.wants_context or self.hooks.arounds else None

    def new_context(self, job: Claimed, run: RunControl) -> Context:
        """What a run of the job is told and may ask for."""
        return Context(job, run, self.hooks.state, self._steps)

    def begin(self, ctx: Context | None, arguments: Mapping[str, Any]) -> Any:
        """Call the function for a run, with the app's hooks around it: a coroutine if it is async, else its value."""
        if not self.hooks.arounds:
            return self.fn(ctx, **arguments) if self.wants_context else self.fn(**arguments)
        fn = functools.partial(self.fn, ctx, **arguments) if self.wants_context else functools.partial(self.fn, **arguments)
        return self.hooks.run_async(ctx, fn) if self.is_async else self.hooks.run_plain(ctx, fn)

    @overload
    def enqueue(self: Task[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> Handle[T]: ...
    @overload
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]: ...
    def enqueue(self, *args: Any, **kwargs: Any) -> Handle[Any]:
        """Add a job with these arguments; it is in the store when this returns."""
        return self._producer.put((self.job_of(args, kwargs),))[0]

    @overload
    async def aenqueue(self: Task[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> Handle[T]: ...
    @overload
    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]: ...
    async def aenqueue(self, *args: Any, **kwargs: Any) -> Handle[Any]:
        """Add a job with these arguments; it is in the store when this returns."""
        return (await self._producer.aput((self.job_of(args, kwargs),)))[0]

    @overload
    def job(self: Task[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> TypedJob[T]: ...
    @overload
    def job(self, *args: P.args, **kwargs: P.kwargs) -> TypedJob[R]: ...
    def job(self, *args: Any, **kwargs: Any) -> NewJob:
        """A job with these arguments, for `app.enqueue_many`, `ctx.enqueue` or `ctx.gather`; nothing is written."""
        return self.job_of(args, kwargs)

    def job_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewJob:
        """As `job`, for arguments that no type checker has seen."""
        # The template's fields were judged when it was made; only the payload is new.
        body = self.parameters.pack(args, kwargs, self._producer.max_payload)
        if self._group is None and not self.index:
            return replace(self.template, id=self._id or new_id(), body=body)
        return replace(self.template, id=self._id or new_id(), body=body, **self._labels(body))

    def _labels(self, body: bytes) -> dict[str, Any]:
        """What the arguments of a job say of it: its group, unless that is named, and what it is found by."""
        arguments = self.parameters.with_defaults(body)
        found: dict[str, Any] = {"index": index_of(self.index, arguments)} if self.index else {}
        return found if self._group is None else found | {"group": group_of(self.name, self._group, arguments)}

    def job_from_json(self, body: bytes, options: JobOptions) -> NewJob:
        """As `job_of`, for arguments that came as JSON text, with options of its own."""
        self.parameters.check(body, self._producer.max_payload)
        labels = self._labels(body) if self.index or (self._group is not None and "group" not in options) else {}
        if not options:
            return replace(self.template, id=self._id or new_id(), body=body, **labels)
        refuse_unknown(options)
        fields = {
            **msgspec.structs.asdict(self.template),
            **labels,
            "id": self._id or new_id(),
            **fields_of(options),
            "body": body,
        }
        return new_job(**fields)

    def using(self, **options: Unpack[JobOptions]) -> Task[P, R]:
        """The same task with other options for the jobs made through it; `InvalidJob` names the one that is wrong."""
        refuse_unknown(options)
        other = copy.copy(self)
        other.template = new_job(**{**msgspec.structs.asdict(self.template), **fields_of(options)})
        other._id = options.get("id", self._id)  # noqa: SLF001  # a copy of ourselves
        other._group = None if "group" in options else self._group  # noqa: SLF001  # as above
        return other

    def inside(self, transaction: object) -> Task[P, R]:
        """The same task, whose jobs are written by your own connection: they exist exactly if its transaction commits."""
        other = copy.copy(self)
        other._producer = self._producer.inside(transaction)  # noqa: SLF001  # a copy of ourselves
        return other

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    if not TYPE_CHECKING:  # for a type checker there is no such attribute at all

        def __getattr__(self, name: str) -> Any:
            """Methods that tasks of other libraries have: say what it is called here."""
            ours = METHODS_ELSEWHERE.get(name)
            hint = f"; use {ours}" if ours else ""
            raise AttributeError(f"a task has no attribute {name!r}{hint}", name=name, obj=self)

    async def _finish_async(self, ctx: Context, result: Awaitable[R]) -> R:
        value = await result
        if ctx.then:
            await self._producer.aput(ctx.then)
        return value

    def _claimed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Claimed:
        """The job that an inline run would be: first attempt, no lease, in no store."""
        job = self.job_of(args, kwargs)
        return Claimed(
            id=job.id,
            task=job.task,
            queue=job.queue,
            body=job.body,
            priority=job.priority,
            attempt=1,
            max_attempts=job.max_attempts or DEFAULT_ATTEMPTS,
            timeout=job.timeout,
            lease=0,
            run_at_us=0,
            enqueued_at_us=0,
            tags=job.tags,
            group=job.group,
            batch=job.batch,
        )


class Registrar(Protocol):
    """What `app.task(…)` gives back: it makes a task of the function that it decorates."""

    @overload
    def __call__(self, fn: Callable[Concatenate[C, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...


def find_task(tasks: Mapping[str, Task[..., Any]], name: str) -> Task[..., Any]:
    """The task of that name; `UnknownTask` says which may be meant."""
    task = tasks.get(name) if isinstance(name, str) else None
    if task is not None:
        return task
    hint = did_you_mean(str(name), tasks, "register it with @app.task, or import its module", most=3)
    raise UnknownTask(FieldError("task", f"no task is called {name!r}; {hint}"))


def declared_limits(tasks: Mapping[str, Task[..., Any]]) -> dict[str, Limit | None]:
    """What code says of the limits of all tasks, of those without one, too."""
    return {name: Limit(running=1) if task.options.singleton else task.options.limit for name, task in tasks.items()}


def asks_for_confirmation(tasks: Mapping[str, Task[..., Any]], job: Job) -> bool:
    """Whether a replay of the job wants to be confirmed: its task said so when it was enqueued, or says so now."""
    task = tasks.get(job.task)
    return job.confirm_replay or (task is not None and task.options.confirm_replay)


def make_task(
    fn: Callable[..., Any], producer: Producer, settings: Mapping[str, Any], hooks: Hooks | None = None
) -> Task[..., Any]:
    """A task of a function, every setting checked; nothing is registered yet."""
    if isinstance(fn, Task) or not callable(fn) or inspect.isclass(fn):
        raise ConfigError(f"task: {fn!r} is not a function; put @app.task on a def or an async def")
    name = settings.get("name", getattr(fn, "__name__", ""))
    bare = inspect.unwrap(fn)
    if _is_method(bare):
        raise ConfigError(
            f"task {name!r}: {bare.__qualname__} is a method, and a worker has no object to call it on; "
            "put @app.task on a function, and pass an id from which it loads the object"
        )
    if inspect.isgeneratorfunction(bare) or inspect.isasyncgenfunction(bare):
        raise ConfigError(f"task {name!r}: it is a generator; a task returns once: use ctx.progress() to report on the way")
    known = ("name", *TaskOptions.__struct_fields__)
    for field in settings:
        if field not in known:
            raise ConfigError(f"task {name!r}: {field}: no such option; {did_you_mean(field, known)}")
    options = TaskOptions(**{field: value for field, value in settings.items() if field != "name"})
    check_options(name, options)
    task: Task[..., Any] = Task(name, fn, options, producer, hooks)
    if isinstance(options.group, str) and not task.parameters.takes(options.group):
        takes = did_you_mean(options.group, task.parameters.names, f"it takes {', '.join(task.parameters.names) or 'none'}")
        raise ConfigError(
            f"task {name!r}: group: it has no parameter {options.group!r}; {takes}. To name the group itself: using(group=…)"
        )
    return task


def _is_method(fn: Callable[..., Any]) -> bool:
    """Whether it is a function in the body of a class that wants its object first. A bound method has one."""
    if inspect.ismethod(fn) or not inspect.isfunction(fn):
        return False
    inside_class = fn.__qualname__.rpartition(".")[0].rpartition("<locals>.")[2] != ""
    first = next(iter(inspect.signature(fn).parameters), None)
    return inside_class and not fn.__qualname__.rpartition(".")[0].endswith("<locals>") and first in ("self", "cls")


def _wants_context(name: str, fn: Callable[..., Any]) -> bool:
    """Whether the first parameter is the context: annotated as one, or called ctx and not annotated."""
    parameters = signature_of(name, fn)
    wanting = [parameter for parameter in parameters if _is_context(fn, parameter, first=parameter is parameters[0])]
    for parameter in wanting:
        if parameter is not parameters[0] or parameter.kind is parameter.KEYWORD_ONLY:
            raise ConfigError(f"task {name!r}: the context {parameter.name!r} must be the first parameter")
    return bool(wanting)


def _is_context(fn: Callable[..., Any], parameter: inspect.Parameter, *, first: bool) -> bool:
    if parameter.annotation is parameter.empty:
        return first and parameter.name == "ctx"
    kind = resolve(fn, parameter)
    if kind is UNRESOLVED:
        # Imported under TYPE_CHECKING only: the name has to do.
        return str(parameter.annotation).rpartition(".")[2] == "Context"
    return inspect.isclass(kind) and issubclass(kind, Context)
