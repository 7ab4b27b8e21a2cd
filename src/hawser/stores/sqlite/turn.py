"""Whose turn it is to write: a lock between processes that ends with its holder.

It is a POSIX record lock. That belongs to a process: children do not inherit it, and the kernel frees it when the process dies,
also when its children live on. Two things follow. It does not keep the threads of one process apart, so there is a thread lock
beside it. And closing any descriptor of the lock file drops it, so a process has one descriptor for each lock file, however many
stores use it.

The lock makes writers wait in line instead of looking again and again. It is not what keeps the file whole: SQLite's own lock
does that, also against programs and releases that do not know this one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from hawser.errors import StoreReadOnly, StoreUnavailable
from hawser.stores.sqlite.fork import renew_in_children

TURN_RETRY_EVERY_S: Final = 0.02
"""Seconds between two tries of a caller with a time limit."""

_NO_LOCKS: Final = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
"""What a file system says that has no locks."""


class Turn:
    """The lock of one file, shared by the stores of a process."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.descriptor = descriptor
        self.users = 1
        self._path = path
        self._threads = threading.Lock()

    def take(self) -> None:
        """Wait for the turn, for as long as it takes."""
        self._threads.acquire()
        try:
            # The kernel sees deadlocks between processes, not threads: two processes that share two files may look like one.
            while not self._lock(fcntl.LOCK_EX):
                time.sleep(TURN_RETRY_EVERY_S)
        except BaseException:
            self._threads.release()
            raise

    def take_within(self, seconds: float) -> bool:
        """Wait for the turn for a limited time, since its holder may be frozen; returns whether it came."""
        end = time.monotonic() + seconds
        if not self._threads.acquire(timeout=seconds):
            return False
        try:
            while not (taken := self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB)) and time.monotonic() < end:
                time.sleep(TURN_RETRY_EVERY_S)
        except BaseException:
            self._threads.release()
            raise
        if not taken:
            self._threads.release()
        return taken

    def leave(self) -> None:
        fcntl.lockf(self.descriptor, fcntl.LOCK_UN)
        self._threads.release()

    def _lock(self, how: int) -> bool:
        try:
            fcntl.lockf(self.descriptor, how)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
                return False
            if error.errno in _NO_LOCKS:
                raise no_locks(self._path, error) from error
            raise StoreUnavailable(f"{str(self._path)!r} cannot be locked: {error.strerror}; nothing was written") from error
        return True


class _Turns:
    """The lock files that this process has open, by device and inode: a file may have several names."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[int, int], Turn] = {}
        self._spare: list[int] = []
        """Descriptors of lock files that were open already. They stay, as closing one would drop the lock."""

    def get(self, path: Path) -> Turn:
        renew_in_children(self)
        with self._lock:
            turn = None
            with suppress(FileNotFoundError):
                turn = self._open.get(_identity(os.stat(path)))
            if turn is None:
                descriptor = _open(path)
                key = _identity(os.fstat(descriptor))
                turn = self._open.get(key)
                if turn is None:
                    turn = self._open[key] = Turn(path, descriptor)
                    return turn
                self._spare.append(descriptor)
            turn.users += 1
            return turn

    def give_back(self, turn: Turn) -> None:
        with self._lock:
            turn.users -= 1
            if not turn.users:
                self._open = {key: each for key, each in self._open.items() if each is not turn}
                os.close(turn.descriptor)

    def forked(self) -> None:
        """A child has its own descriptors. Closing the inherited ones does nothing to the parent's locks."""
        self._lock = threading.Lock()
        for descriptor in (*(turn.descriptor for turn in self._open.values()), *self._spare):
            with suppress(OSError):
                os.close(descriptor)
        self._open, self._spare = {}, []


_turns = _Turns()


def turn_of(file: Path) -> Turn:
    """The turn of a store's file; give it back with `give_back`."""
    return _turns.get(Path(f"{os.path.realpath(file)}-lock"))


def give_back(turn: Turn) -> None:
    _turns.give_back(turn)


def no_locks(path: Path, error: Exception) -> StoreUnavailable:
    """The error for a file system that refuses locks."""
    return StoreUnavailable(
        f"the file system of {str(path)!r} refuses locks ({error}); nothing was written: put the file on a local disk, as SQLite "
        "needs locks, or use a postgresql:// store"
    )


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except PermissionError as error:
        raise StoreReadOnly(f"{str(path)!r} may not be written; check the owner and mode of the file and its folder") from error


def _identity(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino
