"""Hawser: a durable job queue and scheduler."""

TYPE_CHECKING = False  # as typing has it, without importing typing
if TYPE_CHECKING:
    from hawser.app import Hawser
    from hawser.backoff import Exponential, Fixed, Linear
    from hawser.batch import Batch, BatchState
    from hawser.breaker import Breaker
    from hawser.context import Context, SyncContext
    from hawser.decision import BadStep, Cancel, Drop, Retry, Snooze
    from hawser.errors import (
        BatchNotFound,
        ConfigError,
        ConfirmationNeeded,
        EventTimeout,
        FieldError,
        HawserError,
        IdConflict,
        InvalidJob,
        JobFailed,
        JobNotFound,
        LeaseLost,
        MissingExtra,
        NotAStore,
        NotCommitted,
        OutcomeUnknown,
        OutputFull,
        QueueClosed,
        QueueFull,
        RequestConflict,
        ResultTimeout,
        ScheduleNotFound,
        SchemaTooNew,
        StepMismatch,
        StoreError,
        StoreFull,
        StoreReadOnly,
        StoreUnavailable,
        SuspensionCaught,
        UnknownStore,
        UnknownTask,
        WrongState,
    )
    from hawser.handle import Handle
    from hawser.job import FOREVER, Attempt, Job, NewJob, State
    from hawser.limit import Limit
    from hawser.queue import JobQueue
    from hawser.schedule.rule import Cron, Every
    from hawser.schedule.schedule import Schedule
    from hawser.store import Emitted, Retention
    from hawser.task import Task

__version__ = "0.1.0"

__all__ = [
    "FOREVER",
    "Attempt",
    "BadStep",
    "Batch",
    "BatchNotFound",
    "BatchState",
    "Breaker",
    "Cancel",
    "ConfigError",
    "ConfirmationNeeded",
    "Context",
    "Cron",
    "Drop",
    "Emitted",
    "EventTimeout",
    "Every",
    "Exponential",
    "FieldError",
    "Fixed",
    "Handle",
    "Hawser",
    "HawserError",
    "IdConflict",
    "InvalidJob",
    "Job",
    "JobFailed",
    "JobNotFound",
    "JobQueue",
    "LeaseLost",
    "Limit",
    "Linear",
    "MissingExtra",
    "NewJob",
    "NotAStore",
    "NotCommitted",
    "OutcomeUnknown",
    "OutputFull",
    "QueueClosed",
    "QueueFull",
    "RequestConflict",
    "ResultTimeout",
    "Retention",
    "Retry",
    "Schedule",
    "ScheduleNotFound",
    "SchemaTooNew",
    "Snooze",
    "State",
    "StepMismatch",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnavailable",
    "SuspensionCaught",
    "SyncContext",
    "Task",
    "UnknownStore",
    "UnknownTask",
    "WrongState",
]

_WHERE = {
    "Attempt": "hawser.job",
    "BadStep": "hawser.decision",
    "Batch": "hawser.batch",
    "BatchNotFound": "hawser.errors",
    "BatchState": "hawser.batch",
    "Breaker": "hawser.breaker",
    "Cancel": "hawser.decision",
    "ConfigError": "hawser.errors",
    "ConfirmationNeeded": "hawser.errors",
    "Context": "hawser.context",
    "Cron": "hawser.schedule.rule",
    "Drop": "hawser.decision",
    "Emitted": "hawser.store",
    "EventTimeout": "hawser.errors",
    "Every": "hawser.schedule.rule",
    "Exponential": "hawser.backoff",
    "FOREVER": "hawser.job",
    "FieldError": "hawser.errors",
    "Fixed": "hawser.backoff",
    "Handle": "hawser.handle",
    "Hawser": "hawser.app",
    "HawserError": "hawser.errors",
    "InvalidJob": "hawser.errors",
    "Job": "hawser.job",
    "IdConflict": "hawser.errors",
    "JobFailed": "hawser.errors",
    "JobNotFound": "hawser.errors",
    "JobQueue": "hawser.queue",
    "LeaseLost": "hawser.errors",
    "Limit": "hawser.limit",
    "Linear": "hawser.backoff",
    "MissingExtra": "hawser.errors",
    "NewJob": "hawser.job",
    "NotAStore": "hawser.errors",
    "NotCommitted": "hawser.errors",
    "OutcomeUnknown": "hawser.errors",
    "OutputFull": "hawser.errors",
    "QueueClosed": "hawser.errors",
    "QueueFull": "hawser.errors",
    "RequestConflict": "hawser.errors",
    "ResultTimeout": "hawser.errors",
    "Retention": "hawser.store",
    "Retry": "hawser.decision",
    "Schedule": "hawser.schedule.schedule",
    "ScheduleNotFound": "hawser.errors",
    "SchemaTooNew": "hawser.errors",
    "Snooze": "hawser.decision",
    "StepMismatch": "hawser.errors",
    "State": "hawser.job",
    "StoreError": "hawser.errors",
    "StoreFull": "hawser.errors",
    "StoreReadOnly": "hawser.errors",
    "StoreUnavailable": "hawser.errors",
    "SuspensionCaught": "hawser.errors",
    "SyncContext": "hawser.context",
    "Task": "hawser.task",
    "UnknownStore": "hawser.errors",
    "UnknownTask": "hawser.errors",
    "WrongState": "hawser.errors",
}
"""Where each name is defined. It is imported at first use, so that the command line reacts to Ctrl-C from its start on."""


if not TYPE_CHECKING:  # a type checker would take every name for granted

    def __getattr__(name: str) -> object:
        from importlib import import_module  # noqa: PLC0415  # as above

        if f"{__name__}.{name}" in _WHERE.values():
            return import_module(f"{__name__}.{name}")
        if name not in _WHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_WHERE[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
