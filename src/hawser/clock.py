"""Time as a parameter. Stores read it from one object, so a test can hold it still."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_DELAY: Final = 10 * 365 * 86_400.0
"""Seconds: the longest time that a caller may ask for."""

MICROSECOND = timedelta(microseconds=1)


class Clock(Protocol):
    """What a store asks for the time."""

    def now(self) -> int:
        """Microseconds since the epoch, as the store sees them."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1000


class Watch:
    """Reads a clock and notices when it was set back."""

    def __init__(self, clock: Clock, on_set_back: Callable[[int, int], None] | None = None) -> None:
        """`on_set_back` is called with the time as it is now and as it was."""
        self._clock = clock
        self._latest = 0
        self._on_set_back = on_set_back
        self.set_back = 1
        """How often it was. One at first: what happened before this process started is not known."""
        self.before = 0
        """The time as it was when it was last set back."""

    def now(self) -> int:
        now = self._clock.now()
        if now < self._latest:
            self.set_back += 1
            self.before = self._latest
            if self._on_set_back is not None:
                self._on_set_back(now, self.before)
        self._latest = now
        return now

    @property
    def latest(self) -> int:
        """What it said when it was last read."""
        return self._latest

    def state(self) -> tuple[int, int, int]:
        """What it knows, for `restore`."""
        return self._latest, self.set_back, self.before

    def restore(self, latest: int, set_back: int | None = None, before: int | None = None) -> None:
        """Go on from what another watch knew; None leaves a figure as it is."""
        self._latest = latest
        self.set_back = self.set_back if set_back is None else set_back
        self.before = self.before if before is None else before


def to_us(seconds: float) -> int:
    """A duration in whole microseconds."""
    return round(seconds * 1_000_000)


def at(us: int) -> datetime:
    """The instant of a store's timestamp."""
    return _EPOCH + timedelta(microseconds=us)


def from_datetime(when: datetime) -> int:
    """A store's timestamp of an aware instant."""
    return (when - _EPOCH) // MICROSECOND
