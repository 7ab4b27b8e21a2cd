"""Leases that run out while the store is away."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.drills.case import Case, Seen
from tests.drills.places import Place, PostgresPlace, SqlitePlace
from tests.worker.processes import eventually, fleet, settled
from tests.worker.tasks import app, nap

LEASE = 3.0
JOBS = 20


def _away_for_longer_than_the_lease(folder: Path, make: Callable[[], Place]) -> Seen:
    """Two workers; every job begins before the store goes and ends while it is away."""
    place = make()
    try:
        with fleet(folder) as units:
            units.url = units.environ["HAWSER_STORE"] = place.url(timeout=2)
            app.use_store(units.url)
            workers = [units.start("--lease", f"{LEASE:g}", "--slots", str(JOBS)) for _ in range(2)]
            app.enqueue_many([nap.job(1.5) for _ in range(JOBS)])
            eventually(lambda: len(units.starts()) == JOBS, 20)
            with place.away():
                eventually(lambda: len(units.starts(word="end")) == JOBS, 20)
                time.sleep(3 * LEASE)
                early = sum("the store is back" in units.log(worker) for worker in workers)
            began = time.monotonic()
            eventually(lambda: settled(app), 40, lambda: "".join(map(units.log, workers)))
            took = time.monotonic() - began
            jobs = app.find(limit=1000).jobs
            app.close()
            refused = sum(units.log(worker).count("outcomes were refused") for worker in workers)
            states = Counter(job.state.value for job in jobs)
            starts, attempts = len(units.starts()), max(job.attempt for job in jobs)
        stale = place.stale_writes()
    finally:
        place.close()
    figures = (
        f"{JOBS} runs ended while it was away for {3 * LEASE:g} s and more: {dict(states)}, {starts} starts, "
        f"most attempts {attempts}, outcomes refused {refused} times, {stale.settlements} stale settlements, "
        f"{stale.extensions} stale extensions, "
        f"{early} logs said too early that it was back, "
        f"all settled {took:.1f} s after its return"
    )
    # An extension that was on its way when its run was settled is stale, too, and does no harm.
    held = states == {"done": JOBS} and starts == JOBS and attempts == 1 and refused == 0 and early == 0
    held = held and stale.settlements == 0
    return Seen(held=held, text=figures)


_FAULT = "the store is away for three leases while runs end"
_WANTED = "their outcomes are written when it is back; nothing runs twice; nobody says too early that it is back"

CASES = [
    Case(
        "store-away-for-three-leases",
        "sqlite",
        _FAULT,
        _WANTED,
        lambda folder: _away_for_longer_than_the_lease(folder, lambda: SqlitePlace(folder)),
    ),
    Case(
        "server-away-for-three-leases",
        "postgres",
        _FAULT,
        _WANTED,
        lambda folder: _away_for_longer_than_the_lease(folder, PostgresPlace),
    ),
]
