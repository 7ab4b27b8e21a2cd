"""The board of a worker process, as the supervisor reads it, or the maintenance thread of an embedded worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from hawser.worker.board import (
    ANSWER_GEN,
    BEAT,
    CAP,
    CELL,
    CRASHED_HIGH,
    CRASHED_LOW,
    DRAINING,
    GEN,
    HEADER,
    ID_HIGH,
    ID_LOW,
    INSIDE,
    LEASE,
    RUNNING,
    SAYS,
    SENT,
    STARTED,
    STUCK,
    TAKEN,
    UNTIL,
    How,
    Says,
    words_of,
)


class HeldLease(NamedTuple):
    """A run that the process holds, as its supervisor sees it. Times are of the monotonic clock, which processes share."""

    cell: int
    generation: int
    id: str
    lease: int
    sent: float
    """When the lease was last asked for."""
    cap: float
    """When the attempt's time is up, grace included: no lease is extended beyond it."""
    how: How
    abandoned: bool
    """The run is given up but has not ended yet."""


class BoardReader:
    """Reads what the process holds, and writes the store's answers beside it."""

    def __init__(self, buffer: Any, cells: int) -> None:
        self._cells = cells
        self._words, self._times = words_of(buffer, cells)

    def held(self) -> Iterator[HeldLease]:
        """The runs on the board."""
        words, times = self._words, self._times
        for cell in range(HEADER, HEADER + self._cells * CELL, CELL):
            generation = words[cell + GEN]
            if generation:
                id = _id(words[cell + ID_HIGH], words[cell + ID_LOW])
                lease, how = words[cell + LEASE], How(words[cell + STARTED])
                sent, cap = times[cell + SENT], times[cell + CAP]
                if words[cell + GEN] == generation:
                    yield HeldLease(cell, generation, id, lease, sent, abs(cap), how, cap < 0)

    def answer(self, held: HeldLease, says: Says, until: float) -> None:
        """Tell the process what the store said of a run."""
        self._words[held.cell + ANSWER_GEN] = 0
        self._times[held.cell + UNTIL] = until
        self._words[held.cell + SAYS] = says
        self._words[held.cell + ANSWER_GEN] = held.generation

    def ask_to_stop(self, held: HeldLease) -> None:
        """Tell the process that the run is to end; until when it may go on stays as it is."""
        known = self._words[held.cell + ANSWER_GEN] == held.generation
        self.answer(held, Says.CANCEL_ASKED, self._times[held.cell + UNTIL] if known else 0.0)

    @property
    def beaten_at(self) -> float:
        """When the event loop last showed that it lives."""
        return float(self._times[BEAT])

    @property
    def inside(self) -> int:
        """The cell whose handler the event loop is in, or was in when the process died; 0 for none."""
        return self._words[INSIDE]

    @property
    def crasher(self) -> str | None:
        """The job that has last killed a child process of its own. Read while it changes, it is an id that no job has."""
        high, low = self._words[CRASHED_HIGH], self._words[CRASHED_LOW]
        return _id(high, low) if high else None

    @property
    def taken(self) -> int:
        """Jobs that the process ever took."""
        return self._words[TAKEN]

    @property
    def running(self) -> int:
        return self._words[RUNNING]

    @property
    def stuck(self) -> int:
        return self._words[STUCK]

    @property
    def draining(self) -> bool:
        return bool(self._words[DRAINING])


def _id(high: int, low: int) -> str:
    text = f"{high << 64 | low:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
