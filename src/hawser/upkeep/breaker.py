"""Opens the breakers of tasks whose attempts fail, and closes those whose probe was done. Any number of processes may do so."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Final

from hawser.job import State
from hawser.store import LeaseRef, Store
from hawser.store.breakers import COUNTED_ENDS, AttemptCount, BreakerStatus, BreakerVerdict, counted_in
from hawser.store.rollup import EventCount

_logger = logging.getLogger("hawser.worker")

BREAKERS_LOOK_EVERY_S: Final = 2.0
NO_BREAKERS_LOOK_EVERY_S: Final = 15.0
"""Seconds between two looks, with breakers and without any."""

MINUTE_S: Final = 60.0

NO_PERSONS: Final = ("breaker", "code")
"""Who opens and closes breakers besides persons."""


class BreakerJudge:
    """Looks at what was counted and at probes, and says what follows; the store takes it once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[str, BreakerStatus] | None = None

    async def turn(self) -> float:
        statuses = await self._store.breakers()
        self._tell_what_people_did({status.task: status for status in statuses})
        judged = [status for status in statuses if status.rule is not None and not status.by_hand]
        if not judged:
            return NO_BREAKERS_LOOK_EVERY_S
        verdicts = [verdict for status in judged if (verdict := await self._verdict(status)) is not None]
        if verdicts:
            for verdict, written in zip(verdicts, await self._store.judge(verdicts), strict=True):
                if written:
                    _tell(verdict)
        return BREAKERS_LOOK_EVERY_S

    def _tell_what_people_did(self, now: dict[str, BreakerStatus]) -> None:
        """A person may open and close breakers anywhere: every judge that notices it says so."""
        before, self._seen = self._seen, now
        for task, status in now.items() if before is not None else ():
            was_open, was_by_hand = (seen.open, seen.by_hand) if (seen := (before or {}).get(task)) else (False, False)
            if status.open and status.by_hand and not was_by_hand:
                _logger.warning("breaker of task %s opened by %s, until a person closes it", task, status.by)
            elif was_open and not status.open and status.by not in NO_PERSONS:
                _logger.warning("breaker of task %s closed by %s", task, status.by)
        for task, status in before.items() if before is not None else ():
            if status.by_hand and task not in now:
                _logger.warning("breaker of task %s closed by a person", task)

    async def _verdict(self, status: BreakerStatus) -> BreakerVerdict | None:
        assert status.rule is not None
        # The tallies are by the minute: at least the window, and up to a minute more.
        counts = await self._store.event_counts(math.ceil(status.rule.window / MINUTE_S) + 1, COUNTED_ENDS)
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
        if not await self._was_done(status.task, status.probe):
            return None
        minutes = [each.minute for each in counts if each.task == status.task]
        counted = counted_in(counts, status.task, max(minutes)) if minutes else AttemptCount()
        return BreakerVerdict(task=status.task, revision=status.revision, open=False, counted=counted)

    async def _was_done(self, task: str, probe: LeaseRef) -> bool:
        job = await self._store.get(probe.id)
        if job is not None:
            return job.state is State.DONE and job.lease == probe.lease
        # A probe whose job is gone was done if it is named still. It may have been removed, dead, since the breakers were read.
        return any(status.probe == probe for status in await self._store.breakers() if status.task == task)


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
