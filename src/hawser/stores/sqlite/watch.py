"""Noticing that another process has written to the file: by inotify where there is one, else by looking again and again."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

CHANGE_LOOK_EVERY_S: Final = 0.005
"""Seconds between two looks, where looking is all there is. Waking up 200 times a second costs about 1.5 % of a core."""

FIRST_LOOK, LAST_LOOK = 0.001, 0.3
"""Seconds. A commit that was being written when the watch began is seen by no inotify: it becomes visible without a further
write. So there are a few looks all the same, after 1 ms, 2, 4 … 256, when a process wrote not long ago."""

NOT_LONG_AGO: Final = 1.0
"""Seconds. Those looks were half of what an idle worker did, nine a second: without a write there is nothing to look for."""

_IN_MODIFY: Final = 2


def inotify(path: str) -> int | None:
    """A file descriptor that becomes readable when the file is written to; None where the system has no such thing."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        return None
    if libc.inotify_add_watch(fd, os.fsencode(path), _IN_MODIFY) < 0:
        os.close(fd)
        return None
    return fd


class Bell:
    """One loop's inotify watch on the log. It stays for as long as the loop: a file descriptor that is closed and comes again
    under the same number is lost on some loops."""

    def __init__(self, log: str, loop: asyncio.AbstractEventLoop) -> None:
        self.waiters: set[asyncio.Future[None]] = set()
        self.fd = inotify(log)
        self.written_at = loop.time()
        """When it last rang, on the loop's clock; what was written before it listened may have been just then."""
        if self.fd is not None:
            loop.add_reader(self.fd, self._written)
            weakref.finalize(self, os.close, self.fd)

    def _written(self) -> None:
        assert self.fd is not None
        with suppress(BlockingIOError):
            os.read(self.fd, 4096)
        self.written_at = asyncio.get_running_loop().time()
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)


class LogWatch:
    """Wakes waiters, each on its own loop, when a process writes to the log."""

    def __init__(self, log: str, version: Callable[[], object]) -> None:
        self._log = log
        self._version = version
        self._bells: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Bell] = weakref.WeakKeyDictionary()

    @contextmanager
    def waking(self, waiter: asyncio.Future[None]) -> Iterator[None]:
        """The waiter is woken by what is written from now on."""
        loop = asyncio.get_running_loop()
        bell = self._bells.get(loop)
        if bell is None:
            bell = self._bells[loop] = Bell(self._log, loop)
        bell.waiters.add(waiter)
        quiet = bell.fd is not None and loop.time() - bell.written_at > NOT_LONG_AGO
        looks = None if quiet else _Looks(self._version, waiter, rings=bell.fd is not None)
        try:
            yield
        finally:
            if looks is not None:
                looks.timer.cancel()
            bell.waiters.discard(waiter)


class _Looks:
    """Looks again and again where there is no inotify; where there is, a few times at growing distances."""

    def __init__(self, version: Callable[[], object], waiter: asyncio.Future[None], *, rings: bool) -> None:
        self._version = version
        self._waiter = waiter
        self._rings = rings
        self._seen = version()
        self._pause = FIRST_LOOK if rings else CHANGE_LOOK_EVERY_S
        self.timer = waiter.get_loop().call_later(self._pause, self._look)

    def _look(self) -> None:
        if self._waiter.done():
            return
        if self._version() != self._seen:
            self._waiter.set_result(None)
            return
        if self._rings:
            self._pause *= 2
        if self._pause <= LAST_LOOK:
            self.timer = self._waiter.get_loop().call_later(self._pause, self._look)
