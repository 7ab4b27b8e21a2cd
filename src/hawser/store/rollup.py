"""What happened, minute by minute: counts of events and of how long things took, in buckets that are the same everywhere."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal, Protocol

import msgspec

from hawser.job import State

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Upper bounds in seconds; one more bucket holds what is longer."""

Kind = Literal["wait", "run"]
"""How long a job was due before its start; how long an attempt took."""


class Measured(msgspec.Struct, frozen=True, gc=False):
    """So many jobs of a queue and task waited, or ran, for as long as the bucket says."""

    queue: str
    task: str
    kind: Kind
    bucket: int
    count: int


class Rollup(msgspec.Struct, frozen=True, kw_only=True):
    """One minute. `wait` and `run` have a count for each bucket."""

    minute: datetime
    counts: dict[str, int]
    wait: tuple[int, ...]
    run: tuple[int, ...]


class LaneDepth(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one queue, task and priority that wait."""

    queue: str
    task: str
    priority: int
    waiting: int
    oldest_age_s: float
    """How long the one that is due for longest has been due; 0 when none is."""


class TaskDepth(msgspec.Struct, frozen=True, gc=False):
    """The jobs of one queue, task and state."""

    queue: str
    task: str
    state: State
    count: int


def bucket_of(seconds: float) -> int:
    return bisect_left(BUCKETS, seconds)


def percentile(counts: Sequence[int], share: float) -> float | None:
    """The time that so great a share of jobs needed at most, interpolated within its bucket; None when there are no jobs.

    Bounds grow by factors, and so does the time within a bucket: a straight line would tell too much in the wide ones.
    """
    total = sum(counts)
    if not total:
        return None
    left = share * total
    for bucket, count in enumerate(counts):
        if count and left <= count:
            if bucket == len(BUCKETS):
                break
            if not bucket:
                return BUCKETS[0] * left / count
            low, high = BUCKETS[bucket - 1], BUCKETS[bucket]
            return float(low * (high / low) ** (left / count))
        left -= count
    return BUCKETS[-1]


class EventCount(msgspec.Struct, frozen=True, gc=False):
    """How often an event happened in one minute, to the jobs of one queue and task."""

    minute: int
    """Minutes since 1970."""
    queue: str
    task: str
    event: str
    count: int


class Watcher(Protocol):
    """What charts and alarms need. Nothing here costs more when more jobs wait."""

    async def lanes(self) -> list[LaneDepth]:
        """The jobs that wait, by queue, task and priority, in that order; lanes that hold none are left out."""

    async def task_depths(self) -> list[TaskDepth] | None:
        """How many jobs there are by queue, task and state, in any order; None when the store does not count them so."""

    async def measure(self, measured: Sequence[Measured]) -> None:
        """Add what a worker has measured to this minute's rollup."""

    async def rollups(self, minutes: int, queue: str | None = None, task: str | None = None) -> list[Rollup]:
        """The last so many minutes with this one, oldest first, each with all that happened in it, to that queue and task."""

    async def event_counts(self, minutes: int, events: Sequence[str], back: int = 0) -> list[EventCount]:
        """How often these events happened in each of the last so many minutes with this one, by queue and task, in any order.
        With `back` they end so many minutes before this one."""

    async def times(self, minutes: int, queue: str | None = None) -> list[Measured]:
        """For how long jobs waited and ran in the last so many minutes with this one, by queue and task, in any order: the sums
        of what was measured, of all queues or of one."""
