"""A clock that moves only when told to."""

from __future__ import annotations

from datetime import UTC, datetime

from hawser.clock import from_datetime, to_us


class ManualClock:
    """Starts at a fixed instant; `advance` moves it, back too."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, 12, tzinfo=UTC)) -> None:
        self._us = from_datetime(start)

    def now(self) -> int:
        """The time, as a store's timestamp: microseconds since 1970."""
        return self._us

    def set(self, us: int) -> None:
        """Move to this store's timestamp."""
        self._us = us

    def advance(self, seconds: float) -> None:
        """Move by so many seconds."""
        self._us += to_us(seconds)
