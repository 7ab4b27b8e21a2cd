"""Wakes tasks that wait for work, on any event loop."""

from __future__ import annotations

import asyncio
import threading


class Wakeups:
    """A signal that any thread may give and any loop may wait for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: set[asyncio.Future[None]] = set()

    def join(self) -> asyncio.Future[None]:
        """Start to listen, on the running loop; every `join` is followed by one `leave`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._waiters.add(waiter)
        return waiter

    def leave(self, waiter: asyncio.Future[None]) -> None:
        with self._lock:
            self._waiters.discard(waiter)
        waiter.cancel()

    def ring(self) -> None:
        """Wake all who listen."""
        if not self._waiters:
            return
        with self._lock:
            waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            loop = waiter.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake, waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
