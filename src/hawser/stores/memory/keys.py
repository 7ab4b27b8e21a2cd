"""Who holds which deduplication key."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from hawser.clock import to_us
from hawser.job import FOREVER

if TYPE_CHECKING:
    from hawser.job import NewJob

SWEEP = 4
"""Run-out keys removed at each keyed enqueue: more than one, so they cannot pile up."""


class Keys:
    """Holders by (queue, key). A hold ends when its job is over, when its window is, or never while the job is kept."""

    def __init__(self) -> None:
        self._holders: dict[tuple[str, str], tuple[str, int | None]] = {}
        self._windows: list[tuple[int, str, str, str]] = []
        self._held: dict[str, int] = {}

    def holder(self, queue: str, key: str, now: int) -> str | None:
        """The id of the job that holds the key now."""
        found = self._holders.get((queue, key))
        if found is None:
            return None
        id, until = found
        return id if until is None or until > now else None

    def take(self, job: NewJob, enqueued_at: int) -> None:
        """Give the job its key; nobody may hold it."""
        assert job.key is not None
        until = None if job.key_ttl in (0, FOREVER) else enqueued_at + to_us(job.key_ttl)
        if (job.queue, job.key) not in self._holders:
            self._held[job.queue] = self._held.get(job.queue, 0) + 1
        self._holders[job.queue, job.key] = (job.id, until)
        if until is not None:
            heapq.heappush(self._windows, (until, job.queue, job.key, job.id))

    def free(self, job: NewJob) -> None:
        """End a hold of this job that is not a window."""
        assert job.key is not None
        if self._holders.get((job.queue, job.key)) == (job.id, None):
            self._drop(job.queue, job.key)

    def sweep(self, now: int, limit: int) -> None:
        """Forget up to `limit` windows that have run out."""
        while limit and self._windows and self._windows[0][0] <= now:
            until, queue, key, id = heapq.heappop(self._windows)
            limit -= 1
            if self._holders.get((queue, key)) == (id, until):
                self._drop(queue, key)

    def count(self, queue: str) -> int:
        return self._held.get(queue, 0)

    def _drop(self, queue: str, key: str) -> None:
        del self._holders[queue, key]
        self._held[queue] -= 1
        if not self._held[queue]:
            del self._held[queue]
