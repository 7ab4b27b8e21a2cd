"""Logins with wrong keys: a few a minute from each address, so that keys cannot be guessed at the speed of the server."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from hawser.api.problem import Problem

if TYPE_CHECKING:
    from hawser.api.response import Scope

MOST_WRONG_KEYS: Final = 5
WRONG_KEYS_WINDOW_S: Final = 60.0
"""Seconds in which an address may send `MOST_WRONG_KEYS` wrong keys."""

MAX_ADDRESSES: Final = 10_000
"""Addresses that are remembered; beyond them the ones that were wrong longest ago are forgotten."""


class LoginGuard:
    """Remembers when an address sent a wrong key. What comes through a proxy has the address that the server was told."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: dict[str, list[float]] = {}

    @contextmanager
    def watched(self, scope: Scope) -> Iterator[None]:
        """Around the check of a key; a `Problem` (429) when there were too many wrong ones, whatever this one is."""
        client = scope.get("client")
        address = client[0] if client else ""
        now = self._clock()
        recent = [each for each in self._wrong.get(address, ()) if each > now - WRONG_KEYS_WINDOW_S]
        if len(recent) >= MOST_WRONG_KEYS:
            wait = str(math.ceil(recent[0] + WRONG_KEYS_WINDOW_S - now))
            text = f"{MOST_WRONG_KEYS} wrong keys within a minute from this address; try again in {wait} s"
            raise Problem(429, text, headers={"retry-after": wait})
        try:
            yield
        except Problem as problem:
            if problem.status == 401:
                self._wrong.pop(address, None)  # to the end: the oldest stand first
                self._wrong[address] = [*recent, now]
                while len(self._wrong) > MAX_ADDRESSES:
                    del self._wrong[next(iter(self._wrong))]
            raise
