"""How many jobs may wait in a queue that has no limit of its own, when they come over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from hawser.errors import QueueFull

if TYPE_CHECKING:
    from hawser.job import NewJob
    from hawser.store import Store

DEPTHS_FRESH_FOR_S: Final = 2.0
"""Seconds after which the figures are read again, beside the requests. Between two readings the jobs put in here are added."""

AGAIN_AFTER: Final = 0.2
"""Seconds after which a queue that looks full is worth another reading, for which the request waits."""


class DepthGuard:
    """Refuses jobs for a queue that is too long. A queue with a limit of its own is left to the store.

    Several servers on one store see each other's jobs at the next reading only: together they may go beyond the limit by what
    they take in two seconds.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._waiting: dict[str, int] = {}
        self._limited: frozenset[str] = frozenset()
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def check(self, store: Store, jobs: Sequence[NewJob]) -> None:
        """Count the jobs in, or raise `QueueFull`."""
        age = self._clock() - self._read_at
        wanted: dict[str, int] = {}
        for job in jobs:
            wanted[job.queue] = wanted.get(job.queue, 0) + 1
        if age == float("inf") or (age > AGAIN_AFTER and self._full(wanted) is not None):
            await asyncio.shield(self._read(store))
        elif age > DEPTHS_FRESH_FOR_S:
            self._read(store)
        if (queue := self._full(wanted)) is not None:
            raise QueueFull(queue, self._waiting.get(queue, 0), self._most)
        for queue, count in wanted.items():
            self._waiting[queue] = self._waiting.get(queue, 0) + count

    def _full(self, wanted: dict[str, int]) -> str | None:
        for queue, count in wanted.items():
            if queue not in self._limited and self._waiting.get(queue, 0) + count > self._most:
                return queue
        return None

    def _read(self, store: Store) -> asyncio.Task[None]:
        """The reading that is under way, or a new one."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._look(store), name="hawser-depths")
            # One that fails beside the requests is tried again by the next request.
            self._reading.add_done_callback(lambda reading: reading.cancelled() or reading.exception())
        return self._reading

    async def _look(self, store: Store) -> None:
        asked_at = self._clock()
        limits = await store.limits()
        figures = await store.queues()
        self._limited = frozenset(use.target.name for use in limits if use.limit.max_depth is not None)
        self._waiting = {queue: each.ready + each.scheduled + each.retrying + each.held for queue, each in figures.items()}
        self._read_at = asked_at
