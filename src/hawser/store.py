"""The seam: what a store promises, in words. Each sentence of the methods' docstrings is a test in `hawser.testing.contract`.

A store is one class that has all five protocols. Its methods may be awaited on any event loop, several at once, from any thread.
Durations cross the seam, instants do not, except those that a person chose (`run_at`, `until`): due times, leases and
retention are judged by the store's own clock. A call that fails raises `StoreUnavailable` when nothing was written and
`OutcomeUnknown` when nobody can tell; every call here may be repeated after that, with the same ids and leases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol

import msgspec

from hawser.access import KeyStore, Signature
from hawser.firing import ScheduleStore
from hawser.history import Watcher
from hawser.job import Claimed, NewJob, State
from hawser.outcome import Outcome
from hawser.oversight import (
    AUDIT_KEPT,
    DUE_COUNTED,
    ERROR_TOLD,
    HISTORY,
    MAX_PAGE,
    PAGE,
    WORKER_KEPT,
    Acted,
    AuditRecord,
    Beat,
    DeadLetter,
    DeadLetters,
    Filter,
    Limits,
    Operator,
    Page,
    Pause,
    QueueStats,
    Retention,
    Target,
    WorkerSeen,
)

__all__ = [
    "AUDIT_KEPT",
    "DUE_COUNTED",
    "ERROR_TOLD",
    "HISTORY",
    "MAX_LEASE",
    "MAX_PAGE",
    "NO_ROOM_SET",
    "OVERDUE",
    "PAGE",
    "SETTLE_GRACE",
    "WORKER_KEPT",
    "Acted",
    "AuditRecord",
    "Beat",
    "DeadLetter",
    "DeadLetters",
    "Durability",
    "Enqueued",
    "Filter",
    "JobStore",
    "LeaseRef",
    "LeaseStatus",
    "Limits",
    "Operator",
    "Page",
    "Pause",
    "QueueStats",
    "Reclaimed",
    "Retention",
    "Settled",
    "Settlement",
    "Share",
    "Signature",
    "Store",
    "Target",
    "WorkerSeen",
]
"""The seam as its users import it, wherever a part of it stands."""

SETTLE_GRACE: Final = 5.0
"""Seconds that a lease may outlive the attempt's timeout, so that the timeout itself can be settled."""

OVERDUE: Final = 0.5
"""Seconds after its due time at which a waiting job counts as overtaken by a backlog and is offered a reserved place."""

MAX_LEASE: Final = 86_400.0

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


class Store(JobStore, ScheduleStore, Operator, KeyStore, Watcher, Protocol):
    """What each store is."""
