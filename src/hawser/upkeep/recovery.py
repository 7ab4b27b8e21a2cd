"""Goes on with jobs that wait for others, where the process died that was to do so."""

from __future__ import annotations

import random
from typing import Final

from hawser.store import GO_ON_WITHIN, DependencyStore

UNUSED_LOOK_S: Final = 1.0
"""Seconds between two looks whether jobs wait for others here; such a look asks the store nothing."""


class Recovery:
    """Looks within the time that the store promises, with jitter, however long a lease lasts. Any number of processes may do so:
    each job is released once. Where no job waits for others, such a look asks the store nothing."""

    def __init__(self, store: DependencyStore) -> None:
        self._store = store

    async def turn(self) -> float:
        """Go on with what was left; seconds to wait before the next look."""
        wanted = await self._store.go_on()
        return random.uniform(0.5, 0.9) * GO_ON_WITHIN if wanted else UNUSED_LOOK_S  # noqa: S311
