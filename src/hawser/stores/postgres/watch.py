"""Looking after the hosts of a URL that names several: so that a promotion is noticed by processes that use the old primary.

A primary that is frozen does not close its connections, and one that is thawed later goes on answering. A process that only waits
for a call to time out, or for a connection to break, stays with it. So every host is asked now and then who it is. The first that
is on a newer timeline than the primary we knew is the primary from then on.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from hawser.stores.postgres.address import Address
from hawser.stores.postgres.errors import POSTGRES_UNREACHED
from hawser.stores.postgres.primary import Primary, Standing, identify

PRIMARY_LOOK_EVERY_S: Final = 2.0
"""Seconds between two looks at the primary and its standbys."""

OLD_EVERY: Final = 30.0
"""Seconds between two looks at a primary that was replaced, once it has been tidied up."""

HOST_ANSWERS_WITHIN_S: Final = 2.0
"""Seconds that a host has to answer."""

TIDY_AFTER: Final = 5.0
TIDY_UNTIL: Final = 60.0
"""Seconds after a promotion was noticed from which on, and up to which, sessions on the old primary are ended. Not at once: other
processes notice it within a look, and must not meet there what was written and is on no standby."""

TIDY: Final = """
select count(pg_terminate_backend(a.pid)) from pg_stat_activity as a
where a.usename = current_user and a.datname = current_database()
    and a.application_name = 'hawser' and a.wait_event = 'SyncRep'"""
"""Commits on an old primary that wait for a standby which has left it. Their callers were told that the outcome is unknown.
They hold a session and their locks until the server ends, however long the caller has been gone."""


class HostWatch:
    """One event loop's look at the hosts. It keeps a connection to the primary and to each standby, but not to an old primary."""

    def __init__(
        self, address: Address, primary: Primary, accept: Callable[[str, Standing], None], left_at: Callable[[], float]
    ) -> None:
        self._address = address
        self._primary = primary
        self._accept = accept
        self._left_at = left_at
        self._open: dict[str, asyncpg.Connection] = {}
        self._not_before: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        for con in self._open.values():
            con.terminate()
        self._open.clear()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(PRIMARY_LOOK_EVERY_S * random.uniform(0.75, 1.25))
            await self.turn()

    async def turn(self) -> None:
        """Ask every host that is due. Each answer is acted on as it comes: a frozen host must not keep us from the others'."""
        now = time.monotonic()
        due = [host for host in self._address.hosts if now >= self._not_before.get(host, 0.0)]
        await asyncio.gather(*(self._look(host) for host in due))

    async def _look(self, host: str) -> None:
        standing = await self._asked(host)
        if standing is None:
            self._primary.doubt(host)
        elif standing.is_older_than(self._primary.standing):
            await self._tidy(host)
        elif self._primary.standing.is_older_than(standing) or (self._primary.host is None and not standing.in_recovery):
            with suppress(*POSTGRES_UNREACHED):
                self._accept(host, standing)

    async def _asked(self, host: str) -> Standing | None:
        """What the host says of itself, or None when it does not answer in time."""
        asking = asyncio.ensure_future(self._ask(host))
        try:
            done, _ = await asyncio.wait((asking,), timeout=min(HOST_ANSWERS_WITHIN_S, self._address.connect_timeout))
        finally:
            if not asking.done():
                self._hang_up(host)
                asking.cancel()
        if not done:
            return None
        try:
            return asking.result()
        except POSTGRES_UNREACHED:
            self._hang_up(host)
            return None

    async def _ask(self, host: str) -> Standing:
        con = self._open.get(host)
        if con is None or con.is_closed():
            con = await asyncpg.connect(
                host,
                target_session_attrs=SessionAttribute.any,
                timeout=self._address.connect_timeout,
                server_settings={} if self._address.pooled else {"application_name": "hawser"},
                statement_cache_size=0,
            )
            self._open[host] = con
        return await identify(con)

    async def _tidy(self, host: str) -> None:
        """Leave an old primary, and end the commits that wait there without end."""
        since = time.monotonic() - self._left_at()
        con = self._open.get(host)
        if con is not None and since >= TIDY_AFTER and not self._address.pooled:
            with suppress(*POSTGRES_UNREACHED):
                await con.execute(TIDY, timeout=HOST_ANSWERS_WITHIN_S)
        self._hang_up(host)
        if since > TIDY_UNTIL:
            self._not_before[host] = time.monotonic() + OLD_EVERY

    def _hang_up(self, host: str) -> None:
        con = self._open.pop(host, None)
        if con is not None and not con.is_closed():
            con.terminate()
