"""Noticing that the file was removed or replaced while it is open."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from hawser.errors import StoreUnavailable

FILE_LOOK_EVERY_S: Final = 0.1
"""Seconds between two looks. A look takes up to 20 µs, a fifth of a small transaction without a sync."""


class Place:
    """The names under which others find the file and its log, and what stood there when they were opened.

    A process that has a file open goes on with it when its name is gone or stands for another file. No other process would find
    what it wrote then. The file that stands there now is not taken instead: it may be an older copy, in which lease numbers that
    this process holds are given out again.
    """

    def __init__(self, path: Path) -> None:
        """Before the first connection is made."""
        self._shown = path
        # The working directory may change, and SQLite puts the log beside the file that a link points at.
        self._file = os.path.abspath(path)
        self.log = f"{os.path.realpath(path)}-wal"
        self._file_was = _identity(self._file)
        self._log_was: tuple[int, int] | None = None
        self._look_at = 0.0

    def know_log(self) -> None:
        """Take the log that stands there now as ours: a connection has just made or opened it."""
        self._log_was = _identity(self.log)

    def check(self) -> None:
        """Refuse when others would not find what we write, or would not have a moment ago."""
        now = time.monotonic()
        if now < self._look_at:
            return
        if _identity(self._file) != self._file_was:
            gone = self._shown
        elif _identity(self.log) != self._log_was:
            gone = Path(f"{self._shown}-wal")
        else:
            self._look_at = now + FILE_LOOK_EVERY_S
            return
        raise StoreUnavailable(
            f"{str(gone)!r} was removed or replaced while this process had it open, so no other process would find what it "
            "writes; nothing was written: put the same file back, or restart this process to use what is there now"
        )


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
