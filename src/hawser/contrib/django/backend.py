"""`HawserBackend`: tasks of `django.tasks` as jobs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from inspect import iscoroutinefunction
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, close_old_connections, connections, transaction
from django.utils.module_loading import import_string

from hawser.app import Hawser
from hawser.context import Context
from hawser.contrib.django.framework import (
    BaseTaskBackend,
    Task,
    TaskContext,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
    task_started,
)
from hawser.contrib.django.results import last_result, result_of, set_field
from hawser.contrib.django.signals import FinishedSignals
from hawser.errors import JobNotFound
from hawser.job import Claimed, Job, NewJob
from hawser.outcome import Outcome
from hawser.telemetry.events import Listeners
from hawser.value.ids import new_id

_BACKEND_OPTIONS: Final = ("store", "settings", "enqueue", "database", "defaults", "tasks")
_APPS: Final[dict[str, Hawser]] = {}
"""Django makes a backend for every thread. They share one app, or each would have connections and tasks of its own."""

_APPS_LOCK: Final = threading.Lock()

_WHEN: Final = ("on_commit", "in_transaction", "at_once")


class HawserBackend(BaseTaskBackend):
    """Options, all of which may be left out:

    - `store`: the URL of the store (default: $HAWSER_STORE, else sqlite:///hawser.db).
    - `enqueue`: `on_commit` (the default) after the transaction that is open, if one is; `in_transaction` by Django's own
      connection, so that the job exists exactly if the transaction commits (the store must be in the same database), or at once
      if none is open; `at_once`.
    - `database`: whose transaction that is (default: "default").
    - `defaults`: options for every task, as `@app.task` takes them: `{"max_attempts": 3, "timeout": 60}`.
    - `tasks`: the same for single tasks by their path: `{"shop.tasks.charge": {"max_attempts": 1}}`.
    - `settings`: further settings of `Hawser(…)`.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        for name in self.options:
            if name not in _BACKEND_OPTIONS:
                raise ImproperlyConfigured(f"TASKS[{alias!r}]: OPTIONS has {name!r}; known are {', '.join(_BACKEND_OPTIONS)}")
        self._when = self.options.get("enqueue", "on_commit")
        if self._when not in _WHEN:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: enqueue is {self._when!r}; use one of {', '.join(_WHEN)}")
        self._database = self.options.get("database", DEFAULT_DB_ALIAS)
        self.app = _APPS.get(repr((alias, params))) or self._new_app(repr((alias, params)))
        """The app behind the backend: its jobs, queues and hooks."""

    def _new_app(self, key: str) -> Hawser:
        with _APPS_LOCK:
            found = _APPS.get(key)
            if found is None:
                found = Hawser(self.options.get("store"), **self.options.get("settings", {}))
                signals = FinishedSignals(type(self), self._ended)
                found.events = Listeners(found.events, signals)
                found.on_stop(signals.finish)
                _APPS[key] = found
        return found

    def _ended(self, job: Claimed, outcome: Outcome) -> TaskResult | None:
        """The result of a job that a run has ended; None for one of a task that is not Django's."""
        try:
            task = import_string(job.task)
        except ImportError:
            return None
        if not isinstance(task, Task):
            return None
        with suppress(JobNotFound):  # it is not kept
            return self.result_of(self.app.get(job.id))
        return last_result(job, outcome, task.using(queue_name=job.queue), self.alias)

    def validate_task(self, task: Task) -> None:
        """Django calls this for each task that is defined: here they are registered."""
        super().validate_task(task)
        name = task.module_path
        if name not in self.app.tasks:
            given: Mapping[str, Any] = {**self.options.get("defaults", {}), **self.options.get("tasks", {}).get(name, {})}
            self.app.task(name=name, queue=task.queue_name, **given)(_handler(self, task))

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        self.validate_task(task)
        job = self._job(task, args, kwargs)
        result = self._new_result(task, job.id, args, kwargs)
        if self._when == "in_transaction" and not connections[self._database].get_autocommit():
            self.app.inside(connections[self._database]).enqueue_many([job])
            self._enqueued(result)
        elif self._when == "on_commit" and connections[self._database].in_atomic_block:
            transaction.on_commit(lambda: self._put(job, result), using=self._database)
        else:
            self._put(job, result)
        return result

    def _put(self, job: NewJob, result: TaskResult) -> None:
        self.app.enqueue_many([job])
        with suppress(JobNotFound):  # a worker was faster, and the task keeps no jobs
            # The store's time: what a caller reads later must be equal to what it has.
            set_field(result, "enqueued_at", self.app.get(job.id).enqueued_at)
        self._enqueued(result)

    def _enqueued(self, result: TaskResult) -> None:
        task_enqueued.send(type(self), task_result=result)

    def _job(self, task: Task, args: Any, kwargs: Any) -> NewJob:
        options: dict[str, Any] = {"id": new_id(), "queue": task.queue_name, "priority": priority_of(task.priority)}
        if task.run_after is not None:
            options["run_at"] = task.run_after
        return self.app.tasks[task.module_path].using(**options).job_of((list(args), dict(kwargs)), {})

    def _new_result(self, task: Task, id: str, args: Any, kwargs: Any) -> TaskResult:
        return TaskResult(
            task=task,
            id=id,
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )

    def get_result(self, result_id: str) -> TaskResult:
        try:
            return self.result_of(self.app.get(str(result_id)))
        except (JobNotFound, ImportError) as error:
            raise TaskResultDoesNotExist(result_id) from error

    async def aget_result(self, result_id: str) -> TaskResult:
        try:
            return self.result_of(await self.app.aget(str(result_id)))
        except (JobNotFound, ImportError) as error:
            raise TaskResultDoesNotExist(result_id) from error

    def result_of(self, job: Job) -> TaskResult:
        task = import_string(job.task)
        return result_of(job, task.using(queue_name=job.queue), self.alias)


def priority_of(given: int) -> int:
    """Django's -100 to 100 as 0 to 9; 0 is the default of both."""
    return 5 + round(given * (4 if given > 0 else 5) / 100)


def _handler(backend: HawserBackend, task: Task) -> Any:
    if iscoroutinefunction(task.func):

        async def arun(ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> Any:
            running = _started(backend, await backend.app.aget(ctx.job.id))
            return await task.func(*_first(task, running), *args, **kwargs)

        return arun

    def run(ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> Any:
        close_old_connections()
        try:
            running = _started(backend, backend.app.get(ctx.job.id))
            return task.func(*_first(task, running), *args, **kwargs)
        finally:
            close_old_connections()

    return run


def _started(backend: HawserBackend, job: Job) -> TaskResult:
    running = backend.result_of(job)
    task_started.send(sender=type(backend), task_result=running)
    return running


def _first(task: Task, running: TaskResult) -> tuple[Any, ...]:
    return (TaskContext(task_result=running),) if task.takes_context else ()
