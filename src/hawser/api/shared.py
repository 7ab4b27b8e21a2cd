"""One answer for many callers: what is costly to find out is found out once, however many screens ask for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MOST_ANSWERS_KEPT: Final = 256
"""Different questions whose answers are kept: names of queues come from callers."""


class Shared(Generic[T]):
    """Keeps answers for a moment. Callers that ask while one is being found wait for the same one."""

    def __init__(self, fresh_for: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._fresh_for = fresh_for
        self._clock = clock
        self._found: dict[Hashable, tuple[float, asyncio.Future[T]]] = {}

    async def get(self, key: Hashable, find: Callable[[], Awaitable[T]]) -> T:
        """The answer to a question; at most `fresh_for` seconds old."""
        now = self._clock()
        known = self._found.get(key)
        if known is not None and (now - known[0] < self._fresh_for or not known[1].done()) and not _failed(known[1]):
            return await asyncio.shield(known[1])
        self._forget(now)
        future = asyncio.ensure_future(find())
        self._found[key] = (now, future)
        return await asyncio.shield(future)

    def _forget(self, now: float) -> None:
        if len(self._found) >= MOST_ANSWERS_KEPT:
            self._found = {key: each for key, each in self._found.items() if now - each[0] < self._fresh_for}


def _failed(future: asyncio.Future[T]) -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)
