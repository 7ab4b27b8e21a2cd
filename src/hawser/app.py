"""Hawser: the tasks of an application, and everything it does with their jobs."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Self, Unpack, cast, overload

import msgspec

from hawser.client.batch_calls import BatchCalls
from hawser.client.connection import Connection, sync
from hawser.client.events import EventCalls
from hawser.client.operator_calls import OperatorCalls
from hawser.client.pacing import PacedWrites
from hawser.client.portal import Portal
from hawser.client.results import Results
from hawser.client.schedules import Schedules, declared
from hawser.client.transaction import Transaction
from hawser.clock import Clock, SystemClock
from hawser.config import Settings, load
from hawser.errors import ConfigError, FieldError, InvalidJob, QueueFull
from hawser.handle import Handle
from hawser.handler.hooks import F, Hooks
from hawser.job import FREE_TASK, MAX_ATTEMPTS, NewJob, new_job
from hawser.schedule.schedule import Definition
from hawser.store import MAX_LEASE, RequestKey, Store
from hawser.stores import make_store
from hawser.supervisor.start import run_worker
from hawser.task import C, P, R, Registrar, Task, find_task, make_task
from hawser.task_options import JOB_OPTIONS, JobOptions, TaskSettings, fields_of
from hawser.telemetry.events import Events, Listeners
from hawser.telemetry.tracing import Tracing
from hawser.value.json_value import check_json
from hawser.worker.options import WorkerSettings, checked

if TYPE_CHECKING:
    from hawser.api.options import ApiSettings
    from hawser.api.server import Api
    from hawser.supervisor.embedded import EmbeddedWorker


class Hawser(OperatorCalls, EventCalls, BatchCalls):
    """An application: its store, its tasks, its jobs.

    Every method that talks to the store has an awaitable twin whose name begins with `a`. The plain ones work in
    scripts, in threads, and beside a running event loop, which they block meanwhile. The store is opened at first use.
    """

    def __init__(self, url: str | Store | None = None, *, clock: Clock | None = None, **settings: Unpack[Settings]) -> None:
        """`url` names the store (default: $HAWSER_STORE, else sqlite:///hawser.db); a store that was built may stand for it."""
        built = url if url is not None and hasattr(url, "claim") else None
        self.config = load({"store": None if built else url, **settings})
        self._connection = Connection(
            lambda: cast("Store", built) if built else make_store(self.config.store, clock=clock), self.config
        )
        self._clock = clock
        self._built = built is not None
        self.events = Events()
        """The listener to the workers of this app: replace it before they start."""
        self.hooks = Hooks()
        """What runs at start and stop of a worker process and around each attempt."""
        self._tasks = {}
        self.results = self._connection.results = Results(self._connection, self._tasks)
        """What jobs returned, for those who wait."""
        self.schedules = Schedules(self._connection, self._tasks)
        """The schedules in the store: look at them, make and change them."""

    # Tasks.

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """The registered tasks by name."""
        return MappingProxyType(self._tasks)

    @overload
    def task(self, fn: Callable[Concatenate[C, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, **settings: Unpack[TaskSettings]) -> Registrar: ...
    def task(self, fn: Callable[..., Any] | None = None, **settings: Any) -> Any:
        """Make a task of a function: `@app.task`, or `@app.task(queue="mail", …)` with the settings of `TaskSettings`.

        It is called what the function is called, unless `name` says otherwise. A first parameter annotated as `Context`
        is given the context of the run.
        """
        if fn is None:
            return functools.partial(self._register, settings)
        return self._register(settings, fn)

    def _register(self, settings: Mapping[str, Any], fn: Callable[..., Any]) -> Task[..., Any]:
        task = make_task(fn, self._connection, settings, self.hooks)
        if task.name in self._tasks:
            taken = self._tasks[task.name].fn
            raise ConfigError(
                f"task {task.name!r} is already registered, for {taken.__module__}.{taken.__qualname__}; "
                "give this one another name="
            )
        self._tasks[task.name] = task
        return task

    # Hooks.

    def on_start(self, fn: F) -> F:
        """Call this once in each worker process before its first job: `@app.on_start`, a def or an async def.

        It is given the app, if it takes an argument. What it returns is `ctx.state["its name"]` in handlers. Child processes of
        isolated tasks call it, too. If it raises, the process does not start.
        """
        return self.hooks.on_start(fn)

    def on_stop(self, fn: Callable[..., Any], /) -> Any:
        """Call this once in each worker process after its last job: `@app.on_stop`, given the app if it takes an argument.

        `@app.on_stop(pool)` is given what the start hook `pool` returned. The latest registered runs first.
        """
        return self.hooks.on_stop(fn)

    def around(self, fn: F) -> F:
        """Call this around each attempt: `@app.around async def timed(ctx, call): return await call()`.

        It sees what the handler returns and raises, and may change either. The first registered is the outermost.
        """
        return self.hooks.around(fn)

    def declared(self) -> Sequence[Definition]:
        """The schedules that the tasks declare. Workers write them to the store; `ConfigError` names one that is wrong."""
        return declared(self._tasks, self.config.max_payload)

    # Enqueue.

    def enqueue(self, task: str, payload: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]) -> Handle[Any]:
        """Add a job of the task with this name; the payload holds its arguments."""
        return self._connection.put((self._job(task, payload, options),))[0]

    async def aenqueue(self, task: str, payload: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]) -> Handle[Any]:
        """Add a job of the task with this name; the payload holds its arguments."""
        return (await self._connection.aput((self._job(task, payload, options),)))[0]

    def enqueue_many(self, jobs: Iterable[NewJob], *, rate: str | None = None) -> list[Handle[Any]]:
        """Add many jobs in one write, all or none; the handles stand in the order of the jobs.

        With a rate such as `"500/s"` their due times are spread, and they are written a thousand at a time, each thousand all or
        none; a queue that is full is waited for. Repeated with the same jobs after an error, it adds what is missing.
        """
        checked = self._checked(jobs)
        if rate is None:
            return self._connection.put(checked)
        handles: list[Handle[Any]] = []
        writes = PacedWrites(checked, rate)
        for some in writes:
            try:
                handles += self._connection.put(some)
            except QueueFull:
                time.sleep(writes.refused())
            else:
                writes.wrote(len(some))
        return handles

    async def aenqueue_many(self, jobs: Iterable[NewJob], *, rate: str | None = None) -> list[Handle[Any]]:
        """Add many jobs in one write, all or none; the handles stand in the order of the jobs. `enqueue_many` says more."""
        checked = self._checked(jobs)
        if rate is None:
            return await self._connection.aput(checked)
        handles: list[Handle[Any]] = []
        writes = PacedWrites(checked, rate)
        for some in writes:
            try:
                handles += await self._connection.aput(some)
            except QueueFull:
                await asyncio.sleep(writes.refused())
            else:
                writes.wrote(len(some))
        return handles

    def inside(self, transaction: object) -> Transaction:
        """Enqueue or emit in a transaction of your own: jobs and events exist exactly if it commits.

        `transaction` is your connection to the database of this app's store: of asyncpg, psycopg, SQLAlchemy or Django to
        PostgreSQL, of sqlite3 to the file.
        """
        connection = self._connection
        return Transaction(connection.inside(transaction), connection.events_inside(transaction), self._job, self._checked)

    def _checked(self, jobs: Iterable[NewJob]) -> list[NewJob]:
        jobs = list(jobs)
        for index, job in enumerate(jobs):
            try:
                self._check(job)
            except InvalidJob as error:
                named = (FieldError(f"jobs[{index}].{fault.field}", fault.message) for fault in error.errors)
                raise type(error)(*named) from None
        return jobs

    def _job(self, name: str, payload: Mapping[str, Any] | None, options: JobOptions) -> NewJob:
        task = find_task(self._tasks, name)
        if payload is None:
            payload = {}
        if not isinstance(payload, Mapping):
            raise InvalidJob(FieldError("payload", f"{type(payload).__qualname__}; use a dict of the arguments by name"))
        if stray := [field for field in options if field not in JOB_OPTIONS and task.parameters.takes(field)]:
            arguments = ", ".join(f"{field!r}: …" for field in stray)
            text = f"no option, but an argument of the task; arguments go in a dict: enqueue({name!r}, {{{arguments}}})"
            raise InvalidJob(*(FieldError(field, text) for field in stray))
        return (task.using(**options) if options else task).job_of((), payload)

    def job_from_json(self, task: str, body: bytes, options: JobOptions) -> NewJob:
        """A job whose payload came as JSON text, judged as enqueue would; nothing is written. For the HTTP API.

        The task `job` takes any payload, unless one of that name is registered: its jobs are taken by `JobQueue` and over HTTP.
        """
        if task == FREE_TASK and task not in self._tasks:
            check_json("payload", body, self.config.max_payload)
            return new_job(
                **{"max_attempts": MAX_ATTEMPTS, "timeout": MAX_LEASE, **fields_of(options), "task": task, "body": body}
            )
        return find_task(self._tasks, task).job_from_json(body, options)

    async def aput(self, jobs: Sequence[NewJob], request: RequestKey | None = None) -> list[Handle[Any]]:
        """Add jobs that were made by this app's own tasks and need not be judged again; all or none."""
        return await self._connection.aput(jobs, request)

    def _check(self, job: NewJob) -> None:
        """Check a job again: it may have been made elsewhere."""
        if not isinstance(job, NewJob):
            raise InvalidJob(FieldError("job", f"{type(job).__qualname__} is not a new job; make one with task.job(…)"))
        task = find_task(self._tasks, job.task)
        new_job(**msgspec.structs.asdict(job))
        task.parameters.check(job.body, self.config.max_payload)

    # Work.

    def run_worker(
        self,
        queues: str | Iterable[str] = ("default",),
        *,
        slots: int = 64,
        processes: int = 1,
        **options: Unpack[WorkerSettings],
    ) -> int:
        """Run jobs until SIGTERM, SIGINT or SIGHUP, then drain. With more than one process this one only supervises.

        With one process everything happens here, the keeping of leases in a thread: a handler that holds the GIL in one
        long C call can lose its lease. `hawser worker`, or two processes, keep leases from outside.
        """
        return run_worker(self, checked(queues=queues, slots=slots, processes=processes, **options))

    def worker(
        self, queues: str | Iterable[str] = ("default",), *, slots: int = 64, **options: Unpack[WorkerSettings]
    ) -> EmbeddedWorker:
        """A worker on the running loop with an end: `async with app.worker(queues=["mail"]): …` runs jobs meanwhile, then drains.

        For services of one process and for tests. It handles no signals, and keeps leases in a thread, as `run_worker` does.
        """
        from hawser.supervisor.embedded import EmbeddedWorker  # noqa: PLC0415  # producers do without

        return EmbeddedWorker(self, checked(queues=queues, slots=slots, **options))

    def asgi(self, **settings: Unpack[ApiSettings]) -> Api:
        """This app's HTTP API as an ASGI application, to be served by itself or mounted in another."""
        from hawser.api.server import Api  # noqa: PLC0415  # producers and workers do without

        return Api(self, **settings)

    def trace(self) -> None:
        """Make OpenTelemetry spans, one where jobs are enqueued and one for each run, linked to it. Needs the extra `otel`."""
        tracing = Tracing(self.clock)
        self._connection.around = tracing.enqueueing
        self.events = Listeners(self.events, tracing)

    async def store(self) -> Store:
        """The store itself, open."""
        return await self._connection.ready()

    @property
    def clock(self) -> Clock:
        """What the store is told to read the time from."""
        return self._clock or SystemClock()

    @property
    def store_url(self) -> str | None:
        """The URL by which another process finds the same store; None when the app was made with a store object."""
        return None if self._built else self.config.store

    def use_store(self, url: str) -> None:
        """Take another store than the one that the app was made with; before anything is enqueued."""
        self._built = False
        self.config = msgspec.structs.replace(self.config, store=url)
        self._connection.use(lambda: make_store(url, clock=self._clock))

    def lend_store(self, store: Store, portal: Portal) -> Callable[[], None]:
        """Work with another store, for a test, until what is returned is called."""
        return self._connection.lend_store(store, portal)

    # Open and close.

    async def aopen(self) -> Self:
        """Open the store now instead of at first use: what is wrong with it shows at once."""
        await self._connection.ready()
        return self

    async def aclose(self) -> None:
        """Let go of the store; a later call opens it again."""
        await self._connection.aclose()

    def close(self) -> None:
        """Let go of the store; a later call opens it again."""
        self._connection.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await self.aopen()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    open = sync(aopen)
