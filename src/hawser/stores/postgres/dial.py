"""Making a connection to the primary, wherever it is by now.

The host that was the primary last is asked alone, for a moment. Then all are asked at once: a server that is frozen takes
connections and does not answer, and no caller should wait for it. When several act as the primary, the one with the newest
timeline is taken.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

import asyncpg

from hawser.stores.postgres.errors import POSTGRES_UNREACHED, OldPrimary
from hawser.stores.postgres.primary import Primary, Standing, old_primary

ALONE: Final = 0.5
"""Seconds that the last primary has to itself before the other hosts are asked too."""

OTHER_HOSTS_WITHIN_S: Final = 1.0
"""Seconds that the other hosts have once one has answered: it may be an old primary, and another the new one."""


class DialAnswer(NamedTuple):
    """A host that took us in and can be written to."""

    host: str
    con: asyncpg.Connection
    standing: Standing


Reach = Callable[[str], Awaitable[DialAnswer]]


async def dial(hosts: tuple[str, ...], primary: Primary, reach: Reach) -> DialAnswer:
    """A connection to the newest primary among the hosts. The caller has it accepted."""
    known = primary.host
    asked = _AskedHosts(primary, reach)
    try:
        if known in hosts:
            asked.ask([known])
            await asked.hear(ALONE if len(hosts) > 1 else None)
        if not asked.answers:
            asked.ask(host for host in hosts if host != known)
        while asked.still and not asked.answers:
            await asked.hear(None)
        if known is None or asked.failed:
            await asked.hear_out(OTHER_HOSTS_WITHIN_S)
        return asked.newest()
    finally:
        asked.close()


class _AskedHosts:
    """Hosts that were asked, and what came of it."""

    def __init__(self, primary: Primary, reach: Reach) -> None:
        self._primary = primary
        self._reach = reach
        self.still: set[asyncio.Task[DialAnswer]] = set()
        self.answers: list[DialAnswer] = []
        self.failed: list[BaseException] = []

    def ask(self, hosts: Iterable[str]) -> None:
        self.still |= {asyncio.ensure_future(self._ask(host)) for host in hosts}

    async def _ask(self, host: str) -> DialAnswer:
        answer = await self._reach(host)
        if answer.standing.is_older_than(self._primary.standing):
            answer.con.terminate()
            raise old_primary(answer.standing, self._primary.standing)
        return answer

    async def hear(self, timeout: float | None) -> None:
        """Wait for the next to answer or to fail."""
        done, self.still = await asyncio.wait(self.still, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            try:
                self.answers.append(task.result())
            except POSTGRES_UNREACHED as error:
                self.failed.append(error)

    async def hear_out(self, timeout: float) -> None:
        """Wait for all of them, but not for long."""
        end = time.monotonic() + timeout
        while self.still and (left := end - time.monotonic()) > 0:
            await self.hear(left)

    def newest(self) -> DialAnswer:
        """The answer of the newest primary. Without a primary, the error of a server that answered is raised before that of one
        that did not answer or is a standby."""
        if not self.answers:
            said = (error for error in self.failed if isinstance(error, asyncpg.PostgresError | OldPrimary))
            raise next(said, self.failed[-1])
        best = max(self.answers, key=lambda answer: answer.standing.timeline)
        self.answers.remove(best)
        return best

    def close(self) -> None:
        """Hang up on those that are not taken."""
        for answer in self.answers:
            answer.con.terminate()
        for task in self.still:
            task.cancel()
            task.add_done_callback(_hang_up)


def _hang_up(task: asyncio.Task[DialAnswer]) -> None:
    """A host answered after another one was taken."""
    if not task.cancelled():
        with suppress(*POSTGRES_UNREACHED):
            task.result().con.terminate()
