"""The runs of one worker process, in memory that its supervisor reads without asking.

The process writes what it holds; the extender, in another thread or process, extends the leases and writes the store's answers
beside them (`supervisor/board_reader.py`). Neither waits for the other: a handler that holds the GIL for a minute keeps its
lease.

A cell is written field by field and its generation last, and read with a look at the generation before and after, so a cell
that changes under the reader is passed over. Each field is one aligned 8-byte word.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

HEADER: Final = 8
CELL: Final = 12
GEN, ID_HIGH, ID_LOW, LEASE, SENT, CAP, STARTED, ANSWER_GEN, UNTIL, SAYS = range(10)
BEAT, RUNNING, STUCK, DRAINING, TAKEN, INSIDE, CRASHED_HIGH, CRASHED_LOW = range(8)


class Says(IntEnum):
    """The store's last answer about a run."""

    NOTHING = 0
    HELD = 1
    CANCEL_ASKED = 2
    LOST = 3


class How(IntEnum):
    """Where a run goes on."""

    CLAIMED = 0
    """It has not begun: its first step is still to come."""
    LOOP = 1
    THREAD = 2
    APART = 3
    ENDED = 4
    """It has ended; its outcome is not written yet."""


def board_size(cells: int) -> int:
    """Bytes that so many cells need."""
    return 8 * (HEADER + cells * CELL)


def words_of(buffer: Any, cells: int) -> tuple[memoryview, Any]:
    """The words of a board as whole numbers and as times."""
    whole = memoryview(buffer).cast("B")[: board_size(cells)]
    return whole.cast("Q"), whole.cast("d")


class Board:
    """A fixed number of cells in a buffer, a bytearray or shared memory, as the process writes them that runs the jobs."""

    def __init__(self, buffer: Any, cells: int) -> None:
        self.cells = cells
        self._words, self._times = words_of(buffer, cells)
        self._free = [(HEADER + cell * CELL) for cell in reversed(range(cells))]
        self._generation = 0

    @property
    def free(self) -> int:
        """Cells that are free. Only the process itself knows."""
        return len(self._free)

    def take(self, id: str, lease: int, sent: float, cap: float) -> int:
        """Put a claimed job on the board."""
        cell = self._free.pop()
        number = int(id.replace("-", ""), 16)
        words, times = self._words, self._times
        words[cell + ID_HIGH] = number >> 64
        words[cell + ID_LOW] = number & 0xFFFFFFFFFFFFFFFF
        words[cell + LEASE] = lease
        times[cell + SENT] = sent
        times[cell + CAP] = cap
        words[cell + STARTED] = 0
        self._generation += 1
        words[cell + GEN] = words[TAKEN] = self._generation
        return cell

    def start(self, cell: int, how: How) -> None:
        """The job runs from now on; until then it was only claimed. From any thread."""
        self._words[cell + STARTED] = how

    def enter(self, cell: int) -> None:
        """The event loop is inside of this run's handler from now on; 0: inside of none."""
        self._words[INSIDE] = cell

    def crashed(self, cell: int) -> None:
        """The run in this cell has killed the child process that it had to itself."""
        self._words[CRASHED_HIGH] = self._words[cell + ID_HIGH]
        self._words[CRASHED_LOW] = self._words[cell + ID_LOW]

    def abandon(self, cell: int) -> None:
        """The run is given up but has not ended yet: its lease is not to be extended any more."""
        self._times[cell + CAP] = -abs(self._times[cell + CAP])  # one word, so that no reader sees half of it

    def leave(self, cell: int) -> None:
        """The run is settled, or given up."""
        assert self._words[cell + GEN], "a cell is left once"
        self._words[cell + GEN] = 0
        self._free.append(cell)

    def said(self, cell: int) -> tuple[Says, float]:
        """What the extender learned of the run in this cell, and until when it may go on."""
        if self._words[cell + ANSWER_GEN] != self._words[cell + GEN]:
            return Says.NOTHING, 0.0
        return Says(self._words[cell + SAYS]), self._times[cell + UNTIL]

    def until(self, cell: int, claimed: float) -> float:
        """Until when the run in this cell may go on, if its claim alone gave it so long; 0.0 when its lease is lost."""
        if self._words[cell + ANSWER_GEN] != self._words[cell + GEN]:
            return claimed
        return 0.0 if self._words[cell + SAYS] == Says.LOST else max(claimed, self._times[cell + UNTIL])

    def beat(self, now: float, running: int, stuck: int, *, draining: bool) -> None:
        """The event loop lives."""
        self._times[BEAT] = now
        self._words[RUNNING] = running
        self._words[STUCK] = stuck
        self._words[DRAINING] = draining
