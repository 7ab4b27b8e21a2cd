"""Events, and who waits for them, in dicts."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from hawser.store import OPEN_KINDS

KeptEvent = tuple[int, bytes, int]
"""When it came, what it says, and until when it is kept at least."""


class KeptEvents:
    """Events that have come, and the open waits by event and by deadline."""

    def __init__(self) -> None:
        self.kept: dict[str, KeptEvent] = {}
        self._waiters: dict[str, dict[str, str]] = {}
        """By event: the jobs that wait for it or have not gone on yet, each with the name of its step."""
        self._deadlines: list[tuple[int, str, str]] = []
        """A heap. Waits that are over are passed over."""

    def came(self, name: str | None) -> tuple[int, bytes] | None:
        """When an event came, and what it says."""
        event = self.kept.get(name) if name is not None else None
        return None if event is None else event[:2]

    def waits(self, id: str, step: tuple[Any, ...]) -> None:
        """From now on a job waits as the step says."""
        name, until, event = step[0], step[5], step[6]
        if event is not None:
            self._waiters.setdefault(event, {})[id] = name
        if until is not None:
            heapq.heappush(self._deadlines, (until, id, name))

    def waits_no_more(self, id: str, step: tuple[Any, ...]) -> None:
        """A step of a job came to something, or goes."""
        event = step[6]
        if step[1] in OPEN_KINDS and event is not None and (waiters := self._waiters.get(event)) is not None:
            waiters.pop(id, None)
            if not waiters:
                del self._waiters[event]

    def waiters(self, name: str) -> list[tuple[str, str]]:
        return list(self._waiters.get(name, {}).items())

    def all_waiters(self) -> Iterator[tuple[str, str]]:
        for waiters in self._waiters.values():
            yield from waiters.items()

    def overdue(self, now: int) -> Iterator[tuple[str, str]]:
        """Waits whose time is over, each once."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, id, name = heapq.heappop(self._deadlines)
            yield id, name

    def any_overdue(self, now: int) -> bool | None:
        """Whether the time of a wait may be over; None when there is none that ends."""
        return self._deadlines[0][0] <= now if self._deadlines else None

    def forget(self, now: int) -> None:
        """Events that were kept for long enough, and that no job has to go on with."""
        for name in [name for name, event in self.kept.items() if event[2] <= now and name not in self._waiters]:
            del self.kept[name]
