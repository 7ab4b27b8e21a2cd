"""The oracle of groups: which jobs may start, which of them goes first, and how many places each group has had.

Whose turn it is, it does not say: of that it counts places, and compares groups that had jobs to give all the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hawser.clock import Clock, to_us
from hawser.job import State
from hawser.limit import Limit

TRIES = 3
"""Attempts of each job."""

BOUND = "bake"
"""The task that may have a limit per group; the other one has none."""

ALL = ""
"""Stands for all jobs of that task, where a limit counts them together."""

Level = tuple[str, int]
"""A queue and a priority."""


@dataclass
class GroupJob:
    """A job; times in microseconds."""

    id: str
    order: int
    task: str
    queue: str
    priority: int
    group: str | None
    run_at: int
    after: str | None = None
    """What it is held for."""
    fresh: bool = True
    """Due when it was enqueued, and neither claimed nor changed since."""
    state: State = State.READY
    attempt: int = 0
    lease: int = 0
    asked: bool = False

    @property
    def level(self) -> Level:
        return self.queue, self.priority

    @property
    def place(self) -> tuple[int, int]:
        return self.run_at, self.order

    def seen(self) -> tuple[State, str | None, str, int, bool, int]:
        held = self.state is State.READY and self.after is not None
        return self.state, self.group, self.queue, self.priority, held, self.attempt


class GroupModel:
    """All jobs, the limit per group, pauses and weights."""

    claims = 0

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.jobs: dict[str, GroupJob] = {}
        self.limit: Limit | None = None
        self.starts: dict[str, list[int]] = {}
        """By group, as far as they count against the rate."""
        self.heads: dict[str, str] = {}
        """By group the job of an ordered group that started last. It goes first until it ends, and again when it is requeued."""
        self.paused: set[str] = set()
        self.weights: dict[tuple[str, str | None], int] = {}
        self.had: dict[tuple[Level, str | None, str | None], list[int]] = {}
        """Of two groups of a level how many places each has had while both had jobs to give."""
        self.weighed: set[tuple[str, str | None]] = set()
        """Groups whose weight was changed: the turn that one of them was in may have ended early."""

    @property
    def now(self) -> int:
        return self.clock.now()

    # What may start.

    def waiting(self) -> list[GroupJob]:
        return [job for job in self.jobs.values() if job.state is State.READY and job.after is None]

    def bound(self, job: GroupJob) -> str | None:
        """What its start counts in: its group, or all jobs of the task together; None where no limit counts it."""
        if self.limit is None or job.task != BOUND:
            return None
        return job.group if self.limit.per_group else ALL

    def running(self, name: str) -> int:
        running = [job for job in self.jobs.values() if job.state is State.RUNNING and job.task == BOUND]
        return sum(name in (ALL, job.group) for job in running)

    def first(self, group: str) -> GroupJob | None:
        """The job that goes before all others of an ordered group."""
        last = self.jobs.get(self.heads.get(group, ""))
        if last is not None and not last.state.finished:
            return last
        return min((job for job in self.waiting() if (job.task, job.group) == (BOUND, group)), key=_place, default=None)

    def started(self, name: str) -> int:
        """Starts that count: those of the fifteenth of the period that it is now, and of the fifteen before it."""
        rate = None if self.limit is None else self.limit.parsed_rate
        if rate is None:
            return 0
        width = -(-to_us(rate.period) // 15)
        return sum(start // width >= self.now // width - 15 for start in self.starts.get(name, ()))

    def room(self, name: str) -> int:
        """How many jobs of a group, or of all, the limit lets start now."""
        assert self.limit is not None
        rate = self.limit.parsed_rate
        places = [] if self.limit.running is None else [self.limit.running - self.running(name)]
        places += [] if rate is None else [rate.starts - self.started(name)]
        return max(0, min(places))

    def open_jobs(self) -> list[GroupJob]:
        """All that may start now, each for itself."""
        due = [job for job in self.waiting() if job.run_at <= self.now and job.task not in self.paused]
        return [job for job in due if self._may_start(job)]

    def _may_start(self, job: GroupJob) -> bool:
        name = self.bound(job)
        if name is None or self.limit is None:
            return True
        return self.room(name) > 0 and (not self.limit.ordered or self.first(name) is job)

    def most(self, open_jobs: Sequence[GroupJob]) -> int:
        """How many of these may start together."""
        counts = Counter(self.bound(job) for job in open_jobs)
        return sum(count if name is None else min(count, self.room(name)) for name, count in counts.items())

    # What is done.

    def start(self, ids: Iterable[str]) -> list[GroupJob]:
        started = [self.jobs[id] for id in ids]
        for job in started:
            job.state, job.fresh = State.RUNNING, False
            job.attempt, job.lease = job.attempt + 1, job.lease + 1
            if (name := self.bound(job)) is not None and self.limit is not None:
                self.starts.setdefault(name, []).append(self.now)
                if self.limit.ordered:
                    self.heads[name] = job.id
        return started

    def end(self, job: GroupJob, outcome: str, wait: float) -> None:
        """A run ends so, or is lost."""
        if outcome in ("snoozed", "failed", "lost") and job.asked:
            outcome = "cancelled"
        if outcome in ("failed", "lost") and job.attempt >= TRIES:
            outcome = "dead"
        match outcome:
            case "snoozed":
                job.attempt -= 1
                job.state, job.run_at = State.READY, self.now + to_us(wait)
            case "failed":
                job.state, job.run_at = State.READY, self.now + to_us(wait)
            case "lost":
                job.state, job.run_at = State.READY, self.now
            case _:
                self._over(job, State(outcome))

    def _over(self, job: GroupJob, state: State) -> None:
        job.state, job.asked, job.after = state, False, None
        for other in self.jobs.values():
            if other.state is State.READY and other.after == job.id:
                if state is State.DONE:
                    other.after, other.run_at, other.fresh = None, self.now, False
                elif state is State.CANCELLED:
                    self._over(other, State.CANCELLED)

    def lose_all(self) -> set[str]:
        lost = [job for job in self.jobs.values() if job.state is State.RUNNING]
        for job in lost:
            job.lease += 1
            self.end(job, "lost", 0)
        return {job.id for job in lost}

    def cancel(self, job: GroupJob) -> None:
        if job.state is State.RUNNING:
            job.asked = True
        elif job.state is State.READY:
            self._over(job, State.CANCELLED)

    def requeue(self, job: GroupJob) -> None:
        job.state, job.run_at, job.attempt, job.fresh = State.READY, self.now, 0, False

    def change(self, job: GroupJob, queue: str, priority: int) -> None:
        job.queue, job.priority = queue, priority
        if job.attempt:
            job.run_at = max(job.run_at, self.now)
        job.fresh = not job.attempt and job.run_at <= self.now

    def set_limit(self, limit: Limit | None) -> None:
        before, self.limit = self.limit, limit
        if _counted(before) != _counted(limit):
            self.starts.clear()
        if limit is None or not limit.ordered:
            self.heads.clear()

    # Whose turn it was.

    def weight(self, level: Level, group: str | None) -> int:
        return self.weights.get((level[0], group), 1)

    def keep_open(self) -> None:
        """Forget what groups have had that have nothing to give now: they begin anew."""
        open_ = {(job.level, job.group) for job in self.open_jobs()}
        pairs = [(level, one, other) for level, one in open_ for at, other in open_ if at == level and _is_below(one, other)]
        self.had = {pair: self.had.get(pair, [0, 0]) for pair in pairs}

    def count(self, started: Sequence[GroupJob]) -> list[str]:
        """What is unfair about these starts, of groups that have something to give still."""
        self.keep_open()
        for job in started:
            for (level, one, other), had in self.had.items():
                if level == job.level and job.group in (one, other):
                    had[job.group == other] += 1
        return [f"{pair} have had {had}" for pair, had in self.had.items() if self._is_unfair(pair, had)]

    def _is_unfair(self, pair: tuple[Level, str | None, str | None], had: Sequence[int]) -> bool:
        """At each moment one of two groups may have had a turn more than the other, and one more where a weight was changed."""
        level, *groups = pair
        weights = [self.weight(level, group) for group in groups]
        turns = [places / weight for places, weight in zip(had, weights, strict=True)]
        cut_short = any((level[0], group) in self.weighed for group in groups)
        return abs(turns[0] - turns[1]) > 1 + cut_short + 1e-9


def _counted(limit: Limit | None) -> tuple[float | None, bool]:
    """What starts are counted by: where that changes, none has been counted."""
    rate = None if limit is None else limit.parsed_rate
    return None if rate is None else rate.period, limit is not None and limit.per_group


def _place(job: GroupJob) -> tuple[int, int]:
    return job.place


def _is_below(one: str | None, other: str | None) -> bool:
    return (one or "") < (other or "")
