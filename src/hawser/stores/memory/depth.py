"""How many jobs stand where, and what happened per minute: counted as it happens, so asking costs nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from hawser.job import State
from hawser.store.rollup import EventCount
from hawser.stores.memory.groups import Groups
from hawser.stores.order import Lane
from hawser.stores.tally import ATTEMPT_MINUTES, KEEP_MINUTES, MINUTE_US

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from hawser.stores.memory.row import Row

Place = Lane | State

HELD: Final = "held"
"""Where jobs are counted a second time that wait for others."""


class Depth:
    """Jobs per queue and place. A waiting job's place is its lane, any other's its state."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._tally: defaultdict[int, defaultdict[str, Counter[tuple[str, str]]]] = defaultdict(lambda: defaultdict(Counter))
        """By minute and queue: how often what happened to which task."""
        self.dead = Groups()
        self._running: Counter[str] = Counter()
        """By task."""
        self._running_in_group: Counter[tuple[str, str]] = Counter()
        """By task and group."""

    def move(self, row: Row, by: int) -> None:
        """The row enters (+1) or leaves (-1) the place that it is in now."""
        if row.state is State.DEAD:
            (self.dead.add if by > 0 else self.dead.remove)(row)
        elif row.state is State.RUNNING:
            self._running[row.task] += by
            if row.group is not None:
                self._running_in_group[row.task, row.group] += by
        self._counts[row.queue][row.lane.name if row.state is State.READY else row.state] += by
        if row.held is not None:
            self._counts[row.queue][HELD] += by

    def of(self, queue: str, place: Place) -> int:
        counts = self._counts.get(queue)
        return counts.get(place.name if isinstance(place, Lane) else place, 0) if counts else 0

    def running(self, task: str) -> int:
        """Jobs of the task that run, in all queues."""
        return self._running[task]

    def running_in_group(self, task: str, group: str) -> int:
        """Jobs of the task and group that run, in all queues."""
        return self._running_in_group[task, group]

    def held(self, queue: str) -> int:
        """Jobs of the queue that wait for others."""
        return self._counts[queue][HELD] if queue in self._counts else 0

    def waiting(self, queue: str) -> int:
        """Jobs of the queue in state ready."""
        return sum(self.of(queue, lane) for lane in Lane)

    def queues(self) -> list[str]:
        """The queues that hold jobs."""
        return [queue for queue, counts in self._counts.items() if any(counts.values())]

    def tally(self, now: int, queue: str, task: str, event: str, count: int = 1) -> None:
        self._tally[now // MINUTE_US][queue][task, event] += count

    def tallied(self, queue: str, now: int) -> Iterator[tuple[int, str, int]]:
        """(minute, event, count) of a queue in the last hour."""
        first = now // MINUTE_US - ATTEMPT_MINUTES
        for minute, queues in self._tally.items():
            if minute >= first and queue in queues:
                yield from ((minute, event, n) for (_, event), n in queues[queue].items())

    def first_minute(self, now: int) -> int | None:
        """The first minute of the last hour in which anything was counted."""
        this = now // MINUTE_US
        return next((minute for minute in range(this - ATTEMPT_MINUTES + 1, this + 1) if minute in self._tally), None)

    def tallied_of(self, queue: str | None, task: str | None) -> Iterator[tuple[int, str, int]]:
        """(minute, event, count) of a queue and task, or of all."""
        return (
            (minute, event, n)
            for minute, queues in self._tally.items()
            for in_queue, counts in queues.items()
            if queue is None or in_queue == queue
            for (of_task, event), n in counts.items()
            if task is None or of_task == task
        )

    def counted_from(self, first: int) -> Iterator[tuple[str, str, str, int]]:
        """(queue, task, event, count) from a minute on, each minute by itself."""
        for minute, queues in self._tally.items():
            if minute >= first:
                for queue, counts in queues.items():
                    yield from ((queue, task, event, n) for (task, event), n in counts.items())

    def event_counts(self, first: int, last: int, events: Collection[str]) -> Iterator[EventCount]:
        """How often these events happened from a minute to another, by queue and task."""
        for minute, queues in self._tally.items():
            if first <= minute <= last:
                for queue, counts in queues.items():
                    yield from (
                        EventCount(minute, queue, task, event, n) for (task, event), n in counts.items() if event in events
                    )

    def forget(self, now: int) -> None:
        """Remove tallies that no figure needs any more, and queues that hold nothing."""
        first = now // MINUTE_US - KEEP_MINUTES
        for minute in [minute for minute in self._tally if minute < first]:
            del self._tally[minute]
        for queue in [queue for queue, counts in self._counts.items() if not any(counts.values())]:
            del self._counts[queue]
        self._running = +self._running
        self._running_in_group = +self._running_in_group
