"""Real worker processes for tests: started, signalled, looked at, and always ended."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from hawser import Hawser
from hawser.lab import process_tree
from hawser.lab.chaos.processes import STOPPED_WITHIN, is_free

ROOT = Path(__file__).parents[2]


def program(first: str = "") -> tuple[str, str]:
    """How Python is told to run the command line, after these statements."""
    run = "import runpy; runpy.run_module('hawser.cli', run_name='__main__', alter_sys=True)"
    return ("-c", f"{first}\n{run}") if first else ("-m", "hawser.cli")


class Start(NamedTuple):
    id: str
    attempt: int
    lease: int
    pid: int


class Fleet:
    """Workers on one SQLite file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/jobs.db?timeout=10"
        self.journal = folder / "journal"
        self.journal.touch()
        self.environ = {**os.environ, "HAWSER_STORE": self.url, "HAWSER_TEST_JOURNAL": str(self.journal)}
        self._started: list[subprocess.Popen[bytes]] = []

    def start(
        self, *options: str, app: str = "tests.worker.tasks:app", ready: bool = True, first: str = ""
    ) -> subprocess.Popen[bytes]:
        """`first` is Python that the supervisor runs before all else, for one with other constants."""
        log = self.folder / f"worker-{len(self._started)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, *program(first), "worker", app, *options],
                cwd=ROOT,
                env=self.environ,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._started.append(process)
        if ready:
            eventually(lambda: "is ready" in log.read_text(), 120, log.read_text)
        return process

    def log(self, process: subprocess.Popen[bytes]) -> str:
        return (self.folder / f"worker-{self._started.index(process)}.log").read_text()

    def freeze(self, process: subprocess.Popen[bytes]) -> None:
        """Stop a whole worker, but not inside of a transaction: then all others would wait for it, as SQLite has it."""
        while True:
            os.killpg(process.pid, signal.SIGSTOP)
            process_tree.await_stopped(group_of(process.pid), STOPPED_WITHIN)
            if is_free(self.folder / "jobs.db"):
                return
            os.killpg(process.pid, signal.SIGCONT)
            time.sleep(0.02)

    def starts(self, id: str | None = None, word: str = "start") -> list[Start]:
        lines = [line.split() for line in self.journal.read_text().splitlines()]
        return [
            Start(line[1], int(line[2]), int(line[3]), int(line[4]))
            for line in lines
            if line[0] == word and (id is None or line[1] == id)
        ]

    def end(self) -> None:
        for process in self._started:
            for number in (signal.SIGCONT, signal.SIGKILL):
                try:
                    os.killpg(process.pid, number)
                except ProcessLookupError:
                    break
            process.wait(30)


@contextmanager
def fleet(folder: Path) -> Iterator[Fleet]:
    ships = Fleet(folder)
    try:
        yield ships
    finally:
        ships.end()


def eventually(wanted: Callable[[], object], seconds: float = 60, why: Callable[[], object] = lambda: "") -> None:
    end = time.monotonic() + seconds
    while not wanted():
        assert time.monotonic() < end, why()
        time.sleep(0.02)


def settled(app: Hawser) -> bool:
    """Whether nothing waits or runs any more."""
    stats = app.stats()
    return not (stats.ready or stats.scheduled or stats.retrying or stats.running)


def workers_of(pid: int) -> list[int]:
    """The worker processes of a supervisor that are alive; child processes of theirs are not counted."""
    found = subprocess.run(["ps", "-o", "pid=,args=", "-g", str(pid)], capture_output=True, text=True, check=False).stdout
    return [int(line.split()[0]) for line in found.splitlines() if line.endswith("hawser.worker.child")]


def group_of(pid: int) -> list[int]:
    """The processes of a session that are alive."""
    found = subprocess.run(["ps", "-o", "pid=,stat=", "-g", str(pid)], capture_output=True, text=True, check=False).stdout
    return [int(line.split()[0]) for line in found.splitlines() if not line.split()[1].startswith("Z")]


HOLD = """
import sqlite3, sys
con = sqlite3.connect(sys.argv[1], 60, isolation_level=None)
con.execute("begin immediate")
print("held", flush=True)
sys.stdin.read()
"""

HOLD_TURN = """
import fcntl, sys
lock = open(sys.argv[1] + "-lock", "a")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def held(path: Path) -> AbstractContextManager[None]:
    """Another program has the file's write lock."""
    return _holding(HOLD, path)


def turn_held(path: Path) -> AbstractContextManager[None]:
    """Another process of ours is in the middle of its turn to write."""
    return _holding(HOLD_TURN, path)


@contextmanager
def _holding(script: str, path: Path) -> Iterator[None]:
    holder = subprocess.Popen([sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    try:
        yield
    finally:
        holder.stdin.close()
        holder.wait(30)
        holder.stdout.close()


def cpu_of(pids: Iterable[int]) -> float:
    """Seconds of CPU that these processes have used."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
