"""Counts what happens in a process. A batch costs a few steps; of a large one only some jobs are timed, for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from hawser.clock import Clock, SystemClock
from hawser.job import Claimed, State
from hawser.outcome import Outcome, ready_word
from hawser.store import Reclaimed, SettleAnswer, Settled, Settlement
from hawser.store.rollup import BUCKETS, Kind, Measured, bucket_of
from hawser.telemetry import metric
from hawser.telemetry.events import ClaimedBatch, Events, SettledBatch

_T = TypeVar("_T")

SAMPLE: Final = 16
"""Jobs of a batch that are timed, each standing for its share: a batch of 400 costs little more than one of 16."""

MOST_LABELS: Final = 1_000
"""Combinations of labels that a metric may have: producers choose the names of queues, and must not fill the memory of a
worker."""

MOST_MEASURED: Final = 20_000
"""Entries that wait to go into the rollup; what is beyond them is not charted."""

DONE: Final = State.DONE
"""Read once: in Python 3.11 reading a member of an enum costs as much as a call, and this one is asked for with every job."""

OTHER: Final = "other"
"""Stands for the labels beyond that."""


class Times(msgspec.Struct):
    """How many took how long: a count for each bucket, and the sum of the seconds."""

    buckets: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    seconds: float = 0.0

    def add(self, seconds: float, count: int) -> None:
        self.buckets[bucket_of(seconds)] += count
        self.seconds += seconds * count

    def merge(self, other: Times) -> None:
        self.buckets = [one + two for one, two in zip(self.buckets, other.buckets, strict=True)]
        self.seconds += other.seconds


class Readings(msgspec.Struct):
    """What meters say, of one process or of several together; each with its metric's name and labels."""

    counts: dict[str, dict[tuple[str, ...], float]] = {}
    times: dict[str, dict[tuple[str, ...], Times]] = {}

    def count(self, what: metric.Metric, labels: tuple[str, ...] = (), by: float = 1) -> None:
        counts = self.counts.setdefault(what.name, {})
        labels = _bounded(labels, counts)
        counts[labels] = counts.get(labels, 0) + by

    def time(self, what: metric.Metric, seconds: float, labels: tuple[str, ...] = (), count: int = 1) -> None:
        times = self.times.setdefault(what.name, {})
        labels = _bounded(labels, times)
        if labels not in times:
            times[labels] = Times()
        times[labels].add(max(0.0, seconds), count)

    def merge(self, other: Readings) -> None:
        for name, counts in other.counts.items():
            mine = self.counts.setdefault(name, {})
            for labels, value in counts.items():
                mine[labels] = mine.get(labels, 0) + value
        for name, times in other.times.items():
            kept = self.times.setdefault(name, {})
            for labels, taken in times.items():
                kept.setdefault(labels, Times()).merge(taken)


class Meter(Events):
    """Listens to a worker process, and is told by a server, what to count."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.readings = Readings()
        self._clock = clock or SystemClock()
        self._measured: Counter[tuple[str, str, Kind, int]] = Counter()

    def claimed(self, batch: ClaimedBatch) -> None:
        self.readings.time(metric.CLAIM_SECONDS, batch.seconds)
        for labels, count in Counter((job.queue, job.task) for job in batch.jobs).items():
            self.readings.count(metric.CLAIMED, labels, count)
        now = self._clock.now()
        for job, weight in _sample(batch.jobs):
            seconds = (now - job.run_at_us) / 1_000_000
            self.readings.time(metric.WAIT_SECONDS, seconds, (job.queue,), weight)
            self._measure(job, "wait", seconds, weight)

    def settled(self, batch: SettledBatch) -> None:
        self.answered(batch.settlements, batch.answers)
        for (job, seconds), weight in _sample(list(zip(batch.jobs, batch.seconds, strict=True))):
            if seconds >= 0:  # else it was handed back unstarted
                self.readings.time(metric.RUN_SECONDS, seconds, (job.queue, job.task), weight)
                self._measure(job, "run", seconds, weight)

    def answered(self, settlements: Sequence[Settlement], answers: Sequence[SettleAnswer]) -> None:
        """Outcomes were written or refused, of runs whose times are not known here."""
        words = Counter((answer.queue or "", answer.task or "", "done") for answer in answers if answer.state is DONE)
        words.update(
            (answer.queue or "", answer.task or "", _word(answer.state, settlement.outcome))
            for settlement, answer in zip(settlements, answers, strict=True)
            if answer.state is not None and answer.state is not DONE
        )
        for labels, count in words.items():
            self.readings.count(metric.SETTLED, labels, count)
        if stale := sum(answer.said is Settled.LOST for answer in answers):
            self.readings.count(metric.STALE, (), stale)

    def dropped(self, count: int) -> None:
        self.readings.count(metric.DROPPED, (), count)

    def lost(self, count: int) -> None:
        self.readings.count(metric.LOST, (), count)

    def reclaimed(self, runs: Sequence[Reclaimed]) -> None:
        for labels, count in Counter(
            (run.queue, run.task, run.state.value if run.state.finished else "retry") for run in runs
        ).items():
            self.readings.count(metric.RECLAIMED, labels, count)
        for place, count in Counter((run.queue, run.task) for run in runs if not run.renewed).items():
            self.readings.count(metric.UNRENEWED, place, count)

    def _measure(self, job: Claimed, kind: Kind, seconds: float, count: int) -> None:
        key = (job.queue, job.task, kind, bucket_of(seconds))
        if key in self._measured or len(self._measured) < MOST_MEASURED:
            self._measured[key] += count

    def take_measured(self) -> list[Measured]:
        """What was measured since this was last asked, for the rollup."""
        taken, self._measured = self._measured, Counter()
        return [Measured(*key, count) for key, count in taken.items()]

    def give_back(self, measured: Iterable[Measured]) -> None:
        """What could not be written; it goes along next time."""
        for each in measured:
            self._measured[each.queue, each.task, each.kind, each.bucket] += each.count


def _bounded(labels: tuple[str, ...], known: Collection[tuple[str, ...]]) -> tuple[str, ...]:
    return labels if labels in known or len(known) < MOST_LABELS else (OTHER,) * len(labels)


def _word(state: State, outcome: Outcome) -> str:
    """Where the job went, as the store answered; the outcome says only why it is ready again."""
    return state.value if state.finished else ready_word(outcome)


def _sample(items: Sequence[_T]) -> Iterable[tuple[_T, int]]:
    """Some of the items, evenly spread, with how many each stands for."""
    step = -(-len(items) // SAMPLE)
    if step <= 1:
        return ((item, 1) for item in items)
    return ((items[at], min(step, len(items) - at)) for at in range(0, len(items), step))
