"""Lines to standard error without waiting: a pipe that is not read must not stop the work, nor its end."""

from __future__ import annotations

import errno
import logging
import os
import queue
import sys
import threading
import time
from contextlib import suppress
from typing import Final

LINES_WAITING: Final = 5_000
"""Lines that may wait for a slow reader; what comes beyond them is dropped and counted."""

LAST: Final = 0.5
"""Seconds that the end of a process waits for its last lines to be written."""


class LineHandler(logging.Handler):
    """A thread writes; a caller that logs only leaves a line. The thread may be stuck, and the process ends all the same."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self.dropped = 0
        """Lines that were lost since the start."""
        self._told = 0
        self._begin()

    def _begin(self) -> None:
        self._lines: queue.SimpleQueue[str | threading.Event] = queue.SimpleQueue()
        self._pid = os.getpid()
        self._started = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.put(self.format(record))
        except Exception:  # noqa: BLE001  # as every handler of logging does
            self.handleError(record)

    def put(self, line: str) -> None:
        """Leave a line to be written."""
        if self._pid != os.getpid():
            # A fork has no thread, and its parent writes what waited.
            self._begin()
        if self._lines.qsize() >= LINES_WAITING:
            self.dropped += 1
            return
        self._lines.put(line)
        if not self._started:
            self._started = True
            threading.Thread(target=self._write, args=(self._lines,), name="hawser-log", daemon=True).start()

    def flush(self, within: float = LAST) -> None:
        """Wait until all is written, so long at the most."""
        if self._started and self._pid == os.getpid():
            # It comes out behind every line. To ask whether the queue is empty would miss the line that is being written.
            written = threading.Event()
            self._lines.put(written)
            written.wait(within)

    def _write(self, lines: queue.SimpleQueue[str | threading.Event]) -> None:
        while True:
            line = lines.get()
            if isinstance(line, threading.Event):
                line.set()
                continue
            if self.dropped > self._told and lines.qsize() < LINES_WAITING // 2:
                lost, self._told = self.dropped - self._told, self.dropped
                line += f"\n{lost} log lines were dropped: standard error was not read"
            if not self._written(f"{line}\n".encode(errors="backslashreplace")):
                self.dropped += 1

    def _written(self, data: bytes) -> bool:
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                # Another program made the pipe or terminal one that does not wait.
                time.sleep(0.01)
            except OSError as error:
                if error.errno != errno.EINTR:
                    return False
        return True


def end_streams(within: float = LAST) -> bool:
    """Write what is left in Python's own buffers of the standard streams; False when it is not read.

    Python itself would wait for a reader at its end, without limit.
    """

    def flush() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()

    flushing = threading.Thread(target=flush, daemon=True)
    flushing.start()
    flushing.join(within)
    return not flushing.is_alive()
