"""Workers are told to stop with all slots busy: what is finished, handed back, run twice?"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from hawser.job import NewJob
from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.findings import over_time, told
from hawser.lab.journal import JournalRun, What, read
from hawser.lab.trial import trial
from hawser.store import Store

IN_FLIGHT: Final = 200
DRAIN_S: Final = 1.0
"""Seconds that a worker may take to finish what runs; half of the jobs take longer."""

ENDED_AFTER_DRAIN_S: Final = 1.0
"""Seconds beyond that in which it must have ended."""

NUMBERS: Final = {
    "times": Number(10, 2, "times that a worker is told to stop"),
}


async def run(lab: Lab) -> Finding:
    times = int(lab.number("times"))
    took: list[float] = []
    codes: list[int] = []
    sent = 0
    async with lab.place.fresh(timeout=60) as (url, store):
        options = ("--drain-timeout", f"{DRAIN_S:g}")
        async with trial(lab, url, store, units=1, processes=2, slots=IN_FLIGHT // 2, lease=10.0, options=options) as found:
            [unit] = found.units
            for number in range(times):
                lab.show("shutdowns", number, times)
                jobs = [_job(sent + n) for n in range(2 * IN_FLIGHT)]
                sent += len(jobs)
                found.journal.write(What.ENQUEUE, [JournalRun(job.id) for job in jobs])
                await store.enqueue(jobs)
                found.journal.write(What.ACCEPTED, [JournalRun(job.id) for job in jobs])
                await found.until(lambda: _all_busy(store))
                found.fault("SIGTERM")
                began = time.monotonic()
                codes.append(await asyncio.to_thread(unit.stop))
                took.append(time.monotonic() - began)
                unit.start()
            await found.drain()
        verdict = await found.verdict()
        jobs_now = await found.jobs()
        records = read(found.folder / "journal")
    again = sum(job.attempt > 1 for job in jobs_now.values() if job.schedule is None)
    returned = sum(job.returned for job in jobs_now.values())
    exits = " and ".join(map(str, sorted(set(codes))))
    broken = told(verdict)
    broken += [f"a worker took {most:.1f} s to end"] if (most := max(took)) > DRAIN_S + ENDED_AFTER_DRAIN_S else []
    broken += [f"a worker ended with code {code}" for code in codes if code]
    broken += [f"{again} jobs were counted as started again"] if again else []
    return Finding(
        broken=broken,
        figures={
            "shutdowns": times,
            "in_flight": IN_FLIGHT,
            "took_s_max": round(most, 2),
            "exit_codes": sorted(set(codes)),
            "handed_back": returned,
            "counted_again": again,
            **verdict.counts,
        },
        settings={"drain_timeout": DRAIN_S, "processes": 2, "slots": IN_FLIGHT // 2},
        text=(
            f"{times} times a worker with {IN_FLIGHT} jobs in flight got SIGTERM and had {DRAIN_S:g} s to drain. It ended within"
            f" {most:.2f} s, with code {exits}; {returned} runs were handed back, {again} of which cost an attempt."
            f" All {verdict.counts['accepted']:,} jobs are done, {verdict.counts['settled_twice']} settled twice,"
            f" {verdict.counts['lost']} lost."
        ),
        plot=over_time("Shutdowns with all slots busy", records, 0.5),
    )


async def _all_busy(store: Store) -> bool:
    return (await store.stats("default")).running >= IN_FLIGHT


def _job(seq: int) -> NewJob:
    """Half of them end within the time to drain."""
    return NewJob(task="slow", body=b'{"seq":%d,"ms":%d}' % (seq, 400 if seq % 2 else 3_000), max_attempts=50)
