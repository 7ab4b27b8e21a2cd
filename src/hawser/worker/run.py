"""One run of one job in this process."""

from __future__ import annotations

import asyncio
import time
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from hawser.handler.output import RunOutput
from hawser.job import Claimed, NewJob
from hawser.store import SETTLE_GRACE, LeaseStatus
from hawser.worker.board import Board, How, Says

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hawser.context import Context
    from hawser.outcome import Outcome
    from hawser.task import Task
    from hawser.worker.runners import Runner


HAS_ENDED: Final = How.ENDED
"""Read once: in Python 3.11 reading a member of an enum costs as much as a call."""


class Stop(Enum):
    """Why a run is to end before its handler does."""

    TIMEOUT = "timeout"
    LOST = "lost"
    CANCEL = "cancel"
    DRAIN = "drain"


class Host(Protocol):
    """What a run tells its worker."""

    def ended(self, run: Run, value: Any, *, failed: bool) -> None:
        """Its handler returned the value, or raised it. On the event loop."""

    def decided(self, run: Run, outcome: Outcome, then: Sequence[NewJob]) -> None:
        """Its child process has decided the outcome. On the event loop."""

    def notify(self, run: Run, seconds: float) -> None:
        """It has progress to write, and may want a lease of so many seconds. From any thread."""

    @property
    def draining(self) -> bool:
        """Whether the worker is to end. From any thread."""

    def wrote(self, run: Run) -> None:
        """It has output to write. From any thread."""

    def blamed(self, run: Run) -> None:
        """Its code tried to do what would have harmed others. From any thread."""


def margin(lease: float) -> float:
    """Seconds before the end of a lease at which its run is given up: our clock and the store's need not run alike."""
    return min(1.0, lease / 10)


class Run:
    """What the worker knows of a run; also what its handler's context asks. Belongs to the event loop.

    It owns its lease: how long that lasts, as far as this process knows, and its cell on the board, where the extender reads
    which leases to extend and writes what the store said.
    """

    __slots__ = (
        "_board",
        "_until",
        "arguments",
        "begun",
        "cap",
        "cell",
        "ctx",
        "deadline",
        "doubtful_apart",
        "host",
        "job",
        "misfit",
        "note",
        "offence",
        "output",
        "runner",
        "settled",
        "stepped_apart",
        "stop",
        "stopped_at",
        "stuck",
        "task",
        "wish",
        "work",
    )

    def __init__(
        self, job: Claimed, task: Task[..., Any] | None, board: Board, host: Host, sent: float, lease_for: float, spare: float
    ) -> None:
        """Claimed by a call that was sent at that monotonic time, for so many seconds. Given up so many before their end."""
        self.job = job
        self.task = task
        self.host = host
        self.cap = sent + job.timeout + SETTLE_GRACE
        """Monotonic time beyond which no lease reaches."""
        self._until = min(sent + lease_for, self.cap) - spare
        """Monotonic time at which the lease ends, unless the extender has extended it."""
        self._board = board
        self.cell = board.take(job.id, job.lease, sent, self.cap)
        self.begun = False
        """Whether the first step of its work was made."""
        self.deadline = float("inf")
        """Monotonic time at which the attempt's timeout is over; set at the start."""
        self.settled = False
        """Its outcome is decided, or it lost the right to one: nothing that its handler does counts any more."""
        self.stop: Stop | None = None
        self.stopped_at = 0.0
        self.stuck = False
        """It went on after it should have ended."""
        self.runner: Runner | None = None
        """Where it runs; set at the start."""
        self.arguments: dict[str, Any] = {}
        self.work: asyncio.Task[None] | None = None
        self.ctx: Context | None = None
        self.offence: str | None = None
        """What it did that would have harmed others."""
        self.note: bytes | None = None
        """The progress that it told last."""
        self.wish: float | None = None
        """Seconds of lease that it has asked for; None when it waits for nothing to be sent."""
        self.output: RunOutput | None = None
        """What it writes, if it has written anything."""
        self.misfit: str | None = None
        """Why the payload does not fit, if a child process found that."""
        self.stepped_apart = True
        """Whether it may have recorded a step in its child process, as far as that has told."""
        self.doubtful_apart = False
        """The same of a transaction that was to settle the job."""

    def __str__(self) -> str:
        return f"job {self.job.id} of task {self.job.task}"

    # Its lease.

    def may_start(self, now: float) -> bool:
        """Whether its claim was answered in time: no extension is known yet."""
        return now < self._until

    def may_write(self, now: float) -> bool:
        """Whether it still has the right to go on and to settle, as far as this process knows."""
        return now < self._board.until(self.cell, self._until)

    def said(self) -> Says:
        """What the store last said of its lease, to the extender."""
        return self._board.said(self.cell)[0]

    def extended(self, answer: LeaseStatus, sent: float, lease_for: float) -> None:
        """The store's answer to an extension that this process has asked for itself."""
        if answer is LeaseStatus.LOST:
            self._until = 0.0
        else:
            self._until = max(self._until, min(sent + lease_for, self.cap) - margin(lease_for))

    def start_clock(self, now: float) -> None:
        """The timeout counts from the start, but the lease from the claim: what came late, by a slow claim, has a little less."""
        self.deadline = min(now + self.job.timeout, self.cap - SETTLE_GRACE / 2)

    def begin(self, how: How) -> bool:
        """Right before the first step; from any thread. False when the run was stopped meanwhile, or its lease is gone."""
        if self.stop is not None:
            return False  # and if it was given up, its cell may be another run's by now
        self._board.start(self.cell, how)
        if not self.may_write(time.monotonic()):
            self.stop = Stop.LOST
        return self.stop is None

    def outcome_waits(self) -> None:
        """It has ended, and its outcome is about to be written: its lease is kept until then."""
        self._board.start(self.cell, HAS_ENDED)

    def abandon(self) -> None:
        """Its lease is lost but it has not ended yet: it is not extended any more."""
        self._board.abandon(self.cell)

    def crashed(self) -> None:
        """It has killed the child process that it had to itself."""
        self._board.crashed(self.cell)

    def leave(self) -> None:
        """It is settled or given up: another run may have its cell."""
        self._board.leave(self.cell)

    # What its handler asks and does.

    @property
    def cancelled(self) -> bool:
        return self.stop is not None

    @property
    def lost(self) -> bool:
        return self.stop is Stop.LOST or not self.may_write(time.monotonic())

    @property
    def draining(self) -> bool:
        return self.host.draining

    @property
    def doubtful(self) -> bool:
        """Whether it may have settled its job in a transaction of its handler's own, whose end is not known."""
        return self.doubtful_apart if self.ctx is None else self.ctx.doubtful

    @property
    def hint(self) -> Any:
        """Of the claim. A step counts attempts anew, so what the claim said does not hold for a run that has recorded one. A run
        that has written output has none: when its job is not kept, that is to be removed, too."""
        if self.output is not None:
            return None
        if self.ctx is not None:
            return None if self.ctx.stepped else self.job.hint
        return None if self.runner is not None and self.runner.apart and self.stepped_apart else self.job.hint

    def extend(self, seconds: float | None) -> None:
        """Asked for by the handler, perhaps in a thread: the progress writer takes it to the store."""
        self.host.notify(self, seconds or 0.0)

    def progress(self, body: bytes) -> None:
        self.note = body
        self.host.notify(self, 0.0)

    def write(self, body: bytes) -> None:
        if self._written().add(body):
            self.host.wrote(self)

    def relay(self, body: bytes) -> None:
        """A chunk that its handler wrote in a child process."""
        if self._written().relay(body):
            self.host.wrote(self)

    def _written(self) -> RunOutput:
        if self.output is None:
            self.output = RunOutput()
        return self.output

    def blame(self, deed: str) -> None:
        """Its code tried to do what would have harmed others, perhaps in a thread."""
        self.offence = deed
        self.host.blamed(self)

    def follows(self, outcome: Outcome) -> Sequence[NewJob]:
        """The jobs that are to follow if it ends so."""
        return self.ctx.follows(outcome) if self.ctx is not None else ()
