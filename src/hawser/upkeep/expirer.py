"""Cancels jobs that are too late where no claim meets them: in paused queues, behind limits and other jobs."""

from __future__ import annotations

import random
from typing import Final

from hawser.store import ExpiryStore

EXPIRED_PER_STEP: Final = 500
"""Jobs a step: few enough that no other call waits long for it."""

EXPIRE_EVERY_S: Final = 2.0
BETWEEN_STEPS_S: Final = 0.05
"""Seconds between two steps while there are more."""


class Expirer:
    """Looks every few seconds, with jitter. Any number of processes may do so: each job is cancelled once."""

    def __init__(self, store: ExpiryStore) -> None:
        self._store = store

    async def turn(self) -> float:
        cancelled = await self._store.expire(EXPIRED_PER_STEP)
        return BETWEEN_STEPS_S if cancelled == EXPIRED_PER_STEP else random.uniform(0.5, 1.0) * EXPIRE_EVERY_S  # noqa: S311
