"""A bulk action while it runs: at its rate, with its progress, until it is through or stopped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, Literal

from hawser.api.views import OperationView
from hawser.errors import StoreError
from hawser.ids import new_id
from hawser.job import Job
from hawser.store import Acted, Filter, Store

_logger = logging.getLogger("hawser.api")

_BATCH: Final = 100
_WRITES_PER_SECOND: Final = 5
_REMEMBERED: Final = 100


class Operation:
    """Acts on jobs that match, newest first, each once: none newer than `newest`, and no more than `most`."""

    def __init__(
        self,
        action: str,
        store: Store,
        filter: Filter,
        newest: str,
        most: int | None,
        write: Callable[[Sequence[str]], Awaitable[list[Acted]]],
        refuse: Callable[[Job], str | None],
        rate: float,
    ) -> None:
        self.id = new_id()
        self.action = action
        self.done = 0
        self.skipped = 0
        self.state: Literal["running", "done", "stopped", "failed"] = "running"
        self._store = store
        self._filter = filter
        self._newest = newest
        self._most = most
        self._write = write
        self._refuse = refuse
        self._rate = rate
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"hawser-{self.action}")

    async def ended_within(self, seconds: float) -> None:
        assert self._task is not None
        await asyncio.wait((self._task,), timeout=seconds)

    async def stop(self) -> None:
        """End after the write that is under way."""
        if self._task is not None and not self._task.done():
            self.state = "stopped"
            self._stopped.set()
            with suppress(asyncio.CancelledError):
                await self._task

    def view(self) -> OperationView:
        return OperationView(id=self.id, action=self.action, state=self.state, done=self.done, skipped=self.skipped)

    async def _run(self) -> None:
        try:
            await self._go_through()
        except StoreError as error:
            _logger.warning("%s of many jobs ended early: %s", self.action, error)
            self.state = "failed"
        except Exception:
            _logger.exception("%s of many jobs failed", self.action)
            self.state = "failed"
        else:
            if self.state == "running":
                self.state = "done"

    async def _go_through(self) -> None:
        after: str | None = None
        size = max(1, min(_BATCH, int(self._rate / _WRITES_PER_SECOND)))
        due = time.monotonic()
        while self._newest and not self._is_over():
            # The cursor goes down the ids, so a job that dies again meanwhile is not met again.
            page = await self._store.find(self._filter, after, _BATCH)
            ids = [job.id for job in page.jobs if job.id <= self._newest and not self._left_out(job)]
            for start in range(0, len(ids), size):
                batch = ids[start : start + size][: self._room()]
                if not batch:
                    return
                await self._until(due)
                if self._is_over():
                    return
                due = max(due, time.monotonic()) + len(batch) / self._rate
                self._count(await self._write(batch))
            if page.next is None:
                return
            after = page.next

    async def _until(self, due: float) -> None:
        """Wait for the next write's turn; whoever stops us need not wait for it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(due - time.monotonic()):
                await self._stopped.wait()

    def _left_out(self, job: Job) -> bool:
        refused = self._refuse(job) is not None
        self.skipped += refused
        return refused

    def _room(self) -> int | None:
        return None if self._most is None else max(0, self._most - self.done - self.skipped)

    def _is_over(self) -> bool:
        return self.state != "running"

    def _count(self, answers: list[Acted]) -> None:
        did = sum(answer in (Acted.DONE, Acted.ASKED) for answer in answers)
        self.done += did
        self.skipped += len(answers) - did


class Operations:
    """The operations of one server, the latest of them."""

    def __init__(self) -> None:
        self._known: dict[str, Operation] = {}

    def start(self, operation: Operation) -> None:
        over = [id for id, known in self._known.items() if known.state != "running"]
        for id in over[: max(0, len(self._known) - _REMEMBERED)]:
            del self._known[id]
        self._known[operation.id] = operation
        operation.start()

    def get(self, id: str) -> Operation | None:
        return self._known.get(id)

    def all(self) -> list[Operation]:
        return list(reversed(self._known.values()))

    async def stop(self) -> None:
        for operation in self._known.values():
            await operation.stop()
