"""Which server is the primary, as all connections of one process know it.

After a failover the old primary may come back and still act as the primary. Every promotion begins a new timeline, so
the old one has the lower number: a process that has seen the new timeline never goes back to it.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

import asyncpg

from hawser.stores.postgres.errors import OldPrimary

_IDENTIFY: Final = """
select coalesce(s.system_identifier, 0), pg_is_in_recovery(),
    case when pg_is_in_recovery() then 0 else ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint end
from pg_control_system() as s"""
"""Needs no right of its own on a plain server. The timeline of the last checkpoint would not do: it is late after a promotion."""

_CHECK_CLIENT: Final = "set client_connection_check_interval = '5s'"
"""The server ends a statement whose caller is gone. Not every system that a server runs on can do it."""


class Standing(NamedTuple):
    """What a server says of itself."""

    system: int
    """The same for a primary and its standbys; 0 when it does not tell."""
    timeline: int
    """Of a primary; 0 of a standby, and when it does not tell."""
    in_recovery: bool

    def is_older_than(self, other: Standing) -> bool:
        """Whether it was a primary before the other one."""
        return self.system == other.system and 0 < self.timeline < other.timeline


UNKNOWN_STANDING: Final = Standing(0, 0, in_recovery=False)


async def identify(con: asyncpg.Connection) -> Standing:
    """Ask a server. Services that only look like PostgreSQL may refuse the question: then nothing is known."""
    try:
        [row] = await con.fetch(_IDENTIFY)
    except asyncpg.PostgresError as error:
        if con.is_closed() or (error.sqlstate or "08").startswith(("08", "57")):
            raise
        return UNKNOWN_STANDING
    system, in_recovery, timeline = row
    return Standing(system, timeline, in_recovery)


async def check_client(con: asyncpg.Connection) -> None:
    """Let the server notice when this process is gone during a statement."""
    try:
        await con.execute(_CHECK_CLIENT)
    except asyncpg.PostgresError as error:
        if con.is_closed() or (error.sqlstate or "08").startswith(("08", "57")):
            raise


def old_primary(standing: Standing, newest: Standing) -> OldPrimary:
    """Our error for a server that another has replaced."""
    return OldPrimary(
        f"a server that was replaced still acts as the primary: it is on timeline {standing.timeline}, and timeline"
        f" {newest.timeline} was promoted since; stop it or make it a standby. If it was set back to a backup on purpose,"
        " start this process again"
    )


class Primary:
    """The primary that this process has seen last. Used from all its threads."""

    def __init__(self) -> None:
        self.host: str | None = None
        """Where it is; None when it is not known, or no more: then all hosts are asked."""
        self.standing = UNKNOWN_STANDING
        self._guard = threading.Lock()

    def accept(self, host: str, standing: Standing) -> bool:
        """A server took us in that can be written to. Whether it is another primary than before; an error if it is older."""
        with self._guard:
            if standing.is_older_than(self.standing):
                raise old_primary(standing, self.standing)
            before, self.host = self.standing, host
            if standing != UNKNOWN_STANDING:
                self.standing = standing
        return before not in (UNKNOWN_STANDING, self.standing)

    def doubt(self, host: str) -> None:
        """That host did not answer: all are asked before the next connection is made."""
        with self._guard:
            if self.host == host:
                self.host = None

    def has_left(self, standing: Standing) -> bool:
        """Whether a connection to a server of that standing is to be closed."""
        return UNKNOWN_STANDING not in (standing, self.standing) and standing != self.standing
