"""Takes back the runs whose leases ran out."""

from __future__ import annotations

import logging
import random
from typing import Final

from hawser.store import JobStore
from hawser.telemetry.events import Events, tell
from hawser.telemetry.reporter import Reporter

_logger = logging.getLogger("hawser.worker")

BATCH: Final = 500


class Reclaimer:
    """Looks once in a while, with jitter, so that many workers do not look at the same moment."""

    def __init__(self, store: JobStore, every: float, events: Events) -> None:
        self._store = store
        self._every = every
        self._events = events
        self._reporter = Reporter()

    async def turn(self) -> float:
        runs = await self._store.reclaim(BATCH)
        if runs:
            _logger.warning(
                "reclaimed %d runs whose leases ran out (first: job %s of worker %s)", len(runs), runs[0].id, runs[0].worker
            )
            self._reporter.report_reclaimed(runs)
            tell(self._events.reclaimed, runs)
        return 0.0 if len(runs) == BATCH else random.uniform(0.5, 1.0) * self._every  # noqa: S311
