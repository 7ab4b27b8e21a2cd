"""Run many dead jobs again, due evenly over a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from msgspec import structs

from hawser.clock import MAX_DELAY
from hawser.errors import ConfigError
from hawser.job import Job, State
from hawser.store import JOBS_PER_PAGE, Acted, Actor, Filter, Store
from hawser.value.fingerprint import Group
from hawser.value.job_time import is_number

Requeue = Callable[[Sequence[str], Actor, float, float], Awaitable[list[Acted]]]


async def requeue_spread(
    store: Store, group: Group, actor: Actor, spread: float | timedelta, check: Callable[[Job], None] | None = None
) -> int:
    """Run all jobs of a group that are dead now again, newest first, so that they fall due evenly over a time. They are in the
    store with their times when this returns, so no process has to live on. `check` may raise for a job: then nothing is done."""
    seconds = checked_spread(spread)
    filter = Filter(state=State.DEAD, group=group)
    ids, after = [], None
    while True:
        page = await store.find(filter, after, JOBS_PER_PAGE)
        if check is not None:
            for job in page.jobs:
                check(job)
        ids += [job.id for job in page.jobs]
        after = page.next
        if after is None:
            return await spread_over(store.requeue, ids, structs.replace(actor, filter=filter.told()), seconds)


def checked_spread(spread: float | timedelta) -> float:
    seconds = spread.total_seconds() if isinstance(spread, timedelta) else spread
    if not is_number(seconds) or not 0 < seconds <= MAX_DELAY:
        raise ConfigError(f"spread: {spread!r} is not a time above 0 s and up to 10 years; leave it out to run them at once")
    return seconds


async def spread_over(requeue: Requeue, ids: Sequence[str], actor: Actor, spread: float) -> int:
    """Requeue jobs page by page, each due at its part of the time; how many were requeued."""
    changed = 0
    for start in range(0, len(ids), JOBS_PER_PAGE):
        some = ids[start : start + JOBS_PER_PAGE]
        acted = await requeue(some, actor, spread * len(some) / len(ids), spread * start / len(ids))
        changed += sum(answer is Acted.DONE for answer in acted)
    return changed
