"""Hawser: a durable job queue and scheduler."""

from hawser.app import Hawser
from hawser.backoff import Exponential, Fixed, Linear
from hawser.context import Context
from hawser.errors import (
    ConfigError,
    ConfirmationNeeded,
    FieldError,
    HawserError,
    InvalidJob,
    JobNotFound,
    MissingExtra,
    NotAStore,
    OutcomeUnknown,
    QueueFull,
    ScheduleNotFound,
    SchemaTooNew,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UnknownStore,
    UnknownTask,
    WrongState,
)
from hawser.job import FOREVER, Attempt, Handle, Job, NewJob, State
from hawser.outcome import Cancel, Drop, Retry, Snooze
from hawser.queue import JobQueue
from hawser.rule import Cron, Every
from hawser.schedule import Schedule
from hawser.store import Retention
from hawser.task import Task

__version__ = "0.1.0"

__all__ = [
    "FOREVER",
    "Attempt",
    "Cancel",
    "ConfigError",
    "ConfirmationNeeded",
    "Context",
    "Cron",
    "Drop",
    "Every",
    "Exponential",
    "FieldError",
    "Fixed",
    "Handle",
    "Hawser",
    "HawserError",
    "InvalidJob",
    "Job",
    "JobNotFound",
    "JobQueue",
    "Linear",
    "MissingExtra",
    "NewJob",
    "NotAStore",
    "OutcomeUnknown",
    "QueueFull",
    "Retention",
    "Retry",
    "Schedule",
    "ScheduleNotFound",
    "SchemaTooNew",
    "Snooze",
    "State",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnavailable",
    "Task",
    "UnknownStore",
    "UnknownTask",
    "WrongState",
]
