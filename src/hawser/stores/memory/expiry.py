"""When jobs of the memory store are too late."""

from __future__ import annotations

import heapq
from collections.abc import Iterator


class Expiries:
    """The jobs that wait and expire, by their times. What has ended stays as a stale entry until most are stale."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._times: list[tuple[int, str]] = []

    def __bool__(self) -> bool:
        return bool(self._at)

    def add(self, id: str, expires_at: int) -> None:
        """The job waits."""
        if id not in self._at:
            self._at[id] = expires_at
            heapq.heappush(self._times, (expires_at, id))

    def drop(self, id: str) -> None:
        """The job has ended, or expires no longer."""
        self._at.pop(id, None)
        if len(self._times) > 2 * len(self._at) + 64:
            self._times = [(at, id) for id, at in self._at.items()]
            heapq.heapify(self._times)

    def past(self, now: int) -> Iterator[str]:
        """The jobs that are past their expiry, each once: one that runs meanwhile is added again when it waits again."""
        while self._times and self._times[0][0] <= now:
            at, id = heapq.heappop(self._times)
            if self._at.get(id) == at:
                del self._at[id]
                yield id
