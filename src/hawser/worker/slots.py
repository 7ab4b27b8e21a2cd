"""What runs in this process, and what else fits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from hawser.job import Claimed
from hawser.task import Task
from hawser.worker.board import Board
from hawser.worker.broadcast import Broadcast
from hawser.worker.run import Host, Run, margin


class Changes:
    """A count of what has happened. Each part that waits remembers the count that it has seen: no part clears what another
    waits for."""

    def __init__(self) -> None:
        self.count = 0
        self._happened = asyncio.Event()
        self._waiting = 0

    def happen(self) -> None:
        """On the event loop. Called for every run, while mostly no part waits."""
        self.count += 1
        if self._waiting:
            self._happened.set()

    async def after(self, seen: int, within: float | None = None) -> None:
        """Return when there is more than was seen, or when the seconds are over."""
        self._waiting += 1
        try:
            async with asyncio.timeout(within):
                while self.count == seen:
                    self._happened.clear()
                    await self._happened.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1


class Closing:
    """Whether a worker process is to end: because it was told, or because its supervisor has told all."""

    def __init__(self, stop: asyncio.Event, broadcast: Broadcast | None) -> None:
        self._stop = stop
        self._broadcast = broadcast

    @property
    def begun(self) -> bool:
        return self._stop.is_set() or (self._broadcast is not None and self._broadcast.closed)


class Slots:
    """So many places, and how many of them each task and queue has. A run has a slot until its handler has ended, and a cell on
    the board until its outcome is written."""

    def __init__(self, count: int, lease_for: float, board: Board, tasks: Mapping[str, Task[..., Any]], closing: Closing) -> None:
        self._count = count
        self._lease_for = lease_for
        self._margin = margin(lease_for)
        self._board = board
        self._closing = closing
        self._limits = {name: task.options.concurrency for name, task in tasks.items() if task.options.concurrency}
        self._by_task: Counter[str] = Counter()
        self.by_queue: Counter[str] = Counter()
        """How many jobs of each queue run here."""
        self.runs: dict[Run, None] = {}
        self.stuck = 0
        """Runs that go on although they were given up."""
        self.changes = Changes()
        """Whenever there may be more room."""
        self.occupied = asyncio.Event()
        """Set when the first slot is taken, for the parts that watch over runs."""

    @property
    def closed(self) -> bool:
        """Whether nothing may start any more."""
        return self._closing.begun

    @property
    def free(self) -> int:
        """Jobs that may be claimed now. The next claim overlaps with the write of outcomes, as long as no more than one for each
        slot are still to be written: that is what the board has room for."""
        return min(self._count - len(self.runs), self._board.free)

    @property
    def idle(self) -> bool:
        """Whether nothing runs and every outcome is written."""
        return not self.runs and self._board.free == self._board.cells

    def room(self) -> dict[str, int]:
        """Of tasks with a limit of their own: how many more may run."""
        return {name: max(0, limit - self._by_task[name]) for name, limit in self._limits.items()}

    def admit(self, job: Claimed, task: Task[..., Any] | None, sent: float, host: Host) -> Run:
        """A run for a claimed job. It has a cell on the board from now on, and no slot yet."""
        return Run(job, task, self._board, host, sent, self._lease_for, self._margin)

    def take(self, run: Run) -> None:
        """It starts."""
        if not self.runs:
            self.occupied.set()
        self.runs[run] = None
        self.by_queue[run.job.queue] += 1
        if run.job.task in self._limits:
            self._by_task[run.job.task] += 1

    def leave(self, run: Run) -> None:
        """Its handler has ended, or never began."""
        if run not in self.runs:
            return
        del self.runs[run]
        self.stuck -= run.stuck
        self.by_queue[run.job.queue] -= 1
        if run.job.task in self._limits:
            self._by_task[run.job.task] -= 1
        self.changes.happen()

    def keep(self, run: Run) -> None:
        """It cannot be stopped: it keeps its slot until it ends by itself."""
        run.stuck = True
        self.stuck += 1

    def settled(self, runs: Iterable[Run]) -> None:
        """Their outcomes are written, or there will be none."""
        for run in runs:
            run.leave()
        self.changes.happen()
