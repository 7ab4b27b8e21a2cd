"""Which due jobs a claim takes. The rule stands here once for the stores that decide in Python.

A queue's waiting jobs lie in lanes, one per task, priority and kind:

- fresh: due when it was enqueued, and neither claimed nor requeued since: the backlog;
- timed: never tried, but had to wait for its time, or was handed back, or made by a schedule;
- retrying: waits for another attempt.

Fresh jobs can be a million deep, so a job of the other kinds that only took its place by due time would be late by the
whole backlog. Half of each claim's places are therefore first offered to those that are overdue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, Protocol

from hawser.clock import from_datetime, to_us
from hawser.job import NewJob
from hawser.store import OVERDUE, Change, Share

_OVERDUE_US = to_us(OVERDUE)

Entry = tuple[Any, ...]
"""Due time, insertion order, then whatever the store needs to know the job."""


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


class Source(Protocol):
    """A lane to take from, in order of due time."""

    @property
    def task(self) -> str:
        """The task of its jobs."""

    @property
    def waited(self) -> bool:
        """Whether its jobs had to wait for their time."""

    @property
    def head(self) -> Entry | None:
        """The job that is due for longest."""

    def pop(self) -> None:
        """Take the head away; the next one becomes the head."""


def choose(
    shares: Sequence[Share],
    limit: int,
    turn: int,
    now: int,
    levels: Callable[[str], Sequence[Sequence[Source]]],
    room: dict[str, int],
) -> list[Entry]:
    """The jobs of one claim; `levels` gives a queue's lanes by priority, highest first. Uses up the `room` of tasks."""
    opened: dict[str, Sequence[Sequence[Source]]] = {}
    chosen: list[Entry] = []
    left = {share.queue: share.most for share in shares if share.most is not None}

    def offer(queue: str, places: int) -> None:
        places = min(places, left.get(queue, places))
        if places > 0 and queue not in opened:
            opened[queue] = levels(queue)
        taken: list[Entry] = []
        for sources in opened.get(queue, ()):
            if len(taken) >= places:
                break
            taken += _pick(sources, places - len(taken), turn, now, room)
        chosen.extend(taken)
        if queue in left:
            left[queue] -= len(taken)

    for share in shares:
        free = limit - len(chosen)
        offer(share.queue, free if share.places is None else min(free, share.places))
    for share in shares:
        offer(share.queue, limit - len(chosen))
    return chosen


def _pick(sources: Sequence[Source], places: int, turn: int, now: int, room: dict[str, int]) -> list[Entry]:
    taken: list[Entry] = []
    waited = [source for source in sources if source.waited]
    _fill(taken, waited, (places + turn % 2) // 2, now - _OVERDUE_US, room)
    _fill(taken, sources, places - len(taken), now, room)
    taken.sort(key=_by_due)
    return taken


def _fill(taken: list[Entry], sources: Iterable[Source], places: int, due_by: int, room: dict[str, int]) -> None:
    open_ = [source for source in sources if _open(source, due_by, room)]
    while places > 0 and open_:
        best = open_[0] if len(open_) == 1 else min(open_, key=_head)
        assert best.head is not None
        taken.append(best.head)
        places -= 1
        best.pop()
        if best.task in room:
            room[best.task] -= 1
            open_ = [source for source in open_ if _open(source, due_by, room)]
        elif best.head is None or best.head[0] > due_by:
            open_.remove(best)


def _open(source: Source, due_by: int, room: dict[str, int]) -> bool:
    return source.head is not None and source.head[0] <= due_by and room.get(source.task, 1) > 0


def _by_due(entry: Entry) -> tuple[int, int]:
    return entry[0], entry[1]


def _head(source: Source) -> tuple[int, int]:
    assert source.head is not None
    return source.head[0], source.head[1]
