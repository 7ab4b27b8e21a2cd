"""Jobs that wait for others: held back in the transaction that adds them, released after the one that ends the last of those."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from hawser.errors import StoreError
from hawser.job import NewJob
from hawser.store import Enqueued
from hawser.stores.dependencies import FAR, any_waits, hold_of, standing_for, upstream_of
from hawser.stores.postgres.batch import made_on
from hawser.stores.postgres.lane_catalog import LaneCatalog
from hawser.stores.postgres.managed_connection import ManagedConnection
from hawser.stores.postgres.server import Server

AT_ONCE: Final = 1_000
"""Ends of jobs that one transaction goes on with."""


class DependencyStatements:
    """What a process does for jobs that wait for others."""

    def __init__(self, server: Server, directory: LaneCatalog, wake: Callable[[set[str]], list[str]]) -> None:
        self._server = server
        self._directory = directory
        self._wake = wake

    @property
    def in_use(self) -> bool:
        """Whether jobs wait for others here, as far as this process knows."""
        return self._directory.view.dependencies

    async def use(self, line: ManagedConnection) -> None:
        """Say that jobs wait for others here, in a transaction of its own: no other process waits for the end of the caller's."""
        if not self.in_use:
            await line.rows(self._server.sql["use_dependencies"])
            await self._directory.read(line)

    async def go_on(self) -> None:
        """Go on with the jobs that wait for some that came to their end. What cannot be done now is done by a later look: the
        ends stand in the store."""
        line, sql = self._server.line("operate"), self._server.sql
        with suppress(StoreError):
            found = True
            while found:
                [(found, lanes)] = await line.rows(sql["go_on"], self._server.given, AT_ONCE)
                if lanes:
                    queues = {(await self._directory.lane(lane, line)).queue for lane in lanes}
                    if told := self._wake(queues):
                        await line.rows(sql["wake"], told)


def hold_back_arguments(
    given: int | None, jobs: Sequence[NewJob], answers: Sequence[Enqueued], *, strict: bool = True
) -> tuple[Any, ...] | None:
    """Those of the jobs that were added and wait for others, as the arguments of `hold_back`; None when there are none."""
    added = [job for job, answer in zip(jobs, answers, strict=True) if answer.created]
    if not any_waits(added):
        return None
    stands_for, coming = standing_for(jobs, answers), {job.id for job in added}
    waiters = [job for job in added if job.waits_for]
    pairs = [(place, id) for place, job in enumerate(waiters, 1) for id in upstream_of(job, stands_for)]
    upstream = [id for _, id in pairs]
    ends, holds = [job.waits_for_end for job in waiters], [hold_of(job) for job in waiters]
    ids = [job.id for job in waiters], ends, holds, [place for place, _ in pairs], upstream, [id not in coming for id in upstream]
    return given, FAR, *ids, made_on(upstream), strict
