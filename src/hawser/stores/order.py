"""Which due jobs a claim takes. The rule stands here once for the stores that decide in Python.

A queue's waiting jobs lie in lanes, one per task, priority and kind:

- fresh: due when it was enqueued, and neither claimed nor requeued since: the backlog;
- timed: never tried, but had to wait for its time, or was handed back, or made by a schedule;
- retrying: waits for another attempt.

Fresh jobs can be a million deep, so a job of the other kinds that only took its place by due time would be late by the
whole backlog. Half of each claim's places are therefore first offered to those that are overdue.

A higher priority goes before a lower one, but for a tenth of the places: a lower priority whose jobs have been due for very long
is offered them first, so that a stream of urgent jobs does not keep it waiting for ever.

Where jobs have groups, the groups of a queue and priority take turns, and the rule above holds within each group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from heapq import heapify, heappop, heapreplace
from operator import itemgetter
from typing import Any, Final, Protocol, TypeVar

from hawser.clock import from_datetime, to_us
from hawser.job import NewJob
from hawser.policy import DEFAULT_AGEING, QueuePolicy
from hawser.store import OVERDUE, Change, Share

_OVERDUE_US = to_us(OVERDUE)
AGED_US: Final = to_us(DEFAULT_AGEING)

GROUPED: Final = 3
"""Stores that keep a lane as a number add this where the job has a group, so that claims of other jobs do not meet it."""

UNGROUPED: Final = ""
"""Stands for the jobs without a group: they are one group."""

Entry = tuple[Any, ...]
"""Due time, insertion order, then what the store needs to know the job."""


class Lane(IntEnum):
    """The kinds of waiting."""

    FRESH = 0
    TIMED = 1
    RETRYING = 2


def due_at(job: NewJob, now: int) -> int:
    """When a new job is due. One that a schedule made is not dated back: its tick says when it should have been."""
    run_at = now + to_us(job.delay) if job.run_at is None else from_datetime(job.run_at)
    return run_at if job.schedule is None else max(run_at, now)


def first_lane(job: NewJob, run_at: int, now: int) -> Lane:
    """The lane of a new job. One that a schedule made had to wait for its tick, however promptly it was fired."""
    return Lane.FRESH if run_at <= now and job.schedule is None else Lane.TIMED


def lane_of(attempt: int, *, fresh: bool) -> Lane:
    """The lane of a job that becomes ready."""
    if attempt:
        return Lane.RETRYING
    return Lane.FRESH if fresh else Lane.TIMED


def changed_place(attempt: int, run_at: int, now: int) -> tuple[int, Lane]:
    """Due time and lane of a waiting job that is changed.

    One that is due and was never tried counts as fresh: stores that claim from a frontier have a place for fresh jobs that are
    dated back. They have none for one that waits for another attempt, so that one counts as due from now on.
    """
    if attempt:
        return max(run_at, now), Lane.RETRYING
    return run_at, Lane.FRESH if run_at <= now else Lane.TIMED


def changed_due(change: Change, run_at: int, now: int) -> int:
    """When a job is due that is changed and was due at `run_at`."""
    if change.delay is not None:
        return now + to_us(change.delay)
    return run_at if change.run_at is None else from_datetime(change.run_at)


def spread_delays(count: int, spread: float, delay: float) -> list[int]:
    """After how many microseconds each of so many jobs is due that are requeued together."""
    return [to_us(delay + spread * n / count) for n in range(count)]


def lane_number(lane: Lane, group: str | None) -> int:
    """The lane, as stores keep it that know jobs with groups by their lanes."""
    return lane if group is None else lane + GROUPED


class Source(Protocol):
    """A lane to take from, in order of due time."""

    @property
    def task(self) -> str:
        """The task of its jobs."""

    @property
    def waited(self) -> bool:
        """Whether its jobs had to wait for their time."""

    @property
    def begin(self) -> Entry | None:
        """Due time and order of the head, or of a place before it that is known without a look; None when there is no head."""

    @property
    def head(self) -> Entry | None:
        """The job that is due for longest."""

    def pop(self) -> None:
        """Take the head away; the next one becomes the head."""


GroupRooms = dict[tuple[str, str], int]
"""What limits per group leave to one claim, by task and group, of those that it has looked at."""


class GroupTurn:
    """A group as one claim sees it."""

    __slots__ = ("name", "number", "rooms", "served", "short", "sources", "weight")

    def __init__(
        self, name: str, number: int, served: int, weight: int, sources: Sequence[Source], rooms: GroupRooms | None = None
    ) -> None:
        self.name = name
        self.number = number
        """Its turn: the lowest number is next."""
        self.served = served
        """Places that it has had. Its turn is over at each multiple of its weight, also over several claims."""
        self.weight = weight
        self.sources = sources
        self.short = False
        """Whether it had fewer jobs to give than it was offered places."""
        self.rooms = rooms
        """What limits per group leave to the claim; None when there are none."""

    def pick(self, places: int, now: int, room: dict[str, int]) -> list[Entry]:
        """Its jobs for so many places. Uses up the room of tasks, and of the group."""
        tasks = {source.task for source in self.sources if (source.task, self.name) in self.rooms} if self.rooms else ()
        if not tasks or self.rooms is None:
            return pick(self.sources, places, self.served, now, room)
        before = {**room, **{task: min(left := self.rooms[task, self.name], room.get(task, left)) for task in tasks}}
        both = dict(before)
        taken = pick(self.sources, places, self.served, now, both)
        room.update({task: left - before[task] + both[task] for task, left in room.items()})
        self.rooms.update({(task, self.name): self.rooms[task, self.name] - before[task] + both[task] for task in tasks})
        return taken


class TurnLevel(ABC):
    """A queue's jobs of one priority, where some of them have groups."""

    def __init__(self) -> None:
        self.visited: list[GroupTurn] = []
        self._again: deque[GroupTurn] = deque()
        self._front: GroupTurn | None = None
        """The group whose turn it is, if it was looked at and not served yet."""

    @abstractmethod
    def first(self, room: Mapping[str, int]) -> GroupTurn | None:
        """The group whose turn it is, of those that were not given yet; not for tasks without room."""

    @abstractmethod
    def number(self) -> int:
        """A turn behind all others."""

    def take(self, places: int, now: int, room: dict[str, int]) -> list[Entry]:
        """Offer places to the groups, by turns."""
        taken: list[Entry] = []
        while len(taken) < places and (group := self._next(room)) is not None:
            offered = min(group.weight - group.served % group.weight, places - len(taken))
            got = group.pick(offered, now, room)
            taken += got
            group.served += len(got)
            group.short = len(got) < offered
            if group.served % group.weight == 0 and got:
                group.number = self.number()
            if not group.short:
                self._again.append(group)
        return taken

    def _next(self, room: Mapping[str, int]) -> GroupTurn | None:
        """Groups that this claim has not visited have waited for longer than those that it has."""
        if self._again and self._again[0].served % self._again[0].weight:
            return self._again.popleft()  # the rest of a turn that the last offer has cut off
        group = self._look(room)
        if group is not None:
            self._front = None
            return group
        return self._again.popleft() if self._again else None

    def _look(self, room: Mapping[str, int]) -> GroupTurn | None:
        """The first group of those that this claim has not served. One that is looked at is put back when the claim is over."""
        if self._front is None:
            self._front = self.first(room)
            if self._front is not None:
                self.visited.append(self._front)
        return self._front

    def due_since(self, now: int, room: Mapping[str, int]) -> int | None:
        """When the oldest job of the group fell due whose turn it is."""
        group = self._again[0] if self._again else self._look(room)
        return None if group is None else _due_since(group.sources, now, room)


Level = Sequence[Source] | TurnLevel
AnyLevel = TypeVar("AnyLevel")

_by_due: Final = itemgetter(0, 1)


def choose(
    shares: Sequence[Share],
    limit: int,
    turn: int,
    now: int,
    levels: Callable[[str], Sequence[Level]],
    room: dict[str, int],
    ageing: Callable[[str], int | None],
) -> list[Entry]:
    """The jobs of one claim; `levels` gives a queue's lanes by priority, highest first. Uses up the `room` of tasks. `ageing` is
    asked only of a queue in which several priorities wait: microseconds, or None for strict priority."""
    opened: dict[str, Sequence[Level]] = {}
    chosen: list[Entry] = []
    left = {share.queue: share.most for share in shares if share.most is not None}

    def offer(queue: str, places: int) -> None:
        places = min(places, left.get(queue, places))
        if places > 0 and queue not in opened:
            opened[queue] = levels(queue)
        aged_places = reserved(places, turn)
        taken: list[Entry] = []
        if aged_places > 0 and len(opened.get(queue, ())) > 1 and (after := ageing(queue)) is not None:
            taken = _take_aged(opened[queue], aged_places, now, now - after, room)
        for level in opened.get(queue, ()):
            left_here = places - len(taken)
            if left_here <= 0:
                break
            if isinstance(level, TurnLevel):
                taken += level.take(left_here, now, room)
            else:
                taken += pick(level, left_here, turn, now, room)
        chosen.extend(taken)
        if queue in left:
            left[queue] -= len(taken)

    for share in shares:
        free = limit - len(chosen)
        offer(share.queue, free if share.places is None else min(free, share.places))
    for share in shares:
        offer(share.queue, limit - len(chosen))
    return chosen


def reserved(places: int, turn: int) -> int:
    """The places of a queue that are first offered to a lower priority whose jobs have aged: a tenth over ten claims."""
    return (places + turn % 10) // 10


def ageing_of(policy: QueuePolicy | None) -> int | None:
    """Microseconds after which a job of a queue with that policy has aged; None when none ever has."""
    return AGED_US if policy is None else None if policy.ageing is None else to_us(policy.ageing)


def _take_aged(levels: Sequence[Level], places: int, now: int, due_by: int, room: dict[str, int]) -> list[Entry]:
    """Jobs for the reserved tenth, of a level whose oldest job was due by then."""
    level = aged_level([(level, due_since(level, now, room)) for level in levels], due_by)
    if level is None:
        return []
    return level.take(places, now, room) if isinstance(level, TurnLevel) else fill_aged(level, places, due_by, room)


def aged_level(levels: Iterable[tuple[AnyLevel, int | None]], due_by: int) -> AnyLevel | None:
    """Of levels, highest first, with the times at which their oldest jobs fell due, the lower one that has aged most."""
    due = [(since, level) for level, since in levels if since is not None]
    aged = [each for each in due[1:] if each[0] <= due_by]
    return min(aged, key=lambda each: each[0])[1] if aged else None


def due_since(level: Level, now: int, room: Mapping[str, int]) -> int | None:
    """When the oldest due job of a level fell due, of tasks that have room; with groups, that of the group whose turn it is."""
    return level.due_since(now, room) if isinstance(level, TurnLevel) else _due_since(level, now, room)


def _due_since(sources: Iterable[Source], now: int, room: Mapping[str, int]) -> int | None:
    earliest: int | None = None
    for due_at, _, source in sorted(_begins(sources, now, room), key=_by_due):
        if earliest is not None and due_at >= earliest:
            break
        head = source.head
        if head is not None and head[0] <= now and (earliest is None or head[0] < earliest):
            earliest = head[0]
    return earliest


def fill_aged(sources: Iterable[Source], places: int, due_by: int, room: dict[str, int]) -> list[Entry]:
    """The jobs that have been due for longest, of those that have aged."""
    taken: list[Entry] = []
    _fill(taken, sources, places, due_by, room)
    return taken


def pick(sources: Sequence[Source], places: int, turn: int, now: int, room: dict[str, int]) -> list[Entry]:
    """Jobs of one priority, and of one group if they have groups."""
    taken: list[Entry] = []
    waited = [source for source in sources if source.waited] if len(sources) > 1 else []  # from one, the same jobs are taken
    _fill(taken, waited, (places + turn % 2) // 2, now - _OVERDUE_US, room)
    _fill(taken, sources, places - len(taken), now, room)
    taken.sort(key=_by_due)
    return taken


def _fill(taken: list[Entry], sources: Iterable[Source], places: int, due_by: int, room: dict[str, int]) -> None:
    """By a heap of heads: a job looks at the source that it comes from only. Of two equal heads the first goes."""
    heap = [(due_at, seq, n, source) for n, (due_at, seq, source) in enumerate(_begins(sources, due_by, room))]
    heapify(heap)
    while places > 0 and heap:
        due_at, seq, n, best = heap[0]
        left = room.get(best.task)
        if left is not None and left <= 0:
            heappop(heap)
            continue
        next_ = head = best.head
        if head is not None and head[0] == due_at and head[1] == seq:
            taken.append(head)
            places -= 1
            if left is not None:
                room[best.task] = left - 1
            best.pop()
            next_ = best.begin
        if next_ is None or next_[0] > due_by:
            heappop(heap)
        else:
            heapreplace(heap, (next_[0], next_[1], n, best))


def _begins(sources: Iterable[Source], due_by: int, room: Mapping[str, int]) -> list[tuple[int, int, Source]]:
    """Where the sources begin that may have a job which is due by then, of tasks that have room."""
    begins = [(begin, source) for source in sources if (begin := source.begin) is not None and room.get(source.task, 1) > 0]
    return [(begin[0], begin[1], source) for begin, source in begins if begin[0] <= due_by]
