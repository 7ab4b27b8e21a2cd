"""A worker process as its supervisor has it, and the memory that the two share."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from mmap import mmap

from hawser.worker.board import Board
from hawser.worker.options import WorkerOptions


class Child:
    """A worker process and the memory shared with it."""

    def __init__(self, options: WorkerOptions) -> None:
        self.name = new_name()
        self.started_at = time.monotonic()
        self.ready = False
        self.process: asyncio.subprocess.Process | None = None
        self.draining = False
        self.hung: set[str] = set()
        """Jobs whose handlers blocked the process past their timeout, for which it was killed."""
        self.crasher: str | None = None
        """The job on its board of which we know that it has killed a child process."""
        cells = options.cells
        self.fd, memory = shared(Board.size(cells))
        self.board = Board(memory, cells)

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0

    def send(self, number: int) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    def close(self) -> None:
        os.close(self.fd)


def shared(size: int) -> tuple[int, mmap]:
    """Memory to share with child processes, by its file descriptor."""
    fd = os.memfd_create("hawser") if hasattr(os, "memfd_create") else _unlinked()
    os.ftruncate(fd, size)
    return fd, mmap(fd, size)


def _unlinked() -> int:
    """A file that nobody else can find and that goes with its last user."""
    import tempfile  # noqa: PLC0415  # only where there is no memfd

    fd, path = tempfile.mkstemp("hawser-board")
    os.unlink(path)
    return fd


def new_name() -> str:
    """A worker's name: new at every start, so that nothing of an earlier one is ever mistaken for ours."""
    return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"


def how(code: int) -> str:
    """The end of a process in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was killed by signal {-code}"
