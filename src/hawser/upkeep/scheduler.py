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

SCHEDULES_PER_WRITE: Final = 1_000
"""Schedules that are fired in one write: few enough that no other call waits long for it."""

SCHEDULES_PER_READ: Final = 4 * SCHEDULES_PER_WRITE
"""Schedules that are read at once, and fired in several writes."""

SENT_WITHIN: Final = 0.001
"""Seconds in which a batch is on its way to the store, so that planning the next does not hold it up."""

STAY_BACK_S: Final = 0.8
"""Seconds that a scheduler stays back, at the most, when others have fired most of what it was about to: how late a tick may be
when they end in the midst of it."""

FIRST_STAY_BACK_S: Final = 0.1
"""The same when it meets others for the first time. Doubled each time."""

SCHEDULES_TRIED: Final = 10
"""Schedules that one which met others fires first, to see whether they are at it again."""

SCHEDULES_LOOK_EVERY_S: Final = 1.0
"""Seconds between two looks: how late the first tick of a schedule may be that was just created."""

SPREAD: Final = 0.02
"""Seconds by which schedulers that wait for the same tick come apart, so that most of them find it fired. Doubled each time
that one meets others."""

MOST_SPREAD: Final = 0.5

MOST_MET: Final = 5
"""Doublings of both."""

DECLARE_EVERY: Final = DECLARED_FOR / 3


class Scheduler:
    """Looks when the next tick is due, once a second at least. Any number may run at once: the store lets one of them through.

    One that finds most of what it fires fired by others comes later the next time and tries a few first, so that a hundred do not
    each read and plan all. One that is left alone comes earlier again. Each finds that out for itself, so no leader can be lost.
    """

    def __init__(self, store: ScheduleStore) -> None:
        self._store = store
        self._met = 0
        """How often others were there before it, less the ticks at which they were not."""
        self._leads = False
        """Whether it fired most of what it was about to since the tick."""

    async def turn(self) -> float:
        tries = self._met > 0 and not self._leads
        due = await self._store.due_schedules(SCHEDULES_TRIED if tries else SCHEDULES_PER_READ)
        if due.schedules:
            self._leads = not _mostly_stale(await self._fire(due))
            if self._leads:
                return 0.0
            self._met = min(self._met + 1, MOST_MET)
            longest = min(STAY_BACK_S, FIRST_STAY_BACK_S * 2 ** (self._met - 1))
            return random.uniform(longest / 2, longest)  # noqa: S311  # as below
        if self._leads:
            self._leads, self._met = False, max(0, self._met - 1)
        wait = SCHEDULES_LOOK_EVERY_S if due.next_in is None else min(SCHEDULES_LOOK_EVERY_S, due.next_in)
        return wait + random.uniform(0.0, min(MOST_SPREAD, SPREAD * 2**self._met))  # noqa: S311  # spreads load, keeps no secret

    async def _fire(self, due: DueSchedules) -> list[Advanced]:
        """In batches: while one is being written, the next is planned. When most of one were stale, the rest is left alone."""
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
            planned = [] if _mostly_stale(answers) else following
        return said


def _mostly_stale(answers: Sequence[Advanced]) -> bool:
    return 2 * answers.count(Advanced.STALE) > len(answers)


def _plan(due: DueSchedules, begin: int) -> list[Advance]:
    return [_planned(schedule, due.now) for schedule in due.schedules[begin : begin + SCHEDULES_PER_WRITE]]


def _planned(schedule: Schedule, now: int) -> Advance:
    """A rule that this machine cannot follow must not keep the others from firing."""
    try:
        return plan(schedule, now)
    except Exception as error:  # noqa: BLE001  # a rule of another version, or a zone of another machine, may raise anything
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
