"""The oracle: what a store promises, as plain Python on one dict. Written from the words of the seam, not from a store.

It restates the rules on purpose and shares no decision with `hawser.outcome` or any store: no mistake is made twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, assert_never

import msgspec

from hawser.breaker import Breaker
from hawser.clock import Clock, at, from_datetime, to_us
from hawser.job import FOREVER, UNTIL_START, Attempt, Claimed, Job, KeyScope, NewJob, State
from hawser.limit import Limit
from hawser.outcome import Cancelled, Dead, Done, Failed, Held, Outcome, Released, Snoozed
from hawser.policy import QueuePolicy
from hawser.schedule.declaration import Declaration
from hawser.schedule.schedule import Advance, Schedule
from hawser.store import (
    DONE_LATE,
    ERROR_TOLD,
    EXPIRED,
    OVERDUE,
    SETTLE_GRACE,
    Acted,
    Actor,
    Arrival,
    Change,
    DeadGroup,
    DeadLetter,
    Emitted,
    Enqueued,
    Event,
    Filter,
    LeaseRef,
    LeaseStatus,
    Leave,
    NewStep,
    Pause,
    QueueStats,
    Reclaimed,
    RecordedStep,
    Retention,
    SettleAnswer,
    Settled,
    Settlement,
    Share,
    Target,
)
from hawser.store.breakers import AttemptCount, BreakerStatus, BreakerVerdict
from hawser.store.schedules import DECLARED_FOR, Advanced, DueSchedules
from hawser.value.fingerprint import fingerprint
from tests.model.breakers import BreakerModel

LOST_TEXT = "the lease ran out"
"""How the error of a lost attempt begins; the rest is the store's own."""

FAR = 9_000_000_000_000_000
"""The due time of a held job."""


@dataclass
class Entry:
    """A job as the model keeps it; times in microseconds."""

    new: NewJob
    order: int
    run_at: int
    enqueued_at: int
    max_attempts: int
    fresh: bool
    """Due when it was enqueued, and neither claimed nor requeued since."""
    state: State = State.READY
    attempt: int = 0
    lease: int = 0
    crashes: int = 0
    settled: int | None = None
    """The last lease that its own holder settled."""
    started_at: int | None = None
    finished_at: int | None = None
    lease_until: int | None = None
    given: int = 0
    """How long its lease was when it was last given or lengthened."""
    worker: str | None = None
    holder: str | None = None
    """The worker of the last claim."""
    cancel_asked: bool = False
    returned: int = 0
    reason: str | None = None
    result: bytes | None = None
    progress: bytes | None = None
    attempts: list[Attempt] = field(default_factory=list)
    steps: dict[str, RecordedStep] = field(default_factory=dict)
    expires_at: int | None = None
    waits: bool = False
    """It is held."""

    def record(self, outcome: str, ended_at: int | None, error: str | None = None, trace: str | None = None) -> None:
        """Note how the current attempt ended, in place of the note that it runs."""
        assert self.worker is not None
        assert self.started_at is not None
        note = Attempt(
            number=self.attempt,
            lease=self.lease,
            worker=self.worker,
            started_at=at(self.started_at),
            ended_at=None if ended_at is None else at(ended_at),
            outcome=outcome,
            error=error,
            traceback=trace,
        )
        self.attempts = [known for known in self.attempts if known.outcome != "running"] + [note]

    def seen(self) -> Job:
        """The job as an operator must see it."""
        new = self.new
        return Job(
            id=new.id,
            task=new.task,
            queue=new.queue,
            body=new.body,
            priority=new.priority,
            state=self.state,
            attempt=self.attempt,
            max_attempts=self.max_attempts,
            timeout=new.timeout,
            lease=self.lease,
            run_at=at(self.run_at),
            enqueued_at=at(self.enqueued_at),
            started_at=_instant(self.started_at),
            finished_at=_instant(self.finished_at),
            lease_until=_instant(self.lease_until),
            worker=self.worker,
            key=new.key,
            key_ttl=new.key_ttl,
            tags=new.tags,
            parent_id=new.parent_id,
            confirm_replay=new.confirm_replay,
            schedule=new.schedule,
            tick=new.tick,
            expires_at=_instant(self.expires_at),
            crashes=self.crashes,
            cancel_asked=self.cancel_asked,
            returned=self.returned,
            reason=self.reason,
            result_body=self.result,
            progress_body=self.progress,
            attempts=tuple(self.attempts),
            held=self.waits,
        )


class Hold(NamedTuple):
    """The job that took a key last, and when its window ends, if it has one."""

    scope: KeyScope
    id: str
    until: int
    forever: bool


class Model:
    """All of a store's promises; each method has the name and the answer of the store's."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.jobs: dict[str, Entry] = {}
        self.held: dict[KeyScope, Hold] = {}
        self.pauses_set: dict[Target, Pause] = {}
        self.chosen_limits: dict[Target, Limit] = {}
        self.declared_limits: dict[Target, Limit] = {}
        self.starts: dict[Target, list[int]] = {}
        """When jobs of targets that have a rate were started."""
        self.breaker = BreakerModel()
        self.events: dict[str, Event] = {}
        self.policies_set: dict[str, QueuePolicy] = {}
        self.scheduled: dict[str, Schedule] = {}
        self.declared: list[tuple[Declaration, int]] = []
        """Oldest first, with when each was last made."""
        self.claims = 0
        """Claim calls of this handle."""
        self.expired = 0
        """Jobs that the last claim had to cancel."""
        self.added = 0

    @property
    def now(self) -> int:
        return self.clock.now()

    def clock_was_set_back(self, before: int) -> None:
        """What was due before is due now."""
        for entry in self.jobs.values():
            if entry.state is State.READY and self.now < entry.run_at <= before:
                entry.run_at = self.now

    # What a worker does.

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return [self._add(job) for job in jobs]

    def made(self, jobs: Sequence[NewJob]) -> bool:
        return all(job.id in self.jobs for job in jobs)

    def end_returned(self, lost: LeaseRef) -> bool:
        entry = self.jobs.get(lost.id)
        # A reclaim raises the lease number by one; a claim since raises it again, and a settlement leaves it.
        if entry is None or entry.state is not State.READY or entry.lease != lost.lease + 1 or entry.settled == entry.lease:
            return False
        return self._cancel(lost.id, Actor(reason=DONE_LATE)) is Acted.DONE

    def too_deep(self, jobs: Sequence[NewJob]) -> dict[str, tuple[int, int]]:
        """The queues for which `QueueFull` is right, each with its depth and limit. Tries the call and takes it back."""
        before = dict(self.jobs), dict(self.held), self.added
        depths = {queue: self._waiting(queue) for queue in self.limited_queues()}
        self.enqueue(jobs)
        full = {}
        for queue, depth in depths.items():
            most = self.chosen_limits[Target("queue", queue)].max_depth
            if most is not None and depth < self._waiting(queue) > most:
                full[queue] = depth, most
        self.jobs, self.held, self.added = before
        return full

    def _waiting(self, queue: str) -> int:
        return sum(e.state is State.READY and e.new.queue == queue for e in self.jobs.values())

    def _add(self, job: NewJob) -> Enqueued:
        if job.id in self.jobs:
            return Enqueued(job.id, False)
        if holder := self._holder(job):
            return Enqueued(holder, False)
        due = self.now + to_us(job.delay) if job.run_at is None else from_datetime(job.run_at)
        if job.schedule is not None:
            due = max(due, self.now)
        said = self.policies_set.get(job.queue, QueuePolicy()).max_attempts
        attempts = job.max_attempts or (5 if said is None else said)
        entry = Entry(job, self.added, due, self.now, attempts, fresh=due <= self.now and job.schedule is None)
        entry.expires_at = None if job.expires is None else self.now + to_us(job.expires)
        self.added += 1
        self.jobs[job.id] = entry
        if job.key is not None:
            self._take_key(job, self.now + to_us(job.key_ttl) if 0 < job.key_ttl < FOREVER else 0)
        return Enqueued(job.id, True)

    def _holder(self, job: NewJob) -> str | None:
        hold = None if job.key is None else self.held.get(job.key_scope)
        return hold.id if hold and self._holds(hold) else None

    def _take_key(self, job: NewJob, until: int) -> None:
        self.held[job.key_scope] = Hold(job.key_scope, job.id, until, forever=job.key_ttl == FOREVER)

    def _holds(self, hold: Hold) -> bool:
        """Not one that was held until the start of its job, once that has started."""
        entry = self.jobs.get(hold.id)
        return self._lies(hold) and not (entry is not None and entry.new.key_ttl == UNTIL_START and entry.attempt > 0)

    def _lies(self, hold: Hold) -> bool:
        """While the job is live, at least for the window, or as long as the job is kept. The id may be of another job since."""
        entry = self.jobs.get(hold.id)
        if entry is None or (entry.new.queue, entry.new.task, entry.new.key) != hold.scope:
            return self.now < hold.until
        return self.now < hold.until or hold.forever or not entry.state.finished

    def claim(
        self, queues: Sequence[Share], limit: int, worker: str, lease_for: float, room: Mapping[str, int], leave: Leave
    ) -> list[Claimed]:
        turn, self.claims = self.claims, self.claims + 1
        self.expired = self.expire(len(self.jobs))
        left_of = dict(room)
        for target in self.limits():
            if target.kind == "task" and (places := self._room(target)) is not None:
                left_of[target.name] = min(places, left_of.get(target.name, places))
        for task, places in self.breaker.places(self.now).items():
            left_of[task] = min(places, left_of.get(task, places))
        most_of = {share.queue: _least(share.most, self._room(Target("queue", share.queue))) for share in queues}
        taken: list[Entry] = []
        for share in [*queues, *(Share(share.queue, None, share.most) for share in queues)]:
            left, most = limit - len(taken), most_of[share.queue]
            if most is not None:
                left = min(left, most - sum(entry.new.queue == share.queue for entry in taken))
            taken += self._take(share.queue, left if share.places is None else min(share.places, left), turn, left_of, leave)
        for entry in taken:
            for target in (Target("queue", entry.new.queue), Target("task", entry.new.task)):
                if (limit_ := self.limits().get(target)) is not None and limit_.rate is not None:
                    self.starts.setdefault(target, []).append(self.now)
        claimed = [self._lease(entry, worker, lease_for) for entry in taken]
        self.breaker.started(((job.task, job.id, job.lease) for job in claimed), self.now)
        return claimed

    def expire(self, limit: int) -> int:
        past = [e for e in self.jobs.values() if e.state is State.READY and e.expires_at is not None and e.expires_at <= self.now]
        for entry in past[:limit]:
            self._finish(entry, State.CANCELLED, EXPIRED)
        return len(past[:limit])

    def _take(self, queue: str, places: int, turn: int, room: dict[str, int], leave: Leave) -> list[Entry]:
        """The best due jobs of a queue. They are marked as running here so that a second look passes them by."""
        taken: list[Entry] = []
        due = [e for e in self.jobs.values() if e.state is State.READY and e.run_at <= self.now]
        due = [e for e in due if e.new.id not in leave.jobs and e.new.task not in leave.tasks]
        open_ = [e for e in due if e.new.queue == queue and not self._paused(e)]
        with_room = [e for e in open_ if room.get(e.new.task, 1) > 0]
        highest = max((e.new.priority for e in with_room), default=0)
        after = self.policies_set.get(queue, QueuePolicy()).ageing
        lower = [e for e in with_room if e.new.priority < highest] if after is not None else []
        held_up = [e for e in lower if e.run_at <= self.now - to_us(after or 0)]
        if held_up and places > 0:
            oldest = min(held_up, key=lambda e: (e.run_at, -e.new.priority)).new.priority
            aged = sorted((e for e in held_up if e.new.priority == oldest), key=_by_due)
            taken = _fitting(aged, (places + turn % 10) // 10, room)
        for priority in sorted({e.new.priority for e in open_}, reverse=True):
            level = sorted((e for e in open_ if e.new.priority == priority and e not in taken), key=_by_due)
            left = places - len(taken)
            overdue = [e for e in level if not e.fresh and e.run_at <= self.now - to_us(OVERDUE)]
            first = _fitting(overdue, (left + turn % 2) // 2, room)
            others = _fitting([e for e in level if e not in first], left - len(first), room)
            taken += sorted(first + others, key=_by_due)
        for entry in taken:
            entry.state = State.RUNNING
        return taken

    def _room(self, target: Target) -> int | None:
        """How many of a queue or task may start now; None when no limit says."""
        limit = self.limits().get(target)
        if limit is None:
            return None
        running = None if limit.running is None else max(0, limit.running - self.running(target))
        rate = limit.parsed_rate
        if rate is None:
            return running
        # The starts of the fifteenth of the period that it is now, and of the fifteen before it.
        width = -(-to_us(rate.period) // 15)
        counted = sum(start // width >= self.now // width - 15 for start in self.starts.get(target, ()))
        return _least(running, max(0, rate.starts - counted))

    def running(self, target: Target) -> int:
        """How many jobs of a queue or task run."""
        return sum(e.state is State.RUNNING and getattr(e.new, target.kind) == target.name for e in self.jobs.values())

    def _paused(self, entry: Entry) -> bool:
        targets = Target("queue", entry.new.queue), Target("task", entry.new.task)
        return any(pause.target in targets for pause in self.pauses())

    def _lease(self, entry: Entry, worker: str, lease_for: float) -> Claimed:
        entry.fresh = False
        entry.lease += 1
        entry.attempt += 1
        entry.worker = entry.holder = worker
        entry.started_at = self.now
        entry.lease_until = min(self.now + to_us(lease_for), self._latest(entry))
        entry.given = entry.lease_until - self.now
        entry.record("running", None)
        new = entry.new
        return Claimed(
            id=new.id,
            task=new.task,
            queue=new.queue,
            body=new.body,
            priority=new.priority,
            attempt=entry.attempt,
            max_attempts=entry.max_attempts,
            timeout=new.timeout,
            lease=entry.lease,
            run_at_us=entry.run_at,
            enqueued_at_us=entry.enqueued_at,
            key=new.key,
            tags=new.tags,
            parent_id=new.parent_id,
            schedule=new.schedule,
            tick_us=None if new.tick is None else from_datetime(new.tick),
            crashes=entry.crashes,
        )

    def _latest(self, entry: Entry) -> int:
        assert entry.started_at is not None
        return entry.started_at + to_us(entry.new.timeout) + to_us(SETTLE_GRACE)

    def _leased(self, id: str, lease: int) -> Entry | None:
        """The job, if this is its current lease, run out or not."""
        entry = self.jobs.get(id)
        return entry if entry is not None and entry.state is State.RUNNING and entry.lease == lease else None

    def record_steps(self, steps: Sequence[NewStep]) -> list[RecordedStep | None]:
        return [self._record_step(step) for step in steps]

    def _record_step(self, step: NewStep) -> RecordedStep | None:
        entry = self._leased(step.id, step.lease)
        if entry is None:
            return None
        if step.name not in entry.steps:
            until = None if step.lasts is None else at(self.now + to_us(step.lasts))
            entry.steps[step.name] = RecordedStep(
                name=step.name, value_body=step.value, kind=step.kind, at=at(self.now), lease=step.lease, until=until
            )
            entry.attempt = 1
            entry.record("running", None)
        return self._step_now(entry.steps[step.name])

    def steps(self, id: str) -> list[RecordedStep]:
        return [self._step_now(step) for step in self.jobs[id].steps.values()] if id in self.jobs else []

    def _step_now(self, step: RecordedStep) -> RecordedStep:
        if step.until is None:
            return step
        return msgspec.structs.replace(step, left=max(0.0, (from_datetime(step.until) - self.now) / 1_000_000))

    def arrive(self, arrival: Arrival) -> RecordedStep | None:
        entry = self._leased(arrival.id, arrival.lease)
        if entry is None:
            return None
        step, event = entry.steps.get(arrival.name), self.events.get(arrival.event or "")
        if step is not None and step.kind not in ("wait", "woken"):
            return self._step_now(step)
        open_ = step or RecordedStep(
            name=arrival.name, value_body=b"null", kind="wait", at=at(self.now), lease=arrival.lease, event=arrival.event
        )
        until = open_.until
        if event is not None and (until is None or event.at <= until):
            kind, value, end = "event", event.body, event.at
        elif until is not None and until <= at(self.now):
            kind, value, end = "timeout", b"null", until
        else:
            return self._step_now(open_)
        entry.steps[arrival.name] = msgspec.structs.replace(
            open_, kind=kind, value_body=value, lease=arrival.lease, until=max(open_.at, end), event=arrival.event
        )
        entry.attempt = 1
        entry.record("running", None)
        return self._step_now(entry.steps[arrival.name])

    def _hold(self, entry: Entry, hold: Held) -> None:
        """The job has left running, and waits for an event."""
        assert hold.event is not None
        known = entry.steps.get(hold.name)
        if known is None:
            until = None if hold.timeout is None else at(self.now + to_us(hold.timeout))
            entry.steps[hold.name] = RecordedStep(
                name=hold.name,
                value_body=b"null",
                kind="wait",
                at=at(self.now),
                lease=entry.lease,
                until=until,
                event=hold.event,
            )
        else:
            entry.steps[hold.name] = msgspec.structs.replace(known, kind="wait")
        entry.waits, entry.run_at = True, FAR
        until = entry.steps[hold.name].until
        if hold.event in self.events or (until is not None and until <= at(self.now)):
            self._wake(entry, hold.name)

    def _wake(self, entry: Entry, name: str) -> None:
        entry.steps[name] = msgspec.structs.replace(entry.steps[name], kind="woken")
        if entry.state is State.READY and entry.waits:
            entry.waits, entry.run_at = False, self.now

    def emit(self, name: str, body: bytes, keep: float) -> Emitted:
        known = self.events.get(name)
        if known is not None:
            return Emitted(created=False, at=known.at, same=known.body == body)
        self.events[name] = Event(name=name, body=body, at=at(self.now), until=at(self.now + to_us(keep)))
        for entry in self.jobs.values():
            for step in list(entry.steps.values()):
                if step.kind == "wait" and step.event == name:
                    self._wake(entry, step.name)
        return Emitted(created=True, at=at(self.now), same=True)

    def event(self, name: str) -> Event | None:
        return self.events.get(name)

    def past_events(self) -> set[str]:
        """Those that were kept for long enough, and that no job has to go on with."""
        needed = {step.event for e in self.jobs.values() for step in e.steps.values() if step.kind in ("wait", "woken")}
        now = at(self.now)
        return {name for name, event in self.events.items() if event.until <= now and name not in needed}

    def forget_events(self, names: set[str]) -> None:
        self.events = {name: event for name, event in self.events.items() if name not in names}

    def extend(self, worker: str, leases: Sequence[LeaseRef], lease_for: float) -> list[LeaseStatus]:
        return [self._extend(ref, lease_for) for ref in leases]

    def _extend(self, ref: LeaseRef, lease_for: float) -> LeaseStatus:
        entry = self._leased(ref.id, ref.lease)
        if entry is None:
            return LeaseStatus.LOST
        assert entry.lease_until is not None
        until = min(self.now + to_us(lease_for), self._latest(entry))
        if until <= self.now >= entry.lease_until:
            return LeaseStatus.LOST
        if until > entry.lease_until:
            entry.lease_until = until
            entry.given = until - self.now
        if ref.progress is not None:
            entry.progress = ref.progress
        return LeaseStatus.CANCEL_ASKED if entry.cancel_asked else LeaseStatus.HELD

    def holders(self, leases: Sequence[LeaseRef]) -> list[str | None]:
        return [entry.holder if (entry := self._leased(ref.id, ref.lease)) is not None else None for ref in leases]

    def asked_to_stop(self, workers: Sequence[str]) -> list[LeaseRef]:
        asked = [e for e in self.jobs.values() if e.state is State.RUNNING and e.cancel_asked and e.worker in workers]
        return [LeaseRef(entry.new.id, entry.lease) for entry in asked]

    def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        return [self._settle(settlement) for settlement in settlements]

    def _settle(self, settlement: Settlement) -> SettleAnswer:
        entry = self._leased(settlement.id, settlement.lease)
        if entry is None:
            known = self.jobs.get(settlement.id)
            repeated = known is not None and known.state is not State.RUNNING
            repeated = repeated and known.lease == known.settled == settlement.lease  # type: ignore[union-attr]
            if known is None:
                return SettleAnswer(Settled.LOST)
            if not repeated:
                return SettleAnswer(Settled.LOST, known.new.task, known.new.queue)
            return self._answer(Settled.REPEATED, known, known.attempt)
        entry.settled, attempt, asked = entry.lease, entry.attempt, entry.cancel_asked
        self._apply(entry, settlement.outcome)
        if entry.state is State.DONE and not settlement.keep:
            self._remove(entry)
        holds = isinstance(settlement.outcome, Held)
        for child in settlement.then if not (holds and asked) else ():
            self._add(msgspec.structs.replace(child, parent_id=settlement.id))
        answer = self._answer(Settled.SETTLED, entry, attempt)
        return msgspec.structs.replace(answer, after=None) if holds else answer

    def _answer(self, said: Settled, entry: Entry, attempt: int) -> SettleAnswer:
        due = max(0, entry.run_at - self.now) / 1_000_000 if entry.state is State.READY and not entry.waits else None
        return SettleAnswer(said, entry.new.task, entry.new.queue, entry.state, due, attempt, entry.max_attempts)

    def _apply(self, entry: Entry, outcome: Outcome) -> None:
        match outcome:
            case Done():
                entry.record("done", self.now)
                entry.result = outcome.result
                self._finish(entry, State.DONE)
            case Dead():
                entry.record("dead", self.now, outcome.failure.error, outcome.failure.traceback)
                self._finish(entry, State.DEAD)
            case Cancelled():
                entry.record("cancelled", self.now)
                self._end_cancelled(entry, outcome.reason)
            case Failed():
                word = "cancelled" if entry.cancel_asked else "failed"
                entry.record(word, self.now, outcome.failure.error, outcome.failure.traceback)
                self._after_failure(entry, to_us(outcome.after))
            case Snoozed() | Released() | Held() if entry.cancel_asked:
                entry.record("cancelled", self.now)
                self._end_cancelled(entry)
            case Snoozed():
                self._give_back(entry, to_us(outcome.after), outcome.reason)
            case Released():
                self._give_back(entry, 0, None)
            case Held():
                self._give_back(entry, 0, f"waits for the event {outcome.event!r}")
                entry.attempt = 0
                self._hold(entry, outcome)
            case _:
                assert_never(outcome)

    def _after_failure(self, entry: Entry, after: int) -> None:
        if entry.cancel_asked:
            self._end_cancelled(entry)
        elif entry.attempt >= entry.max_attempts:
            self._finish(entry, State.DEAD)
        else:
            self._ready(entry, self.now + after)

    def _end_cancelled(self, entry: Entry, reason: str | None = None) -> None:
        """A run ends as cancelled; why somebody asked for it stays, unless the run says better."""
        self._finish(entry, State.CANCELLED, entry.reason if reason is None and entry.cancel_asked else reason)

    def _give_back(self, entry: Entry, after: int, reason: str | None) -> None:
        entry.attempts = [known for known in entry.attempts if known.outcome != "running"]
        entry.attempt -= 1
        entry.returned += 1
        self._ready(entry, self.now + after, reason)

    def _ready(self, entry: Entry, run_at: int, reason: str | None = None) -> None:
        entry.state = State.READY
        entry.run_at = run_at
        entry.reason = reason
        entry.finished_at = entry.worker = entry.lease_until = None
        entry.cancel_asked = False

    def _finish(self, entry: Entry, state: State, reason: str | None = None) -> None:
        entry.state = state
        entry.reason = reason
        entry.finished_at = self.now
        entry.worker = entry.lease_until = None
        entry.waits = False

    def _remove(self, entry: Entry) -> None:
        del self.jobs[entry.new.id]

    def reclaim(self, limit: int) -> list[Reclaimed]:
        for entry in self.jobs.values():
            for step in list(entry.steps.values()):
                if step.kind == "wait" and step.until is not None and step.until <= at(self.now):
                    self._wake(entry, step.name)
        expired = []
        for entry in self.jobs.values():
            if entry.lease_until is not None:
                # The cut only ever shows after the clock was set back.
                entry.lease_until = min(entry.lease_until, self.now + entry.given)
                if entry.lease_until <= self.now:
                    expired.append((entry.lease_until, entry.order, entry))
        return [self._reclaim(entry) for _, _, entry in sorted(expired)[:limit]]

    def _reclaim(self, entry: Entry) -> Reclaimed:
        worker = entry.worker
        assert worker is not None
        assert entry.lease_until is not None
        assert entry.started_at is not None
        renewed = entry.lease_until - entry.given > entry.started_at
        entry.record("lost", self.now, LOST_TEXT)
        entry.lease += 1
        entry.crashes += 1
        self._after_failure(entry, 0)
        after = 0.0 if entry.state is State.READY else None
        return Reclaimed(entry.new.id, entry.new.task, entry.new.queue, worker, entry.attempt, entry.state, renewed, after)

    # What a scheduler does.

    def schedules(self) -> list[Schedule]:
        return [schedule for _, schedule in sorted(self.scheduled.items())]

    def due_schedules(self, limit: int) -> DueSchedules:
        waiting = sorted((each.due_us, each.name) for each in self.scheduled.values() if each.due_us is not None)
        due = [self.scheduled[name] for when, name in waiting if when <= self.now]
        later = [when for when, _ in waiting if when > self.now]
        next_in = 0.0 if len(due) > limit else (min(later) - self.now) / 1_000_000 if later else None
        return DueSchedules(self.now, due[:limit], next_in)

    def fire(self, advances: Sequence[Advance]) -> list[Advanced]:
        return [self._fire(advance) for advance in advances]

    def _fire(self, advance: Advance) -> Advanced:
        name = advance.schedule.name
        standing = self.scheduled.get(name)
        if standing is not None and standing.revision == advance.schedule.revision:
            return Advanced.REPEATED
        if (standing and standing.revision) != advance.expect:
            return Advanced.STALE
        last = self.jobs.get(advance.unless_live or "")
        if advance.otherwise is not None and last is not None and last.state in (State.READY, State.RUNNING):
            self.scheduled[name] = advance.otherwise
            return Advanced.SKIPPED
        self.scheduled[name] = advance.schedule
        for job in advance.jobs:
            ticked = any((e.new.schedule, e.new.tick) == (job.schedule, job.tick) for e in self.jobs.values())
            if job.tick is None or not ticked:
                self._add(job)
        return Advanced.DONE

    def put_schedule(self, advance: Advance, action: str, actor: Actor) -> Advanced:
        return self._fire(advance)

    def delete_schedule(self, name: str, actor: Actor) -> bool:
        return self.scheduled.pop(name, None) is not None

    def declare(self, declaration: Declaration) -> list[Declaration]:
        past = [(each, min(made, self.now)) for each, made in self.declared]
        living = [(each, made) for each, made in past if made + to_us(DECLARED_FOR) > self.now]
        if any(each.id == declaration.id for each, _ in living):
            self.declared = [(each, self.now if each.id == declaration.id else made) for each, made in living]
        else:
            self.declared = [*living, (declaration, self.now)]
        return [each for each, _ in self.declared]

    # What an operator does.

    def cancel(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return [self._cancel(job, actor) for job in ids]

    def _cancel(self, id: str, actor: Actor) -> Acted:
        entry = self.jobs.get(id)
        if entry is None:
            return Acted.NOT_FOUND
        if entry.state is State.RUNNING:
            entry.cancel_asked = True
            entry.reason = actor.reason
            return Acted.ASKED
        if entry.state is not State.READY:
            return Acted.WRONG_STATE
        self._finish(entry, State.CANCELLED, actor.reason)
        return Acted.DONE

    def requeue(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return [self._requeue(job) for job in ids]

    def _requeue(self, id: str) -> Acted:
        entry = self.jobs.get(id)
        if entry is None:
            return Acted.NOT_FOUND
        if entry.state not in (State.DEAD, State.CANCELLED):
            return Acted.WRONG_STATE
        if entry.new.key is not None:
            if self._holder(entry.new) not in (None, id):
                return Acted.KEY_TAKEN
            if self._holder(entry.new) is None:
                self._take_key(entry.new, 0)
        self._ready(entry, self.now)
        entry.fresh = False
        entry.attempt = 0
        entry.result = None
        entry.expires_at = None
        return Acted.DONE

    def rewind(self, id: str, to: str | None, actor: Actor) -> Acted:
        entry = self.jobs.get(id)
        if entry is None or (to is not None and to not in entry.steps):
            return Acted.NOT_FOUND
        acted = self._requeue(id)
        if acted is Acted.DONE:
            names = list(entry.steps)
            for name in names[names.index(to) + 1 if to is not None else 0 :]:
                del entry.steps[name]
        return acted

    def discard(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return [self._discard(job, actor) for job in ids]

    def _discard(self, id: str, actor: Actor) -> Acted:
        entry = self.jobs.get(id)
        if entry is None:
            return Acted.NOT_FOUND
        if entry.state is not State.DEAD:
            return Acted.WRONG_STATE
        self._finish(entry, State.CANCELLED, actor.reason)
        return Acted.DONE

    def replace(self, id: str, job: NewJob, actor: Actor) -> Acted:
        old = self.jobs.get(id)
        if old is not None and old.state is State.DEAD and self._holder(job):
            return Acted.KEY_TAKEN
        acted = self._discard(id, actor)
        if acted is Acted.DONE:
            self._add(msgspec.structs.replace(job, parent_id=id))
        return acted

    def change(self, ids: Sequence[str], change: Change, actor: Actor) -> list[Acted]:
        return [self._change(job, change) for job in ids]

    def _change(self, id: str, change: Change) -> Acted:
        entry = self.jobs.get(id)
        if entry is None:
            return Acted.NOT_FOUND
        if entry.state is not State.READY or entry.waits:
            return Acted.WRONG_STATE
        fields = {name: value for name in ("queue", "priority") if (value := getattr(change, name)) is not None}
        new = msgspec.structs.replace(entry.new, **fields)
        if new.key is not None and new.queue != entry.new.queue:
            if self._holder(new) is not None:
                return Acted.KEY_TAKEN
            hold = self.held[entry.new.key_scope]
            if hold.id == id:
                del self.held[entry.new.key_scope]
                self.held[new.key_scope] = hold._replace(scope=new.key_scope)
        entry.new = new
        if change.delay is not None:
            entry.run_at = self.now + to_us(change.delay)
        if change.run_at is not None:
            entry.run_at = from_datetime(change.run_at)
        if entry.attempt:
            entry.run_at = max(entry.run_at, self.now)
        entry.fresh = not entry.attempt and entry.run_at <= self.now
        return Acted.DONE

    def dead_letter(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return [self._dead_letter(job, actor) for job in ids]

    def _dead_letter(self, id: str, actor: Actor) -> Acted:
        entry = self.jobs.get(id)
        if entry is None:
            return Acted.NOT_FOUND
        if entry.state is not State.READY or entry.waits:
            return Acted.WRONG_STATE
        self._finish(entry, State.DEAD, actor.reason)
        return Acted.DONE

    def end_leases(self, worker: str, actor: Actor) -> int:
        ended = 0
        for entry in self.jobs.values():
            if entry.lease_until is not None and entry.worker == worker and entry.lease_until > self.now:
                entry.given -= entry.lease_until - self.now
                entry.lease_until = self.now
                ended += 1
        return ended

    def pause(self, target: Target, actor: Actor, until: datetime | None = None) -> None:
        self.pauses_set[target] = Pause(target=target, since=at(self.now), until=until, reason=actor.reason, by=actor.by)

    def resume(self, target: Target, actor: Actor) -> bool:
        was = any(pause.target == target for pause in self.pauses())
        self.pauses_set.pop(target, None)
        return was

    def pauses(self) -> list[Pause]:
        now = at(self.now)
        return [pause for pause in self.pauses_set.values() if pause.until is None or now < pause.until]

    def declare_breakers(self, rules: Mapping[str, Breaker | None]) -> None:
        self.breaker.declare(rules, self.now)

    def judge(self, verdicts: Sequence[BreakerVerdict]) -> list[bool]:
        return self.breaker.judge(verdicts, self.now)

    def open_breaker(self, task: str, actor: Actor) -> bool:
        return self.breaker.open_by_hand(task, actor.by, self.now)

    def close_breaker(self, task: str, actor: Actor, counted: AttemptCount) -> bool:
        return self.breaker.close_by_hand(task, actor.by, counted, self.now)

    def breakers(self) -> list[BreakerStatus]:
        return self.breaker.statuses()

    def set_limit(self, target: Target, limit: Limit | None, actor: Actor) -> bool:
        was, before = target in self.chosen_limits, self._period(target)
        self.chosen_limits.pop(target, None)
        if limit is not None and (target.kind == "task" or limit != Limit()):
            self.chosen_limits[target] = limit
        if self._period(target) != before:
            self.starts.pop(target, None)
        return was or limit is not None

    def declare_limits(self, limits: Mapping[str, Limit | None]) -> None:
        for task, limit in limits.items():
            target = Target("task", task)
            before = self._period(target)
            self.declared_limits.pop(target, None)
            if limit is not None:
                self.declared_limits[target] = limit
            if self._period(target) != before:
                self.starts.pop(target, None)

    def _period(self, target: Target) -> float | None:
        limit = self.limits().get(target)
        rate = None if limit is None else limit.parsed_rate
        return None if rate is None else rate.period

    def limits(self) -> dict[Target, Limit]:
        """What is in force."""
        return {**self.declared_limits, **self.chosen_limits}

    def limited_queues(self) -> set[str]:
        return {target.name for target in self.chosen_limits if target.kind == "queue"}

    def set_policy(self, queue: str, policy: QueuePolicy, actor: Actor) -> None:
        self.policies_set[queue] = policy

    def policies(self) -> dict[str, QueuePolicy]:
        return {queue: policy for queue, policy in self.policies_set.items() if policy != QueuePolicy()}

    def prunable(self, retention: Retention, by_task: Mapping[str, Retention]) -> set[str]:
        """The jobs that a prune may remove now."""
        return {e.new.id for e in self.jobs.values() if self._past(e, by_task.get(e.new.task, retention))}

    def _past(self, entry: Entry, retention: Retention) -> bool:
        match entry.state:
            case State.DONE:
                kept = retention.done
            case State.DEAD:
                kept = retention.dead
            case State.CANCELLED:
                kept = retention.cancelled
            case State.READY | State.RUNNING:
                return False
            case _:
                assert_never(entry.state)
        assert entry.finished_at is not None
        return entry.finished_at + to_us(kept) <= self.now

    def remove(self, ids: Iterable[str]) -> None:
        for job in ids:
            self._remove(self.jobs[job])

    # What an operator sees.

    def find(self, filter: Filter) -> list[Job]:
        """Every job that matches, newest first."""
        jobs = [entry.seen() for _, entry in sorted(self.jobs.items(), reverse=True)]
        return [job for job in jobs if _matches(job, filter, at(self.now))]

    def dead_letters(self, queue: str | None, task: str | None) -> list[DeadLetter]:
        """Every dead job of that queue and task, newest first."""
        return [_letter(job) for job in self.find(Filter(state=State.DEAD, queue=queue, task=task))]

    def dead_groups(self, queue: str | None, task: str | None) -> list[DeadGroup]:
        """The groups of those, the largest first."""
        jobs: dict[tuple[str, str], list[Job]] = {}
        for job in self.find(Filter(state=State.DEAD, queue=queue, task=task)):
            error = (job.errors[-1].error if job.errors else None) or job.reason
            jobs.setdefault((job.task, fingerprint(error)), []).append(job)
        groups = [DeadGroup(*name, len(some), _ended(some[-1]), _letter(some[0])) for name, some in jobs.items()]
        return sorted(groups, key=lambda group: (-group.count, group.task, group.fingerprint))

    def queues(self) -> set[str]:
        """Those that hold jobs, are paused, or have a limit or a policy."""
        paused = {pause.target.name for pause in self.pauses() if pause.target.kind == "queue"}
        return {entry.new.queue for entry in self.jobs.values()} | paused | self.limited_queues() | self.policies().keys()

    def stats(self, queue: str) -> QueueStats:
        entries = [e for e in self.jobs.values() if e.new.queue == queue]
        waiting = [e for e in entries if e.state is State.READY]
        untried = [e for e in waiting if e.attempt == 0]
        oldest = min([e.run_at for e in waiting if e.run_at <= self.now], default=self.now)

        def count(state: State) -> int:
            return sum(e.state is state for e in entries)

        return QueueStats(
            ready=sum(e.run_at <= self.now for e in untried),
            scheduled=sum(e.run_at > self.now and not e.waits for e in untried),
            held=sum(e.waits for e in waiting),
            retrying=len(waiting) - len(untried),
            due=sum(e.run_at <= self.now for e in waiting),
            running=count(State.RUNNING),
            done=count(State.DONE),
            dead=count(State.DEAD),
            cancelled=count(State.CANCELLED),
            keys=sum(name[0] == queue and self._lies(hold) for name, hold in self.held.items()),
            oldest_age_s=(self.now - oldest) / 1_000_000,
            paused=any(pause.target == Target("queue", queue) for pause in self.pauses()),
        )


def _ended(job: Job) -> datetime:
    assert job.finished_at is not None
    return job.finished_at


def _letter(job: Job) -> DeadLetter:
    error = (job.errors[-1].error if job.errors else None) or job.reason
    assert job.finished_at is not None
    return DeadLetter(job.id, job.task, job.queue, error and error.lstrip()[:ERROR_TOLD], job.finished_at)


def _matches(job: Job, filter: Filter, now: datetime) -> bool:
    same = ("state", "queue", "task", "key", "parent_id")
    return (
        all(getattr(filter, name) in (None, getattr(job, name)) for name in same)
        and (filter.waiting is None or job.state is State.READY)
        and (filter.waiting != "scheduled" or (job.attempt == 0 and job.run_at > now and not job.held))
        and (filter.waiting != "held" or job.held)
        and (filter.waiting != "retrying" or job.attempt > 0)
        and (filter.tag is None or filter.tag in job.tags)
        and (filter.since is None or filter.since <= job.enqueued_at)
        and (filter.until is None or job.enqueued_at < filter.until)
    )


def _fitting(entries: Sequence[Entry], places: int, room: dict[str, int]) -> list[Entry]:
    """The first ones for which there are places, and room for their task; the room is used up."""
    taken: list[Entry] = []
    for entry in entries:
        task = entry.new.task
        if len(taken) < places and room.get(task, 1) > 0:
            taken.append(entry)
            if task in room:
                room[task] -= 1
    return taken


def _least(*numbers: int | None) -> int | None:
    return min((number for number in numbers if number is not None), default=None)


def _by_due(entry: Entry) -> tuple[int, int]:
    return entry.run_at, entry.order


def _instant(us: int | None) -> datetime | None:
    return None if us is None else at(us)
