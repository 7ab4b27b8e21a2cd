"""Every error that Hawser raises, in one tree.

    HawserError
    ├── ConfigError            a setting is wrong: the message names it
    │   ├── UnknownStore       no store has this URL scheme
    │   └── MissingExtra       the store needs a package that is not installed
    ├── InvalidJob             the job was refused before anything was written
    │   └── UnknownTask        no task is registered under this name
    ├── QueueFull              the queue's depth limit is reached; nothing was written
    ├── QueueClosed            the `JobQueue` was closed; nothing was written or taken
    ├── IdConflict             the id belongs to another job; nothing was written
    ├── RequestConflict        the Idempotency-Key was another request's; nothing was written
    ├── LeaseLost              the run's lease is gone: another run may go on with the job
    ├── NotCommitted           the transaction that was to settle the job was not committed
    ├── SuspensionCaught       a handler caught the suspension of its run and went on
    ├── StepMismatch           what is kept of a step does not fit the type that is wanted
    ├── EventTimeout           the event that a handler waited for did not come in time
    ├── OutputFull             a job has written as much output as it may; this chunk was not taken
    ├── JobNotFound            no job has this id
    ├── BatchNotFound          no batch has this id
    ├── JobFailed              the job whose result was waited for is dead or was cancelled
    ├── ResultTimeout          the job whose result was waited for has not ended yet
    ├── ScheduleNotFound       no schedule has this name
    ├── WrongState             the state of the job or schedule forbids the action
    │   └── ConfirmationNeeded the task asks for an explicit confirmation before a replay
    └── StoreError
        ├── StoreUnavailable   refused: nothing was written; try again later
        │   ├── StoreFull      the disk is full
        │   └── StoreReadOnly  the file or its folder may not be written
        ├── OutcomeUnknown     the answer got lost: it may or may not be written; repeat with the same ids
        ├── NotAStore          the file is not a Hawser database
        └── SchemaTooNew       a newer Hawser has changed the schema

What a handler raises to choose its outcome (`Drop`, `Retry`, `Snooze`, `Cancel`) is not an error and stands in `decision.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple


class FieldError(NamedTuple):
    """What is wrong with one field, in words that say what to do."""

    field: str
    message: str


class HawserError(Exception):
    """The root of all errors that Hawser raises."""


class ConfigError(HawserError):
    """A setting is wrong."""


class UnknownStore(ConfigError):
    """No store has this URL scheme."""


class MissingExtra(ConfigError):
    """The store needs a package that is not installed."""


class InvalidJob(HawserError, ValueError):
    """The job was refused before anything was written; `errors` names each field."""

    def __init__(self, *errors: FieldError) -> None:
        self.errors = errors
        super().__init__("; ".join(f"{e.field}: {e.message}" for e in errors))

    def __reduce__(self) -> tuple[type, tuple[FieldError, ...]]:
        return type(self), self.errors


class UnknownTask(InvalidJob):
    """No task is registered under this name."""


class QueueFull(HawserError):
    """The queue's depth limit is reached; nothing was written."""

    def __init__(self, queue: str, depth: int, max_depth: int) -> None:
        self.queue, self.depth, self.max_depth = queue, depth, max_depth
        super().__init__(
            f"queue {queue!r} holds {depth} waiting jobs of at most {max_depth}; "
            "nothing was enqueued: try again later, add workers, or raise the limit"
        )

    def __reduce__(self) -> tuple[type, tuple[str, int, int]]:
        return type(self), (self.queue, self.depth, self.max_depth)


class QueueClosed(HawserError):
    """The `JobQueue` was closed; nothing was written or taken."""


class IdConflict(HawserError):
    """The id that was given to a new job belongs to a job of another task, queue or payload; nothing was written."""

    def __init__(self, *ids: str) -> None:
        self.ids = ids
        super().__init__(
            f"id: {', '.join(ids)} belongs to another job (of another task, queue or payload); nothing was written: "
            "repeat a job with its own id, and give every new job a new one"
        )

    def __reduce__(self) -> tuple[type, tuple[str, ...]]:
        return type(self), self.ids


class RequestConflict(HawserError):
    """The Idempotency-Key was used for another request; nothing was written."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"Idempotency-Key: {key!r} was sent before with another body; nothing was written: "
            "repeat a request with its own key, and give every new request a new one"
        )

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.key,)


class LeaseLost(HawserError):
    """The run's lease is gone, so it may write nothing more: another run may go on with the job."""


class NotCommitted(HawserError):
    """The transaction that was to settle the job was not committed: the run failed."""


class SuspensionCaught(HawserError):
    """A handler caught what suspends its run, with `except BaseException` for example, and went on."""


class StepMismatch(HawserError):
    """What is kept of a step does not fit the type that is wanted now: the code has changed since the record."""


class OutputFull(HawserError):
    """A job has written as much output as it may; this chunk was not taken."""


class EventTimeout(HawserError, TimeoutError):
    """The event that a handler waited for did not come in time. It is recorded: every later run of the job gets it, too."""


class JobNotFound(HawserError, LookupError):
    """No job has this id: it never existed or was pruned."""

    def __init__(self, id: str) -> None:
        self.id = id
        super().__init__(f"no job {id!r} in this store; it was never enqueued here, or pruned after its retention")

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.id,)


class BatchNotFound(HawserError, LookupError):
    """No batch has this id: it never existed or was pruned."""

    def __init__(self, id: str) -> None:
        self.id = id
        super().__init__(f"no batch {id!r} in this store; it was never opened here, or pruned after its retention")

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.id,)


class JobFailed(HawserError):
    """The job whose result was waited for has no result: it is dead, or was cancelled. `error` says why, if that is known."""

    def __init__(self, id: str, state: str, error: str | None = None) -> None:
        self.id, self.state, self.error = id, state, error
        told = f": {error}" if error else ""
        super().__init__(f"job {id} is {state}{told}")

    def __reduce__(self) -> tuple[type, tuple[str, str, str | None]]:
        return type(self), (self.id, self.state, self.error)


class ResultTimeout(HawserError, TimeoutError):
    """The job whose result was waited for has not ended yet. It goes on."""

    def __init__(self, id: str, timeout: float, store_error: Exception | None = None) -> None:
        self.id, self.timeout, self.store_error = id, timeout, store_error
        told = f"; the store could not be asked: {store_error}" if store_error else ""
        super().__init__(
            f"job {id} has not ended within {timeout:g} s{told}. It goes on: wait again, or see what it waits for with: "
            f"hawser jobs show {id}"
        )

    def __reduce__(self) -> tuple[type, tuple[str, float, Exception | None]]:
        return type(self), (self.id, self.timeout, self.store_error)


class ScheduleNotFound(HawserError, LookupError):
    """No schedule has this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"no schedule is called {name!r} in this store; see them with: hawser schedules")

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.name,)


class WrongState(HawserError):
    """The state of the job or schedule forbids the action."""


class ConfirmationNeeded(WrongState):
    """The task asks for an explicit confirmation before a replay."""


class StoreError(HawserError):
    """The store failed or did not answer."""


class StoreUnavailable(StoreError):
    """Refused: nothing was written."""


class StoreFull(StoreUnavailable):
    """The disk is full; nothing was written."""


class StoreReadOnly(StoreUnavailable):
    """The file or its folder may not be written."""


class OutcomeUnknown(StoreError):
    """The answer got lost: the write may or may not have happened. Repeat it with the same ids."""


class NotAStore(StoreError):
    """What the URL points at is not a Hawser store."""


class SchemaTooNew(StoreError):
    """A newer Hawser has changed the schema."""


DISTRIBUTION: Final = "hawser-jobs"
"""The name that pip knows. The name `hawser` on PyPI is another project's."""


def install(extra: str) -> str:
    """What to do about a package that an extra brings."""
    return f"install it with: pip install '{DISTRIBUTION}[{extra}]'"


FIELDS_ELSEWHERE: Final = {
    "idempotency_key": "key",
    "dedup_key": "key",
    "unique_key": "key",
    "unique_for": "key_ttl",
    "max_retries": "max_attempts",
    "retries": "max_attempts",
    "retry": "max_attempts",
    "countdown": "delay",
    "schedule_in": "delay",
    "eta": "run_at",
    "scheduled_at": "run_at",
    "schedule_at": "run_at",
    "type": "task",
    "kind": "task",
    "job_type": "task",
    "actor": "task",
    "args": "payload",
    "kwargs": "payload",
    "arguments": "payload",
    "data": "payload",
    "time_limit": "timeout",
    "job_timeout": "timeout",
    "job_id": "id",
    "task_id": "id",
    "visibility_timeout": "lease_for",
}
"""What options and fields are called in other job queues, and what they are called here."""


def did_you_mean(
    name: str, known: Iterable[str], otherwise: str | None = None, *, most: int = 1, spelt: Callable[[str], str] = str
) -> str:
    """The last half of an error for a name that is not known: what was probably meant, else `otherwise` or all that is known.

    `spelt` gives a known name the form in which it is to be shown.
    """
    known = list(known)
    if near := nearest(name, known, most):
        return f"did you mean {' or '.join(repr(spelt(other)) for other in near)}?"
    return otherwise or f"known are {', '.join(map(spelt, known)) or 'none'}"


def nearest(name: str, known: Iterable[str], count: int = 1) -> list[str]:
    """The known names that a wrong one may have been meant for, best first.

    It is another library's word for it, or spelt alike, or the words of one are in the other.
    """
    import difflib  # noqa: PLC0415  # 0.6 MB that are needed for a wrong name only

    known = list(known)
    if (ours := FIELDS_ELSEWHERE.get(name)) in known:
        return [ours]
    if alike := difflib.get_close_matches(name, known, count):
        return alike
    words = _words(name)
    return [other for other in known if _words(other) <= words or words <= _words(other)][:count]


def _words(name: str) -> set[str]:
    return set(name.lower().replace("-", "_").split("_"))
