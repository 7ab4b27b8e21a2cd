"""The seam: what a store promises, in words. Each sentence of the methods' docstrings is a test in `hawser.testing.contract`.

A store is one class that has all five protocols. Its methods may be awaited on any event loop, several at once, from any thread.
Durations cross the seam, instants do not, except those that a person chose (`run_at`, `until`): due times, leases and
retention are judged by the store's own clock. A call that fails raises `StoreUnavailable` when nothing was written and
`OutcomeUnknown` when nobody can tell; every call here may be repeated after that, with the same ids and leases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol

import msgspec

from hawser.access import KeyStore
from hawser.access import Signature as Signature  # noqa: PLC0414  # exported: part of the seam, wherever it stands
from hawser.firing import ScheduleStore
from hawser.history import Watcher
from hawser.job import Claimed, Job, NewJob, State, Waiting
from hawser.outcome import Outcome
from hawser.policy import QueuePolicy

SETTLE_GRACE: Final = 5.0
"""Seconds that a lease may outlive the attempt's timeout, so that the timeout itself can be settled."""

OVERDUE: Final = 0.5
"""Seconds after its due time at which a waiting job counts as overtaken by a backlog and is offered a reserved place."""

DUE_COUNTED: Final = 10_000
"""How many jobs of a kind `stats` counts one by one before it stops: what bounds its cost where it has to count."""

HISTORY: Final = 100
"""Attempts whose records a job keeps, the latest ones: a job that is tried for ever must not grow for ever."""

WORKER_KEPT: Final = 3_600.0
"""Seconds after its last sign of life for which a worker is still listed."""

AUDIT_KEPT: Final = 365 * 86_400.0
"""Seconds that audit records are kept at least."""

MAX_LEASE: Final = 86_400.0
PAGE: Final = 100
MAX_PAGE: Final = 1_000

NO_ROOM_SET: Final[Mapping[str, int]] = MappingProxyType({})

Durability = Literal["durable", "relaxed"]


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The job that now stands for what was enqueued, and whether this call made it."""

    id: str
    created: bool


class Share(msgspec.Struct, frozen=True, gc=False):
    """One queue of a claim, and how many places it is offered before the others get the rest."""

    queue: str
    places: int | None = None
    """None: all that are free when its turn comes, which makes the order of the queues strict."""
    most: int | None = None
    """Jobs of this queue beyond which it gets none of the rest either."""


class LeaseRef(msgspec.Struct, frozen=True, gc=False):
    """A run, named by its job and its lease number; may carry what the run says of its progress, as JSON text."""

    id: str
    lease: int
    progress: bytes | None = None


class Settlement(msgspec.Struct, frozen=True):
    """The outcome of one run and the jobs that follow from it."""

    id: str
    lease: int
    outcome: Outcome
    then: tuple[NewJob, ...] = ()
    keep: bool = True
    """False: when the outcome is done, the job is removed at once instead of being kept for its retention."""
    hint: Any = None
    """The claim's own `hint`, if at hand."""


class Settled(StrEnum):
    """What became of a settlement."""

    SETTLED = "settled"
    REPEATED = "repeated"
    """This very lease had settled the job before; nothing changed."""
    LOST = "lease_lost"
    """The lease is not the job's current one, or has run out; nothing changed."""


class LeaseStatus(StrEnum):
    """What the store says to an extension."""

    HELD = "held"
    LOST = "lease_lost"
    CANCEL_ASKED = "cancel_asked"
    """Held and extended, but somebody wants the run to end."""


class Reclaimed(msgspec.Struct, frozen=True):
    """A run whose lease had run out, and where its job went."""

    id: str
    task: str
    queue: str
    worker: str
    attempt: int
    state: State


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
    since: datetime | None = None
    """Enqueued at this instant or later."""
    until: datetime | None = None
    """Enqueued before this instant."""


class Page(msgspec.Struct, frozen=True):
    """Some jobs, newest first, and where to go on; `next` is None at the end."""

    jobs: list[Job]
    next: str | None = None


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """A queue in figures. `ready`, `scheduled` and `retrying` add up to all jobs in state ready."""

    ready: int = 0
    """Waiting, due, never tried."""
    scheduled: int = 0
    """Waiting for their time, never tried."""
    retrying: int = 0
    """Waiting for another attempt."""
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
    """Per second, over the last five minutes: enqueued, claimed, done, failed, dead, …"""
    paused: bool = False
    exact: bool = True
    """False when so many jobs wait for their time, and so many are past it, that `ready` and `due` are only lower bounds."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a queue may hold."""

    max_depth: int | None = None
    """Waiting jobs beyond which enqueue raises `QueueFull`; None is no limit."""


class Target(msgspec.Struct, frozen=True):
    """What is paused: a queue or a task."""

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


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker process says of itself while it lives."""

    worker: str
    """Its name, new at every start."""
    host: str
    pid: int
    version: str
    queues: tuple[str, ...]
    slots: int
    running: int
    """Jobs that it has started and not settled."""
    stuck: int = 0
    """Threads that went on after their attempt's timeout."""
    draining: bool = False


class WorkerSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, by what it last said."""

    beat: Beat
    since: datetime
    seen_at: datetime


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One action of an operator."""

    at: datetime
    by: str
    action: str
    target: str
    """A job's id, `queue:NAME`, `task:NAME` or `schedule:NAME`."""
    count: int
    """How many jobs it changed."""
    reason: str | None = None


class JobStore(Protocol):
    """What a worker needs."""

    durability: Durability

    async def open(self) -> None:
        """Make the store ready, creating what is missing. Opening an open store does nothing."""

    async def close(self) -> None:
        """Finish what was begun and let go of files and connections. Closing a closed store does nothing."""

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Add jobs, all or none, durably before it returns; the answers stand in the order of the jobs.

        A job whose id the store already has is not added again and not changed. A job whose key is held in its queue is
        not added, and the answer has the holder's id. Two jobs of one call with the same key become one. A key is held
        while its job is live, for `key_ttl` seconds after enqueue, or for as long as the job is kept. When that ends the
        key is free. A job that says nothing of its attempts has as many as its queue's policy says now, else
        `DEFAULT_ATTEMPTS`. `QueueFull` is raised, and nothing is written, when a queue would wait deeper than its limit; jobs
        that are not added do not count.
        """

    async def claim(
        self, queues: Sequence[Share], limit: int, worker: str, lease_for: float, room: Mapping[str, int] = NO_ROOM_SET
    ) -> list[Claimed]:
        """Take up to `limit` due jobs under a lease, in one atomic step; no job is given to two claimers.

        Every claim raises the job's lease number by one and its attempt by one. Higher priority goes first. Within a
        priority the job that has been due for longest goes first. Half of the places, the odd one every second time, are
        first offered to jobs that had to wait for their time and are overdue, so an old backlog of the same priority does
        not hold them up. Each queue is offered its share of places in the given order; what is left goes to the queues in
        that order. A job that is not due is not given out. Jobs of a paused queue or task are not given out, and cost the
        others nothing. Of a task that `room` names, at most so many are given out. Of a queue whose share says `most`, at most
        so many are given out. A lease does not outlive the attempt's
        timeout by more than `SETTLE_GRACE`.
        """

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Write outcomes, each fenced by its lease number, each once, each together with the jobs that follow from it.

        A settlement whose lease is not the current one changes nothing. One whose lease has run out changes nothing,
        reclaimed or not. One that this lease has made before changes nothing and says so. Stale ones are counted. A failed
        job is ready again after its wait, or dead when its attempts are used up. A failure that says its run was lost counts as a
        crash of the job. A snoozed or released job is ready again
        and its attempt is given back. The lease number stays. Done stands when a cancel was asked; every way back to ready
        becomes cancelled then. The jobs that follow are added as by enqueue, with the settled job as their parent, whatever
        the depth limit. A done job that is not kept is removed.
        """

    async def extend(self, worker: str, leases: Sequence[LeaseRef], lease_for: float) -> list[LeaseStatus]:
        """Lengthen leases to `lease_for` seconds from now, and note the progress they carry.

        A stale lease changes nothing and is counted. A lease that has run out is lost, reclaimed or not. Extension never
        shortens a lease. It never reaches further past the attempt's timeout than `SETTLE_GRACE`. A run that somebody wants
        to end is told so.
        """

    async def asked_to_stop(self, workers: Sequence[str]) -> list[LeaseRef]:
        """The runs of these workers that somebody wants to end, in any order."""

    async def reclaim(self, limit: int) -> list[Reclaimed]:
        """Take back up to `limit` runs whose lease has run out, each once, whatever the number of reclaimers.

        The attempt counts: its job is ready again at once, or dead when its attempts are used up, or cancelled when that
        was asked. The lease number rises, so the lost run can never settle. The attempt's record says that it was lost, and it
        counts as a crash of the job.
        Jobs that are not running are never touched. After the store's clock was set back, a lease that seems to have more
        time left than it was given is cut to that.
        """

    async def beat(self, beats: Sequence[Beat], gone: Sequence[str] = ()) -> None:
        """Note that these workers live and that those in `gone` have ended."""

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        """Return when a job may have become due in these queues, or after `timeout` seconds; only a hint, may be early."""


class Operator(Protocol):
    """What an operator needs. Every action takes a `Signature` and leaves one audit record, in the same write."""

    async def get(self, id: str) -> Job | None:
        """The whole job with all its attempts, or None.

        Every attempt that failed keeps its error, traceback, worker and times; of more than `HISTORY` the oldest go.
        """

    async def find(self, filter: Filter, after: str | None = None, limit: int = PAGE) -> Page:
        """Jobs that match, newest first, from behind the cursor `after`.

        Following `next` to its end visits every job that matches throughout, once, also while jobs come and go. A page
        may hold fewer jobs than asked for and still have a `next`.
        """

    async def stats(self, queue: str | None = None) -> QueueStats:
        """The figures of one queue, or of all. Its cost does not grow with the number of jobs."""

    async def queues(self) -> dict[str, QueueStats]:
        """The figures of every queue that holds jobs, is paused, or has a limit or a policy."""

    async def cancel(self, ids: Sequence[str], sign: Signature) -> list[Acted]:
        """End waiting jobs at once; ask the workers of running ones to stop.

        The reason stays with the job when it ends as cancelled. Finished jobs are in the wrong state.
        """

    async def requeue(self, ids: Sequence[str], sign: Signature) -> list[Acted]:
        """Make dead and cancelled jobs ready, due at once, with attempts from zero and their history kept.

        The lease number does not go back. A job that held a key takes it again; when another job holds it now, nothing
        changes. Other states are wrong.
        """

    async def discard(self, ids: Sequence[str], sign: Signature) -> list[Acted]:
        """Turn dead jobs into cancelled ones, with the reason kept. Other states are wrong."""

    async def replace(self, id: str, job: NewJob, sign: Signature) -> Acted:
        """Discard a dead job and enqueue another in its place, whose parent it becomes, in one write.

        When the key of the new job is taken, nothing changes.
        """

    async def pause(self, target: Target, sign: Signature, until: datetime | None = None) -> None:
        """Stop giving out jobs of a queue or task, at once, until resumed or until that instant.

        A second pause replaces the first.
        """

    async def resume(self, target: Target, sign: Signature) -> bool:
        """End a pause; False when there was none."""

    async def pauses(self) -> list[Pause]:
        """The pauses in force."""

    async def set_limits(self, queue: str, limits: Limits, sign: Signature) -> None:
        """Set what a queue may hold; it applies from the next enqueue on."""

    async def limits(self) -> dict[str, Limits]:
        """The limits that are set, by queue."""

    async def set_policy(self, queue: str, policy: QueuePolicy, sign: Signature) -> None:
        """Say how a queue's jobs are run, in place of what was said before."""

    async def policies(self) -> dict[str, QueuePolicy]:
        """The policies that are set, by queue."""

    async def prune(self, retention: Retention, by_task: Mapping[str, Retention], limit: int) -> int:
        """Remove up to `limit` finished jobs that are past their retention, and say how many; keys that have run out go too."""

    async def workers(self) -> list[WorkerSeen]:
        """The workers that have said nothing of ending and were heard of within `WORKER_KEPT` seconds, oldest first."""

    async def audit(self, limit: int = PAGE) -> list[AuditRecord]:
        """The latest audit records, newest first. An action that changed nothing leaves none."""


class Store(JobStore, ScheduleStore, Operator, KeyStore, Watcher, Protocol):
    """What each store is."""
