"""A disk that is full while workers run."""

from __future__ import annotations

import time
from pathlib import Path

from hawser.errors import StoreError
from hawser.lab.chaos.disk import SmallDisk
from tests.drills.case import Case, Seen
from tests.worker.processes import eventually, fleet, settled
from tests.worker.tasks import app, nap

ROUNDS = 5
FULL_FOR = 2.0


def _full_disk(folder: Path) -> Seen:
    """Fill the disk of the SQLite file again and again, with a worker at work and a producer that goes on trying."""
    with SmallDisk(64 * 2**20) as disk, fleet(folder) as units:
        units.url = units.environ["HAWSER_STORE"] = f"sqlite:///{disk.folder}/jobs.db?timeout=10"
        app.use_store(units.url)
        worker = units.start("--lease", "5", "--slots", "4")
        accepted, refused = set[str](), 0
        for _ in range(ROUNDS):
            for full in (False, True):
                if full:
                    disk.fill()
                end = time.monotonic() + FULL_FOR
                while time.monotonic() < end:
                    try:
                        accepted |= {handle.id for handle in app.enqueue_many([nap.job(0.05) for _ in range(2)])}
                    except StoreError:
                        refused += 1
                    time.sleep(0.05)
            disk.free()
        alive = worker.poll() is None
        eventually(lambda: settled(app), 60, lambda: units.log(worker))
        jobs = {job.id: job for job in app.find(limit=1000).jobs}
        app.close()
        units.end()
    lost, states = accepted - jobs.keys(), {job.state.value for job in jobs.values()}
    text = (
        f"full {ROUNDS} times for {FULL_FOR:g} s: {len(accepted)} jobs accepted, {refused} enqueues refused, {len(lost)} lost, "
        f"states {sorted(states)}, most attempts {max(job.attempt for job in jobs.values())}"
    )
    return Seen(held=alive and not lost and refused > 0 and states == {"done"}, text=text)


CASES = [
    Case(
        "full-disk",
        "sqlite",
        "the disk of the file is full again and again while a worker and a producer run (needs root)",
        "an enqueue is refused or kept, no accepted job is lost, the worker goes on when there is room",
        _full_disk,
    ),
]
