"""Fires what is due, and makes the store agree with what code declares."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Final

from hawser.schedule.change import postpone
from hawser.schedule.declaration import Declaration, declaration, reconcile
from hawser.schedule.schedule import Advance, Definition, Schedule, plan
from hawser.store.schedules import DECLARED_FOR, Advanced, DueSchedules, ScheduleStore

_logger = logging.getLogger("hawser.scheduler")

BATCH: Final = 1_000
"""Schedules that are fired in one write: few enough that no other call waits long for it."""

AT_ONCE: Final = 4 * BATCH
"""Schedules that are read at once, and fired in several writes."""

SENT_WITHIN: Final = 0.001
"""Seconds in which a batch is on its way to the store, so that planning the next does not hold it up."""

BEHIND: Final = 0.1
"""Seconds that a scheduler stays back, at the most, when another has fired all that it was about to."""

LOOK_EVERY: Final = 1.0
"""Seconds between two looks: how late the first tick of a schedule may be that was just created."""

SPREAD: Final = 0.02
"""Seconds by which schedulers that wait for the same tick come apart, so that most of them find it fired."""

DECLARE_EVERY: Final = DECLARED_FOR / 6


class Scheduler:
    """Looks when the next tick is due, once a second at least. Any number may run at once: the store lets one of them through."""

    def __init__(self, store: ScheduleStore) -> None:
        self._store = store

    async def turn(self) -> float:
        due = await self._store.due_schedules(AT_ONCE)
        if due.schedules:
            answers = await self._fire(due)
            return random.uniform(0.0, BEHIND) if set(answers) == {Advanced.STALE} else 0.0  # noqa: S311  # as below
        wait = LOOK_EVERY if due.next_in is None else min(LOOK_EVERY, due.next_in)
        return wait + random.uniform(0.0, SPREAD)  # noqa: S311  # spreads load, keeps no secret

    async def _fire(self, due: DueSchedules) -> list[Advanced]:
        """In batches: while one is being written, the next is planned. When all of one were stale, the rest is left alone."""
        said: list[Advanced] = []
        planned = _plan(due, 0)
        while planned:
            firing = asyncio.ensure_future(self._store.fire(planned))
            try:
                await asyncio.sleep(SENT_WITHIN)
                following = _plan(due, len(said) + len(planned))
                answers = await firing
            except BaseException:
                firing.cancel()
                raise
            _tell(planned, answers)
            said += answers
            planned = following if set(answers) != {Advanced.STALE} else []
        return said


def _plan(due: DueSchedules, begin: int) -> list[Advance]:
    return [_planned(schedule, due.now) for schedule in due.schedules[begin : begin + BATCH]]


def _planned(schedule: Schedule, now: int) -> Advance:
    """A rule that this machine cannot follow must not keep the others from firing."""
    try:
        return plan(schedule, now)
    except Exception as error:  # noqa: BLE001  # whatever a rule of another version, or a zone of another machine, does here
        _logger.warning("schedule %s cannot be followed: %s", schedule.name, error)
        return postpone(schedule, now, str(error))


def _tell(advances: Sequence[Advance], answers: Sequence[Advanced]) -> None:
    for advance, answer in zip(advances, answers, strict=True):
        if answer is Advanced.DONE and advance.jobs:
            _logger.debug("schedule %s fired: %s", advance.schedule.name, ", ".join(job.id for job in advance.jobs))
        elif answer is Advanced.SKIPPED:
            _logger.info("schedule %s skipped a tick: its last job %s is live", advance.schedule.name, advance.unless_live)


class Declarer:
    """Says again and again what this worker's code declares, and writes what follows whenever the declarations change."""

    def __init__(self, store: ScheduleStore, definitions: Sequence[Definition]) -> None:
        self._store = store
        self._definitions = definitions
        self._declaration = declaration(definitions)
        self._agreed: list[Declaration] | None = None

    async def turn(self) -> float:
        living = await self._store.declare(self._declaration)
        if living == self._agreed:
            return DECLARE_EVERY
        # The schedules are read before the declarations: a worker that declares something newer after that changes the
        # schedules too, and then what was decided here is refused.
        known = await self._store.schedules()
        now = (await self._store.due_schedules(0)).now
        living = await self._store.declare(self._declaration)
        changes = reconcile(self._definitions, living, known, now)
        answers = await self._store.fire(changes) if changes else []
        for change, answer in zip(changes, answers, strict=True):
            if answer in (Advanced.DONE, Advanced.SKIPPED):
                _logger.info("schedule %s: %s", change.schedule.name, _word(change))
        if Advanced.STALE in answers:
            return random.uniform(0.0, 0.5)  # noqa: S311  # another worker declares the same at this moment
        self._agreed = living
        return DECLARE_EVERY


def _word(change: Advance) -> str:
    if change.schedule.retired:
        return "retired, no worker declares it any longer"
    return "declared" if change.expect is None else "declared anew"
