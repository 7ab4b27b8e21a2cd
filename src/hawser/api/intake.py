"""Where the jobs of many requests become one write: what arrives while one is under way goes into the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from hawser.batcher import Batcher
from hawser.errors import StoreError
from hawser.handle import Handle
from hawser.job import NewJob

REQUESTS_PER_WRITE: Final = 1_000
"""Requests in one write, so that the first of them does not wait for ever."""


class _Waiting(NamedTuple):
    jobs: Sequence[NewJob]
    answer: asyncio.Future[list[Handle[Any]]]


class Intake:
    """Adds jobs, one write at a time. Each request is still all or none, and gets its own answer.

    With 64 callers at once this halves what a request costs the process: a call of the store is mostly the way to it and back.
    """

    def __init__(self, put: Callable[[Sequence[NewJob]], Awaitable[list[Handle[Any]]]]) -> None:
        self._put = put
        self._requests: Batcher[_Waiting] = Batcher(REQUESTS_PER_WRITE)
        self._writing: asyncio.Task[None] | None = None

    async def put(self, jobs: Sequence[NewJob]) -> list[Handle[Any]]:
        """The jobs are in the store when this returns."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(jobs, loop.create_future())
        self._requests.add(waiting)
        if self._writing is None:
            self._writing = loop.create_task(self._write_all(), name="hawser-intake")
        return await waiting.answer

    async def _write_all(self) -> None:
        try:
            while batch := self._requests.take():
                await self._write(batch)
        finally:
            self._writing = None

    async def _write(self, batch: list[_Waiting]) -> None:
        try:
            handles = iter(await self._put([job for waiting in batch for job in waiting.jobs]))
        except Exception as error:  # noqa: BLE001  # it goes to whom it concerns
            # One of them does not fit, such as into a full queue, and nothing was written: find out which.
            if isinstance(error, StoreError) or not self._requests.split(batch):
                for waiting in batch:
                    if not waiting.answer.done():
                        waiting.answer.set_exception(error)
            return
        for waiting in batch:
            taken = [next(handles) for _ in waiting.jobs]
            if not waiting.answer.done():  # else its caller gave up
                waiting.answer.set_result(taken)
