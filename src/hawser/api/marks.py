"""Marks in the charts: what operators did, which versions of the app began to work, which workers were lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from hawser.api.facts import StoreState
from hawser.api.figures import Mark
from hawser.api.series import HISTORY_MINUTES
from hawser.client.explain import is_alive
from hawser.clock import Clock, at
from hawser.store import MAX_PAGE, AuditRecord, Store
from hawser.upkeep.deploy import DEPLOY, DEPLOYS_READ

MOST_MARKS: Final = 20
"""Of each kind, the newest: actions on jobs, of which there can be many, leave room for pauses and deploys."""

CONTROLS: Final = ("pause", "resume", "set_limit", "clear_limit", "open_breaker", "close_breaker", "set_policy")
"""Actions that are marks, whatever else was done meanwhile."""

ON_JOBS: Final = frozenset(("requeue", "discard", "cancel"))
"""Actions that are marks when they are on many jobs."""

READ_AGAIN: Final = 100
"""Records that are read again at each look: one may be written after another with a higher number."""

MOST_PAGES: Final = 20
"""Pages that the first look reads. Where that is not enough, controls are looked for by their names."""

CONTROLS_KEPT: Final = 100
"""Of each name, when they are looked for so."""

MOST_DEPLOYS: Final = 200
"""Records of deploys that are remembered, the newest."""


class Marks:
    """The records that make marks, remembered by one server: the first look reads a day of them, later ones what is new."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: dict[int, AuditRecord] = {}
        self._deploys: dict[int, AuditRecord] = {}
        self._newest: int | None = None
        self._reading = asyncio.Lock()

    async def since(self, store: Store, since: datetime) -> list[Mark]:
        """What operators did, without who and why: those stand in the audit, which takes a role of its own."""
        await self._read(store)
        found = sorted((each for each in self._found.values() if each.at >= since), key=lambda each: each.number)
        controls = [_mark(each) for each in found if each.action in CONTROLS]
        deploys = [_mark(each) for each in self._changes if each.at >= since]
        on_jobs = _one_each([each for each in found if each.action in ON_JOBS])
        return [*controls[-MOST_MARKS:], *deploys[-MOST_MARKS:], *on_jobs[-MOST_MARKS:]]

    async def newest_deploy(self, store: Store) -> AuditRecord | None:
        """When the version of the app that works now began to."""
        await self._read(store)
        return self._changes[-1] if self._deploys else None

    async def _read(self, store: Store) -> None:
        async with self._reading:
            oldest = at(self._clock.now()) - timedelta(minutes=HISTORY_MINUTES)
            if self._newest is not None:
                await self._read_back(store, oldest, self._newest - READ_AGAIN, 2 * READ_AGAIN)
            else:
                self._keep(await store.audit(DEPLOYS_READ, None, DEPLOY))
                if not await self._read_back(store, oldest, 0, MAX_PAGE):
                    for action in CONTROLS:
                        self._keep(await store.audit(CONTROLS_KEPT, None, action))
            self._found = {number: each for number, each in self._found.items() if each.at >= oldest}

    async def _read_back(self, store: Store, oldest: datetime, known: int, size: int) -> bool:
        """From the newest record back to one that is old or known; False when there are too many between."""
        before: int | None = None
        for _ in range(MOST_PAGES):
            page = await store.audit(size, before)
            self._keep(page)
            if before is None:
                self._newest = page[0].number if page else 0
            if len(page) < size or page[-1].number <= known or page[-1].at < oldest:
                return True
            before = page[-1].number
        return False

    def _keep(self, records: Sequence[AuditRecord]) -> None:
        for each in records:
            if each.action == DEPLOY:
                self._deploys[each.number] = each
            elif each.action in CONTROLS or (each.action in ON_JOBS and (each.operation is not None or each.target == "jobs")):
                self._found[each.number] = each
        for number in sorted(self._deploys)[:-MOST_DEPLOYS]:
            del self._deploys[number]

    @property
    def _changes(self) -> list[AuditRecord]:
        """Deploys that brought another version than the one before: processes that start together may each have noted theirs."""
        deploys = [self._deploys[number] for number in sorted(self._deploys)]
        return deploys[:1] + [each for before, each in pairwise(deploys) if before.target != each.target]


def _mark(record: AuditRecord) -> Mark:
    return Mark(at=record.at, action=record.action, target=record.target)


def _one_each(records: Sequence[AuditRecord]) -> list[Mark]:
    """One for each operation, at its begin, and one for each action of its own on several jobs."""
    marks: dict[str | int, Mark] = {}
    for each in records:
        marks.setdefault(each.operation or each.number, Mark(at=each.at, action=each.action, target="jobs"))
    return list(marks.values())


def of_workers(seen: StoreState, since: datetime) -> list[Mark]:
    """When a version of Hawser was first seen among the workers that are known, if another one was there before; and who was
    lost."""
    first: dict[str, datetime] = {}
    for each in seen.workers:
        first[each.beat.version] = min(each.since, first.get(each.beat.version, each.since))
    oldest = min(first.values(), default=since)
    later = {version: began for version, began in first.items() if began > max(oldest, since)}
    marks = [Mark(at=began, action="upgrade", target=f"Hawser {version}") for version, began in later.items()]
    gone = [each for each in seen.workers if not is_alive(each, seen.now) and each.seen_at >= since]
    return [*marks, *(Mark(at=each.seen_at, action="lost", target=f"worker:{each.beat.worker}") for each in gone[:MOST_MARKS])]
