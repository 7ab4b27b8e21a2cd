"""From a job to what `django.tasks` calls a result."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from hawser.contrib.django.framework import Task, TaskError, TaskResult, TaskResultStatus
from hawser.job import Attempt, Claimed, Job, State
from hawser.outcome import Failure, Outcome, failure_in, worked

STATUS_OF: Final = {
    State.READY: TaskResultStatus.READY,
    State.RUNNING: TaskResultStatus.RUNNING,
    State.DONE: TaskResultStatus.SUCCESSFUL,
    State.DEAD: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
}

_RAISED: Final = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)")


def result_of(job: Job, task: Task, alias: str) -> TaskResult:
    """The job as its caller knows it. Each attempt that failed is an error, also when a later one worked."""
    payload = job.payload
    result: TaskResult = TaskResult(
        task=task,
        id=job.id,
        status=STATUS_OF[job.state],
        enqueued_at=job.enqueued_at,
        started_at=job.attempts[0].started_at if job.attempts else None,
        last_attempted_at=job.attempts[-1].started_at if job.attempts else None,
        finished_at=job.finished_at,
        args=payload.get("args", []),
        kwargs=payload.get("kwargs", {}),
        backend=alias,
        errors=[_error(attempt) for attempt in job.errors],
        worker_ids=[attempt.worker for attempt in job.attempts],
    )
    set_field(result, "_return_value", job.result)
    return result


def last_result(job: Claimed, outcome: Outcome, task: Task, alias: str) -> TaskResult:
    """The result of a job that is over and was not kept: its last attempt is all that is known of it."""
    failure = failure_in(outcome)
    payload = job.payload
    result: TaskResult = TaskResult(
        task=task,
        id=job.id,
        status=TaskResultStatus.RUNNING,
        enqueued_at=job.enqueued_at,
        started_at=None,
        last_attempted_at=None,
        finished_at=None,
        args=payload.get("args", []),
        kwargs=payload.get("kwargs", {}),
        backend=alias,
        errors=[] if failure is None else [_error(failure)],
        worker_ids=[],
    )
    if worked(outcome) and outcome.result is not None:
        set_field(result, "_return_value", msgspec.json.decode(outcome.result))
    return result


def set_field(result: TaskResult, name: str, value: Any) -> None:
    """Results are frozen for callers; backends write them so."""
    object.__setattr__(result, name, value)


def _error(attempt: Attempt | Failure) -> TaskError:
    lines = (attempt.traceback or attempt.error or "").strip().splitlines() or [""]
    found = _RAISED.match(lines[-1]) or _RAISED.match(attempt.error or "")
    # What is not an exception's name: a timeout, or a process that was killed.
    name = found[1] if found and (found[1][0].isupper() or "." in found[1]) else "RuntimeError"
    path = name if "." in name else f"builtins.{name}"
    return TaskError(exception_class_path=path, traceback=attempt.traceback or attempt.error or "")
