"""Keeps the leases of a worker's runs, from outside the handlers' way."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from hawser.cycle import Unasked
from hawser.outcome import Released
from hawser.store import JobStore, LeaseRef, LeaseStatus, Settlement
from hawser.supervisor.board_reader import BoardReader, HeldLease
from hawser.worker.board import How, Says
from hawser.worker.run import margin

_SAYS = {LeaseStatus.HELD: Says.HELD, LeaseStatus.CANCEL_ASKED: Says.CANCEL_ASKED, LeaseStatus.LOST: Says.LOST}


HEAR_EVERY: Final = 1.0
"""Seconds between two questions for cancels, while anything runs."""

IDLE_BOARDS_LOOK_EVERY_S: Final = 3.0
"""Seconds between two looks at the boards at the most, while nothing runs."""


class Extender:
    """Extends every lease on the boards once a third of it is over, and hears of cancels meanwhile.

    A job that has not begun by then, because another handler blocks its process, is handed back instead. So a lease that was
    extended belongs to a run that has begun.

    A run's time is counted from when its claim or extension was sent, never from when the answer came. An answer that does
    not come changes nothing: the run is given up at its own deadline, for any reason.
    """

    def __init__(
        self, store: JobStore, boards: Mapping[str, BoardReader], lease: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._boards = boards
        self._lease = lease
        self._clock = clock
        self._extended: dict[tuple[str, int], float] = {}
        self.extensions = 0

    async def turn(self) -> float:
        """Extend what is due; say when to look again."""
        now = self._clock()
        asked = False
        seen: dict[tuple[str, int], float] = {}
        for worker, board in list(self._boards.items()):
            due: list[HeldLease] = []
            unbegun: list[HeldLease] = []
            for held in board.held():
                key = (worker, held.generation)
                last = self._extended.get(key, held.sent)
                seen[key] = last
                if now - last >= self._lease / 3 and held.cap - now > 0 and not held.abandoned:
                    (unbegun if held.how is How.CLAIMED else due).append(held)
            if unbegun:
                await self._hand_back(board, unbegun)
            if due:
                sent = await self._extend(worker, board, due)
                seen.update(((worker, held.generation), sent) for held in due)
            asked = asked or bool(due or unbegun)
        self._extended = seen
        wait = min(HEAR_EVERY if await self._hear() else IDLE_BOARDS_LOOK_EVERY_S, self._lease / 10)
        return wait if asked else Unasked(wait)

    async def _hear(self) -> bool:
        """Pass on which runs are to stop; False when there are none that could."""
        busy = {worker: board for worker, board in self._boards.items() if board.running}
        if not busy:
            return False
        asked = {(ref.id, ref.lease) for ref in await self._store.asked_to_stop(list(busy))}
        if asked:
            for board in busy.values():
                for held in board.held():
                    if (held.id, held.lease) in asked:
                        board.ask_to_stop(held)
        return True

    async def _hand_back(self, board: BoardReader, unbegun: list[HeldLease]) -> None:
        """Told to the process first: it looks at the board when it begins a run, and does not begin these."""
        for held in unbegun:
            board.answer(held, Says.LOST, 0.0)
        await self._store.settle([Settlement(held.id, held.lease, Released()) for held in unbegun])

    async def _extend(self, worker: str, board: BoardReader, due: list[HeldLease]) -> float:
        sent = self._clock()
        answers = await self._store.extend(worker, [LeaseRef(held.id, held.lease) for held in due], self._lease)
        for held, answer in zip(due, answers, strict=True):
            until = min(sent + self._lease, held.cap) - margin(self._lease)
            board.answer(held, _SAYS[answer], 0.0 if answer is LeaseStatus.LOST else until)
        self.extensions += len(due)
        return sent
