"""The seam: what a store promises, in words. Each sentence of the methods' docstrings is a test in `hawser.testing.contract`.

A store is one class that has all protocols. Its methods may be awaited on any event loop, several at once, from any thread.
Durations cross the seam, instants do not, except those that a person chose (`run_at`, `until`): due times, leases and
retention are judged by the store's own clock. A call that fails raises `StoreUnavailable` when nothing was written and
`OutcomeUnknown` when it may have been written; every call here may be repeated after that, with the same ids and leases.
"""

from typing import Protocol

from hawser.store.api_key import Actor, KeyStore
from hawser.store.bulk import BULK_KEPT, BULK_SILENCE, BULKS_LISTED, BulkOperation, BulkPlan, BulkState, BulkStep, BulkStore
from hawser.store.edits import Change, Editor
from hawser.store.ended import ENDS_READ, GONE, EndReader, JobEnd
from hawser.store.jobs import (
    DONE_LATE,
    LEAVE_NOTHING,
    MAX_LEASE,
    NO_ROOM_SET,
    OVERDUE,
    RECLAIM_WITHIN,
    REQUEST_KEPT,
    SETTLE_GRACE,
    Declined,
    Durability,
    Enqueued,
    JobStore,
    LeaseRef,
    LeaseStatus,
    Leave,
    Reclaimed,
    RequestKey,
    SettleAnswer,
    Settled,
    Settlement,
    Share,
    Unaccepted,
)
from hawser.store.limits import LimitStore, LimitUse
from hawser.store.operator import (
    AUDIT_IDS,
    AUDIT_KEPT,
    DUE_COUNTED,
    ERROR_TOLD,
    EVERY_QUEUE,
    HISTORY,
    MAX_PAGE,
    PAGE,
    WORKER_KEPT,
    Acted,
    AuditRecord,
    Beat,
    DeadGroup,
    DeadGroups,
    DeadLetter,
    DeadLetters,
    Filter,
    Operator,
    Page,
    Pause,
    QueueStats,
    Retention,
    Target,
    WorkerSeen,
)
from hawser.store.rollup import Watcher
from hawser.store.schedules import ScheduleStore
from hawser.store.steps import MAX_STEP_NAME, MAX_STEP_VALUE, MAX_STEPS, NewStep, RecordedStep, StepStore

__all__ = [
    "AUDIT_IDS",
    "AUDIT_KEPT",
    "BULKS_LISTED",
    "BULK_KEPT",
    "BULK_SILENCE",
    "DONE_LATE",
    "DUE_COUNTED",
    "ENDS_READ",
    "ERROR_TOLD",
    "EVERY_QUEUE",
    "GONE",
    "HISTORY",
    "LEAVE_NOTHING",
    "MAX_LEASE",
    "MAX_PAGE",
    "MAX_STEPS",
    "MAX_STEP_NAME",
    "MAX_STEP_VALUE",
    "NO_ROOM_SET",
    "OVERDUE",
    "PAGE",
    "RECLAIM_WITHIN",
    "REQUEST_KEPT",
    "SETTLE_GRACE",
    "WORKER_KEPT",
    "Acted",
    "Actor",
    "AuditRecord",
    "Beat",
    "BulkOperation",
    "BulkPlan",
    "BulkState",
    "BulkStep",
    "BulkStore",
    "Change",
    "DeadGroup",
    "DeadGroups",
    "DeadLetter",
    "DeadLetters",
    "Declined",
    "Durability",
    "Editor",
    "EndReader",
    "Enqueued",
    "Filter",
    "JobEnd",
    "JobStore",
    "LeaseRef",
    "LeaseStatus",
    "Leave",
    "LimitStore",
    "LimitUse",
    "NewStep",
    "Operator",
    "Page",
    "Pause",
    "QueueStats",
    "Reclaimed",
    "RecordedStep",
    "RequestKey",
    "Retention",
    "SettleAnswer",
    "Settled",
    "Settlement",
    "Share",
    "StepStore",
    "Store",
    "Target",
    "Unaccepted",
    "WorkerSeen",
]


class Store(JobStore, ScheduleStore, Operator, Editor, LimitStore, EndReader, KeyStore, BulkStore, StepStore, Watcher, Protocol):
    """All protocols of a store."""
