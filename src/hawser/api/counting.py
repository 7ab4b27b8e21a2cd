"""`/jobs/counts` and `/jobs/strip`: how many jobs match, by state and over time, without looking at all of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta

from hawser.api.bodies import Out, WhichQuery, or_none
from hawser.api.call import Answer, Call, NoBody
from hawser.api.listing import SEARCH_FOR_S, Found, Wanted, search, wanted
from hawser.api.series import COUNTS, HISTORY_MINUTES
from hawser.clock import at
from hawser.job import Job, State
from hawser.store import Store

_COUNT_PAGE: Final = 200
_NAMED: Final = frozenset(("queue", "task", "state"))
"""What counters tell apart."""


class CountView(Out):
    count: int
    exact: bool
    """False: there are at least so many."""


class CountsOut(Out):
    """How many jobs match. `ready` are all that wait; scheduled, retrying and held are parts of them, where they are known."""

    total: CountView
    states: dict[str, CountView]
    searched: int
    """Jobs that were looked at; 0 when counters had the answer."""
    complete: bool
    """False when there are more jobs than were looked at: then counts are of the newest."""


class StripQuery(WhichQuery):
    """Which jobs, and in how many steps."""

    steps: Annotated[int, Meta(ge=1, le=360)] = 60
    minutes: Annotated[int, Meta(ge=1, le=HISTORY_MINUTES)] = 60
    """How far back, when there is no `since`."""


class StripOut(Out):
    """What happened in each step, oldest first. Of a queue and task: how many came in and how attempts ended (`source` history).
    Of any other filter: the jobs themselves, by when they were enqueued and how they stand now (`source` jobs)."""

    source: Literal["history", "jobs"]
    start: datetime
    at: datetime
    """The time by the server's clock. A step that ends later is not over, and has its counts so far."""
    step_s: float
    enqueued: list[int]
    done: list[int]
    failed: list[int]
    dead: list[int]
    searched: int
    complete: bool
    """False when not all jobs were looked at, or figures of a part of the time are no longer kept."""


async def counts(call: Call[NoBody, WhichQuery]) -> Answer:
    """How many jobs match, by state."""
    return Answer(await call.api.counted.get(("counts", _key(call.query)), lambda: _counts(call, call.query)))


async def strip(call: Call[NoBody, StripQuery]) -> Answer:
    """What matches over time, for a strip above a list."""
    return Answer(await call.api.counted.get(("strip", _key(call.query)), lambda: _strip(call, call.query)))


def _key(query: WhichQuery) -> tuple[Any, ...]:
    return tuple(getattr(query, name) for name in query.__struct_fields__)


def _given(query: WhichQuery) -> set[str]:
    return {name for name in WhichQuery.__struct_fields__ if getattr(query, name) is not UNSET}


async def _counts(call: Call[Any, Any], query: WhichQuery) -> CountsOut:
    given = _given(query)
    if given <= {"queue"}:
        stats = await call.app.astats(or_none(query.queue))
        waiting = stats.ready + stats.scheduled + stats.retrying + stats.held
        states = {"ready": waiting, "scheduled": stats.scheduled, "retrying": stats.retrying, "held": stats.held}
        states |= {state: getattr(stats, state) for state in State if state is not State.READY}
        return _told(states, 0, complete=True, rough=() if stats.exact else ("scheduled",))
    depths = await call.store.task_depths() if given <= _NAMED else None
    if depths is not None:
        chosen = None if query.state is UNSET else set(query.state.split(","))
        if chosen is None or chosen <= set(State):
            sums = Counter[str](dict.fromkeys(State if chosen is None else chosen, 0))
            for each in depths:
                asked = each.state in sums and or_none(query.queue) in (None, each.queue)
                if asked and or_none(query.task) in (None, each.task):
                    sums[each.state] += each.count
            return _told(sums, 0, complete=True)
    found = await _looked(call.store, wanted(call, query))
    now = at(call.app.clock.now())
    sums = Counter[str]()
    for job in found.jobs:
        sums[job.state] += 1
        if (kind := _waits(job, now)) is not None:
            sums[kind] += 1
    return _told(sums, found.searched, complete=found.next is None)


def _waits(job: Job, now: datetime) -> str | None:
    if job.state is not State.READY:
        return None
    return "held" if job.held else "retrying" if job.attempt else "scheduled" if job.run_at > now else None


def _told(sums: dict[str, int] | Counter[str], searched: int, *, complete: bool, rough: Sequence[str] = ()) -> CountsOut:
    total = sum(count for name, count in sums.items() if name in tuple(State))
    states = {name: CountView(count=count, exact=complete and name not in rough) for name, count in sums.items()}
    return CountsOut(total=CountView(count=total, exact=complete), states=states, searched=searched, complete=complete)


async def _looked(store: Store, asked: Wanted) -> Found:
    """The newest jobs that match, as many as a moment allows."""
    jobs: list[Job] = []
    after, searched, end = None, 0, time.monotonic() + SEARCH_FOR_S
    while True:
        part = await search(store, asked, after, _COUNT_PAGE)
        jobs += part.jobs
        after, searched = part.next, searched + part.searched
        if after is None or time.monotonic() >= end:
            return Found(jobs, after, searched)


async def _strip(call: Call[Any, Any], query: StripQuery) -> StripOut:
    now = at(call.app.clock.now())
    until = min(now, or_none(query.until) or now)
    since = min(until, or_none(query.since) or until - timedelta(minutes=query.minutes))
    if _given(query) <= {"queue", "task", "since", "until"}:
        return await _of_history(call, query, since, until, now)
    step = max(1.0, (until - since).total_seconds() / query.steps)
    found = await _looked(call.store, wanted(call, query))
    columns = {name: [0] * query.steps for name in COUNTS}
    for job in found.jobs:
        if since <= job.enqueued_at <= until:
            place = min(query.steps - 1, int((job.enqueued_at - since).total_seconds() // step))
            columns["enqueued"][place] += 1
            if (ended := _ended(job)) is not None:
                columns[ended][place] += 1
    oldest = found.jobs[-1].enqueued_at if found.jobs else since
    complete = found.next is None or oldest < since
    return StripOut(source="jobs", start=since, at=now, step_s=step, **columns, searched=found.searched, complete=complete)


def _ended(job: Job) -> str | None:
    if job.state in (State.DONE, State.DEAD):
        return job.state.value
    return "failed" if job.state is State.READY and job.attempt else None


async def _of_history(call: Call[Any, Any], query: StripQuery, since: datetime, until: datetime, now: datetime) -> StripOut:
    asked = -(-int((now - since).total_seconds()) // 60)
    minutes = max(1, min(HISTORY_MINUTES, asked))
    rollups = await call.api.past.rollups(call.store, minutes, or_none(query.queue), or_none(query.task))
    rollups = [each for each in rollups if each.minute <= until] or rollups[:1]
    step = max(1, -(-len(rollups) // query.steps))
    parts = [rollups[first : first + step] for first in range(0, len(rollups), step)]
    columns = {name: [sum(each.counts.get(name, 0) for each in part) for part in parts] for name in COUNTS}
    return StripOut(
        source="history", start=rollups[0].minute, at=now, step_s=60.0 * step, **columns, searched=0, complete=asked <= minutes
    )
