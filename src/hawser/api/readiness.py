"""Whether the store takes writes: what readiness and `hawser_store_up` say."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from hawser.store import Store

STORE_ANSWERS_WITHIN_S: Final = 2.0
"""Seconds that the store has to answer before the server is not ready."""

WRITE_PROVES_FOR_S: Final = 3.0
"""Seconds after a write in which no other is tried, however many requests come."""


class Readiness:
    """A store may answer reads while another program keeps it from writing, as on SQLite. So an empty write is tried at times.

    One try at a time serves all who ask. It goes on when they give up, so that a store that is blocked is not asked anew
    by each of them.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._fresh_until = 0.0
        self._trying: asyncio.Task[None] | None = None

    def wrote(self) -> None:
        """The store has just taken a write."""
        self._fresh_until = self._clock() + WRITE_PROVES_FOR_S

    async def check(self, store: Store) -> None:
        """Raise what the store says, or `TimeoutError`, when it does not take writes."""
        if self._clock() < self._fresh_until:
            return
        loop = asyncio.get_running_loop()
        if self._trying is None or self._trying.done() or self._trying.get_loop() is not loop:
            self._trying = loop.create_task(self._try(store), name="hawser-readiness")
            self._trying.add_done_callback(_know)
        async with asyncio.timeout(STORE_ANSWERS_WITHIN_S):
            await asyncio.shield(self._trying)

    async def stop(self) -> None:
        """Withdraw a write that still waits."""
        if self._trying is not None and self._trying.get_loop() is asyncio.get_running_loop():
            self._trying.cancel()
            await asyncio.wait((self._trying,))

    async def _try(self, store: Store) -> None:
        await store.beat(())
        self.wrote()


def _know(tried: asyncio.Task[None]) -> None:
    """The caller may have given up: then the error is dropped here."""
    if not tried.cancelled():
        tried.exception()
