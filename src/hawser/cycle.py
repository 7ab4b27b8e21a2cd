"""How every background part runs: one turn after another until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from hawser.errors import StoreError

_logger = logging.getLogger("hawser.worker")

STORE_FIRST_WAIT_S: Final = 0.1
STORE_LONGEST_WAIT_S: Final = 5.0
"""Seconds between tries while the store is away, doubled from the first to the longest, with jitter."""


class Unasked(float):
    """Seconds to wait after a turn that had nothing to write: it does not show that the store is back."""


class Cycle:
    """Calls `turn` again and again; each turn says how many seconds to wait before the next.

    While the store is away the waits grow, with jitter, and it is logged once that it went and once that it came back.
    A turn that fails in any other way is logged and tried again: a part never ends by itself.
    """

    def __init__(self, name: str, turn: Callable[[], Awaitable[float]], wanted: asyncio.Event | None = None) -> None:
        """Setting `wanted` begins the next turn, as `wake` does; the cycle clears it."""
        self.name = name
        self.away = 0
        """Turns in a row that found the store away."""
        self._turn = turn
        self._wanted = wanted or asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"hawser-{self.name}")

    async def stop(self) -> None:
        """Finish the turn that is under way, then end."""
        self._stopping = True
        self._wanted.set()
        if self._task is not None:
            await self._task

    def wake(self) -> None:
        """Have the next turn now."""
        self._wanted.set()

    async def _run(self) -> None:
        while not self._stopping:
            self._wanted.clear()
            wait = await self._one()
            if wait <= 0:
                await asyncio.sleep(0)  # a store that never suspends must not keep the loop from other tasks
            elif not self._stopping:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._wanted.wait()

    async def _one(self) -> float:
        try:
            wait = await self._turn()
        except StoreError as error:
            if not self.away:
                _logger.warning("%s: the store is away: %s", self.name, error)
            self.away += 1
            return wait_after(self.away)
        except Exception:
            _logger.exception("%s: a turn failed; it is tried again", self.name)
            return 1.0
        if self.away and not isinstance(wait, Unasked):
            _logger.warning("%s: the store is back", self.name)
            self.away = 0
        return wait


def wait_after(failures: int, first: float = STORE_FIRST_WAIT_S, longest: float = STORE_LONGEST_WAIT_S) -> float:
    """Seconds to wait after so many failures in a row: doubling, capped, with jitter."""
    ceiling: float = min(longest, first * 2.0 ** min(failures - 1, 16))
    return random.uniform(0.5, 1) * ceiling  # noqa: S311  # spreads load, keeps no secret
