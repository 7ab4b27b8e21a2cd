"""What a server logs of its callers: those that it refused, and, when that is switched on, every request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from hawser.api.problem import Problem, printable
from hawser.api.route import Route

_refusals = logging.getLogger("hawser.api")
_access = logging.getLogger("hawser.access")

REFUSED: Final = (401, 403)

REFUSALS_LOGGED: Final = 10
"""Refusals that are logged within `PERIOD`, each in a line; the others are counted in one more."""

PERIOD: Final = 1.0
"""Seconds."""

_LONGEST_SHOWN: Final = 128
"""Characters of a value: callers choose some of them."""


class Visits:
    """Writes a line for a refusal, a few a second, and for every request if told to."""

    def __init__(self, *, access_log: bool, clock: Callable[[], float] = time.monotonic, period: float = PERIOD) -> None:
        self._access_log = access_log
        self._clock = clock
        self._period = period
        self._since = float("-inf")
        self._lines = 0
        self._more = 0
        self._timer: asyncio.TimerHandle | None = None

    def refused(self, scope: Mapping[str, Any], route: Route | None, problem: Problem, by: str | None) -> None:
        """Log a 401 or 403: who was refused what, and why."""
        now = self._clock()
        if now - self._since >= self._period:
            self.flush()
            self._since, self._lines = now, 0
        if self._lines >= REFUSALS_LOGGED:
            self._more += 1
            if self._timer is None:
                # A flood that ends must not take its count along.
                self._timer = asyncio.get_running_loop().call_later(self._period, self.flush)
            return
        self._lines += 1
        text = _fields(scope, route, problem.status, by) | {"reason": problem.detail}
        _refusals.warning("request refused: %s", _line(text))

    def flush(self) -> None:
        """Say how many refusals were left out."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._more:
            _refusals.warning("request refused: %s more with 401 or 403", self._more)
            self._more = 0

    def ended(self, scope: Mapping[str, Any], route: Route | None, status: int | None, seconds: float, by: str | None) -> None:
        """Log a request that is over; without a status its caller hung up, or the server went down."""
        if self._access_log:
            _access.info("%s", _line(_fields(scope, route, status, by) | {"ms": f"{seconds * 1000:.1f}"}))


def _fields(scope: Mapping[str, Any], route: Route | None, status: int | None, by: str | None) -> dict[str, str]:
    client = scope.get("client")
    return {
        "method": scope["method"],
        # Not the path, which may hold what the caller keeps secret, nor the query, which may hold the token.
        "route": "-" if route is None else route.path,
        "status": "-" if status is None else str(status),
        "by": by or "-",
        "address": client[0] if client else "-",
    }


def _line(fields: Mapping[str, str]) -> str:
    return " ".join(f"{name}={_value(value)}" for name, value in fields.items())


def _value(text: str) -> str:
    """In one word, or in quotes; control characters are escaped, for any formatter."""
    cut = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
    if cut.isascii() and cut.isprintable() and not set(cut) & {" ", '"', "=", "\\"}:
        return cut
    return f'"{printable(cut.replace(chr(92), chr(92) * 2)).replace(chr(34), chr(92) + chr(34))}"'
