"""`GET /jobs`: pages of jobs, of several states and by what stores have no index for, each found by a bounded search."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from msgspec import UNSET, UnsetType

from hawser.api.bodies import DeadQuery, FilterQuery, WhichQuery, or_none
from hawser.api.call import Answer, Call, NoBody
from hawser.api.problem import bad
from hawser.api.selection import checked_filter
from hawser.api.views import LEFT_OUT, JobsPage, brief_line, job_line
from hawser.job import Job, State
from hawser.redaction import shown
from hawser.store import MAX_PAGE, Filter, Store
from hawser.value.ids import made_at

SEARCH_FOR_S: Final = 0.03
"""Seconds after which a page that is not full is given as it is: a rare filter may have to look at millions of jobs."""

LONGEST_PATIENCE: Final = 0.5
"""Seconds after which those that run for longest are told of the jobs that were looked at, the newest."""

_JOBS_AT_ONCE: Final = 200
"""Jobs that are read at once when most of them may be left out."""

_NOT_IN_FILTER: Final = frozenset(("worker", "attempt_min", "state", "group"))

Keep = Callable[[Job], bool]


class Wanted(NamedTuple):
    """What a query asks for: a filter for each state, and what is judged here, job by job."""

    filters: Sequence[Filter]
    keep: Keep | None = None


class Found(NamedTuple):
    """Jobs, newest first, and where to go on."""

    jobs: list[Job]
    next: str | None
    searched: int


async def ls(call: Call[NoBody, FilterQuery]) -> Answer:
    """Jobs that match, newest first."""
    query = call.query
    if query.sort is not UNSET:
        if query.state != State.RUNNING or query.after is not UNSET or query.newer is not UNSET:
            raise bad("sort", "is for state=running, without after and newer")
        key = ("started", tuple(getattr(query, name) for name in query.__struct_fields__))
        longest = await call.api.counted.get(key, lambda: _longest(call.store, wanted(call, query), query.limit))
        return Answer(page(call, longest, brief=bool(query.brief)))
    found = await search(call.store, wanted(call, query), or_none(query.after), query.limit, or_none(query.newer))
    return Answer(page(call, found, brief=bool(query.brief)))


async def dead(call: Call[NoBody, DeadQuery]) -> Answer:
    """Dead jobs that match, newest first."""
    query = call.query
    asked = {name: or_none(getattr(query, name)) for name in query.__struct_fields__ if name not in ("after", "limit", "brief")}
    filter = checked_filter(call, {**asked, "state": State.DEAD})
    found = await search(call.store, Wanted([filter]), or_none(query.after), query.limit)
    return Answer(page(call, found, brief=bool(query.brief)))


def states_of(given: str | UnsetType) -> Sequence[str | None]:
    """Each of several states is a search of its own."""
    return [None] if given is UNSET else sorted(set(given.split(",")))


def wanted(call: Call[Any, Any], query: WhichQuery) -> Wanted:
    asked = {name: or_none(getattr(query, name)) for name in WhichQuery.__struct_fields__ if name not in _NOT_IN_FILTER}
    asked["group_name"] = or_none(query.group)
    filters = [checked_filter(call, {**asked, "state": state}) for state in states_of(query.state)]
    worker, least = or_none(query.worker), or_none(query.attempt_min)
    if worker is None and least is None:
        return Wanted(filters)
    return Wanted(filters, lambda job: worker in (None, job.worker) and job.attempt >= (least or 0))


async def search(store: Store, asked: Wanted, after: str | None, limit: int, newer: str | None = None) -> Found:
    """A page, filled up as far as a bounded search allows: short, with a `next`, when there is more to look through."""
    patience = SEARCH_FOR_S / len(asked.filters)
    parts = [await _part(store, filter, asked.keep, after, limit, newer, patience) for filter in asked.filters]
    if len(parts) == 1:
        return parts[0]
    # What lies behind the point that one of them has not passed may not be all there is.
    known_to = max((part.next for part in parts if part.next is not None), default=None)
    jobs = {job.id: job for part in parts for job in part.jobs if known_to is None or job.id >= known_to}
    newest = sorted(jobs.values(), key=lambda job: job.id, reverse=True)
    searched = sum(part.searched for part in parts)
    if len(newest) > limit:
        return Found(newest[:limit], newest[limit - 1].id, searched)
    return Found(newest, known_to, searched)


async def _part(
    store: Store, filter: Filter, keep: Keep | None, after: str | None, limit: int, newer: str | None, patience: float
) -> Found:
    jobs: list[Job] = []
    searched, end = 0, time.monotonic() + patience
    while True:
        part = await store.find(filter, after, limit - len(jobs) if keep is None else _JOBS_AT_ONCE)
        fresh = [job for job in part.jobs if newer is None or job.id > newer]
        kept = [job for job in fresh if keep is None or keep(job)]
        room = limit - len(jobs)
        jobs += kept[:room]
        after, searched = part.next, searched + part.searched
        if len(kept) > room:
            return Found(jobs, jobs[-1].id, searched)
        if len(fresh) < len(part.jobs) or (after is not None and newer is not None and after <= newer):
            return Found(jobs, None, searched)  # older ones were not asked for
        if after is None or len(jobs) >= limit or time.monotonic() >= end:
            return Found(jobs, after, searched)


async def _longest(store: Store, asked: Wanted, limit: int) -> Found:
    """All that run are looked at: as many as all workers have slots for, up to a moment."""
    longest: list[Job] = []
    after, searched, end = None, 0, time.monotonic() + LONGEST_PATIENCE
    while True:
        part = await search(store, asked, after, MAX_PAGE)
        longest = sorted([*longest, *part.jobs], key=lambda job: (job.started_at or job.enqueued_at, job.id))[:limit]
        after, searched = part.next, searched + part.searched
        if after is None or time.monotonic() >= end:
            return Found(longest, None, searched)


def page(call: Call[Any, Any], found: Found, *, brief: bool) -> JobsPage:
    jobs = [shown(call.app.tasks, job) for job in found.jobs]
    return JobsPage(
        jobs=[brief_line(job) if brief else job_line(job) for job in jobs],
        next=found.next,
        searched=found.searched,
        searched_to=None if found.next is None else made_at(found.next),
        left_out=list(LEFT_OUT) if brief else [],
    )
