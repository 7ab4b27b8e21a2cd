"""Waiting in a test for something that becomes true by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


async def until(true: Callable[[], Awaitable[bool]], within: float = 10.0) -> None:
    deadline = time.monotonic() + within
    while not await true():
        assert time.monotonic() < deadline, f"it did not come true within {within:g} s"
        await asyncio.sleep(0.02)
