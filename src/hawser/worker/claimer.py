"""Keeps the free slots filled with claimed jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from hawser.cycle import Unasked
from hawser.store import JobStore
from hawser.telemetry.events import ClaimedBatch, Events, tell
from hawser.worker.demand import Demand
from hawser.worker.executor import Executor
from hawser.worker.options import WorkerOptions
from hawser.worker.policies import POLICIES_READ_EVERY_S
from hawser.worker.slots import Slots

SOONEST: Final = 0.001
"""Seconds. A hint that comes sooner is taken for one about jobs that this worker cannot take. Then it waits so long, doubled with
each that follows up to MOST_VAIN."""

SOON: Final = 0.02
"""The same, where a task or a queue has no room here: then it may well be about those, and a hint may be long on its way."""

MOST_VAIN: Final = 6

LOOK_AFTER_S: Final = 2.0
"""Seconds that a worker waits for the store's hint before it looks by itself, where a policy of a queue may have changed."""

LOOK_AFTER_CALM_S: Final = 10.0
"""The same where no queue has one: a claim is most of what an idle worker costs. Stores look sooner where hints may get lost."""


class Claimer:
    """Claims what can start at once, one claim at a time. What frees up while one is under way is in the next."""

    def __init__(
        self,
        store: JobStore,
        worker: str,
        options: WorkerOptions,
        slots: Slots,
        executor: Executor,
        demand: Demand,
        events: Events,
        found_nothing: Callable[[], None] | None = None,
    ) -> None:
        """`found_nothing` is called when nothing is due that this worker may run, while it runs nothing and has written all
        outcomes."""
        self._store = store
        self._worker = worker
        self._batch = options.jobs_at_once
        self._lease = options.lease
        self._slots = slots
        self._executor = executor
        self._demand = demand
        self._found_nothing = found_nothing
        self._events = events
        self._vain = 0
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Stop waiting. The jobs of a claim that is under way are still taken over, to be handed back."""
        self._stopped.set()
        self._slots.changes.happen()

    async def turn(self) -> float:
        """Claim what fits; return how long to wait before the next look."""
        if self._slots.closed:
            return Unasked(3600.0)
        ended, freed = self._slots.changes.count, self._executor.isolate_freed.count
        places = min(self._slots.free, self._batch)
        if places <= 0:
            await self._slots.changes.after(ended, POLICIES_READ_EVERY_S)
            await self._demand.refresh()
            return Unasked(0.0)
        await self._demand.refresh()
        shares = self._demand.shares(places, self._slots.by_queue)
        room, idle = self._executor.room(), self._slots.idle
        sent = time.monotonic()
        with self._executor.claiming():
            claimed = await self._store.claim(shares, places, self._worker, self._lease, room, self._demand.leave)
        took = time.monotonic() - sent
        self._demand.took(claimed)
        if not claimed:
            if idle and self._found_nothing is not None:
                self._found_nothing()
            full = any(most <= 0 for most in room.values()) or any(share.most == 0 for share in shares)
            await self._wait(ended, freed if full else None)
            return 0.0
        self._vain = 0
        self._executor.accept(claimed, sent)
        tell(self._events.claimed, ClaimedBatch(claimed, took))
        return 0.0 if len(claimed) == places else 0.002

    async def _wait(self, ended: int, freed: int | None) -> None:
        """Until there may be work, or the worker stops. `freed` is given when a task or a queue had no room here.

        The store's hint may come soon for a job that we cannot take: its task has no room here. Then we wait a little longer
        each time, or until a run ends that had not when the turn began.
        """
        began = time.monotonic()
        await self._hinted(freed)
        soon = SOONEST if freed is None else SOON
        self._vain = min(self._vain + 1, MOST_VAIN) if time.monotonic() - began < soon else 0
        if self._vain > 1:
            await self._slots.changes.after(ended, SOONEST * 2**self._vain)

    async def _hinted(self, freed: int | None) -> None:
        """Until the store says that there may be work, or where there was no room, until there may be some; or the end."""
        hint = asyncio.ensure_future(
            self._store.wait(
                self._demand.queues, LOOK_AFTER_CALM_S if self._demand.is_settled else LOOK_AFTER_S, self._demand.leave
            )
        )
        others: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._stopped.wait())]
        if freed is not None:
            others.append(asyncio.ensure_future(self._executor.isolate_freed.after(freed)))
        await asyncio.wait((hint, *others), return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        if hint.done():
            hint.result()
        else:
            hint.cancel()
