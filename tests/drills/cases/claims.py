"""What a claim costs when all that held it is killed: jobs with one attempt, some of which were never started."""

from __future__ import annotations

import os
import signal
import subprocess
from functools import partial
from pathlib import Path

from hawser import Job, State
from tests.drills.case import Case, Seen
from tests.drills.units import app_of, units_on
from tests.worker.processes import Fleet, eventually, settled

JOBS = 400
ROUNDS = 6
NOT_KNOWN = "not known whether"


def run(folder: Path, *, store: str, alone: bool) -> Seen:
    """Kill a worker of two slots again and again while it runs short jobs, then look at those that are dead."""
    with units_on(folder, store) as units:
        app = app_of(units)
        nap = app.tasks["nap"].using(max_attempts=1)
        handles = app.enqueue_many([nap.job(seconds=0.02) for _ in range(JOBS)])
        most = 0
        for number in range(ROUNDS):
            wanted = len(units.starts()) + 12
            worker = units.start("--slots", "2", "--lease", "2", ready=False)
            eventually(partial(_started, units, wanted), 30)
            if number == 0:  # later the runs of those that were killed are shown, too, until they are reclaimed
                most = max(app.stats().running for _ in range(20))
            _kill(worker, alone=alone)
        units.start("--slots", "64", "--lease", "2")
        eventually(lambda: settled(app), 40)
        return _judged([app.get(handle.id) for handle in handles], units, most)


def _started(units: Fleet, wanted: int) -> bool:
    return len(units.starts()) >= wanted


def _kill(worker: subprocess.Popen[bytes], *, alone: bool) -> None:
    if alone:
        os.kill(worker.pid, signal.SIGKILL)
    else:
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait(30)


def _judged(jobs: list[Job], units: Fleet, most: int) -> Seen:
    began = {start.id for start in units.starts()}
    dead = [job for job in jobs if job.state is State.DEAD]
    unstarted = [job for job in dead if job.id not in began]
    not_known = [job for job in unstarted if NOT_KNOWN in str(job.errors[-1])]
    never = len(unstarted) - len(not_known)
    text = (
        f"{JOBS} jobs with one attempt, {ROUNDS} kills: {len(dead)} dead, of which {never} were never started and"
        f" {len(not_known)} are not known; at most {most} shown as running on 2 slots"
    )
    # A kill may cut a claim in two, of one free slot as a rule. A worker that claims ahead comes to two for each kill, and more.
    return Seen(held=never == 0 and len(not_known) <= ROUNDS and most <= 4, text=text)


CASES = tuple(
    Case(
        name=f"kill-{who}-{store}",
        store=store,
        fault=f"kill -9 of {what}, two slots, a lease of 2 s, jobs with one attempt",
        wanted="no job is dead that was never started; no more jobs are running than run",
        run=partial(run, store=store, alone=alone),
    )
    for store in ("sqlite", "postgres", "redis")
    for who, what, alone in (
        ("everything", "supervisor and process", False),
        ("supervisor", "the supervisor alone", True),
    )
)
