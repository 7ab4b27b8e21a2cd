"""The requests that callers may repeat."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from hawser.clock import to_us
from hawser.errors import RequestConflict
from hawser.store import REQUEST_KEPT, Enqueued, RequestKey

REQUEST_LOOK_EVERY_US = to_us(3_600)
"""Between two looks at a request whose jobs outlive it."""


class Requests:
    """What was answered to each. A request is forgotten when its time is over and none of its jobs is kept."""

    def __init__(self, is_kept: Callable[[str], bool]) -> None:
        self._is_kept = is_kept
        self._made: dict[tuple[str, str], tuple[bytes, list[str], int]] = {}
        self._ends: list[tuple[int, tuple[str, str]]] = []

    def knows(self, request: RequestKey, now: int) -> bool:
        """Whether its caller gave this key to a request before."""
        _, jobs, until = self._made.get((request.caller, request.key), (b"", [], -1))
        return until > now or any(map(self._is_kept, jobs))

    def recall(self, request: RequestKey, now: int) -> list[Enqueued] | None:
        """What was answered the first time; None when this is the first time."""
        if not self.knows(request, now):
            return None
        digest, jobs, _ = self._made[request.caller, request.key]
        if digest != request.digest:
            raise RequestConflict(request.key)
        return [Enqueued(id, created=False) for id in jobs]

    def remember(self, request: RequestKey, answers: Sequence[Enqueued], now: int) -> None:
        name, until = (request.caller, request.key), now + to_us(REQUEST_KEPT)
        self._made[name] = request.digest, [answer.id for answer in answers], until
        heapq.heappush(self._ends, (until, name))

    def forget(self, now: int, limit: int) -> None:
        """Let go of some that are over."""
        while limit and self._ends and self._ends[0][0] <= now:
            limit -= 1
            until, name = heapq.heappop(self._ends)
            digest, jobs, current = self._made.get(name, (b"", [], -1))
            if current != until:
                continue
            if any(map(self._is_kept, jobs)):
                self._made[name] = digest, jobs, now + REQUEST_LOOK_EVERY_US
                heapq.heappush(self._ends, (now + REQUEST_LOOK_EVERY_US, name))
            else:
                del self._made[name]

    def __len__(self) -> int:
        return len(self._made)
