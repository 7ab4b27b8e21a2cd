"""Cancels jobs that are too late where no claim meets them: in paused queues, behind limits and other jobs."""

from __future__ import annotations

import random
from typing import Final

from hawser.store import ExpiryStore

BATCH: Final = 500
"""Jobs a step: few enough that no other call waits long for it."""

EVERY: Final = 2.0
BETWEEN: Final = 0.05
"""Seconds between two steps while there are more."""


class Expirer:
    """Looks every few seconds, with jitter. Any number of processes may do so: each job is cancelled once."""

    def __init__(self, store: ExpiryStore) -> None:
        self._store = store

    async def turn(self) -> float:
        cancelled = await self._store.expire(BATCH)
        return BETWEEN if cancelled == BATCH else random.uniform(0.5, 1.0) * EVERY  # noqa: S311
