"""Whether the server may be trusted with jobs: looked at on each new connection, and every minute before a write."""

from __future__ import annotations

import time
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from hawser.errors import ConfigError, StoreUnavailable
from hawser.stores.redis.address import Address
from hawser.stores.redis.dial import fields
from hawser.stores.redis.errors import is_for_now

CHECK_EVERY: Final = 60.0
"""Seconds between two looks at the server's settings: they can be changed while it runs."""

MUST_BE: Final = {
    "appendonly": ("yes", "what it accepts is in memory only"),
    "appendfsync": ("always", "it answers before a write is on the disk"),
    "no-appendfsync-on-rewrite": ("no", "while it rewrites its log it does not sync"),
}
"""Settings of a server that keeps what it accepts, and what another value means."""

OLDEST_SERVERS: Final = {"redis": (7, 0), "valkey": (7, 2)}


class Safety:
    """What the last look of this process found. While it is wrong, new jobs are refused and the rest drains."""

    def __init__(self, address: Address) -> None:
        self.where = address.where
        self._address = address
        self._looked = time.monotonic()
        self._wrong: str | None = None

    def is_old(self) -> bool:
        """Whether it is time to look again; each write asks this."""
        return time.monotonic() - self._looked >= CHECK_EVERY

    def check_trusted(self) -> None:
        """Raise `ConfigError` when the server must not be trusted with jobs."""
        if self._wrong is not None:
            raise ConfigError(self._wrong)

    def check_may_add(self) -> None:
        """Raise `StoreUnavailable` when new jobs must not be given to the server; nothing was written."""
        if self._wrong is not None:
            raise StoreUnavailable(f"{self._wrong}; nothing was written")

    async def look(self, con: AbstractConnection) -> None:
        """Look at the server at the other end. It need not be the one that was there before."""
        info = fields(await _asked(con, "INFO"))
        self._wrong = self._unfit(info) or await self._not_durable(con)
        self._looked = time.monotonic()

    def _unfit(self, info: dict[str, str]) -> str | None:
        """Too old, a cluster, or one that removes keys."""
        kind = "valkey" if "valkey_version" in info else "redis"
        version = info.get(f"{kind}_version", "0.0")
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_SERVERS[kind]:
            oldest = ".".join(map(str, OLDEST_SERVERS[kind]))
            return f"store: {self.where} has version {version}; Hawser needs {kind.capitalize()} {oldest} or newer"
        if info.get("cluster_enabled") == "1":
            return (
                f"store: {self.where} is a cluster; a store lives in one slot, so a cluster adds nothing: use a server with "
                "replicas, and several stores to scale out"
            )
        policy = info.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            return f"store: {self.where} removes keys when its memory is full ({policy}); set maxmemory-policy noeviction"
        return None

    async def _not_durable(self, con: AbstractConnection) -> str | None:
        if self._address.durability != "durable":
            return None
        otherwise = "or say that losing jobs is acceptable by adding ?durability=relaxed to the URL"
        try:
            found = await _asked(con, "CONFIG", "GET", *MUST_BE)
        except ResponseError as error:
            if is_for_now(error):
                raise
            if self._address.trusted:
                return None
            return (
                f"store: {self.where} does not show its settings, so it is unknown whether it keeps what it accepts; "
                f"add ?trust=always to the URL if it runs with appendonly yes and appendfsync always, {otherwise}"
            )
        settings = {name.decode(): value.decode() for name, value in zip(found[::2], found[1::2], strict=True)}
        for name, (right, meaning) in MUST_BE.items():
            if settings.get(name) != right:
                return f"store: {name} is not {right} at {self.where}: {meaning}; set it, {otherwise}"
        return None


async def _asked(con: AbstractConnection, *command: str) -> Any:
    await con.send_command(*command)
    return await con.read_response()
