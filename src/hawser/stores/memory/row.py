"""A job as the memory store keeps it."""

from __future__ import annotations

from hawser.clock import at, from_datetime, to_us
from hawser.job import Claimed, Job, NewJob, State
from hawser.outcome import Failure
from hawser.store import ERROR_TOLD, HISTORY, DeadLetter, JobEnd
from hawser.stores.columns import given_fields
from hawser.stores.order import due_at, first_lane
from hawser.stores.record import BLANK, Record, shown
from hawser.value.fingerprint import fingerprint


class Row:
    """Mutable, and touched only under the store's lock. Times are microseconds; 0 when not set."""

    __slots__ = (
        "attempt",
        "attempts",
        "cancel_asked",
        "crashes",
        "enqueued_at",
        "expires_at",
        "finished_at",
        "group",
        "held",
        "holder",
        "lane",
        "later",
        "lease",
        "lease_until",
        "leased_for",
        "max_attempts",
        "new",
        "parent_id",
        "priority",
        "progress",
        "queue",
        "reason",
        "result",
        "returned",
        "run_at",
        "seq",
        "settled",
        "started_at",
        "state",
        "task",
        "ticket",
        "worker",
    )

    def __init__(self, new: NewJob, seq: int, now: int, parent_id: str | None, max_attempts: int) -> None:
        self.new = new
        self.max_attempts = max_attempts
        self.queue = new.queue
        self.task = new.task
        self.priority = new.priority
        self.group = new.group
        self.parent_id = parent_id
        self.seq = seq
        self.enqueued_at = now
        self.expires_at: int | None = None if new.expires is None else now + to_us(new.expires)
        self.held: int | None = None
        """What is kept of its own time while it waits for other jobs."""
        self.run_at = due_at(new, now)
        self.lane = first_lane(new, self.run_at, now)
        self.state = State.READY
        self.attempt = 0
        self.lease = 0
        self.lease_until = 0
        self.leased_for = 0
        self.settled: int | None = None  # the last lease that its own holder settled
        self.started_at = 0
        self.finished_at = 0
        self.worker: str | None = None
        self.holder: str | None = None  # the worker of the last claim, also when its run is over
        self.cancel_asked = False
        self.returned = 0
        self.crashes = 0
        self.reason: str | None = None
        self.result: bytes | None = None
        self.progress: bytes | None = None
        self.attempts: list[Record] | None = None
        self.ticket = 0
        self.later = False

    def claimed(self) -> Claimed:
        new = self.new
        return Claimed(
            new.id,
            self.task,
            self.queue,
            new.body,
            self.priority,
            self.attempt,
            self.max_attempts,
            new.timeout,
            self.lease,
            self.run_at,
            self.enqueued_at,
            key=new.key,
            tags=new.tags,
            parent_id=self.parent_id,
            schedule=new.schedule,
            tick_us=None if new.tick is None else from_datetime(new.tick),
            group=new.group,
            batch=new.batch,
            crashes=self.crashes,
        )

    def record(self, word: str, ended_at: int, failure: Failure | None) -> None:
        """Add the run that the row is in to its history."""
        if self.attempts is None:
            self.attempts = []
        self.attempts.append(self._run(word, ended_at, failure))
        if len(self.attempts) > HISTORY:
            del self.attempts[0]

    def _run(self, word: str, ended_at: int | None = None, failure: Failure | None = None) -> Record:
        error, traceback = (failure.error, failure.traceback) if failure else (None, None)
        return self.attempt, self.lease, self.worker or "", self.started_at, ended_at, word, error, traceback

    def _error(self) -> str | None:
        errors = [record[6] for record in self.attempts or () if record[6] is not None]
        return (errors[-1] if errors else None) or self.reason

    def fingerprint(self) -> str:
        return fingerprint(self._error())

    def ended(self) -> JobEnd | None:
        if not self.state.finished:
            return None
        error = {State.DEAD: self._error(), State.CANCELLED: self.reason}.get(self.state)
        return JobEnd(self.state, self.task, error, self.result)

    def letter(self) -> DeadLetter:
        error = self._error()
        told = None if error is None else error.lstrip(BLANK)[:ERROR_TOLD]
        return DeadLetter(self.new.id, self.task, self.queue, told, at(self.finished_at))

    def view(self) -> Job:
        new = self.new
        runs = list(self.attempts or ())
        if self.state is State.RUNNING:
            runs.append(self._run("running"))
        return Job(
            id=new.id,
            task=self.task,
            queue=self.queue,
            priority=self.priority,
            state=self.state,
            attempt=self.attempt,
            max_attempts=self.max_attempts,
            lease=self.lease,
            run_at=at(self.run_at),
            enqueued_at=at(self.enqueued_at),
            started_at=at(self.started_at) if self.started_at else None,
            finished_at=at(self.finished_at) if self.finished_at else None,
            lease_until=at(self.lease_until) if self.lease_until else None,
            worker=self.worker,
            expires_at=None if self.expires_at is None else at(self.expires_at),
            cancel_asked=self.cancel_asked,
            returned=self.returned,
            crashes=self.crashes,
            reason=self.reason,
            result_body=self.result,
            progress_body=self.progress,
            attempts=tuple(map(shown, runs)),
            held=self.held is not None,
            **given_fields(new) | {"parent_id": self.parent_id},
        )
