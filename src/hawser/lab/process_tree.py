"""Processes by their ids, as /proc shows them: whose child is whose, who still lives, and signals to many."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def children(pid: int) -> list[int]:
    """The processes that this one has started and that live, oldest first."""
    return [each for each, parent in sorted(_parents().items()) if parent == pid]


def descendants(pid: int) -> list[int]:
    """Children, their children, and so on; each after its parent."""
    parents, found = _parents(), [pid]
    for known in found:
        found += [each for each, parent in sorted(parents.items()) if parent == known]
    return found[1:]


def lives(pid: int) -> bool:
    """Whether there is such a process, and not only its remains."""
    return (_fields(pid) or ["Z"])[0] != "Z"


def is_stopped(pid: int) -> bool:
    """Whether a signal has frozen it with all of its threads; each of them stops by itself, a moment after the signal."""
    try:
        threads = [thread / "stat" for thread in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return False
    states = [(_fields_of(thread) or ["X"])[0] for thread in threads]
    return "T" in states and not set(states) - {"T", "X", "Z"}


def title(pid: int) -> bytes:
    """What it calls itself; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def program(pid: int) -> str:
    """The name of its program, as far as the kernel keeps it; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def everything() -> list[int]:
    """All processes of the machine."""
    return list(_parents())


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """A signal to each that is still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def await_gone(pids: Iterable[int], within: float) -> bool:
    """Wait until none of them lives; False when one still does after so many seconds."""
    end = time.monotonic() + within
    left = [pid for pid in pids if lives(pid)]
    while left and time.monotonic() < end:
        time.sleep(0.01)
        left = [pid for pid in left if lives(pid)]
    return not left


def await_stopped(pids: Iterable[int], within: float) -> bool:
    """Wait until SIGSTOP has frozen all that live of them; False when one still runs after so many seconds."""
    end = time.monotonic() + within
    while not (stopped := all(is_stopped(pid) or not lives(pid) for pid in pids)) and time.monotonic() < end:
        time.sleep(0.001)
    return stopped


def _parents() -> dict[int, int]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _fields(int(entry.name))) and fields[0] != "Z":
            found[int(entry.name)] = int(fields[1])
    return found


def _fields(pid: int) -> list[str]:
    """State, parent, group, session and so on; none of a process that is gone."""
    return _fields_of(Path(f"/proc/{pid}/stat"))


def _fields_of(stat: Path) -> list[str]:
    try:
        return stat.read_text().rpartition(")")[2].split()
    except OSError:
        return []
