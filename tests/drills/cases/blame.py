"""A handler that turns on the loop which it shares, or forks: who pays for it."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

from hawser import State
from tests.drills.case import Case, Seen
from tests.drills.units import app_of, units_on
from tests.worker.processes import eventually, group_of, settled

NEIGHBOURS = 9


def run(folder: Path, *, store: str, kind: str) -> Seen:
    """One culprit among nine innocents with one attempt each, in one process."""
    with units_on(folder, store) as units:
        app = app_of(units)
        nap, turn = app.tasks["nap"].using(max_attempts=1), app.tasks["turn_on_the_loop"]
        innocents = app.enqueue_many([nap.job(seconds=1.0) for _ in range(NEIGHBOURS)])
        guilty = turn.enqueue(kind=kind)
        worker = units.start("--slots", "20")
        eventually(lambda: settled(app), 30, lambda: units.log(worker))
        after = app.get(nap.enqueue(seconds=0.01).id)
        eventually(lambda: app.get(after.id).state.finished, 10, lambda: units.log(worker))
        jobs = [app.get(handle.id) for handle in innocents]
        culprit, log = app.get(guilty.id), units.log(worker)
        left = {start.pid for start in units.starts(word="child")} & set(group_of(worker.pid))
        settlements = sum("refused" in line for line in log.splitlines())
        worker.send_signal(signal.SIGTERM)
        code = worker.wait(30)
    well = sum((job.state, job.attempt, len(job.errors)) == (State.DONE, 1, 0) for job in jobs)
    restarts = log.count("starting another")
    named = culprit.id in log if kind == "fork" else "the handler is to blame" in str(culprit.errors)
    text = (
        f"{well} of {NEIGHBOURS} neighbours done with their first attempt; the culprit is {culprit.state.value} and"
        f" {'named' if named else 'not named'}; {restarts} restarts, {len(left)} forked children left,"
        f" {settlements} writes refused, exit code {code}"
    )
    right = State.DONE if kind == "fork" else State.DEAD
    held = well == NEIGHBOURS and named and culprit.state is right and not (restarts or left or settlements or code)
    return Seen(held=held, text=text)


CASES = tuple(
    Case(
        name=f"{name}-{store}",
        store=store,
        fault=fault,
        wanted=wanted,
        run=partial(run, store=store, kind=kind),
    )
    for store in ("sqlite", "postgres")
    for name, kind, fault, wanted in (
        (
            "handler-stops-the-loop",
            "stop",
            "a handler calls loop.stop() beside nine others",
            "it is named and loses its attempt, the nine lose nothing",
        ),
        (
            "handler-cancels-all-tasks",
            "cancel",
            "a handler cancels asyncio.all_tasks() beside nine others",
            "it is named and loses its attempt, the nine lose nothing",
        ),
        (
            "handler-forks-and-returns",
            "fork",
            "a handler forks and returns in the child, beside nine others",
            "the child ends and is told of; the parent's outcome stands, the nine lose nothing",
        ),
    )
)
