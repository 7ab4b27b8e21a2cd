"""Jobs that wait for others: held back in the transaction that adds them, released after the one that ends the last of those."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from hawser.clock import to_us
from hawser.errors import StoreError
from hawser.job import NewJob
from hawser.outcome import Held
from hawser.store import BEHIND_READ, Enqueued, Settlement
from hawser.stores.circles import member_waits
from hawser.stores.dependencies import FAR, any_waits, hold_of, standing_for, upstream_of
from hawser.stores.postgres.enqueue_arguments import made_on
from hawser.stores.postgres.lane_catalog import LaneCatalog
from hawser.stores.postgres.managed_connection import ManagedConnection
from hawser.stores.postgres.server import Purpose, Server
from hawser.stores.waits import waited_for

ENDS_PER_TRANSACTION: Final = 1_000
"""Ends of jobs that one transaction goes on with."""

SWEEPS_PER_RECLAIM: Final = 5
"""Times that many dependencies which one reclaim looks at again."""

DEPENDENCIES_PER_SWEEP: Final = 20_000
"""Dependencies that one sweep looks at, in 35 ms."""

SWEEP_EVERY: Final = 20.0
"""Seconds between two sweeps of a process: prunes may follow each other closely."""

BEFORE_ALL_DEPENDENCIES: Final = ("00000000-0000-0000-0000-000000000000",) * 2
"""Before all dependencies."""


class DependencyStatements:
    """What a process does for jobs that wait for others."""

    def __init__(self, server: Server, catalog: LaneCatalog, wake: Callable[[set[str]], list[str]]) -> None:
        self._server = server
        self._catalog = catalog
        self._wake = wake
        self._swept: tuple[str, str] = BEFORE_ALL_DEPENDENCIES
        self._sweep_at = 0.0

    @property
    def in_use(self) -> bool:
        """Whether jobs wait for others here, as far as this process knows."""
        return self._catalog.view.dependencies

    async def use(self, connection: ManagedConnection) -> None:
        """Say that jobs wait for others here, in a transaction of its own: no other process waits for the end of the caller's."""
        if not self.in_use:
            await connection.rows(self._server.sql["use_dependencies"])
            await self._catalog.read(connection)

    async def learn_use(self, purpose: Purpose) -> bool:
        """Whether jobs wait for others here; another process may have said so since. As long as none does, this is all that is
        asked."""
        connection = self._server.connection(purpose)
        with suppress(StoreError):
            if not self.in_use and await connection.value(self._server.sql["dependencies_used"], writing=False):
                await self._catalog.read(connection)
        return self.in_use

    async def anything_left(self, purpose: Purpose) -> bool:
        """Whether there may be anything to go on with: one look, and mostly there is nothing."""
        return bool(
            await self._server.connection(purpose).value(self._server.sql["anything_left"], self._server.given, writing=False)
        )

    async def tell_ended(self, ids: Sequence[str], purpose: Purpose) -> bool:
        """Say that these have ended to jobs that began to wait for them at the same moment; whether there are any. What cannot be
        done now is done by a later look."""
        with suppress(StoreError):
            return bool(ids and await self._server.connection(purpose).rows(self._server.sql["tell_ended"], ids))
        return False

    async def tell_missed(self) -> None:
        """Look at some of the jobs that others wait for, from where the last call stopped: one may have ended without a word, by
        a worker of the release before, or in a transaction that was open for over a minute behind the settlement."""
        if time.monotonic() < self._sweep_at:
            return
        self._sweep_at = time.monotonic() + SWEEP_EVERY
        connection, statement = self._server.connection("operate"), self._server.sql["tell_missed"]
        rows = await connection.rows(statement, *self._swept, DEPENDENCIES_PER_SWEEP)
        self._swept = (rows[0][0], rows[0][1]) if rows else BEFORE_ALL_DEPENDENCIES

    async def go_on(self, purpose: Purpose, *, new: bool = False, overdue: bool = False) -> None:
        """Go on with the jobs that wait for some that came to their end, on the connection of those who call. What cannot be done
        now is done by a later look: the ends stand in the store. `new`: jobs were added that wait for others, which may have
        ended meanwhile. `overdue`: look again at all that may have, and at times that are over."""
        connection, sql = self._server.connection(purpose), self._server.sql
        with suppress(StoreError):
            for _ in range(SWEEPS_PER_RECLAIM if overdue else int(new)):
                [(more,)] = await connection.rows(sql["look_again"], self._server.given, not overdue, ENDS_PER_TRANSACTION)
                if not more:
                    break
            found, stirred = True, False
            while found:
                [(found, lanes, stirred, _)] = await connection.rows(
                    sql["go_on"], self._server.given, ENDS_PER_TRANSACTION, self._server.address.listen
                )
                await self._ring(lanes, connection)
            if stirred or overdue:
                await self.wake_waiting(purpose, overdue=overdue)

    async def wake_waiting(self, purpose: Purpose, *, overdue: bool = False) -> None:
        """Go on with the jobs whose event has come, or, if asked for, whose time is over. As above: what waits stands in the
        store."""
        connection, more = self._server.connection(purpose), True
        with suppress(StoreError):
            while more:
                asked = self._server.given, ENDS_PER_TRANSACTION, overdue, self._server.address.listen
                [(more, lanes, _)] = await connection.rows(self._server.sql["wake_waiting"], *asked)
                await self._ring(lanes, connection)

    async def _ring(self, lanes: Sequence[int] | None, connection: ManagedConnection) -> None:
        """Wake those in this process who claim from these lanes. The others have heard by the commit that released the jobs."""
        if lanes:
            self._wake({(await self._catalog.lane(lane, connection)).queue for lane in lanes})


def circle_arguments(jobs: Sequence[NewJob], answers: Sequence[Enqueued], patience: int | None) -> tuple[Any, ...] | None:
    """The new members of batches that wait, as the arguments of `check_circles`; None when there are none. `patience` is for how
    many milliseconds to wait for others who add such."""
    pairs = [(each.batch, id) for each in member_waits(jobs, answers) for id in each.upstream]
    return ([batch for batch, _ in pairs], [id for _, id in pairs], BEHIND_READ, patience) if pairs else None


def hold_run_arguments(given: int | None, held: Sequence[tuple[Settlement, Held]]) -> tuple[Any, ...]:
    """Runs that are to be held, as the arguments of `hold_runs`."""
    rows = [
        (job.id, job.lease, hold.name, waited_for(hold), None if hold.timeout is None else to_us(hold.timeout), hold.event)
        for job, hold in held
    ]
    return given, FAR, *(list(column) for column in zip(*rows, strict=True))


def hold_parent_arguments(given: int | None, id: str, jobs: Sequence[str], coming: Container[str]) -> tuple[Any, ...]:
    """A job that has just left running and waits for these, as the arguments of `hold_back`. `coming` are those that are new."""
    places, there = [1] * len(jobs), [job not in coming for job in jobs]
    return given, FAR, [id], [False], [0], places, list(jobs), there, made_on(jobs), False, [False]


def hold_back_arguments(
    given: int | None,
    jobs: Sequence[NewJob],
    answers: Sequence[Enqueued],
    *,
    strict: bool = True,
    coming: frozenset[str] = frozenset(),
) -> tuple[Any, ...] | None:
    """Those of the jobs that were added and wait for others, as the arguments of `hold_back`; None when there are none."""
    added = [job for job, answer in zip(jobs, answers, strict=True) if answer.created]
    if not any_waits(added):
        return None
    stands_for, coming = standing_for(jobs, answers), coming | {job.id for job in added}
    waiters = [job for job in added if job.waits_for]
    pairs = [(place, id) for place, job in enumerate(waiters, 1) for id in upstream_of(job, stands_for)]
    upstream = [id for _, id in pairs]
    ends, holds = [job.waits_on == "ended" for job in waiters], [hold_of(job) for job in waiters]
    ids = [job.id for job in waiters], ends, holds, [place for place, _ in pairs], upstream, [id not in coming for id in upstream]
    return given, FAR, *ids, made_on(upstream), strict, [job.waits_on == "died" for job in waiters]


def join_arguments(
    given: int | None, jobs: Sequence[NewJob], answers: Sequence[Enqueued], own: str | None = None
) -> tuple[Any, ...] | None:
    """Those of the jobs that count in batches, as the arguments of `join_batches`; None when there are none. `own` is the batch
    of the job that they follow from."""
    added: Counter[str] = Counter()
    others: list[tuple[str, str]] = []
    for job, answer in zip(jobs, answers, strict=True):
        if job.batch is not None and answer.created:
            added[job.batch] += 1
        elif job.batch is not None and answer.id != job.id:
            others.append((job.batch, answer.id))
    if not added and not others:
        return None
    return joining(given, own, added, others)


def joining(
    given: int | None, own: str | None, added: Mapping[str, int], others: Sequence[tuple[str, str]], called: str = "batch"
) -> tuple[Any, ...]:
    """What batches count from now on, as the arguments of `join_batches`: how many of their own, and what is not their own."""
    ids = [id for _, id in others]
    made = made_on(ids) if ids else 0
    return given, own, list(added), list(added.values()), [batch for batch, _ in others], ids, made, called
