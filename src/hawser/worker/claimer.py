"""Keeps the free slots filled with claimed jobs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from hawser.job import Claimed
from hawser.store import JobStore, Share
from hawser.telemetry.events import ClaimedBatch, Events, tell
from hawser.worker.board import Board
from hawser.worker.executor import Executor
from hawser.worker.options import QueueWeight
from hawser.worker.policies import REFRESH_EVERY, Policies

SOONEST: Final = 0.001
"""Seconds. A hint that comes sooner is taken for one about jobs that this worker cannot take. Then it waits so long, doubled with
each that follows up to MOST_VAIN."""

SOON: Final = 0.02
"""The same, where a task or a queue has no room here: then it may well be about those, and a hint may be long on its way."""

MOST_VAIN: Final = 6

IDLE: Final = 2.0
"""Seconds that an idle worker waits for the store's hint before it looks by itself: a claim is most of what it costs."""


class Claimer:
    """Claims what fits, one claim at a time.

    A little more is claimed than there are free slots, when jobs are so short that those slots will be free again before
    the next claim is answered: what was seen to finish in the time of a claim, never more than a batch.
    """

    def __init__(
        self,
        store: JobStore,
        executor: Executor,
        board: Board,
        queues: Sequence[QueueWeight],
        policies: Policies,
        *,
        worker: str,
        batch: int,
        lease: float,
        events: Events,
    ) -> None:
        self._store = store
        self._executor = executor
        self._board = board
        self._shares = Shares(queues)
        self._names = [queue.name for queue in queues]
        self._policies = policies
        self._worker = worker
        self._batch = batch
        self._lease = lease
        self._events = events
        self._finished = 0
        self._soon = 0
        self._vain = 0
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Wait no longer. A claim that is under way is still taken over, to be handed back: its jobs are ours."""
        self._stopped.set()
        self._executor.changed.set()

    async def turn(self) -> float:
        """Claim what fits; return how long to wait before the next look."""
        self._executor.changed.clear()
        self._executor.isolate_freed.clear()
        places = min(self._executor.free + self._soon, self._batch, self._board.free)
        if not self._executor.open():
            return 3600.0
        if places <= 0:
            self._soon = 0
            await self._ended(REFRESH_EVERY)
            await self._policies.refresh()
            return 0.0
        await self._policies.refresh()
        shares = self._policies.bound(self._shares.of(places), self._executor.heads.by_queue)
        room = self._executor.room()
        sent = time.monotonic()
        claimed = await self._store.claim(shares, places, self._worker, self._lease, room)
        took = time.monotonic() - sent
        self._shares.took(claimed)
        if not claimed:
            self._soon = 0
            full = any(most <= 0 for most in room.values()) or any(share.most == 0 for share in shares)
            await self._wait(SOON if full else SOONEST, full=full)
            return 0.0
        self._vain = 0
        self._executor.accept(claimed, sent)
        tell(self._events.claimed, ClaimedBatch(claimed, took))
        ended, self._finished = self._executor.finished - self._finished, self._executor.finished
        self._soon = min(ended, self._batch)
        return 0.0 if len(claimed) == places else 0.002

    async def _wait(self, soon: float, *, full: bool) -> None:
        """Until there may be work, or the worker stops.

        The store's hint may come soon for a job that we cannot take: its task has no room here. Then we wait a little longer
        each time, or until a run ends.
        """
        began = time.monotonic()
        await self._hinted(full=full)
        self._vain = min(self._vain + 1, MOST_VAIN) if time.monotonic() - began < soon else 0
        if self._vain > 1:
            await self._ended(SOONEST * 2**self._vain)

    async def _ended(self, seconds: float) -> None:
        """Wait for a run to end that had not when this turn began, so long at the most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._executor.changed.wait()

    async def _hinted(self, *, full: bool) -> None:
        """Until the store says that there may be work, or where there was no room, until there may be some; or the end."""
        hint = asyncio.ensure_future(self._store.wait(self._names, IDLE))
        others = [asyncio.ensure_future(self._stopped.wait())]
        if full:
            others.append(asyncio.ensure_future(self._executor.isolate_freed.wait()))
        await asyncio.wait((hint, *others), return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        if hint.done():
            hint.result()
        else:
            hint.cancel()


class Shares:
    """How many places each queue is offered, so that over time the weights hold."""

    def __init__(self, queues: Sequence[QueueWeight]) -> None:
        self._weights = {queue.name: queue.weight or 0 for queue in queues}
        self._weighted = any(self._weights.values())
        self._credit = dict.fromkeys(self._weights, 0.0)
        self._places = 0

    def of(self, places: int) -> list[Share]:
        """The shares of a claim. Without weights: all to the first queue that has jobs."""
        if not self._weighted:
            return [Share(name) for name in self._weights]
        self._places = places
        offers = self._offers()
        return [Share(name, offers[name]) for name in sorted(offers, key=lambda name: -self._credit[name])]

    def took(self, jobs: Sequence[Claimed]) -> None:
        """What that claim found. A queue with nothing left saves nothing up: what it could not use goes to the others by their
        weights."""
        if not self._weighted:
            return
        if len(jobs) < self._places:
            # There was room for all: nobody is owed anything.
            self._credit = dict.fromkeys(self._weights, 0.0)
            return
        offers, taken = self._offers(), Counter(job.queue for job in jobs)
        self._hand_out(self._places, self._weights)
        for name, count in taken.items():
            self._credit[name] -= count
        # The rest is given out when all have had their share: then who has taken less than it was offered had no more.
        if any(taken[name] > offer for name, offer in offers.items()):
            empty = {name for name, offer in offers.items() if taken[name] < offer}
            left = sum(self._credit[name] for name in empty)
            self._credit |= dict.fromkeys(empty, 0.0)
            self._hand_out(left, {name: weight for name, weight in self._weights.items() if name not in empty})

    def _offers(self) -> dict[str, int]:
        total = sum(self._weights.values())
        fair = {name: self._places * weight / total for name, weight in self._weights.items()}
        return {name: max(0, round(self._credit[name] + fair[name])) for name in self._weights}

    def _hand_out(self, places: float, weights: Mapping[str, int]) -> None:
        total = sum(weights.values())
        for name, weight in weights.items():
            self._credit[name] += places * weight / total
