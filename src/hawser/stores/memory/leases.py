"""The running jobs of the memory store, by when their leases run out."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from hawser.job import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hawser.stores.memory.row import Row

_Entry = tuple[int, int, int, "Row"]


class Leases:
    """The ends of leases, and what they bring.

    One entry per run. An extension does not move it: it is put right when it surfaces, so extending costs nothing here.
    """

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._running = 0

    def add(self, row: Row) -> None:
        self._running += 1
        heapq.heappush(self._entries, (row.lease_until, row.seq, row.lease, row))

    def end(self) -> None:
        """One run is over; its entry is passed over when it surfaces."""
        self._running -= 1
        if len(self._entries) > 2 * self._running + 64:
            self._entries = [entry for entry in self._entries if _stands(entry)]
            heapq.heapify(self._entries)

    def expired(self, now: int) -> Row | None:
        """The run whose lease ran out first, or None; it stays until `end`."""
        while self._entries and self._entries[0][0] <= now:
            entry = self._entries[0]
            row = entry[3]
            if not _stands(entry):
                heapq.heappop(self._entries)
            elif row.lease_until != entry[0]:
                heapq.heapreplace(self._entries, (row.lease_until, row.seq, row.lease, row))
            else:
                return row
        return None

    def all(self) -> Iterator[Row]:
        """Every run, each once."""
        return iter({id(entry[3]): entry[3] for entry in self._entries if _stands(entry)}.values())

    def shortened(self, row: Row) -> None:
        """The row's lease was cut: it must surface earlier than its entry would."""
        heapq.heappush(self._entries, (row.lease_until, row.seq, row.lease, row))


def _stands(entry: _Entry) -> bool:
    return entry[3].state is State.RUNNING and entry[3].lease == entry[2]
