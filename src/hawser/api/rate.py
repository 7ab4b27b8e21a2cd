"""How many requests and jobs a second a key may send: a bucket that holds one second's worth."""

from __future__ import annotations

from collections.abc import Callable


class Bucket:
    """Fills at `rate` a second, holds a second of it, at least one."""

    __slots__ = ("_at", "_clock", "_left", "_rate", "_size")

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._clock = clock
        self._size = max(1.0, rate)
        self._left = self._size
        self._at = clock()

    def take(self) -> float:
        """Take one; 0 when there was one, else the seconds until there will be."""
        now = self._clock()
        self._left = min(self._size, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) / self._rate

    def owe(self, more: int) -> None:
        """Take what a request turned out to carry. It may leave a debt, which is paid off before the next request passes."""
        self._left -= more
