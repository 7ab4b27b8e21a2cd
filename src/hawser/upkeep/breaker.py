"""Opens the breakers of tasks whose attempts fail, and closes those whose probe was done. Any number of processes may do so."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Final

from hawser.job import State
from hawser.store import Store
from hawser.store.breakers import ENDS, AttemptCount, BreakerStatus, BreakerVerdict, counted_in
from hawser.store.rollup import EventCount

_logger = logging.getLogger("hawser.worker")

EVERY: Final = 2.0
IDLE: Final = 10.0
"""Seconds between two looks, with breakers and without any."""

MINUTE: Final = 60.0


class BreakerJudge:
    """Looks at what was counted and at probes, and says what follows; the store takes it once."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def turn(self) -> float:
        statuses = await self._store.breakers()
        judged = [status for status in statuses if status.rule is not None and not status.by_hand]
        if not judged:
            return IDLE
        verdicts = [verdict for status in judged if (verdict := await self._verdict(status)) is not None]
        if verdicts:
            for verdict, written in zip(verdicts, await self._store.judge(verdicts), strict=True):
                if written:
                    _tell(verdict)
        return EVERY

    async def _verdict(self, status: BreakerStatus) -> BreakerVerdict | None:
        assert status.rule is not None
        # The tallies are by the minute: at least the window, and up to a minute more.
        counts = await self._store.event_counts(math.ceil(status.rule.window / MINUTE) + 1, ENDS)
        if status.open:
            return await self._closing(status, counts)
        ended, failed = _since_it_closed(status, counts)
        if ended < status.rule.least or failed < status.rule.share * ended:
            return None
        return BreakerVerdict(task=status.task, revision=status.revision, open=True, failed=failed, attempts=ended)

    async def _closing(self, status: BreakerStatus, counts: Sequence[EventCount]) -> BreakerVerdict | None:
        """Only the probe is asked: at a share of 80 % every fifth of the runs that were under way would close it."""
        if status.probe is None:
            return None
        job = await self._store.get(status.probe.id)
        # A job that is gone was done: only those may be removed at once.
        if job is not None and not (job.state is State.DONE and job.lease == status.probe.lease):
            return None
        minutes = [each.minute for each in counts if each.task == status.task]
        counted = counted_in(counts, status.task, max(minutes)) if minutes else AttemptCount()
        return BreakerVerdict(task=status.task, revision=status.revision, open=False, counted=counted)


def _since_it_closed(status: BreakerStatus, counts: Sequence[EventCount]) -> tuple[int, int]:
    """Attempts that have ended and those that failed, without those that were counted when the breaker closed last."""
    last = status.counted
    minutes = {each.minute for each in counts if each.task == status.task and each.minute >= last.minute}
    counted = [counted_in(counts, status.task, minute) for minute in minutes]
    before = last if last.minute in minutes else AttemptCount()
    return sum(each.ended for each in counted) - before.ended, sum(each.failed for each in counted) - before.failed


def _tell(verdict: BreakerVerdict) -> None:
    if verdict.open:
        share = verdict.failed / verdict.attempts
        _logger.warning("breaker of task %s opened: %.0f %% of %d attempts failed", verdict.task, 100 * share, verdict.attempts)
    else:
        _logger.warning("breaker of task %s closed: a probe was done", verdict.task)
