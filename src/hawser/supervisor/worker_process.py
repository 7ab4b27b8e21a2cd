"""A worker process as its supervisor has it, and the memory that the two share."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from mmap import mmap
from typing import NamedTuple

import msgspec

from hawser.supervisor.board_reader import BoardReader
from hawser.telemetry.logs import LogOptions
from hawser.worker.board import board_size
from hawser.worker.handshake import CHILD_VARIABLE, Handshake, Status
from hawser.worker.options import WorkerOptions
from hawser.worker.process import new_name


class Told(NamedTuple):
    """What a supervisor tells each of its processes."""

    app: str
    store: str | None
    broadcast_fd: int
    logs: LogOptions
    metrics_file: str | None


class WorkerProcess:
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
        self._options = options
        self._status_fd: int | None = None
        self._board_fd, self.memory = shared(board_size(options.cells))
        self.board = BoardReader(self.memory, options.cells)

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0

    def send(self, number: int) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    async def start(self, told: Told) -> None:
        """Start it. Raises OSError when no process can be made; then nothing is left to close."""
        self._status_fd, status_fd = os.pipe()
        handshake = Handshake(
            app=told.app,
            store=told.store,
            name=self.name,
            parent_pid=os.getpid(),
            board_fd=self._board_fd,
            cells=self._options.cells,
            broadcast_fd=told.broadcast_fd,
            status_fd=status_fd,
            options=self._options,
            logs=told.logs,
            metrics_file=told.metrics_file,
        )
        try:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "hawser.worker.child"),
                pass_fds=(self._board_fd, told.broadcast_fd, status_fd),
                env={**os.environ, CHILD_VARIABLE: msgspec.json.encode(handshake).decode()},
                stdin=asyncio.subprocess.DEVNULL,
            )
        finally:
            os.close(status_fd)
            if self.process is None:
                os.close(self._status_fd)
                self.close()

    async def status(self) -> Status:
        """What it says once: that it is ready, or why it never will be. Not read to the end: a process that the app forked
        may hold the pipe open."""
        assert self.process is not None
        assert self._status_fd is not None
        line = asyncio.ensure_future(asyncio.to_thread(_read_line, self._status_fd))
        died = asyncio.ensure_future(self.process.wait())
        await asyncio.wait((line, died), return_when=asyncio.FIRST_COMPLETED)
        if not line.done():
            await asyncio.wait((line,), timeout=1.0)
        died.cancel()
        text = line.result().strip() if line.done() else b""
        return msgspec.json.decode(text, type=Status) if text else Status(error="it ended before it was ready")

    async def wait(self) -> int:
        """Until it has ended; its exit code."""
        assert self.process is not None
        return await self.process.wait()

    def close(self) -> None:
        os.close(self._board_fd)


def _read_line(fd: int) -> bytes:
    with open(fd, "rb") as pipe:
        return pipe.readline()


def shared(size: int) -> tuple[int, mmap]:
    """Memory to share with child processes, by its file descriptor."""
    fd = os.memfd_create("hawser") if hasattr(os, "memfd_create") else _unlinked()
    os.ftruncate(fd, size)
    return fd, mmap(fd, size)


def _unlinked() -> int:
    """A file that no other program finds, and that goes with its last user."""
    import tempfile  # noqa: PLC0415  # only where there is no memfd

    fd, path = tempfile.mkstemp("hawser-board")
    os.unlink(path)
    return fd
