"""Three Redis servers and a sentinel: a primary, two replicas, and who promotes one of them when the primary is silent."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from hawser.errors import ConfigError
from hawser.lab.cluster import SERVER_STARTS_WITHIN_S
from hawser.lab.redis_server import MASTER, RedisServer, SentinelProcess
from hawser.lab.store_under_test import same_store

TRIO_NAMES: Final = ("one", "two", "three")
SILENCE_S: Final = 2.0
"""Seconds without an answer after which the sentinel gives up the primary."""

CLOSED: Final = 1
"""A port at which no server listens."""


class RedisTrio:
    """Use as a context manager: all is gone in the end. With `synchronous` a store waits for one replica at each write.

    Two replicas, as the one that is left must confirm what the promoted one accepts.
    """

    def __init__(self, *, lanes: str = "lists", fsync: bool = True, synchronous: bool = True) -> None:
        self.synchronous = synchronous
        """False: writes do not wait for a replica, so a promotion may lose what was accepted."""
        self.folder = Path(tempfile.mkdtemp(prefix="hawser-trio-"))
        settings = {} if fsync else {"appendfsync": "no"}
        self.servers = tuple(RedisServer(settings=settings, folder=self.folder / name) for name in TRIO_NAMES)
        self.primary = self.servers[0]
        self.sentinel = SentinelProcess(self.primary, silence=SILENCE_S, folder=self.folder / "sentinel")
        self.promotions = 0
        self._lanes = lanes

    @property
    def url(self) -> str:
        """Of the sentinel, who knows the primary."""
        return f"redis://127.0.0.1:{self.sentinel.port}/0?master={MASTER}&lanes={self._lanes}{self._confirmed}"

    @property
    def _confirmed(self) -> str:
        return "&replicas=1" if self.synchronous else ""

    def direct(self, server: RedisServer, url: str) -> str:
        """The store of that URL for one who knows of this server only."""
        return same_store(url, server.tcp_url, timeout=1, durability="relaxed") + self._confirmed

    @property
    def replicas(self) -> list[RedisServer]:
        return [server for server in self.servers if server is not self.primary]

    def __enter__(self) -> Self:
        try:
            self.primary.start()
            for replica in self.replicas:
                replica.follow(self.primary)
            self.sentinel.start()
            self._await_sentinel()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def part(self) -> None:
        """The replicas do not hear of the primary any more: what is written now is on the primary only."""
        for replica in self.replicas:
            replica.ask("REPLICAOF", "127.0.0.1", CLOSED)

    def freeze_a_replica(self) -> None:
        """One hears nothing until the other is promoted. When this returns the sentinel has noticed, and will not choose it."""
        known = self.sentinel.knows_replicas()
        self.replicas[0].freeze()
        self._await(lambda: self.sentinel.knows_replicas() < known, "takes a frozen replica for one that answers")

    def promote(self) -> RedisServer:
        """Wait until the sentinel has promoted a replica and the other follows it; gives the old primary."""
        old = self.primary
        self._await(lambda: self.sentinel.primary_port() != old.port, "promotes no replica")
        for replica in self.replicas:
            replica.thaw()
        self._gather([server for server in self.servers if server is not old])
        self.promotions += 1
        return old

    def rebuild(self) -> None:
        """Make all others replicas of the primary, also one that is not running."""
        for server in self.servers:
            server.thaw()
        self._gather(self.servers)
        self._await_sentinel()

    def _gather(self, servers: Sequence[RedisServer]) -> None:
        """All of these follow the one that the sentinel names.

        On a busy machine a primary may be silent for so long that the sentinel names another one meanwhile.
        """
        begun: dict[RedisServer, RedisServer] = {}

        def gathered() -> bool:
            [named] = [server for server in self.servers if server.port == self.sentinel.primary_port()]
            if not named.is_primary:
                return False
            named.settings.pop("replicaof", None)
            self.primary = named
            for server in servers:
                if server is not named and begun.get(server) is not named:
                    server.begin_to_follow(named)
                    begun[server] = named
            return all(server is named or server.is_in_step_with(named) for server in servers)

        self._await(gathered, "names no primary that the others follow")

    def sessions(self, server: RedisServer) -> int:
        """Connections of stores on a server."""
        return sum(b"name=hawser " in line for line in server.ask("CLIENT", "LIST").splitlines())

    def cancel_waits(self, server: RedisServer) -> int:  # noqa: ARG002
        """Nothing can be freed from waiting for a replica."""
        return 0

    def _await_sentinel(self) -> None:
        self._await(lambda: self.sentinel.knows_replicas() > 0, "knows no replica that it could promote")

    def _await(self, so: Callable[[], bool], otherwise: str) -> None:
        import redis  # noqa: PLC0415  # an extra

        end = time.monotonic() + SERVER_STARTS_WITHIN_S
        while time.monotonic() < end:
            with suppress(redis.RedisError):  # it starts, or is being promoted
                if so():
                    return
            time.sleep(0.02)
        tail = (self.sentinel.folder / "log").read_text(errors="replace")[-2000:]
        raise ConfigError(f"the sentinel in {self.sentinel.folder} {otherwise}; the end of its log:\n{tail}")

    def remove(self) -> None:
        """End all and delete their folder."""
        for process in (self.sentinel, *self.servers):
            process.remove()
        shutil.rmtree(self.folder, ignore_errors=True)
