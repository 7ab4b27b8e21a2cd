"""The schedules of the memory store, by name and by when they are due."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from hawser.clock import to_us
from hawser.store.schedules import DECLARED_FOR, DueSchedules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hawser.schedule.declaration import Declaration
    from hawser.schedule.schedule import Schedule

_KEPT = to_us(DECLARED_FOR)


class ScheduleTable:
    """The schedules of a store. A dict, and a heap whose entries are stale when the schedule has another revision by now."""

    def __init__(self) -> None:
        self._rows: dict[str, Schedule] = {}
        self._due: list[tuple[int, str, str]] = []
        self._declared: dict[str, tuple[Declaration, int]] = {}
        """In order of age, with the time of the last mention."""

    def get(self, name: str) -> Schedule | None:
        return self._rows.get(name)

    def named(self, names: Sequence[str] | None, after: str) -> list[Schedule]:
        wanted = sorted(self._rows if names is None else {*names} & self._rows.keys())
        return [self._rows[name] for name in wanted if name > after]

    def put(self, schedule: Schedule) -> None:
        self._rows[schedule.name] = schedule
        if schedule.due_us is not None:
            heapq.heappush(self._due, (schedule.due_us, schedule.name, schedule.revision))
        if len(self._due) > 2 * len(self._rows) + 64:
            self._due = [entry for entry in self._due if self._stands(entry)]
            heapq.heapify(self._due)

    def remove(self, name: str) -> bool:
        return self._rows.pop(name, None) is not None

    def due(self, limit: int, now: int) -> DueSchedules:
        taken: list[tuple[int, str, str]] = []
        while self._due and (not self._stands(self._due[0]) or (self._due[0][0] <= now and len(taken) < limit)):
            entry = heapq.heappop(self._due)
            if self._stands(entry):
                taken.append(entry)
        next_in = max(0.0, (self._due[0][0] - now) / 1_000_000) if self._due else None
        for entry in taken:
            heapq.heappush(self._due, entry)
        return DueSchedules(now, [self._rows[name] for _, name, _ in taken], next_in)

    def next(self, limit: int) -> list[Schedule]:
        standing = {entry for entry in self._due if self._stands(entry)}
        return [self._rows[name] for _, name, _ in heapq.nsmallest(limit, standing)]

    def declare(self, declaration: Declaration, now: int) -> list[Declaration]:
        living = {id: (each, min(seen, now)) for id, (each, seen) in self._declared.items()}
        self._declared = {id: (each, seen) for id, (each, seen) in living.items() if now - seen < _KEPT}
        self._declared[declaration.id] = (declaration, now)
        return [each for each, _ in self._declared.values()]

    def _stands(self, entry: tuple[int, str, str]) -> bool:
        row = self._rows.get(entry[1])
        return row is not None and row.revision == entry[2]
