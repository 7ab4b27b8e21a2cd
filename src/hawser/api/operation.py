"""Bulk operations while they run in this process: at their rate, step by step, until they are through, stopped or taken over.

The store keeps the operation. Each step is one write that carries the operation's turn and cursor, so a process that was frozen
while another took the operation over writes nothing any more.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from hawser.api.replay_watch import ENDS_LOOK_EVERY_S, ReplayWatch
from hawser.cycle import wait_after
from hawser.errors import StoreError
from hawser.job import Job
from hawser.store import BULK_SILENCE, BulkOperation, BulkState, BulkStep, Page, Store

_logger = logging.getLogger("hawser.api")

_BATCH: Final = 100
_WRITES_PER_SECOND: Final = 5
_BEAT_EVERY: Final = BULK_SILENCE / 4
_LOOKS_PER_BEAT: Final = int(_BEAT_EVERY / ENDS_LOOK_EVERY_S)
_TAKE_EVERY: Final = BULK_SILENCE / 4
_TAKEN_AT_ONCE: Final = 10

Confirms = Callable[[Job], bool]
"""Whether a job asks for a confirmation before it is requeued."""


class OperationRun:
    """Acts on the jobs that match, newest first, each once, for as long as this process has the operation's turn."""

    def __init__(self, store: Store, operation: BulkOperation, asks: Confirms) -> None:
        self.operation = operation
        """As it was when it was last written or read here."""
        self._store = store
        self._asks = asks
        self._turn = operation.turn
        paced = max(1, min(_BATCH, int(operation.plan.rate / _WRITES_PER_SECOND)))
        self._size = paced if operation.plan.spread is None else _BATCH
        self._watch = None if operation.plan.stop_if is None else ReplayWatch(operation.plan.stop_if)
        self._due = time.monotonic()
        self._idle = 0
        """Looks in vain at jobs that should end before others begin."""
        self._leaving = False
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"hawser-{self.operation.plan.action}")

    @property
    def over(self) -> bool:
        return self._task is not None and self._task.done()

    async def ended_within(self, seconds: float) -> None:
        assert self._task is not None
        await asyncio.wait((self._task,), timeout=seconds)

    def wake(self) -> None:
        """The operation was stopped: do not wait for the next step's time."""
        self._woken.set()

    async def leave(self) -> None:
        """Finish the write that is under way, and let another process go on."""
        self._leaving = True
        self._woken.set()
        if self._task is not None:
            await self._task
        if self._is_ours():
            with suppress(StoreError):
                await self._store.release_bulk(self.operation.id, self._turn)

    async def _run(self) -> None:
        failures = 0
        while self._is_ours() and not self._leaving:
            try:
                if failures:
                    await self._read()  # the last write may have been made
                if self._is_ours():
                    await self._next()
                failures = 0
            except StoreError as error:
                if not failures:
                    _logger.warning("%s of many jobs: the store is away: %s", self.operation.plan.action, error)
                failures += 1
                await self._sleep(wait_after(failures))
            except Exception as error:
                _logger.exception("%s of many jobs failed", self.operation.plan.action)
                await self._fail(error)

    def _is_ours(self) -> bool:
        return self.operation.state is BulkState.RUNNING and self.operation.turn == self._turn

    async def _read(self) -> None:
        known = await self._store.bulk(self.operation.id)
        assert known is not None, "an operation that runs is kept"
        self.operation = known

    async def _next(self) -> None:
        """One step, when its time has come."""
        if (left := self._due - time.monotonic()) > 0:
            await self._sleep(min(left, _BEAT_EVERY))
            if left > _BEAT_EVERY and not self._leaving:
                await self._write((), 0, self.operation.cursor)  # a sign of life
            return
        if self._watch is not None:
            if (reason := await self._watch.verdict(self._store)) is not None:
                await self._write((), 0, self.operation.cursor, BulkState.STOPPED, reason)
                return
            if not self._watch.room:
                self._due = time.monotonic() + ENDS_LOOK_EVERY_S
                self._idle += 1
                if self._idle % _LOOKS_PER_BEAT == 0:
                    await self._write((), 0, self.operation.cursor)  # a sign of life
                return
        most = self._most()
        if not self.operation.plan.newest or not most:
            await self._write((), 0, self.operation.cursor, BulkState.DONE)
            return
        # The cursor goes down the ids, so a job that dies again meanwhile is not met again.
        page = await self._store.find(self.operation.plan.filter, self.operation.cursor, min(self._size, most))
        await self._act(page)

    async def _act(self, page: Page) -> None:
        plan = self.operation.plan
        looked_at = [job for job in page.jobs if job.id <= plan.newest]
        ids = [job.id for job in looked_at if plan.action != "requeue" or plan.confirm or not self._asks(job)]
        cursor = page.next or (page.jobs[-1].id if page.jobs else self.operation.cursor)
        if plan.spread is None:
            self._due = max(self._due, time.monotonic()) + len(ids) / plan.rate
        await self._write(tuple(ids), len(looked_at) - len(ids), cursor, None if page.next else BulkState.DONE)

    def _most(self) -> int:
        """How many more jobs it may look at now."""
        now, plan = self.operation, self.operation.plan
        most = _BATCH if plan.most is None else plan.most - now.done - now.skipped
        limit = _BATCH if plan.limit is None else plan.limit - now.done
        room = _BATCH if self._watch is None else self._watch.room
        return max(0, min(most, limit, room))

    async def _write(
        self,
        ids: tuple[str, ...],
        skipped: int,
        cursor: str | None,
        ends: BulkState | None = None,
        error: str | None = None,
    ) -> None:
        now = self.operation
        spread, delay = self._times(len(ids))
        step = BulkStep(
            id=now.id,
            turn=self._turn,
            behind=now.cursor,
            cursor=cursor,
            ids=ids,
            skipped=skipped,
            ends=ends,
            error=error,
            spread=spread,
            delay=delay,
        )
        written = await self._store.step_bulk(step)
        if written is None:
            await self._read()  # stopped, taken over, or written before an answer was lost
        else:
            self.operation = written
            if self._watch is not None and written.done - now.done == len(ids):
                self._watch.began(ids)

    def _times(self, count: int) -> tuple[float, float]:
        """Over how many seconds the next jobs fall due, and in how many seconds the first of them does."""
        now, plan = self.operation, self.operation.plan
        most = min((each for each in (plan.most, plan.limit) if each is not None), default=0)
        if plan.spread is None or not most:
            return 0.0, 0.0
        return plan.spread * count / most, min(plan.spread, plan.spread * (now.done + now.skipped) / most)

    async def _fail(self, error: Exception) -> None:
        try:
            await self._write((), 0, self.operation.cursor, BulkState.FAILED, f"{type(error).__name__}: {error}")
        except StoreError:
            await self._sleep(wait_after(1))

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
                self._woken.clear()


class BulkRunner:
    """The bulk operations that this process runs."""

    def __init__(self, asks: Confirms) -> None:
        self.owner = f"{socket.gethostname()}:{os.getpid()}"
        self._asks = asks
        self._runs: dict[str, OperationRun] = {}
        self._stopping = False

    def run(self, store: Store, operation: BulkOperation) -> OperationRun:
        self._runs = {id: run for id, run in self._runs.items() if not run.over}
        run = self._runs[operation.id] = OperationRun(store, operation, self._asks)
        run.start()
        return run

    def wake(self, id: str) -> None:
        if id in self._runs:
            self._runs[id].wake()

    async def turn(self, store: Store) -> float:
        """Take over what no process runs any more."""
        if self._stopping:
            return _TAKE_EVERY
        for taken in await store.take_bulks(self.owner, _TAKEN_AT_ONCE):
            _logger.warning("going on with the operation %s (%s), which was interrupted", taken.id, taken.plan.action)
            self.run(store, taken)
        return _TAKE_EVERY

    async def stop(self) -> None:
        """Let other processes go on with what runs here."""
        self._stopping = True
        for run in list(self._runs.values()):
            await run.leave()
