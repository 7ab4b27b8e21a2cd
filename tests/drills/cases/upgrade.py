"""The schema is migrated under load, while workers and a producer of the release before, or of the first, go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hawser import Hawser, State
from hawser.lab.cluster import Cluster
from hawser.stores.schema import migrations_in
from tests.drills.case import Case, Seen
from tests.drills.cases.rollout import within
from tests.worker.processes import ROOT, group_of, workers_of

NEWEST = max((ROOT / "src/hawser/stores/postgres/migrations").glob("*.sql"))

APP = """
from hawser import Hawser

app = Hawser()


@app.task
async def greet(name: str) -> None: ...
"""

PRODUCER = """
import sys, time
sys.path.insert(0, {folder!r})
from app import app
with open({accepted!r}, "w", buffering=1) as out:
    for number in range({jobs}):
        out.write(app.enqueue("greet", {{"name": str(number)}}).id + "\\n")
        time.sleep(0.01)
"""

JOBS = 1_500
"""That the producer of the old release enqueues, in at least 15 s."""


OLDER = {"before": NEWEST, "first": next(NEWEST.parent.glob("0002_*.sql"))}
"""The migration that a release does not know: the newest, or the second."""


def sources_before(migration: Path, folder: Path) -> Path:
    """The sources as they were before that migration was added."""
    git = ["git", "-C", str(ROOT)]
    asked = [*git, "log", "--diff-filter=A", "-1", "--format=%H", "--", str(migration.relative_to(ROOT))]
    added = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    assert added, f"the history does not say when {migration.name} was added"
    archive = subprocess.run([*git, "archive", f"{added}~1", "src"], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    return folder / "src"


class Releases:
    """Processes of an older release and of this one, on one store."""

    def __init__(self, folder: Path, url: str, older: str) -> None:
        self._folder = folder
        self._environ = {**os.environ, "HAWSER_STORE": url}
        self._started: list[subprocess.Popen[bytes]] = []
        self._before = str(sources_before(OLDER[older], folder))
        (folder / "app.py").write_text(APP)
        self._accepted = folder / "accepted"

    def worker(self, *, old: bool, processes: int = 1) -> tuple[subprocess.Popen[bytes], Path]:
        """It, and its log."""
        log = self._folder / f"log-{len(self._started)}"
        command = [sys.executable, "-m", "hawser.cli", "worker", f"{self._folder}/app.py:app", "--processes", str(processes)]
        process = self._start(command, log, old=old)
        assert within(60, lambda: log.read_text().count("is ready") >= processes), log.read_text()
        return process, log

    def producer(self) -> subprocess.Popen[bytes]:
        """Of the older release."""
        text = PRODUCER.format(folder=str(self._folder), accepted=str(self._accepted), jobs=JOBS)
        return self._start([sys.executable, "-c", text], self._folder / "log-producer", old=True)

    def accepted(self) -> list[str]:
        """The jobs that the producer was told of."""
        return self._accepted.read_text().splitlines() if self._accepted.exists() else []

    def kill_a_process_of(self, supervisor: subprocess.Popen[bytes]) -> None:
        """One that runs handlers; the supervisor stays."""
        os.kill(workers_of(supervisor.pid)[0], signal.SIGKILL)

    def _start(self, command: list[str], log: Path, *, old: bool) -> subprocess.Popen[bytes]:
        environ = self._environ | {"PYTHONPATH": self._before} if old else self._environ
        with log.open("wb") as out:
            process = subprocess.Popen(command, cwd=self._folder, env=environ, stdout=out, stderr=out, start_new_session=True)
        self._started.append(process)
        return process

    def end(self) -> None:
        for process in self._started:
            for pid in group_of(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait(10)


@contextmanager
def releases(folder: Path, store: str, older: str) -> Iterator[tuple[Releases, Hawser]]:
    with ExitStack() as stack:
        url = f"sqlite:///{folder}/jobs.db"
        if store == "postgres":
            url = stack.enter_context(Cluster()).url
        both = Releases(folder, url, older)
        stack.callback(both.end)
        app = Hawser(url)
        stack.callback(app.close)

        @app.task
        async def greet(name: str) -> None:
            """As in the workers."""

        yield both, app


def migrated_under_load(folder: Path, store: str, older: str, processes: int) -> Seen:
    with releases(folder, store, older) as (both, app):
        (old, log), producer = both.worker(old=True, processes=processes), both.producer()
        assert within(60, lambda: len(both.accepted()) > 200), "the producer of the old release does not get on"
        began = time.monotonic()
        app.open()
        took = time.monotonic() - began
        new, _ = both.worker(old=False)
        mine = [app.enqueue("greet", {"name": "new"}).id for _ in range(300)]
        ended = producer.wait(120) == 0
        accepted = [*both.accepted(), *mine]
        new.send_signal(signal.SIGTERM)
        new.wait(60)
        refused = True
        if processes > 1:
            # Before the last jobs come: it runs nothing that an attempt could be burned for.
            all_done = within(60, lambda: app.stats().done >= len(accepted))
            both.kill_a_process_of(old)
            refused = within(60, lambda: "upgrade Hawser" in log.read_text())
        # Only the old worker is left: it goes on with the new schema.
        mine = [app.enqueue("greet", {"name": "last"}).id for _ in range(100)]
        accepted += mine
        all_done = within(60, lambda: app.stats().done >= len(accepted))
        jobs = [app.get(id) for id in accepted]
        states = {job.state for job in jobs if job is not None}
        faults = sum(job is None or job.attempt != 1 or bool(job.errors) for job in jobs)
        alive = old.poll() is None
    held = ended and all_done and states == {State.DONE} and not faults and alive and refused
    text = (
        f"{len(accepted)} jobs, all done: {all_done}, lost or run twice: {faults}; to open with the migration took {took:.2f} s;"
        f" producer of the old release ended well: {ended}, its worker lives and ran the last {len(mine)}: {alive}"
    )
    if processes > 1:
        text += f"; one of its processes was killed, and the next refused the newer schema with a message: {refused}"
    return Seen(held, text)


assert migrations_in("hawser.stores.postgres")[-1].version == int(NEWEST.name[:4])

CASES = [
    Case(
        f"migrated-under-load-{older}-{processes}-{store}",
        store,
        f"all newer migrations while a worker with {processes} process{'es' if processes > 1 else ''} and a producer of the"
        f" {'release before' if older == 'before' else 'first release'} are at work",
        "no job lost, none run twice, what runs goes on"
        + (", a process that is started anew refuses with a message" if processes > 1 else ""),
        lambda folder, store=store, older=older, processes=processes: migrated_under_load(  # type: ignore[misc]
            folder, store, older, processes
        ),
    )
    for older in OLDER
    for processes in (1, 2)
    for store in ("sqlite", "postgres")
]
