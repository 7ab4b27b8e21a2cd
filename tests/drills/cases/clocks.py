"""The store's clock is set back under a backlog."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hawser.lab.chaos.clock import WrongClock
from tests.drills.case import Case, Seen
from tests.drills.places import Place, PostgresPlace, SqlitePlace
from tests.worker.processes import ROOT, eventually, fleet
from tests.worker.tasks import app

BACKLOG, TIMED, NEW = 40, 10, 10
ENQUEUE = """
import sys
from tests.worker.tasks import app, nap
count, delay = int(sys.argv[1]), float(sys.argv[2])
app.enqueue_many([nap.using(delay=delay).job(0.2) for _ in range(count)])
app.close()
"""


def _set_back(folder: Path, back: float, make: Callable[[], Place]) -> Seen:
    """Everything but this process has the wrong clock: the workers, who enqueues, and the server if there is one."""
    with WrongClock() as clock:
        library = Path(clock.environ["LD_PRELOAD"])
        library.parent.chmod(0o755)  # the server has a user of its own
        os.environ.update(clock.environ)
        place = make()
        try:
            return _play(folder, back, place, clock)
        finally:
            place.close()


def _play(folder: Path, back: float, place: Place, clock: WrongClock) -> Seen:
    with fleet(folder) as units:
        units.url = units.environ["HAWSER_STORE"] = place.url(timeout=10)
        app.use_store(units.url)

        def enqueue(count: int, delay: float = 0) -> None:
            command = [sys.executable, "-c", ENQUEUE, str(count), str(delay)]
            subprocess.run(command, env=units.environ, cwd=ROOT, check=True)

        def done() -> int:
            return app.stats().done

        enqueue(TIMED, 0.1)
        enqueue(BACKLOG)
        enqueue(1, back / 2)
        worker = units.start("--slots", "2", "--lease", "5")
        eventually(lambda: len(units.starts()) >= 12, 30)
        clock.set(-back)
        began, left = time.monotonic(), BACKLOG + TIMED - len(units.starts())
        enqueue(NEW)
        enqueue(1, 1800)
        wanted = BACKLOG + TIMED + NEW
        end = time.monotonic() + 30
        while done() < wanted and time.monotonic() < end:
            time.sleep(0.1)
        took = time.monotonic() - began
        jobs = app.find(limit=1000).jobs
        states = Counter(job.state.value for job in jobs)
        starts, attempts = Counter(start.id for start in units.starts()), max(job.attempt for job in jobs)
        log = units.log(worker)
        app.close()
    twice = sum(count > 1 for count in starts.values())
    figures = (
        f"{left} of {BACKLOG + TIMED} that were due waited when the clock was set back by {back / 3600:g} h, {NEW} came after: "
        f"{dict(states)} after {took:.1f} s, {twice} ran twice, most attempts {attempts}"
    )
    held = states == {"done": wanted, "ready": 2} and not twice and attempts == 1 and "Traceback" not in log
    return Seen(held=held, text=figures)


_FAULT = "the clock of the store is set back by an hour under a backlog"
_WANTED = "what was due goes on, what was delayed waits, nothing runs twice"

CASES = [
    Case("clock-set-back", "sqlite", _FAULT, _WANTED, lambda folder: _set_back(folder, 3600, lambda: SqlitePlace(folder))),
    Case("server-clock-set-back", "postgres", _FAULT, _WANTED, lambda folder: _set_back(folder, 3600, PostgresPlace)),
    Case(
        "server-clock-set-back-days",
        "postgres",
        "the server's clock is set back by three days, to one without a table for jobs that are done",
        "the day is made; no job runs again for it",
        lambda folder: _set_back(folder, 3 * 86_400, PostgresPlace),
    ),
]
