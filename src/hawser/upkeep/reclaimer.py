"""Takes back the runs whose leases ran out."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Final

from hawser.cycle import STORE_LONGEST_WAIT_S
from hawser.errors import StoreError
from hawser.store import RECLAIM_WITHIN, JobStore
from hawser.telemetry.events import Events, tell
from hawser.telemetry.reporter import Reporter

_logger = logging.getLogger("hawser.worker")

RECLAIMED_PER_CALL: Final = 500

AWAY_AFTER_S: Final = 2.0
"""Seconds without an answer, beyond the usual time between two looks, after which the store counts as having been away."""

HOLD_OFF: Final = STORE_LONGEST_WAIT_S + 3.0
"""Seconds for which nothing is reclaimed after the store was away, at the most. Its workers try again within
STORE_LONGEST_WAIT_S: each then writes the outcomes that waited and holds its leases again, so that an outage costs no finished
work."""

MOST_HOLDS: Final = 3
"""Times in a row. A store that is away again and again must not keep lost runs for ever."""


class Reclaimer:
    """Looks once in a while, with jitter, so that many workers do not look at the same moment."""

    def __init__(self, store: JobStore, every: float, events: Events, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._every = every
        self._events = events
        self._clock = clock
        self._reporter = Reporter()
        self._heard = clock()
        """When the store last answered; when the next look is due, while it holds off."""
        self._holds = 0
        self._raised = False
        """Whether the last look found the store away."""

    async def turn(self) -> float:
        """Take back what has run out; seconds to wait before the next look."""
        asked = self._clock()
        if (self._raised or asked - self._heard > self._every + AWAY_AFTER_S) and self._holds < MOST_HOLDS:
            await self._store.reclaim(0)  # raises as long as it is away
            return self._hold_off()
        try:
            runs = await self._store.reclaim(RECLAIMED_PER_CALL)
        except StoreError:
            self._raised = True
            raise
        self._heard = self._clock()
        if runs:
            unrenewed = sum(not run.renewed for run in runs)
            _logger.warning(
                "reclaimed %d runs whose leases ran out, %d of them never renewed (first: job %s of worker %s)",
                *(len(runs), unrenewed, runs[0].id, runs[0].worker),
            )
            self._reporter.report_reclaimed(runs)
            tell(self._events.reclaimed, runs)
        elif self._heard - asked > RECLAIM_WITHIN and self._holds < MOST_HOLDS:
            return self._hold_off()
        self._holds = 0
        return 0.0 if len(runs) == RECLAIMED_PER_CALL else random.uniform(0.5, 1.0) * self._every  # noqa: S311

    def _hold_off(self) -> float:
        """Others try again after no longer than it was away: after a short outage there is less to wait for."""
        now = self._clock()
        wait = min(HOLD_OFF, 2 * (now - self._heard) + 1.0)
        self._holds += 1
        self._raised = False
        self._heard = now + wait
        return wait
