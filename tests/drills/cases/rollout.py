"""Two releases of one app at once: what the old one cannot run is left to the new one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hawser import Handle, Hawser, State
from hawser.lab.cluster import Cluster
from tests.drills.case import Case, Seen
from tests.worker.processes import ROOT, cpu_of, group_of

OLD = """
from hawser import Fixed, Hawser

app = Hawser()


@app.task(max_attempts=2, backoff=Fixed(every=0.1))
async def greet(name: str) -> None: ...


@app.task(isolate=True, max_attempts=2, backoff=Fixed(every=0.1))
def resize(name: str) -> None: ...
"""

NEW = """
from hawser import Fixed, Hawser

app = Hawser()


@app.task(max_attempts=2, backoff=Fixed(every=0.1))
async def greet(name: str, title: str = "") -> None: ...


@app.task(isolate=True, max_attempts=2, backoff=Fixed(every=0.1))
def resize(name: str, width: int = 0) -> None: ...


@app.task(max_attempts=2)
async def farewell(name: str) -> None: ...
"""

ROUNDS = 60
LATE = 1.0
"""Seconds after it was enqueued within which a job is to start while a new worker lives."""


class Releases:
    """Workers of both releases on one store, and the new release as the producer."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._environ = {**os.environ, "HAWSER_STORE": url}
        self._started: list[subprocess.Popen[bytes]] = []
        for name, text in (("old", OLD), ("new", NEW)):
            (folder / f"{name}.py").write_text(text)
        scope: dict[str, Hawser] = {}
        exec(NEW, scope)  # the same tasks here
        self.app = scope["app"]
        self.app.use_store(url)

    def start(self, release: str, *options: str) -> subprocess.Popen[bytes]:
        log = self._folder / f"log-{len(self._started)}"
        command = [sys.executable, "-m", "hawser.cli", "worker", f"{self._folder}/{release}.py:app", "--slots", "8", *options]
        with log.open("wb") as out:
            process = subprocess.Popen(command, cwd=ROOT, env=self._environ, stdout=out, stderr=out, start_new_session=True)
        self._started.append(process)
        assert within(30, lambda: "is ready" in log.read_text()), log.read_text()
        return process

    def end(self) -> None:
        self.app.close()
        for process in self._started:
            for pid in group_of(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait()


@contextmanager
def fleet(folder: Path, store: str) -> Iterator[Releases]:
    with ExitStack() as stack:
        url = f"sqlite:///{folder}/jobs.db"
        if store == "postgres":
            url = stack.enter_context(Cluster()).url
        units = Releases(folder, url)
        stack.callback(units.end)
        yield units


def within(seconds: float, wanted: Callable[[], object]) -> bool:
    end = time.monotonic() + seconds
    while not wanted():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def both_releases(folder: Path, store: str) -> Seen:
    """Under load, then with the old release alone, then with a new worker again."""
    with fleet(folder, store) as units:
        app = units.app
        old, new = units.start("old"), units.start("new")
        handles: list[Handle[Any]] = []
        for number in range(ROUNDS):
            handles += app.enqueue_many(
                [
                    app.tasks["greet"].job(f"old {number}"),
                    app.tasks["greet"].job(f"new {number}", title="Dr"),
                    app.tasks["farewell"].job(f"{number}"),
                ]
            )
            time.sleep(0.05)
        handles.append(app.enqueue("resize", {"name": "a", "width": 5}))
        all_done = within(30, lambda: app.stats().done == len(handles))
        jobs = [app.get(handle.id) for handle in handles]
        late = max(((job.started_at or datetime.now(UTC)) - job.enqueued_at).total_seconds() for job in jobs[:-1])
        burnt = sum(job.attempt > 1 or bool(job.errors) for job in jobs)
        declined = max(job.lease for job in jobs) - 1

        new.send_signal(signal.SIGTERM)
        new.wait(30)
        alone = [app.enqueue("farewell", {"name": "a"}), app.enqueue("greet", {"name": "a", "title": "Dr"})]
        within(10, lambda: all(app.get(handle.id).lease for handle in alone))
        before = cpu_of(group_of(old.pid))
        time.sleep(5)  # what is measured: an old worker beside jobs that it cannot run
        busy = (cpu_of(group_of(old.pid)) - before) / 5
        claims = max(app.get(handle.id).lease for handle in alone)
        told = all(app.get(handle.id).reason for handle in alone)
        units.start("new")
        began = time.monotonic()
        taken = within(10, lambda: all(app.get(handle.id).state is State.DONE for handle in alone))
        waited = time.monotonic() - began
    good = all_done and not burnt and late < LATE and declined <= 2
    held = good and claims <= 2 and busy < 0.2 and told and taken and waited < 3
    text = (
        f"{len(handles)} jobs, all done: {all_done}, attempts burnt {burnt}, latest start {late:.2f} s, "
        f"declined at most {declined} times; old worker alone: {claims} claims of a job in 5 s, {busy:.0%} of a core, "
        f"told why: {told}; a new worker ran them after {waited:.1f} s"
    )
    return Seen(held, text)


def nobody_accepts(folder: Path, store: str) -> Seen:
    """Dead once no living worker has accepted it for the time that was set; not while a worker lives that may."""
    with fleet(folder, store) as units:
        app = units.app
        units.start("old", "--unaccepted-after", "3", "--processes", "2")
        handles = [app.enqueue("farewell", {"name": "a"}), app.enqueue("greet", {"name": "a", "title": "Dr"})]
        began = time.monotonic()
        died = within(30, lambda: app.stats().dead == len(handles))
        after = time.monotonic() - began
        errors = [str(app.get(handle.id).errors[-1]) for handle in handles] if died else []
    held = died and after > 2.5 and all("no living worker accepted it for 3 s" in error for error in errors)
    return Seen(held, f"dead after {after:.1f} s: {'; '.join(errors)}")


CASES = [
    Case(
        f"{name}-{store}",
        store,
        fault,
        wanted,
        lambda folder, play=play, store=store: play(folder, store),  # type: ignore[misc]
    )
    for name, fault, wanted, play in (
        (
            "two-releases",
            "old and new workers at once; a new task and new arguments",
            "no attempt burnt, nobody delayed, no spin",
            both_releases,
        ),
        (
            "unaccepted",
            "only workers that cannot run a job",
            "dead with that reason after the time that was set",
            nobody_accepts,
        ),
    )
    for store in ("sqlite", "postgres")
]
