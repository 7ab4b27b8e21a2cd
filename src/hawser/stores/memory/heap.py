"""Waiting jobs in order of due time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hawser.stores.order import Entry

if TYPE_CHECKING:
    from hawser.stores.memory.row import Row

_Entry = tuple[int, int, int, "Row"]
"""Due time, insertion order, ticket, row: stale when the row has another ticket by now."""


class Heap:
    """One lane, by due time. What leaves the lane other than by a claim stays as a stale entry until it surfaces."""

    __slots__ = ("_entries", "_later", "_not_due", "size", "task", "waited")

    def __init__(self, task: str, *, waited: bool) -> None:
        self.task = task
        self._entries: list[_Entry] = []
        self.size = 0
        self.waited = waited
        # The same entries again, those that are not due: only for counting them.
        self._later: list[_Entry] = []
        self._not_due = 0

    def push(self, row: Row, now: int) -> None:
        row.ticket += 1
        self.size += 1
        entry = (row.run_at, row.seq, row.ticket, row)
        heapq.heappush(self._entries, entry)
        if row.run_at > now:
            row.later = True
            self._not_due += 1
            heapq.heappush(self._later, entry)

    def leave(self, row: Row) -> None:
        """The row is no longer ready; its entries are passed over from now on."""
        self._gone(row)
        self._entries = _swept(self._entries, self.size)
        self._later = _swept(self._later, self._not_due)

    @property
    def head(self) -> Entry | None:
        while self._entries and not _stands(self._entries[0]):
            heapq.heappop(self._entries)
        return self._entries[0] if self._entries else None

    @property
    def begin(self) -> Entry | None:
        return self.head

    def pop(self) -> None:
        self._gone(heapq.heappop(self._entries)[3])

    def rows(self) -> Iterator[Row]:
        """Its jobs, in any order."""
        return (entry[3] for entry in self._entries if _stands(entry))

    def due(self, now: int) -> int:
        """How many are due. Each job is looked at once in its life, when its time has come."""
        while self._later and self._later[0][0] <= now:
            entry = heapq.heappop(self._later)
            if _stands(entry):
                self._was_later(entry[3])
        return self.size - self._not_due

    def set_back(self, now: int, before: int) -> None:
        """The clock was set back: what was due by then is due now, in the same order."""
        for n, (run_at, seq, ticket, row) in enumerate(self._entries):
            if now < run_at <= before and _stands(self._entries[n]):
                row.run_at = now
                self._entries[n] = (now, seq, ticket, row)
                self._was_later(row)
        heapq.heapify(self._entries)

    def _gone(self, row: Row) -> None:
        row.ticket += 1
        self.size -= 1
        self._was_later(row)

    def _was_later(self, row: Row) -> None:
        if row.later:
            row.later = False
            self._not_due -= 1


def _stands(entry: _Entry) -> bool:
    return entry[2] == entry[3].ticket


def _swept(entries: list[_Entry], standing: int) -> list[_Entry]:
    """Without the stale ones, once they are most of it."""
    if len(entries) <= 2 * standing + 64:
        return entries
    entries = [entry for entry in entries if _stands(entry)]
    heapq.heapify(entries)
    return entries
