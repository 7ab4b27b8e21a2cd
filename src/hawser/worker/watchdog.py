"""Ends runs whose time is up, whose lease is gone, or that are to be cancelled; and what still runs at the end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from hawser.telemetry.events import Events, tell
from hawser.worker.board import Board, Says
from hawser.worker.broadcast import Broadcast
from hawser.worker.executor import Executor
from hawser.worker.run import Run, Stop
from hawser.worker.runners import Runners
from hawser.worker.slots import Closing, Slots

_logger = logging.getLogger("hawser.worker")

STOP_WITHIN: Final = 2.0
"""Seconds that a cancelled coroutine has to end before it counts as stuck. Less than the grace of a lease."""

CLEAN_UP_WITHIN: Final = 0.5
"""The same at a drain under a supervisor, which kills a process soon after its deadline."""

DEADLINES_LOOK_EVERY_S: Final = 0.25
"""Seconds between two looks at deadlines and at what the extender says."""

LOOK_IDLE_EVERY: Final = 2.0
"""The same while there is nothing to look at; the first job that starts ends that wait."""


class Watchdog:
    """Looks at every run, and shows on the board that the event loop lives."""

    def __init__(
        self,
        slots: Slots,
        executor: Executor,
        runners: Runners,
        board: Board,
        closing: Closing,
        broadcast: Broadcast | None,
        events: Events,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slots = slots
        self._executor = executor
        self._runners = runners
        self._board = board
        self._closing = closing
        self._broadcast = broadcast
        self._events = events
        self._clock = clock
        self._looked_at = float("-inf")

    async def turn(self) -> float:
        """One look at all runs; seconds until the next.

        The first job that starts in an idle process begins a turn. With short jobs that is every claim, so what was looked at a
        moment ago is not looked at again.
        """
        since = self._clock() - self._looked_at
        if 0 <= since < DEADLINES_LOOK_EVERY_S and not self._closing.begun:
            return DEADLINES_LOOK_EVERY_S - since
        self.look()
        if self._broadcast is not None and (tasks := self._broadcast.news()) is not None:
            self._runners.isolate_also(tasks)
        self._board.beat(self._clock(), len(self._slots.runs), self._slots.stuck, draining=self._closing.begun)
        return DEADLINES_LOOK_EVERY_S if self._slots.runs else LOOK_IDLE_EVERY

    def look(self) -> None:
        now = self._looked_at = self._clock()
        for run in list(self._slots.runs):
            if run.stop is Stop.TIMEOUT and not run.settled and now > run.stopped_at + STOP_WITHIN:
                self._executor.give_up(run)
            elif (why := reason_to_stop(run, now)) is not None:
                if why is Stop.LOST:
                    tell(self._events.lost, 1)
                    _logger.warning("job %s: its lease is gone, the run is ended and writes nothing", run.job.id)
                self._executor.stop(run, why)

    async def drain(self, seconds: float, *, alone: bool) -> None:
        """Wait for what runs, then end what can be ended and hand its jobs back.

        A coroutine that was cancelled may clean up for a moment. One that takes longer ends with the process, and the supervisor
        hands its job back then. Without a supervisor, `alone`, it is given up here and its job handed back: it may go on for a
        little beside the next run, as after a timeout, but it writes nothing.
        """
        self._runners.end()
        end = time.monotonic() + seconds
        while self._slots.runs and (left := end - time.monotonic()) > 0:
            seen = self._slots.changes.count
            await self._slots.changes.after(seen, min(left, DEADLINES_LOOK_EVERY_S))
            if seen == self._slots.changes.count:
                self.look()
        for run in list(self._slots.runs):
            if run.stop is None:
                self._executor.stop(run, Stop.DRAIN)
        ending = [run.work for run in self._slots.runs if run.work is not None]
        if ending:
            await asyncio.wait(ending, timeout=STOP_WITHIN if alone else CLEAN_UP_WITHIN)
        if alone:
            for run in list(self._slots.runs):
                if run.work is not None and not run.settled:
                    self._executor.give_up(run)
        self._runners.close()


def reason_to_stop(run: Run, now: float) -> Stop | None:
    """Why a run is to end now. One that was only asked to, for a cancel, may still lose its lease or its time."""
    if run.stop not in (None, Stop.CANCEL):
        return None
    says = run.said()
    if says is Says.LOST or not run.may_write(now):
        return Stop.LOST
    if run.deadline <= now:
        return Stop.TIMEOUT
    return Stop.CANCEL if says is Says.CANCEL_ASKED and run.stop is None else None
