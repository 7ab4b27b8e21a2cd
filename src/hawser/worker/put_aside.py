"""Jobs that this process had to put aside: each crashed a process before, so it runs in a child process, and none was free.

They are not asked for again before one is free. A crowd of them would be claimed and put aside over and over else: 1,000 of them
were 333 claims a second, for nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

PUT_ASIDE: Final = 3.0
"""Seconds for which a job is put aside."""

PUT_ASIDE_BEYOND: Final = 30.0
"""The same of one that is not remembered here: it will be claimed again to find out that it cannot start."""

MOST_PUT_ASIDE: Final = 1_000
"""Jobs that are remembered: each claim names them all."""

EARLY: Final = 0.5
"""Seconds before the time of a job is over from which it is left to others. Until then the store gives it to nobody, and a claim
that leaves nothing is cheaper."""

ASKED_FOR: Final = 1.0
"""Seconds in which a job comes that may be claimed here again. After them another process has it, or it is over."""


class PutAside:
    """Belongs to one process. The first that were put aside are the first to be asked for, as many as can start."""

    def __init__(self, can_start: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        self._can_start = can_start
        self._clock = clock
        self._due: dict[str, float] = {}
        """When the time of each is over, by id, in that order."""
        self._asked: dict[str, float] = {}
        """Those that the next claim may bring, and since when."""

    def __bool__(self) -> bool:
        return bool(self._due)

    def add(self, id: str) -> float:
        """It could not start: for how many seconds it is put aside."""
        self.remove(id)
        if len(self._due) >= MOST_PUT_ASIDE:
            return PUT_ASIDE_BEYOND
        self._due[id] = self._clock() + PUT_ASIDE
        return PUT_ASIDE

    def remove(self, id: str) -> None:
        """It is here."""
        self._due.pop(id, None)
        self._asked.pop(id, None)

    def left(self) -> frozenset[str]:
        """Those that the next claim leaves to others."""
        if not self._due:
            return frozenset()
        now, places = self._clock(), self._can_start()
        for id in [id for id, since in self._asked.items() if since + ASKED_FOR < now]:
            self.remove(id)
        if not places:
            self._asked.clear()
        for id, due in self._due.items():
            if len(self._asked) >= places or due > now:
                break
            self._asked.setdefault(id, now)
        return frozenset(id for id, due in self._due.items() if due - EARLY <= now and id not in self._asked)

    def asks_in(self) -> float | None:
        """Seconds until one more of them is asked for; None when that takes a child process first, or all are asked for."""
        if not self._due or len(self._asked) >= self._can_start():
            return None
        soonest = min((due for id, due in self._due.items() if id not in self._asked), default=None)
        return None if soonest is None else max(0.0, soonest - self._clock())
