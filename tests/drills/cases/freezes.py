"""A worker that is frozen for longer than its lease, and goes on when others have done its jobs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.drills.case import Case, Seen
from tests.drills.places import Place, PostgresPlace, SqlitePlace
from tests.worker.processes import eventually, fleet, settled
from tests.worker.tasks import app, nap

LEASE = 2.0
SLOTS = 8
JOBS = 40


def run(folder: Path, make: Callable[[Path], Place]) -> Seen:
    """Freeze supervisor and processes in the middle of runs, let another worker do all the jobs, thaw the first."""
    place = make(folder)
    try:
        with fleet(folder) as units:
            units.url = units.environ["HAWSER_STORE"] = place.url(timeout=10)
            app.use_store(units.url)
            frozen = units.start("--lease", f"{LEASE:g}", "--slots", str(SLOTS))
            app.enqueue_many([nap.job(1.0) for _ in range(JOBS)])
            eventually(lambda: len(units.starts()) >= SLOTS, 30)
            units.freeze(frozen)
            held = len(units.starts()) - len(units.starts(word="end"))
            units.start("--lease", f"{LEASE:g}", "--slots", "32")
            eventually(lambda: settled(app), 60)
            os.killpg(frozen.pid, signal.SIGCONT)
            extra = app.enqueue_many([nap.job(0.01) for _ in range(5)])
            eventually(lambda: settled(app), 30)
            # It is back once it says that its leases were gone, or that its outcomes were refused.
            eventually(lambda: "lease" in units.log(frozen).partition("is ready")[2], 30, lambda: units.log(frozen))
            jobs = app.find(limit=1000).jobs
            app.close()
        stale = place.stale_writes()
    finally:
        place.close()
    again = [job for job in jobs if job.attempt > 1]
    done = sum(job.state.value == "done" for job in jobs)
    text = (
        f"{held} runs were frozen with their worker; {done} of {JOBS + len(extra)} jobs done, {len(again)} by a second attempt, "
        f"most attempts {max(job.attempt for job in jobs)}, {stale.settlements} late settlements and {stale.extensions} late "
        "extensions refused"
    )
    kept = done == len(jobs) == JOBS + len(extra) and 0 < len(again) <= held and all(job.attempt <= 2 for job in jobs)
    return Seen(held=kept, text=text)


CASES = [
    Case(
        f"freeze-a-worker-{store}",
        store,
        "a whole worker is frozen for longer than its lease, and goes on when another has done its jobs",
        "every job is done, those that it held by one more attempt; nothing that it writes later counts",
        partial(run, make=make),
    )
    for store, make in (("sqlite", SqlitePlace), ("postgres", lambda _: PostgresPlace()))
]
