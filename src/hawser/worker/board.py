"""The runs of one worker process, in memory that its keeper reads without asking.

The process writes what it holds; the keeper, in another thread or process, extends the leases and writes the store's
answers beside them. Neither waits for the other: a handler that holds the GIL for a minute keeps its lease.

A cell is written field by field and its generation last, and read with a look at the generation before and after, so a cell
that changes under the reader is passed over. Each field is one aligned 8-byte word.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final, NamedTuple

_HEADER: Final = 8
_CELL: Final = 12
_GEN, _ID_HIGH, _ID_LOW, _LEASE, _SENT, _CAP, _STARTED, _ANSWER_GEN, _UNTIL, _SAYS = range(10)
_BEAT, _RUNNING, _STUCK, _DRAINING, _TAKEN, _INSIDE, _CRASHED_HIGH, _CRASHED_LOW = range(8)


class Says(IntEnum):
    """What the store said of a run."""

    NOTHING = 0
    HELD = 1
    CANCEL_ASKED = 2
    LOST = 3


class How(IntEnum):
    """Where a run goes on."""

    WAITING = 0
    LOOP = 1
    THREAD = 2
    APART = 3
    ENDED = 4
    """It has ended; its outcome is not written yet."""


class Held(NamedTuple):
    """A run that the process holds, as its keeper sees it. Times are of the monotonic clock, which processes share."""

    cell: int
    generation: int
    id: str
    lease: int
    sent: float
    """When the lease was last asked for."""
    cap: float
    """When the attempt's time is up, grace included: no lease is extended beyond it."""
    how: How


class Board:
    """A fixed number of cells in a buffer: a bytearray for a keeper thread, shared memory for a supervisor."""

    def __init__(self, buffer: Any, cells: int) -> None:
        self.cells = cells
        self._words = memoryview(buffer).cast("B")[: Board.size(cells)].cast("Q")
        self._times = memoryview(buffer).cast("B")[: Board.size(cells)].cast("d")
        self._free = [(_HEADER + cell * _CELL) for cell in reversed(range(cells))]
        self._generation = 0

    @staticmethod
    def size(cells: int) -> int:
        """Bytes that so many cells need."""
        return 8 * (_HEADER + cells * _CELL)

    @property
    def free(self) -> int:
        """Cells that are free. Only the process itself knows."""
        return len(self._free)

    # The process's side.

    def take(self, id: str, lease: int, sent: float, cap: float) -> int:
        """Put a claimed job on the board."""
        cell = self._free.pop()
        number = int(id.replace("-", ""), 16)
        words, times = self._words, self._times
        words[cell + _ID_HIGH] = number >> 64
        words[cell + _ID_LOW] = number & 0xFFFFFFFFFFFFFFFF
        words[cell + _LEASE] = lease
        times[cell + _SENT] = sent
        times[cell + _CAP] = cap
        words[cell + _STARTED] = 0
        self._generation += 1
        words[cell + _GEN] = words[_TAKEN] = self._generation
        return cell

    def start(self, cell: int, how: How) -> None:
        """The job runs from now on; until then it was only waiting for a slot."""
        self._words[cell + _STARTED] = how

    def enter(self, cell: int) -> None:
        """The event loop is inside of this run's handler from now on; 0: inside of none."""
        self._words[_INSIDE] = cell

    def crashed(self, cell: int) -> None:
        """The run in this cell has killed the child process that it had to itself."""
        self._words[_CRASHED_HIGH] = self._words[cell + _ID_HIGH]
        self._words[_CRASHED_LOW] = self._words[cell + _ID_LOW]

    def leave(self, cell: int) -> None:
        """The run is settled, or given up."""
        assert self._words[cell + _GEN], "a cell is left once"
        self._words[cell + _GEN] = 0
        self._free.append(cell)

    def said(self, cell: int) -> tuple[Says, float]:
        """What the keeper learned of the run in this cell, and until when it may go on."""
        if self._words[cell + _ANSWER_GEN] != self._words[cell + _GEN]:
            return Says.NOTHING, 0.0
        return Says(self._words[cell + _SAYS]), self._times[cell + _UNTIL]

    def until(self, cell: int, claimed: float) -> float:
        """Until when the run in this cell may go on, if its claim alone gave it so long; 0.0 when its lease is lost."""
        if self._words[cell + _ANSWER_GEN] != self._words[cell + _GEN]:
            return claimed
        return 0.0 if self._words[cell + _SAYS] == Says.LOST else max(claimed, self._times[cell + _UNTIL])

    def beat(self, now: float, running: int, stuck: int, *, draining: bool) -> None:
        """The event loop lives."""
        self._times[_BEAT] = now
        self._words[_RUNNING] = running
        self._words[_STUCK] = stuck
        self._words[_DRAINING] = draining

    # The keeper's side.

    def held(self) -> Iterator[Held]:
        """The runs on the board."""
        words, times = self._words, self._times
        for cell in range(_HEADER, _HEADER + self.cells * _CELL, _CELL):
            generation = words[cell + _GEN]
            if generation:
                id = _id(words[cell + _ID_HIGH], words[cell + _ID_LOW])
                lease, how = words[cell + _LEASE], How(words[cell + _STARTED])
                sent, cap = times[cell + _SENT], times[cell + _CAP]
                if words[cell + _GEN] == generation:
                    yield Held(cell, generation, id, lease, sent, cap, how)

    def answer(self, held: Held, says: Says, until: float) -> None:
        """Tell the process what the store said of a run."""
        self._words[held.cell + _ANSWER_GEN] = 0
        self._times[held.cell + _UNTIL] = until
        self._words[held.cell + _SAYS] = says
        self._words[held.cell + _ANSWER_GEN] = held.generation

    def ask_to_stop(self, held: Held) -> None:
        """Tell the process that somebody wants the run to end; until when it may go on stays as it is."""
        known = self._words[held.cell + _ANSWER_GEN] == held.generation
        self.answer(held, Says.CANCEL_ASKED, self._times[held.cell + _UNTIL] if known else 0.0)

    @property
    def beaten_at(self) -> float:
        """When the event loop last showed that it lives."""
        return self._times[_BEAT]

    @property
    def inside(self) -> int:
        """The cell whose handler the event loop is in, or was in when the process died; 0 for none."""
        return self._words[_INSIDE]

    @property
    def crasher(self) -> str | None:
        """The job that has last killed a child process of its own. Read while it changes, it is a job that nobody knows."""
        high, low = self._words[_CRASHED_HIGH], self._words[_CRASHED_LOW]
        return _id(high, low) if high else None

    @property
    def taken(self) -> int:
        """Jobs that the process ever took."""
        return self._words[_TAKEN]

    @property
    def running(self) -> int:
        return self._words[_RUNNING]

    @property
    def stuck(self) -> int:
        return self._words[_STUCK]

    @property
    def draining(self) -> bool:
        return bool(self._words[_DRAINING])


def _id(high: int, low: int) -> str:
    text = f"{high << 64 | low:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
