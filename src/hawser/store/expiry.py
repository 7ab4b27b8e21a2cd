"""The part of the seam for jobs that are too late."""

from __future__ import annotations

from typing import Final, Protocol

EXPIRED: Final = "expired"
"""The reason with which a job is cancelled that was not started before its expiry."""


class ExpiryStore(Protocol):
    """What ends jobs that are too late, also where no claim meets them."""

    async def expire(self, limit: int) -> int:
        """Cancel up to `limit` waiting jobs that are past their expiry, no matter why they wait, and say how many.

        Running jobs go on. What waits for one of them goes on as when a person cancels it.
        """
