"""What a call costs: of many the fastest, for what else a machine does makes none of them faster."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

CALLS: Final = 30
ROUNDS: Final = 10
"""On a machine that is busy for seconds. A cost that grows with what is there is above the bound in all of them."""


async def fastest(call: Callable[[], Awaitable[object]], under: float = float("inf")) -> float:
    """Seconds. Asked again as long as it is not under what is wanted, for some rounds at most."""
    best = float("inf")
    for _ in range(ROUNDS):
        for _ in range(CALLS):
            started = time.perf_counter()
            await call()
            best = min(best, time.perf_counter() - started)
        if best < under:
            break
    return best
