"""What became of the jobs that a replay has made ready again: whether it should go on, wait, or stop by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from hawser.job import State
from hawser.store import Store
from hawser.store.bulk import StopRule

FIRST: Final = 50
"""Jobs that are made ready before enough of them have ended to judge by."""

FOLLOWED: Final = 200
"""Jobs whose ends are waited for at once; of a faster replay they are a sample."""

ENDS_LOOK_EVERY_S: Final = 0.5
"""Seconds between two looks at the ends."""


class ReplayWatch:
    """Follows the jobs of one replay, those that this process has made ready."""

    def __init__(self, rule: StopRule, clock: Callable[[], float] = time.monotonic) -> None:
        self._rule = rule
        self._clock = clock
        self._open: set[str] = set()
        self._ended = 0
        self._dead = 0
        self._looked = clock() - ENDS_LOOK_EVERY_S

    def began(self, ids: Sequence[str]) -> None:
        self._open.update(ids[: FOLLOWED - len(self._open)])

    @property
    def room(self) -> int:
        """How many more jobs may be made ready before some of the others have ended."""
        return FOLLOWED if self._ended >= self._rule.least else max(0, FIRST - len(self._open))

    async def verdict(self, store: Store) -> str | None:
        """Why to stop, if so."""
        if self._open and self._clock() - self._looked >= ENDS_LOOK_EVERY_S:
            self._looked = self._clock()
            asked = sorted(self._open)
            for id, end in zip(asked, await store.ended(asked), strict=True):
                if end is not None:
                    self._open.discard(id)
                    self._ended += 1
                    self._dead += end.state is State.DEAD
        rule = self._rule
        if self._ended < rule.least or self._dead <= rule.dead_share * self._ended:
            return None
        return f"stopped by itself: {self._dead:,} of the first {self._ended:,} jobs died again ({self._dead / self._ended:.0%})"
