"""What a tick's job costs with so many schedules, all due at the same instants, and so many schedulers that see to them."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from hawser.errors import StoreUnavailable
from hawser.lab.bottleneck import metered
from hawser.lab.experiment import Lab
from hawser.lab.load import Crew, all_jobs, percentile
from hawser.lab.scheduler_crew import schedulers
from hawser.schedule.rule import Every, text_of
from hawser.schedule.schedule import Definition, create
from hawser.store import Filter, Store

SCHEDULES_PER_CREATION: Final = 500
FIRST_TICK_WITHIN_S: Final = 60.0


async def schedulers_row(lab: Lab, count: int, schedules: int) -> dict[str, Any]:
    """Two whole ticks, from the middle between two to another."""
    every, ticks = (2, 1) if lab.quick else (10, 2)
    async with lab.place.fresh() as (url, store):
        await _create(store, schedules, every)
        with tempfile.TemporaryDirectory(dir=lab.folder) as name, schedulers(url, count, Path(name)) as crews:
            await _fired_once(store, crews, schedules)
            await asyncio.sleep((((await store.due_schedules(0)).next_in or 0.0) + every / 2) % every)
            began, before = (await store.due_schedules(0)).now, (await store.stats()).ready
            async with metered(lab.place, url) as meter:
                await asyncio.sleep(ticks * every)
            fired = (await store.stats()).ready - before
        jobs = [job async for job in all_jobs(store, Filter(task="noop"))]
    spent = meter.require()
    late = [(job.enqueued_at - job.tick).total_seconds() for job in jobs if job.tick and job.tick.timestamp() * 1e6 >= began]
    return {
        "cpu_us": round((spent.worker_cpu_s + spent.server_cpu_s) / max(1, fired) * 1e6, 1),
        "worker_us": round(spent.worker_cpu_s / max(1, fired) * 1e6, 1),
        "server_us": round(spent.server_cpu_s / max(1, fired) * 1e6, 1),
        "log_bytes": round(spent.log_bytes / max(1, fired)),
        "fired": fired,
        "late_p50_s": round(percentile(late, 0.5), 2),
        "late_p99_s": round(percentile(late, 0.99), 2),
        "amiss": not_once(Counter(job.tick for job in jobs if job.tick), schedules),
    }


def not_once(ticks: Mapping[datetime, int], schedules: int) -> str | None:
    """What is wrong when a tick has not made one job for each schedule. The last one may have been stopped in its midst."""
    wrong = [count for tick, count in ticks.items() if count != schedules and tick != max(ticks)]
    return f"{len(wrong)} ticks of {schedules} schedules made {wrong[0]} jobs, and such" if wrong else None


async def _create(store: Store, schedules: int, every: int) -> None:
    now = (await store.due_schedules(0)).now
    body, rule = b'{"seq":0,"to":"user@example.com"}', text_of(Every(seconds=every))
    for start in range(0, schedules, SCHEDULES_PER_CREATION):
        numbers = range(start, min(start + SCHEDULES_PER_CREATION, schedules))
        rules = [Definition(name=f"schedule{number}", rule_text=rule, task="noop", body=body) for number in numbers]
        await store.fire([create(definition, now) for definition in rules])


async def _fired_once(store: Store, crews: list[Crew], schedules: int) -> None:
    """Until a first tick has fired in full, so that all is warm."""
    end = time.monotonic() + FIRST_TICK_WITHIN_S
    while (await store.stats()).ready < schedules:
        if time.monotonic() > end or not all(crew.lives for crew in crews):
            said = "\n".join(crew.last_words() for crew in crews)
            raise StoreUnavailable(f"the schedulers did not fire a first tick; they said:\n{said}")
        await asyncio.sleep(0.05)
