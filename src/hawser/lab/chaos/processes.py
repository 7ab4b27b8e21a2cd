"""Worker processes and what may happen to them: killed, frozen, told to end, and always started again."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from hawser.lab import process_tree
from hawser.lab.chaos.plan import MakeFault
from hawser.stores.sqlite.turn import give_back, turn_of

PROGRAM: Final = (sys.executable, "-m", "hawser.cli")

DRAINED_WITHIN_S: Final = 60.0
"""Seconds that a worker may take to drain before it is killed."""


STOPPED_WITHIN: Final = 0.5
"""Seconds that processes have to stand still; some may be dead."""


class UnitFlags(NamedTuple):
    """What a supervised worker is told on its command line."""

    processes: int = 2
    slots: int = 24
    lease: float = 2.0
    others: Sequence[str] = ()
    """Further words."""

    @property
    def words(self) -> list[str]:
        numbers = ["--processes", str(self.processes), "--slots", str(self.slots), "--lease", f"{self.lease:g}"]
        return [*numbers, *self.others]


class UnitLaunch(NamedTuple):
    """How the program of a supervised worker is started."""

    environ: Mapping[str, str] = {}
    within: Sequence[str] = ()
    """A command that runs the program, such as one that limits its memory."""
    program: Sequence[str] = PROGRAM


USUAL_FLAGS: Final = UnitFlags()
USUAL_LAUNCH: Final = UnitLaunch()


class WorkerUnit:
    """A supervised `hawser worker APP` in a session of its own. Use as a context manager, or `start` and `end` it."""

    def __init__(
        self,
        app: str,
        url: str,
        folder: Path,
        name: str = "unit",
        *,
        flags: UnitFlags = USUAL_FLAGS,
        launch: UnitLaunch = USUAL_LAUNCH,
    ) -> None:
        self.lease = flags.lease
        self.log = folder / f"{name}.log"
        self._command = [*launch.within, *launch.program, "worker", app, "--store", url, *flags.words]
        self._environ = {**os.environ, "HAWSER_STORE": url, **launch.environ}
        self._file = _file_of(url)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  # our own program
                self._command, env=self._environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The supervisor."""
        assert self._process is not None, "it has not been started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    def children(self) -> list[int]:
        """The worker processes that live now."""
        return process_tree.children(self.pid)

    def crew(self) -> list[int]:
        """All of it: the supervisor, its processes, and theirs."""
        return [self.pid, *process_tree.descendants(self.pid)]

    def said(self) -> str:
        """Its log so far, over all starts."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    # Ends.

    def kill_child(self, pid: int) -> None:
        """kill -9 of one process; the supervisor starts another."""
        process_tree.send([pid], signal.SIGKILL)

    def kill_supervisor(self) -> None:
        """kill -9 of the supervisor; its processes die with it. Then all start again."""
        orphans = process_tree.descendants(self.pid)
        self.process.kill()
        self.process.wait()
        process_tree.send(orphans, signal.SIGCONT)
        process_tree.await_gone(orphans, DRAINED_WITHIN_S)
        self.start()

    def kill_all(self, at_once: Callable[[], None] | None = None) -> None:
        """kill -9 of all processes at once; `at_once` is called as soon as none of them can go on. Nothing is started again."""
        crew = self.crew()
        self._signal(signal.SIGKILL, ())
        if at_once is not None:
            at_once()
        self.process.wait()
        process_tree.await_gone(crew[1:], DRAINED_WITHIN_S)

    def restart(self) -> int:
        """SIGTERM, wait until it has drained, start again; the exit code that it had."""
        code = self.stop()
        self.start()
        return code

    def stop(self) -> int:
        """SIGTERM, and wait until it has drained; the exit code, of -9 when it took too long."""
        self.thaw()
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(DRAINED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def end(self) -> None:
        """Nothing of it is left, in any state."""
        if self._process is not None and self.process.poll() is None:
            self.stop()
            self._signal(signal.SIGKILL, ())

    # Ice.

    def freeze(self, *pids: int) -> None:
        """SIGSTOP to these processes, or to all of them.

        On SQLite not inside of a transaction: then all others would wait for it, as SQLite has it.
        """
        while True:
            self._signal(signal.SIGSTOP, pids)
            if self._file is None:
                return
            process_tree.await_stopped(pids or self.crew(), STOPPED_WITHIN)
            if is_free(self._file):
                return
            self._signal(signal.SIGCONT, pids)
            time.sleep(0.02)

    def thaw(self, *pids: int) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT, pids)

    def _signal(self, number: signal.Signals, pids: Sequence[int]) -> None:
        """To these, or to the whole group at once, with processes that are just being started in it."""
        if pids:
            process_tree.send(pids, number)
            return
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def _file_of(url: str) -> Path | None:
    """The file that a process holds locked while it writes, where a store has one."""
    parts = urlsplit(url)
    return Path(unquote(parts.path.removeprefix("/"))) if parts.scheme == "sqlite" else None


def is_free(file: Path) -> bool:
    """Whether a process could write to it now: both locks are free, that by which ours take turns and SQLite's own."""
    if not file.exists():
        return True
    turn = turn_of(file)
    try:
        if not turn.take_within(0):
            return False
        try:
            return _sqlite_is_free(file)
        finally:
            turn.leave()
    finally:
        give_back(turn)


def _sqlite_is_free(file: Path) -> bool:
    with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as con:
        try:
            con.execute("begin immediate")
            con.execute("rollback")
        except sqlite3.OperationalError:
            return False
    return True


# Faults for a plan.


def kill_process(units: Sequence[WorkerUnit]) -> MakeFault:
    """kill -9 of a worker process."""

    def fault(dice: random.Random) -> bool:
        return _kill_one(dice.choice(units), dice)

    return fault


def kill_supervisor(units: Sequence[WorkerUnit]) -> MakeFault:
    """kill -9 of a supervisor, which takes its processes along."""

    def fault(dice: random.Random) -> None:
        dice.choice(units).kill_supervisor()

    return fault


def settle_late(units: Sequence[WorkerUnit]) -> MakeFault:
    """kill -9 of a process whose supervisor is frozen for two leases.

    Others take its runs back; then the supervisor wakes up and settles for the dead, too late.
    """

    def fault(dice: random.Random) -> bool:
        unit = dice.choice(units)
        unit.freeze(unit.pid)
        try:
            killed = _kill_one(unit, dice)
            time.sleep(2 * unit.lease)
        finally:
            unit.thaw(unit.pid)
        return killed

    return fault


def freeze(units: Sequence[WorkerUnit], leases: float = 3.0) -> MakeFault:
    """A whole worker stands still for so many leases, supervisor and all, then goes on."""

    def fault(dice: random.Random) -> None:
        unit = dice.choice(units)
        unit.freeze()
        try:
            time.sleep(leases * unit.lease)
        finally:
            unit.thaw()

    return fault


def restart(units: Sequence[WorkerUnit], told: Callable[[int], object] | None = None) -> MakeFault:
    """SIGTERM, drain, and start again, as a deploy does; told the exit code of each."""

    def fault(dice: random.Random) -> None:
        code = dice.choice(units).restart()
        if told is not None:
            told(code)

    return fault


def _kill_one(unit: WorkerUnit, dice: random.Random) -> bool:
    children = unit.children()
    if children:
        unit.kill_child(dice.choice(children))
    return bool(children)
