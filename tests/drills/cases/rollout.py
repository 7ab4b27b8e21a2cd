"""Two releases of one app at once: what the old one cannot run is left to the new one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from hawser import Handle, Hawser, State
from hawser.lab.cluster import Cluster
from tests.drills.case import Case, Seen
from tests.worker.processes import ROOT, cpu_of, group_of

NOTING = """
import os
from pathlib import Path

from hawser import Fixed, Hawser
from hawser.telemetry.events import Events


class Noting(Events):
    def claimed(self, batch):
        with Path(__file__).with_name("claims").open("a") as out:
            out.write("".join(f"{os.getpid()} {job.id}\\n" for job in batch.jobs))


app = Hawser()
app.events = Noting()
"""
"""The head of both releases: each worker notes what it claims."""

OLD = f"""{NOTING}

@app.task(max_attempts=2, backoff=Fixed(every=0.1))
async def greet(name: str) -> None: ...


@app.task(isolate=True, max_attempts=2, backoff=Fixed(every=0.1))
def resize(name: str) -> None: ...
"""

NEW = f"""{NOTING}

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

    def offered(self, ids: Collection[str]) -> int:
        """How often one worker has claimed the same of these jobs, at the most."""
        claims = Counter((self._folder / "claims").read_text().splitlines())
        return max(count for claim, count in claims.items() if claim.split()[1] in ids)

    def end(self) -> None:
        self.app.close()
        for process in self._started:
            for pid in group_of(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait(30)


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


class Rollout(NamedTuple):
    """What was seen of two releases on one store."""

    jobs: int
    all_done: bool
    burnt: int
    """Jobs that lost an attempt."""
    offered: int
    """How often one worker claimed the same job, at the most."""
    offered_apart: int
    """The same of a job for a child process. Each worker hands the first one back: so it learns that it needs such a process."""
    latest: float
    """Seconds after which the last of the jobs started."""
    claims: int
    """Of a job that only an old worker was there for."""
    busy: float
    """Cores that it took meanwhile."""
    told: bool
    """Those jobs say why they wait."""
    taken: bool
    """A new worker ran them."""
    waited: float
    """Seconds that this took."""

    @property
    def right(self) -> bool:
        """As far as it does not depend on how fast the machine is."""
        offered = self.offered == 1 and self.offered_apart <= 2 and self.claims == 1
        return self.all_done and not self.burnt and offered and self.told and self.taken


def both_releases(folder: Path, store: str) -> Seen:
    found = rolled_out(folder, store)
    held = found.right and found.latest < LATE and found.busy < 0.2 and found.waited < 3
    text = (
        f"{found.jobs} jobs, all done: {found.all_done}, attempts burnt {found.burnt}, latest start {found.latest:.2f} s, "
        f"offered to one worker at most {found.offered} times, what runs apart {found.offered_apart} times; old worker alone: "
        f"{found.claims} claims of a job in 5 s, {found.busy:.0%} of a core, told why: {found.told}; a new worker ran them after "
        f"{found.waited:.1f} s"
    )
    return Seen(held, text)


def rolled_out(folder: Path, store: str, *, rounds: int = ROUNDS, alone_for: float = 5.0) -> Rollout:
    """Under load, then with the old release alone for so many seconds, then with a new worker again."""
    with fleet(folder, store) as units:
        app = units.app
        old, new = units.start("old"), units.start("new")
        handles: list[Handle[Any]] = []
        for number in range(rounds):
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
        *plain, apart = (job.id for job in jobs)
        offered, offered_apart = units.offered(plain), units.offered({apart})

        new.send_signal(signal.SIGTERM)
        new.wait(30)
        alone = [app.enqueue("farewell", {"name": "a"}), app.enqueue("greet", {"name": "a", "title": "Dr"})]
        within(10, lambda: all(app.get(handle.id).lease for handle in alone))
        before = cpu_of(group_of(old.pid))
        time.sleep(alone_for)  # what is measured: an old worker beside jobs that it cannot run
        busy = (cpu_of(group_of(old.pid)) - before) / alone_for
        claims = max(app.get(handle.id).lease for handle in alone)
        told = all(app.get(handle.id).reason for handle in alone)
        units.start("new")
        began = time.monotonic()
        taken = within(30, lambda: all(app.get(handle.id).state is State.DONE for handle in alone))
        waited = time.monotonic() - began
    return Rollout(len(handles), bool(all_done), burnt, offered, offered_apart, late, claims, busy, told, bool(taken), waited)


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
