"""What a fork does to SQLite, and how a child comes to connections of its own.

SQLite keeps a record in memory of the locks that the process's connections hold on a file. A forked child inherits the record,
but none of the locks. A connection that it opens to the same file trusts the record: it waits for ever for a write that only
the parent can end, or reads and writes without the locks that keep others from removing the log under it. The record is
right again once the inherited connections are closed, and that is safe only while none of them is in use. So a fork waits until
the connections are idle, and the child closes its copies at once.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from hawser.errors import StoreUnavailable

IDLE_WITHIN: Final = 10.0
"""Seconds that a fork waits for the transactions under way. They take milliseconds, unless the disk hangs."""


class Forked(Protocol):
    """What has something to renew in a child, such as a lock that a thread of the parent may have held."""

    def forked(self) -> None: ...


class Guarded:
    """A connection that one thread uses at a time, and none while the process forks."""

    def __init__(self, path: Path, make: Callable[[], sqlite3.Connection]) -> None:
        self.path = path
        self.lock = threading.Lock()
        self._con: sqlite3.Connection | None = None
        _process.guard(self)
        with self.lock:
            self._con = make()

    def __enter__(self) -> sqlite3.Connection:
        self.lock.acquire()
        assert self._con is not None
        return self._con

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def close(self) -> None:
        with self.lock:
            if self._con is not None:
                self._con.close()

    def forked(self, *, idle: bool) -> None:
        """In a child: let go of the parent's connection. One that was in use is kept as it is; closing it could block."""
        self.lock = threading.Lock()
        if idle:
            with suppress(sqlite3.Error):
                self.close()


class _Process:
    """All connections of this process, and what must be renewed in its children. There is one, as there is one record."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guarded: weakref.WeakSet[Guarded] = weakref.WeakSet()
        self._renewed: weakref.WeakSet[Forked] = weakref.WeakSet()
        self._idle: list[Guarded] = []
        self._in_use: list[Guarded] = []
        """Connections that were in use when an ancestor forked."""
        self._hooked = False

    def guard(self, guarded: Guarded) -> None:
        self._hook()
        with self._lock:
            self._guarded.add(guarded)

    def renew(self, each: Forked) -> None:
        self._hook()
        with self._lock:
            self._renewed.add(each)

    def check(self, path: Path) -> None:
        if any(guarded.path == path for guarded in self._in_use):
            raise StoreUnavailable(
                f"this process was forked while its parent was in the middle of a transaction on {str(path)!r} that took more "
                f"than {IDLE_WITHIN:g} s; nothing was written: start the process again, with spawn instead of fork if it recurs"
            )

    def _hook(self) -> None:
        with self._lock:
            if not self._hooked:
                self._hooked = True
                os.register_at_fork(before=self._before, after_in_parent=self._in_parent, after_in_child=self._in_child)

    def _before(self) -> None:
        self._lock.acquire()
        end = time.monotonic() + IDLE_WITHIN
        self._idle = [each for each in list(self._guarded) if each.lock.acquire(timeout=max(0.0, end - time.monotonic()))]

    def _in_parent(self) -> None:
        idle, self._idle = self._idle, []
        for guarded in idle:
            guarded.lock.release()
        self._lock.release()

    def _in_child(self) -> None:
        self._lock = threading.Lock()
        idle, self._idle = self._idle, []
        self._in_use += [each for each in self._guarded if each not in idle]
        for guarded in self._guarded:
            guarded.forked(idle=guarded in idle)
        self._guarded = weakref.WeakSet()
        for each in list(self._renewed):
            each.forked()


_process = _Process()


def renew_in_children(each: Forked) -> None:
    """Have `forked` called in every forked child, after the parent's connections were let go of."""
    _process.renew(each)


def check_fork(path: Path) -> None:
    """Refuse to open a file anew of which a connection was in use when this process was forked."""
    _process.check(path)
