"""The operator's part of the seam: what a store says of its jobs, queues and workers, and what a person may do to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, Protocol

import msgspec

from hawser.job import Job, NewJob, State, Waiting
from hawser.policy import QueuePolicy
from hawser.store.api_key import Actor
from hawser.value.fingerprint import Group

DUE_COUNTED: Final = 10_000
"""How many jobs of a kind `stats` counts one by one before it stops: what bounds its cost where it has to count."""

HISTORY: Final = 100
"""Attempts whose records a job keeps, the latest ones: a job that is retried without end must not grow without end."""

WORKER_KEPT: Final = 3_600.0
"""Seconds after its last sign of life for which a worker is still listed."""

AUDIT_KEPT: Final = 365 * 86_400.0
"""Seconds that audit records are kept at least."""

AUDIT_IDS: Final = 1_000
"""Jobs that an audit record names one by one."""

ERROR_TOLD: Final = 400
"""Characters of an error that a dead letter has, from its first one that is not blank: enough to tell its kind."""

JOBS_PER_PAGE: Final = 100
MAX_PAGE: Final = 1_000


class Acted(StrEnum):
    """What an operator's action did to one job."""

    DONE = "done"
    ASKED = "asked"
    """The job is running; its worker was asked to stop it."""
    NOT_FOUND = "not_found"
    WRONG_STATE = "wrong_state"
    KEY_TAKEN = "key_taken"
    """Another job holds the key that this one would need."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs; None means any. All given ones must hold."""

    state: State | None = None
    waiting: Waiting | None = None
    """Of the ready ones."""
    queue: str | None = None
    task: str | None = None
    key: str | None = None
    tag: str | None = None
    parent_id: str | None = None
    schedule: str | None = None
    group: Group | None = None
    """Dead jobs of that task whose errors have that fingerprint."""
    group_name: str | None = None
    """Of that group, such as a customer's; `group` is about errors."""
    argument: str | None = None
    """With this argument, as `name=value`, among those that it is found by."""
    batch: str | None = None
    """Of the batch with that id."""
    since: datetime | None = None
    """Enqueued at this instant or later."""
    until: datetime | None = None
    """Enqueued before this instant."""

    def told(self) -> dict[str, str]:
        """What is asked for, for an audit record."""
        told = {name: value for name, value in msgspec.to_builtins(self).items() if value is not None}
        return told if self.group is None else {**told, "group": self.group.id}


class Page(msgspec.Struct, frozen=True):
    """Some jobs, newest first, and where to go on; `next` is None at the end."""

    jobs: list[Job]
    next: str | None = None
    searched: int = 0
    """How many jobs were looked at for it; when it is full, at least so many."""


class DeadLetter(msgspec.Struct, frozen=True, gc=False):
    """A dead job in brief: payloads and tracebacks are not read for it."""

    id: str
    task: str
    queue: str
    error: str | None
    """The beginning of its last error, at most `ERROR_TOLD` characters; else of the reason that was given."""
    finished_at: datetime


class DeadLetters(msgspec.Struct, frozen=True):
    """Some dead jobs, newest first, and where to go on; `next` is None at the end."""

    letters: list[DeadLetter]
    looked_at: int
    """Dead jobs that were looked at, also those that are not among the letters."""
    next: str | None = None


class DeadGroup(msgspec.Struct, frozen=True):
    """Dead jobs of one task whose errors have one fingerprint."""

    task: str
    fingerprint: str
    count: int
    first_at: datetime
    """When the oldest of them ended."""
    sample: DeadLetter
    """The newest of them."""


class DeadGroups(msgspec.Struct, frozen=True):
    """Some groups of dead jobs, the largest first."""

    groups: list[DeadGroup]
    ungrouped: int = 0
    """Dead jobs of any queue and task that have no group yet, counted up to `DUE_COUNTED`: an older version wrote them."""
    more: bool = False
    """Whether there are smaller groups."""


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """A queue in figures. `ready`, `scheduled`, `retrying` and `held` add up to all jobs in state ready."""

    ready: int = 0
    """Waiting, due, never tried."""
    scheduled: int = 0
    """Waiting for their time, never tried."""
    retrying: int = 0
    """Waiting for another attempt."""
    held: int = 0
    """Waiting for other jobs."""
    due: int = 0
    """All that could be claimed now, tried before or not."""
    running: int = 0
    done: int = 0
    dead: int = 0
    cancelled: int = 0
    keys: int = 0
    """Deduplication keys held."""
    oldest_age_s: float = 0.0
    """How long the job that is due for longest has been due."""
    attempts_p99: int = 0
    """99 of 100 jobs that ended in the last hour needed at most so many attempts."""
    rates: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Per second, over the last five minutes: enqueued, claimed, done, failed, dead, … Where the store's first count in an hour
    is younger, over the time since then, a minute at least."""
    paused: bool = False
    exact: bool = True
    """False when so many jobs wait for their time, and so many are past it, that `ready` and `due` are only lower bounds."""


class Target(msgspec.Struct, frozen=True):
    """What is paused or limited: a queue or a task."""

    kind: Literal["queue", "task"]
    name: str


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A pause in force."""

    target: Target
    since: datetime
    until: datetime | None = None
    reason: str | None = None
    by: str = "app"


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How many seconds finished jobs are kept, by how they ended."""

    done: float = 7 * 86_400.0
    dead: float = 30 * 86_400.0
    cancelled: float = 7 * 86_400.0


EVERY_QUEUE: Final = "*"
"""Stands for all queues, in what a worker serves."""


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker process says of itself while it lives."""

    worker: str
    """Its name, new at every start."""
    host: str
    pid: int
    version: str
    """Of Hawser."""
    app_version: str | None = None
    """Of the app, as its deploys call it."""
    queues: tuple[str, ...]
    slots: int
    running: int
    """Jobs that it has started and not settled."""
    stuck: int = 0
    """Threads that went on after their attempt's timeout."""
    draining: bool = False
    tasks: dict[str, str] | None = None
    """The tasks that it knows, each with a mark of its signature; None when it does not say, and may take any."""

    def serves(self, queue: str) -> bool:
        return queue in self.queues or EVERY_QUEUE in self.queues


class WorkerSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, by what it last said."""

    beat: Beat
    since: datetime
    seen_at: datetime


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One action of an operator."""

    number: int
    """Rises from record to record: where to go on."""
    at: datetime
    by: str
    action: str
    target: str
    """A job's id, `jobs` for several, `queue:NAME`, `task:NAME`, `schedule:NAME`, `worker:NAME`, `batch:ID`, `key:ID`,
    `operation:ID` or `version:NAME`."""
    count: int
    """How many jobs it changed."""
    reason: str | None = None
    filter: Mapping[str, str] | None = None
    operation: str | None = None
    """As in the `Actor`."""
    ids: tuple[str, ...] = ()
    """Of several jobs, those that it changed, at most `AUDIT_IDS`."""


class Operator(Protocol):
    """What an operator needs. Every action takes an `Actor` and leaves one audit record, in the same write."""

    async def get(self, id: str) -> Job | None:
        """The whole job with all its attempts, or None.

        Every attempt that failed keeps its error, traceback, worker and times; of more than `HISTORY` the oldest go.
        """

    async def find(self, filter: Filter, after: str | None = None, limit: int = JOBS_PER_PAGE) -> Page:
        """Jobs that match, newest first, from behind the cursor `after`.

        Following `next` to its end visits every job that matches throughout, once, also while jobs come and go. A page
        may hold fewer jobs than asked for and still have a `next`. A page that is not full says how many jobs were looked
        at for it.
        """

    async def dead_letters(
        self, queue: str | None = None, task: str | None = None, after: str | None = None, limit: int = JOBS_PER_PAGE
    ) -> DeadLetters:
        """The dead jobs of a queue and task in brief, newest first, from behind the cursor `after`.

        At most `limit` dead jobs are looked at, of any queue and task. Following `next` to its end looks at every
        job that is dead throughout, once.
        """

    async def dead_groups(self, queue: str | None = None, task: str | None = None, limit: int = JOBS_PER_PAGE) -> DeadGroups:
        """The dead jobs of a queue and task, by task and fingerprint of their last error, the largest group first.

        The counts are exact while jobs die, are requeued, discarded, replaced and pruned. Their cost grows with the number of
        groups and not with the number of jobs.
        """

    async def group_dead(self, limit: int) -> int:
        """Find the groups of up to `limit` dead jobs without one, and return how many jobs that were."""

    async def stats(self, queue: str | None = None) -> QueueStats:
        """The figures of one queue, or of all. Its cost does not grow with the number of jobs."""

    async def queues(self) -> dict[str, QueueStats]:
        """The figures of every queue that holds jobs, is paused, or has a limit or a policy."""

    async def cancel(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        """End waiting jobs at once; ask the workers of running ones to stop.

        The reason stays with the job when it ends as cancelled. Finished jobs are in the wrong state.
        """

    async def requeue(self, ids: Sequence[str], actor: Actor, spread: float = 0.0, delay: float = 0.0) -> list[Acted]:
        """Make dead and cancelled jobs ready, due at once, with attempts from zero and their history kept.

        Requeued with a spread, they fall due evenly over it, in their order, from `delay` seconds on.
        The lease number does not go back. A job that held a key takes it again; when another job holds it now, nothing
        changes. A requeued job does not expire. Other states are wrong.
        """

    async def discard(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        """Turn dead jobs into cancelled ones, with the reason kept. Other states are wrong."""

    async def replace(self, id: str, job: NewJob, actor: Actor) -> Acted:
        """Discard a dead job and enqueue another in its place, whose parent it becomes, in one write.

        When the key of the new job is taken, nothing changes.
        """

    async def pause(self, target: Target, actor: Actor, until: datetime | None = None) -> None:
        """Stop giving out jobs of a queue or task, at once, until resumed or until that instant.

        A second pause replaces the first.
        """

    async def resume(self, target: Target, actor: Actor) -> bool:
        """End a pause; False when there was none."""

    async def pauses(self) -> list[Pause]:
        """The pauses in force."""

    async def set_policy(self, queue: str, policy: QueuePolicy, actor: Actor) -> None:
        """Set how a queue's jobs are run, in place of the policy before."""

    async def policies(self) -> dict[str, QueuePolicy]:
        """The policies that are set, by queue."""

    async def prune(self, retention: Retention, by_task: Mapping[str, Retention], limit: int) -> int:
        """Remove up to `limit` finished jobs that are past their retention, and say how many; keys that have run out go too.

        So goes a batch that has ended. What still waits for it is cancelled.
        """

    async def workers(self) -> list[WorkerSeen]:
        """The workers that have not ended and gave a sign of life within `WORKER_KEPT` seconds, oldest first."""

    async def note(self, action: str, target: str, actor: Actor) -> None:
        """Leave an audit record of an action on something that the store does not keep."""

    async def audit(
        self, limit: int = JOBS_PER_PAGE, before: int | None = None, action: str | None = None, by: str | None = None
    ) -> list[AuditRecord]:
        """The latest audit records, or the latest before that number, newest first. An action that changed nothing leaves
        none.

        A record of several jobs names those that were changed, the first `AUDIT_IDS` of them. It has the filter and the
        operation of the signature. `action` and `by` choose records; `by` is a whole name, or what stands before a colon in it.
        """
