"""Delayed jobs behind a backlog: how late do they start?"""

from __future__ import annotations

import asyncio
from typing import Final

from hawser.job import NewJob
from hawser.lab.experiment import Finding, Lab, Number
from hawser.lab.load import fill, percentile, workers
from hawser.lab.plot import Line, Plot

DELAYED: Final = 2_000
LATE_P99_WITHIN_S: Final = 1.0
"""Seconds that 99 of 100 may be late."""

QUICK_BAR: Final = 5.0
"""The same in a quick run, which may share its machine with others."""

NUMBERS: Final = {
    "jobs": Number(1_000_000, 600_000, "jobs in the backlog"),
    "seconds": Number(10, 3, "seconds over which delayed jobs fall due"),
}


async def run(lab: Lab) -> Finding:
    backlog, over = int(lab.number("jobs")), lab.number("seconds")
    rows: list[tuple[float, float]] = []
    async with lab.place.fresh() as (url, store):
        await fill(store, backlog, lab.show)
        delayed = [_due_in(n, 1 + n * over / DELAYED) for n in range(DELAYED)]
        await store.enqueue(delayed)
        with workers(url, lab.folder, processes=2, slots=200, claim_batch=200):
            for second in range(int(over) + 3):
                await asyncio.sleep(1)
                lab.show("seconds", second + 1, int(over) + 3)
            left = (await store.stats("default")).ready
        first = None
        for job in delayed:
            found = await store.get(job.id)
            if found is not None and found.started_at is not None:
                first = first or found.run_at
                rows.append(((found.run_at - first).total_seconds(), (found.started_at - found.run_at).total_seconds()))
    late = [seconds for _, seconds in rows]
    p99 = percentile(late, 0.99)
    broken = [] if len(late) == DELAYED else [f"{DELAYED - len(late)} of {DELAYED} delayed jobs did not start in time"]
    bar = QUICK_BAR if lab.quick else LATE_P99_WITHIN_S
    if p99 >= bar:
        broken.append(f"99 of 100 were up to {p99:.2f} s late; the bar is {bar:g} s")
    if not left:
        broken.append("the backlog was drained too early to prove anything; ask for more with --set jobs=N")
    return Finding(
        broken=broken,
        figures={
            "backlog_at_start": backlog,
            "backlog_at_end": left,
            "delayed": DELAYED,
            "started": len(late),
            "late_p50_s": round(percentile(late, 0.5), 3),
            "late_p99_s": round(p99, 3),
            "late_max_s": round(max(late, default=0.0), 3),
        },
        text=(
            f"{DELAYED:,} jobs of the same priority fell due over {over:g} s behind a backlog of {backlog:,}, of which {left:,}"
            f" were still waiting in the end. Half of them started within {percentile(late, 0.5):.3f} s of their time, 99 of 100"
            f" within {p99:.3f} s."
        ),
        plot=Plot(title="Lateness behind a backlog", x="due at, seconds", lines=[Line("seconds late", rows)]),
    )


def _due_in(seq: int, delay: float) -> NewJob:
    return NewJob(task="noop", body=b'{"seq":%d,"to":"user@example.com"}' % seq, delay=delay)
