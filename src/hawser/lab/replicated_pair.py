"""Two PostgreSQL servers: a primary, and a standby that every commit waits for. At a promotion they change places."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from hawser.errors import ConfigError
from hawser.lab.chaos.wire import Wire
from hawser.lab.cluster import SERVER_STARTS_WITHIN_S, Cluster
from hawser.lab.store_under_test import same_store

PAIR_NAMES: Final = ("one", "two")

PAIR_SETTINGS: Final = {"max_connections": 200, "wal_keep_size": "256MB", "wal_receiver_status_interval": "1s"}
"""Of both servers; a standby that is made from a busy primary must still find where to go on."""

CANCEL: Final = "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'"
"""An administrator who frees commits that wait for their standby: the server then says that they are done."""

SESSIONS: Final = "select count(*) from pg_stat_activity where application_name = 'hawser'"

_FOLLOWS = "select count(*) from pg_stat_replication where application_name = '{name}' and state = 'streaming'"
_IS_ATTACHED = (
    "select count(*) from pg_stat_replication "
    "where application_name = '{name}' and sync_state = '{state}' and flush_lsn >= '{lsn}'::pg_lsn"
)


class Pair:
    """Use as a context manager: both servers and their folder are gone in the end.

    Between a promotion and `rebuild` the primary is alone and answers without a standby, as it must to answer at all: what it
    accepts then is on one disk.
    """

    def __init__(
        self, *, version: int | None = None, settings: Mapping[str, object] | None = None, synchronous: bool = True
    ) -> None:
        self.synchronous = synchronous
        """False: commits do not wait for the standby, so a promotion may lose what was accepted."""
        self.folder = Path(tempfile.mkdtemp(prefix="hawser-pair-"))
        self.folder.chmod(0o755)
        self.servers = tuple(
            Cluster(
                version=version, settings={**PAIR_SETTINGS, **(settings or {}), "cluster_name": name}, folder=self.folder / name
            )
            for name in PAIR_NAMES
        )
        self.primary, self.standby = self.servers
        self._link: Wire | None = None
        self.promotions = 0

    @property
    def url(self) -> str:
        """Of both servers, always in the same order; the store goes to the one that takes writes."""
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"

    def direct(self, server: Cluster, url: str) -> str:
        """The store of that URL for one who knows of this server only."""
        return same_store(url, server.tcp_url, timeout=1, durability="relaxed")

    def sessions(self, server: Cluster) -> int:
        """Connections of stores on a server."""
        return int(server.ask(SESSIONS))

    def cancel_waits(self, server: Cluster) -> int:
        """Free the commits that wait there for a standby; gives how many."""
        return server.ask(CANCEL).count("t")

    def __enter__(self) -> Self:
        try:
            self.primary.make()
            self.primary.start()
            self.rebuild()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def part(self) -> None:
        """The two do not hear of each other any more, though neither can tell: what is written now is on the primary only."""
        assert self._link is not None
        self._link.swallow()

    def freeze_a_replica(self) -> None:
        """There is one standby only, and every commit waits for it."""
        raise NotImplementedError

    def promote(self) -> Cluster:
        """The standby takes over, also when the primary is alive; gives the old primary, to be killed, thawed or looked at."""
        old = self.primary
        self.standby.promote()
        self.primary, self.standby = self.standby, old
        self.promotions += 1
        return old

    def rebuild(self) -> None:
        """Make the other server a standby of the primary, from a copy; when this returns every commit waits for it."""
        self._unlink()
        self._link = Wire(self.primary.port)
        self._link.start()
        self.standby.follow(self.primary, self._link.port)
        name = PAIR_NAMES[self.servers.index(self.standby)]
        # A copy of the primary's settings would have it wait for itself once it is promoted.
        self.standby.ask("alter system reset synchronous_standby_names", "select pg_reload_conf()")
        self._await(_FOLLOWS.format(name=name))
        if self.synchronous:
            self.primary.ask(f"alter system set synchronous_standby_names = '{name}'", "select pg_reload_conf()")
        self._await(_IS_ATTACHED.format(name=name, state="sync" if self.synchronous else "async", lsn=self._position()))

    def _position(self) -> str:
        return self.primary.ask("select pg_current_wal_lsn()")

    def _await(self, sql: str) -> None:
        end = time.monotonic() + SERVER_STARTS_WITHIN_S
        while self.primary.ask(sql) != "1":
            if time.monotonic() > end:
                tail = (self.standby.folder / "log").read_text(errors="replace")[-2000:]
                raise ConfigError(f"the standby in {self.standby.folder} does not follow; the end of its log:\n{tail}")
            time.sleep(0.02)

    def _unlink(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.stop()

    def remove(self) -> None:
        """Stop both servers and delete their folder."""
        self._unlink()
        for server in self.servers:
            server.crash()
            server.remove()
        shutil.rmtree(self.folder, ignore_errors=True)
