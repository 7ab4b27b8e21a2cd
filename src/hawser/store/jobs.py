"""The part of the seam that workers use: enqueue, claim, settle, extend, reclaim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol

import msgspec

from hawser.job import Claimed, NewJob, State
from hawser.outcome import Outcome
from hawser.store.operator import Beat

SETTLE_GRACE: Final = 5.0
"""Seconds that a lease may outlive the attempt's timeout, so that the timeout itself can be settled."""

OVERDUE: Final = 0.5
"""Seconds after its due time at which a waiting job counts as overtaken by a backlog and is offered a reserved place."""

RECLAIM_WITHIN: Final = 2.0
"""Seconds after which a reclaim that had to wait for the store takes nothing back: the workers that hold the runs had to wait
too, and could neither settle nor extend them. The next reclaim takes them."""

MAX_LEASE: Final = 86_400.0

NO_ROOM_SET: Final[Mapping[str, int]] = MappingProxyType({})

Durability = Literal["durable", "relaxed"]


REQUEST_KEPT: Final = 86_400.0
"""Seconds for which a request is remembered, also where its jobs are not kept for so long."""


class RequestKey(msgspec.Struct, frozen=True):
    """A request that its caller may repeat, by the name that the caller gave it."""

    caller: str
    key: str
    digest: bytes
    """Of what was asked: the same name for something else is a mistake of the caller."""


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The job that now stands for what was enqueued, and whether this call made it."""

    id: str
    created: bool
    replaced: bool = False
    """Whether the payload of this call has taken the place of an earlier one's, in a job that is debounced."""


class Share(msgspec.Struct, frozen=True, gc=False):
    """One queue of a claim, and how many places it is offered before the others get the rest."""

    queue: str
    places: int | None = None
    """None: all that are free when its turn comes, which makes the order of the queues strict."""
    most: int | None = None
    """Jobs of this queue beyond which it gets none of the rest either."""


class Leave(msgspec.Struct, frozen=True):
    """What a claimer leaves to others."""

    tasks: frozenset[str] = frozenset()
    jobs: frozenset[str] = frozenset()
    """By id."""


DONE_LATE: Final = "done by a run whose lease had run out"
"""The reason that stays with such a job."""

LEAVE_NOTHING: Final = Leave()


class Declined(msgspec.Struct, frozen=True):
    """A job that a worker claimed and cannot run."""

    id: str
    lease: int
    """Under which it was claimed."""
    mark: str = ""
    """Of the signature that it does not fit; empty when the worker does not know the task."""
    acceptable: bool = False
    """Whether a living worker may accept it."""


class Unaccepted(msgspec.Struct, frozen=True):
    """A job that workers declined."""

    seconds: float
    """For how long no worker has accepted it."""
    marks: frozenset[str]
    """Of the workers that declined it."""


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
    doubtful: bool = False
    """The run may have settled its job in a transaction of its handler's own, whose end is not known. This may have to wait for
    that end, and nothing else waits with it."""


class Settled(StrEnum):
    """What became of a settlement."""

    SETTLED = "settled"
    REPEATED = "repeated"
    """This very lease had settled the job before; nothing changed."""
    LOST = "lease_lost"
    """The lease is not the job's current one: the run was reclaimed, or its job has gone on; nothing changed."""


class SettleAnswer(msgspec.Struct, frozen=True, gc=False):
    """What became of a settlement, and where the job is. Logs and metrics repeat this; they do not decide it again."""

    said: Settled
    task: str | None = None
    queue: str | None = None
    """Task and queue are None when the store does not have the job."""
    state: State | None = None
    """None when the settlement is stale: another run decides about the job."""
    after: float | None = None
    """Seconds until the job is due again. None unless the state is ready."""
    attempt: int = 0
    max_attempts: int = 0
    """The run's number, and how many the job may have; 0 when the settlement is stale."""


class LeaseStatus(StrEnum):
    """What the store says to an extension."""

    HELD = "held"
    LOST = "lease_lost"
    CANCEL_ASKED = "cancel_asked"
    """Held and extended, but an operator asked the run to end."""


class Reclaimed(msgspec.Struct, frozen=True):
    """A run whose lease had run out, and where its job went."""

    id: str
    task: str
    queue: str
    worker: str
    attempt: int
    state: State
    renewed: bool = True
    """False: the lease was not extended after the claim, so it is not known whether the run began."""
    after: float | None = None
    """Seconds until the job is due again. None unless the state is ready."""


class JobStore(Protocol):
    """What a worker needs."""

    durability: Durability

    async def open(self) -> None:
        """Make the store ready, creating what is missing. Opening an open store does nothing."""

    async def close(self) -> None:
        """Finish what was begun and let go of files and connections. Closing a closed store does nothing."""

    async def enqueue(self, jobs: Sequence[NewJob], request: RequestKey | None = None) -> list[Enqueued]:
        """Add jobs, all or none, durably before it returns; the answers stand in the order of the jobs.

        A job whose id the store already has is not added again and not changed. `IdConflict` is raised, and nothing is written,
        when that id belongs to a job of another task, queue or payload. A request that its caller made before adds nothing, and
        the answers have the jobs of the first time. `RequestConflict` is raised, and nothing is written, when the caller gave
        its key to another request. A request is remembered for `REQUEST_KEPT` seconds and as long as one of its jobs is kept. A
        key belongs to its queue and task: a job whose key is held there is not added, and the answer has the holder's id. Two
        jobs of one call with the same key become one. A key is held while its job is live and at least for `key_ttl` seconds
        after enqueue, or for as long as the job is kept. When that ends the key is free. A key that is held until the start is
        free while its job runs or waits for another attempt. A debounced job is due when no other has come with its key for
        `debounce` seconds: while it waits, the payload and expiry of the newest take the place of its own, and it is put off,
        until `at_most` seconds after the first at most. Once it has started the key is free. A call whose id is not above that
        of the newest changes nothing. Of a call with several the newest stays. A job that says nothing of its attempts has as
        many as its queue's policy says now, else `DEFAULT_ATTEMPTS`. An expiry counts from when the store accepts the job,
        however long it has to wait for its time. `QueueFull` is raised, and nothing is written, when a queue would wait deeper
        than its limit; jobs that are not added do not count. A job that waits for others is not given out before all of them
        are done; its delay counts from then. Those that are done already are not waited for. One that the store does not have
        is refused with `InvalidJob`, and nothing is written. A job of a group joins it when it waits for no other. Where a key
        is held, the holder is waited for in its place. A job that takes any end waits until all have ended. What is waited for
        stands before what waits in a call; else `InvalidJob` is raised, and nothing is written. A job of a batch is a member of
        it from then on; one that is not added again counts no second time. Where its key is held, the holder counts as the
        member. What is added to a batch that the store does not have, that has ended or is cancelled is refused with
        `InvalidJob`, and nothing is written. So is a member that waits for what in turn waits for its batch, also over other
        jobs and batches. So is one whose key is held by a job that waits for its batch. So is one that waits for a held job or
        a batch, when more than `BEHIND_READ` jobs and batches wait for its own.
        """

    async def made(self, jobs: Sequence[NewJob], request: RequestKey | None = None) -> bool:
        """Whether `enqueue` would add none of these jobs, because the request was made before or every id is known; nothing is
        written."""

    async def claim(
        self,
        queues: Sequence[Share],
        limit: int,
        worker: str,
        lease_for: float,
        room: Mapping[str, int] = NO_ROOM_SET,
        leave: Leave = LEAVE_NOTHING,
    ) -> list[Claimed]:
        """Take up to `limit` due jobs under a lease, in one atomic step; no job is given to two claimers.

        Every claim raises the job's lease number by at least one and its attempt by one. Higher priority goes first. Within a
        queue and priority, groups take turns: a group with weight w is offered w places a turn, however many the others have
        waiting. Jobs without a group are one group. Within a priority and group the job that has been due for longest goes
        first. Half of the places, the odd one every second time, are first offered to jobs that had to wait for their time and
        are overdue, so an old backlog of the same priority does not hold them up. Where groups take turns, so is half of the
        places of each group. A tenth of the places of a queue, of fewer than ten every so many-th time, is first offered to a
        lower priority whose oldest job has been due for longer than the `ageing` of the queue's policy, so no priority waits for
        ever. Of a queue whose `ageing` is None higher priority always goes first. Each queue is offered its share of places in
        the given order; what is left goes to the queues in that order. A job that is not due is
        not given out. A job that was due stays due when the store's clock is set back; one that was not waits for its time. A
        job that is past its expiry is not given out at any attempt: it is cancelled, with the reason `EXPIRED`. A crowd of such
        jobs in front of others does not make a claim come back empty. Jobs of a paused queue or task are not given out, and
        cost the others nothing. Of a task that `room` names, at most so many are given out. Of a queue whose share says `most`,
        at most so many are given out. Jobs and tasks that `leave` names are not given out, and cost the others nothing. Of a
        queue or task with a limit, no more jobs run at once than it says, over all claimers, where a run counts until it is
        settled or reclaimed. No more are started in any span of its period than it says; a start counts however its run ends.
        A job that one limit keeps back uses up nothing of another. Jobs that a limit keeps back cost the others nothing. Where
        a task has a limit per group, so holds for the jobs of each group, in all queues together; jobs without a group are not
        counted. Groups that a limit keeps back cost the others nothing. Where the order of groups is kept, a job that has
        started goes before all others of its group, until it is done, dead or cancelled. Before one has started, the job that
        has been due for longest is the first of its group, in any queue and priority. Jobs of a task whose breaker is
        open are not given out and lose no attempt, but for one at a time, every `probe_every` seconds. Jobs that an open
        breaker keeps back cost the others nothing. A lease does not outlive the attempt's timeout by more than `SETTLE_GRACE`.
        """

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        """Write outcomes, each fenced by its lease number, each once, each together with the jobs that follow from it.

        A settlement whose lease is not the current one changes nothing. One whose lease has run out is written all the same,
        unless the run was reclaimed: the number is the fence. One that this lease has made before changes nothing and says so.
        Stale ones are counted. A failed
        job is ready again after its wait, or dead when its attempts are used up. A failure that says its run was lost counts as a
        crash of the job. A snoozed or released job is ready again
        and its attempt is given back. The lease number stays. Done stands when a cancel was asked; every way back to ready
        becomes cancelled then. The jobs that follow are added as by enqueue, with the settled job as their parent, also
        beyond the depth limit. A done job that is not kept is removed. The answer says where the job went: its task, queue and
        state, in how many seconds it is due again, and which of its attempts this was. The answer to a repeated settlement says
        where the job is now. The answer to a stale one has no state.
        A held job has no lease and burns no attempt: its attempts are counted anew. It is given out again when its event has
        come, or all its jobs are done, or its time is over. An event that came before counts. The time begins when the job is
        first held under that name, and a later run makes it neither longer nor shorter. The jobs that it waits for are added
        with the settlement; those that are there are not added again. When one of them is dead it waits on; when one is
        cancelled, it is cancelled, too.
        When the last job that another waits for is done, that one is ready when settle answers. When one is dead, what waits for
        it waits on, and a requeue goes on with it. When one ends as cancelled, what waits for it is cancelled, and so on down.
        Jobs that follow and are of the same batch count from the same write on, so the batch does not end between. Those of a
        batch that is not there, is cancelled, or is another one that has ended, are cancelled. So are those that wait for what in
        turn waits for their batch. A job that waits for a batch does not count in it by holding the key of one that follows.
        """

    async def extend(self, worker: str, leases: Sequence[LeaseRef], lease_for: float) -> list[LeaseStatus]:
        """Lengthen leases to `lease_for` seconds from now, and note the progress they carry.

        A stale lease changes nothing and is counted. A lease that has run out is held again, unless the run was reclaimed.
        Extension never shortens a lease. It never reaches further past the attempt's timeout than `SETTLE_GRACE`. A lease
        that has run out and cannot be lengthened for that reason is lost. A run that was asked to end is told so.
        """

    async def holders(self, leases: Sequence[LeaseRef]) -> list[str | None]:
        """The workers that took these jobs under these leases, in order. None stands for a lease that is not the current one."""

    async def asked_to_stop(self, workers: Sequence[str]) -> list[LeaseRef]:
        """The runs of these workers that were asked to end, in any order."""

    async def reclaim(self, limit: int) -> list[Reclaimed]:
        """Take back up to `limit` runs whose lease has run out, each once, by any number of reclaimers.

        The attempt counts: its job is ready again at once, or dead when its attempts are used up, or cancelled when that
        was asked. The answer says which, and in how many seconds the job is due again. The lease number rises, so the
        lost run can never settle. The attempt's record says that it was lost, and it
        counts as a crash of the job. When the lease was not extended after the claim, the record and the answer say that it
        is not known whether the run began.
        Jobs that are not running are never touched, but for held ones whose time is over: those are ready then, however many
        they are. After the store's clock was set back, a lease that seems to have more time left than it was given is cut to
        that.
        """

    async def end_returned(self, lost: LeaseRef) -> bool:
        """Cancel a waiting job whose run was reclaimed, because that run finished its work after all; False, and nothing changes,
        when the job is not waiting, or was claimed since."""

    async def decline(self, declined: Sequence[Declined]) -> list[Unaccepted | None]:
        """Note that a worker cannot run these jobs, and answer for how long no worker has accepted each, and with which marks it
        was declined.

        The time of a job begins with its first note. It begins anew when another claim lies between two notes, because a
        worker ran the job then, and when a note says that a living worker may accept it. A note that is repeated, or comes
        late, changes nothing. None stands for a job that is not live.
        """

    async def beat(self, beats: Sequence[Beat], gone: Sequence[str] = ()) -> None:
        """Note that these workers live and that those in `gone` have ended."""

    async def wait(self, queues: Sequence[str], timeout: float, leave: Leave = LEAVE_NOTHING) -> None:
        """Return when a job may have become due in these queues, or after `timeout` seconds; only a hint, may be early.

        Due jobs that `leave` names do not end the wait. Nor does a group that a limit keeps back, before a run of it ends or its
        rate lets the next one start.
        """
