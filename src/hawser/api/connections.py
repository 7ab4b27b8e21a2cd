"""How many connections a server has at once, and from where; and what it says of those that it refuses."""

from __future__ import annotations

import ipaddress
import logging
import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from hawser.api.keyless import is_loopback
from hawser.api.problem import Problem

_logger = logging.getLogger("hawser.api")

TELL_EVERY: Final = 60.0
"""Seconds between two lines of the log about one kind of refusal: an attack must not fill the disk."""

_FILES: Final = 256
"""Open files that are kept for the store, the log and so on; a quarter where few are allowed."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller may take before it has shown a key."""

    total: int = 10_000
    per_address: int = 200
    """Connections from one address; of IPv6 from one /64. This machine and named proxies are exempt."""
    head: int = 32 * 1024
    """Bytes of a request before its body."""
    headers: int = 100
    within: float = 10.0
    """Seconds for the head, from the connection or the first byte on."""


class OpenConnection(Protocol):
    """A connection of a caller, as the limits see it."""

    client: tuple[str, int] | None

    def give_way(self) -> None:
        """End at once."""


class Connections:
    """Counts the connections of one server."""

    def __init__(self, limits: ConnectionLimits, exempt: Sequence[str] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._exempt = tuple(map(ipaddress.ip_network, exempt))
        self._clock = clock
        self._from: dict[OpenConnection, str | None] = {}
        self._counts: Counter[str] = Counter()
        self._silent: dict[OpenConnection, None] = {}
        """Those that have not asked for anything yet, the oldest first."""
        self._told: dict[str, float] = {}
        self._untold: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._from)

    def enter(self, caller: OpenConnection) -> Problem | None:
        """Count a connection; a `Problem` (429, 503) says that there is no room for it.

        When the server is full the oldest connection that has not asked for anything yet gives way: a client that opens many
        and sends nothing keeps no other client out.
        """
        place = self._place(caller)
        if place is not None and self._counts[place] >= self.limits.per_address:
            self.tell("address", caller, f"has {self.limits.per_address} connections open already: refused")
            text = f"{self.limits.per_address} connections are open from this address already; use them again, or close one"
            return Problem(429, text, headers={"retry-after": "5"})
        if len(self._from) >= self.limits.total:
            oldest = next(iter(self._silent), None)
            if oldest is None:
                self.tell("full", caller, f"was refused: {self.limits.total:,} connections are open already")
                return Problem(503, "the server has as many connections as it may; try again", headers={"retry-after": "1"})
            self.tell(
                "gave way", oldest, f"had asked for nothing yet and was cut off: {self.limits.total:,} connections are open"
            )
            self.leave(oldest)
            oldest.give_way()
        self._from[caller] = place
        self._silent[caller] = None
        if place is not None:
            self._counts[place] += 1
        return None

    def asks(self, caller: OpenConnection) -> None:
        """It has sent the head of a request."""
        self._silent.pop(caller, None)

    def leave(self, caller: OpenConnection) -> None:
        """It is gone; may be said twice, and of one that was refused."""
        self._silent.pop(caller, None)
        place = self._from.pop(caller, None)
        if place is not None:
            self._counts[place] -= 1
            if not self._counts[place]:
                del self._counts[place]

    def tell(self, kind: str, caller: OpenConnection, text: str) -> None:
        """Say in the log what was done to a connection, once a minute for each kind."""
        now = self._clock()
        if now - self._told.get(kind, float("-inf")) < TELL_EVERY:
            self._untold[kind] += 1
            return
        self._told[kind] = now
        more = self._untold.pop(kind, 0)
        who = "a caller" if caller.client is None else caller.client[0]
        _logger.warning("%s %s%s", who, text, f" ({more:,} more since this was last said)" if more else "")

    def _place(self, caller: OpenConnection) -> str | None:
        """What is counted as one address; None is exempt."""
        if caller.client is None or is_loopback(caller.client[0]):
            return None
        try:
            address = ipaddress.ip_address(caller.client[0].partition("%")[0])
        except ValueError:
            return None
        address = getattr(address, "ipv4_mapped", None) or address
        if any(address in network for network in self._exempt):
            return None
        return str(address if address.version == 4 else ipaddress.ip_network((address, 64), strict=False))


def room(wanted: int) -> int:
    """How many connections the limit of open files allows, once that was raised as far as it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    needed = wanted + _FILES
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    most = min(wanted, soft - min(_FILES, soft // 4))
    if most < wanted:
        _logger.warning("the limit of open files (%d) allows %d connections, not %d; raise it: ulimit -n", soft, most, wanted)
    return most
