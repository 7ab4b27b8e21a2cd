"""The jobs that were done, a table for each day; and pruning.

A day of few jobs is pruned job by job. A large one would be a storm of deletes: its jobs stay until the whole day is past the
longest retention, and then the table is dropped at once. Jobs of a task with a shorter retention go before, a stretch at a time.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from typing import Final, TypeVar

import asyncpg

from hawser.clock import to_us
from hawser.errors import StoreError, StoreUnavailable
from hawser.store import AUDIT_KEPT, WORKER_KEPT, Retention
from hawser.stores.postgres import requests
from hawser.stores.postgres.errors import DayMissing
from hawser.stores.postgres.lane_catalog import CatalogLane, LaneCatalog
from hawser.stores.postgres.server import Server, in_schema
from hawser.stores.tally import KEEP_MINUTES

T = TypeVar("T")

DAY: Final = 86_400_000_000

LOOK_AT_DAYS_EVERY: Final = 3_600.0
"""Seconds after which a settlement in a handler's own transaction has a process look whether a day's table is to be made."""

SMALL: Final = 64 * 1024 * 1024
"""Bytes of a day's table up to which it is read through and pruned job by job."""

BLOCKS_PER_PRUNE: Final = 2_000
"""Blocks of a large day that one prune reads through."""

MAKE: Final = (
    "create table hawser.done_{day} (like hawser.done including defaults) with (fillfactor = 100, vacuum_truncate = off)",
    "alter table hawser.done attach partition hawser.done_{day} for values from ({day}) to ({next})",
)
DETACH: Final = "alter table hawser.done detach partition hawser.done_{day} {how}"
LEAVE: Final = """
with freed as (
    delete from hawser.held_key as k using hawser.done_{day} as d
    where d.key is not null and k.job_id = any (array[d.id]) and k.key = d.key
        and (k.until is null or k.outlived) returning k.lane
), gone as (select lane, count(*) from hawser.done_{day} group by lane),
unstepped as (delete from hawser.step as s where exists (select from hawser.done_{day} as d where d.id = any (array[s.job]))),
unwritten as (delete from hawser.output as o where exists (select from hawser.done_{day} as d where d.id = any (array[o.job]))),
counted as (
    insert into hawser.counted (minute, lane, name, count)
    select 0, g.lane, '@done', -g.count from gone as g
    union all select 0, f.lane, '@keys', -count(*) from freed as f group by f.lane
)
select coalesce(sum(count), 0)::bigint from gone"""
DROP: Final = "drop table hawser.done_{day}"
STRETCH_OUT: Final = """
with clock as materialized (select hawser.now($1) as now),
gone as (
    delete from hawser.done_{day} as d where d.ctid = any (array(
        select e.ctid from clock as c, hawser.done_{day} as e
        join unnest($2::integer[], $3::bigint[]) as k(lane, kept_for) on k.lane = e.lane
        where e.ctid >= $4::text::tid and e.ctid < $5::text::tid and e.finished_at <= c.now - k.kept_for limit $6
    )) returning d.id, d.lane, d.key
),
unstepped as (delete from hawser.step as s using gone as g where s.job = any (array[g.id])),
unwritten as (delete from hawser.output as o using gone as g where o.job = any (array[g.id])),
freed as (
    delete from hawser.held_key as k using gone as g
    where g.key is not null and k.job_id = any (array[g.id]) and k.key = g.key
        and (k.until is null or k.outlived) returning k.lane
),
counted as (
    insert into hawser.counted (minute, lane, name, count)
    select 0, g.lane, '@done', -count(*) from gone as g group by g.lane
    union all select 0, f.lane, '@keys', -count(*) from freed as f group by f.lane
)
select count(*) from gone"""


class History:
    """The tables of the days."""

    def __init__(self, server: Server, catalog: LaneCatalog, small: int = SMALL) -> None:
        self._server = server
        self._catalog = catalog
        self._small = small
        self._until = 0
        self._looked = -inf
        self._block: dict[int, int] = {}

    async def with_day(self, work: Callable[[], Awaitable[T]]) -> T:
        """Work that writes into today's table, which is made if it is not there."""
        try:
            return await work()
        except DayMissing:
            # Also when we know it as made: the clock may have been set back to a day before all that we made.
            self._until = 0
            await self.make_days()
        try:
            return await work()
        except DayMissing as error:
            text = f"the table of this day is being removed; nothing was written: try again ({error})"
            raise StoreUnavailable(text) from error

    async def make_days(self) -> None:
        """Tables for today and tomorrow."""
        connection, sql = self._server.connection("operate"), self._server.sql
        today = await connection.value(sql["clock"], self._server.given, writing=False) // DAY

        async def make(con: asyncpg.Connection) -> None:
            await con.execute(sql["lock_days"])
            for day in (today, today + 1):
                if not await con.fetchval(sql["day_exists"], str(day)):
                    for statement in MAKE:
                        await con.execute(self._of(statement, day))

        if today + 1 > self._until:
            await connection.together(make)
            self._until = today + 1
        self._looked = time.monotonic()

    async def have_days(self) -> None:
        """The same, without asking for the time when that was asked within the hour: there is a table for tomorrow, too."""
        if self._server.given is not None or time.monotonic() - self._looked > LOOK_AT_DAYS_EVERY:
            await self.make_days()

    def _of(self, text: str, day: int, how: str = "") -> str:
        """A statement about one day's table; the day is a number."""
        named = text.replace("{day}", str(day)).replace("{next}", str(day + 1)).replace("{how}", how)
        return in_schema(named, self._server.address.schema)

    async def prune(self, retention: Retention, by_task: Mapping[str, Retention], limit: int) -> int:
        server, connection = self._server, self._server.connection("operate")
        await self.make_days()
        await connection.rows(server.sql["sweep_keys"], server.given, limit)
        lanes = list((await self._catalog.read(connection)).lanes.values())
        kept = {lane.task: by_task.get(lane.task, retention) for lane in lanes}
        removed = await self._prune_failed(lanes, kept, limit)
        removed += await self._prune_done(
            lanes, kept, max(to_us(each.done) for each in (retention, *by_task.values())), limit - removed
        )
        await requests.forget(server, connection, limit)
        await connection.rows(server.sql["forget_ungrouped"])
        await connection.rows(server.sql["forget_events"], server.given, limit)
        keep = KEEP_MINUTES, to_us(WORKER_KEPT), to_us(AUDIT_KEPT)
        await connection.rows(server.sql["forget"], server.given, *keep)
        return removed

    async def _prune_failed(self, lanes: Sequence[CatalogLane], kept: Mapping[str, Retention], limit: int) -> int:
        ends = [(lane.id, state, to_us(getattr(kept[lane.task], state))) for lane in lanes for state in ("dead", "cancelled")]
        if not ends:
            return 0
        asked = (list(column) for column in zip(*ends, strict=True))
        connection, statement = self._server.connection("operate"), self._server.sql["prune_failed"]
        return int(await connection.value(statement, self._server.given, *asked, limit))

    async def _prune_done(self, lanes: Sequence[CatalogLane], kept: Mapping[str, Retention], longest: int, limit: int) -> int:
        server, connection = self._server, self._server.connection("operate")
        now = await connection.value(server.sql["clock"], server.given, writing=False)
        ends = [(lane.id, to_us(kept[lane.task].done)) for lane in lanes]
        removed = 0
        for day, attached, pending, size in await connection.rows(server.sql["days"], writing=False):
            if not attached or pending or (size > self._small and (day + 1) * DAY + longest <= now):
                removed += await self._drop(day, attached=attached, pending=pending)
            elif removed >= limit or not ends:
                continue
            elif size <= self._small:
                asked = (list(column) for column in zip(*ends, strict=True))
                few = int(await connection.value(server.sql["prune_few"], server.given, day, *asked, limit - removed))
                if few < limit - removed and (day + 1) * DAY + longest <= now:
                    await self._drop(day, attached=attached, pending=pending)
                removed += few
            elif early := [(lane, kept_for) for lane, kept_for in ends if kept_for <= longest - DAY]:
                removed += await self._prune_stretch(day, size, early, limit - removed)
        return removed

    async def _prune_stretch(self, day: int, size: int, ends: Sequence[tuple[int, int]], limit: int) -> int:
        """Go on in a large day from where the last prune stopped, for those jobs that may go before the day does."""
        begin = self._block.get(day, 0)
        asked = (list(column) for column in zip(*ends, strict=True))
        statement = self._of(STRETCH_OUT, day)
        connection = self._server.connection("operate")
        place = f"({begin},0)", f"({begin + BLOCKS_PER_PRUNE},0)"
        removed = int(await connection.value(statement, self._server.given, *asked, *place, limit))
        if removed < limit:
            self._block[day] = 0 if (begin + BLOCKS_PER_PRUNE) * 8192 > size else begin + BLOCKS_PER_PRUNE
        return removed

    async def _drop(self, day: int, *, attached: bool, pending: bool) -> int:
        """Remove a day. It is detached while others still read it, and dropped when no reader is left, so no call waits for
        it."""
        connection = self._server.connection("history")

        async def detach(con: asyncpg.Connection) -> None:
            if not self._server.address.pooled:
                await con.execute("set lock_timeout = '2s'")
            await con.execute(self._of(DETACH, day, "finalize" if pending else "concurrently"))

        async def drop(con: asyncpg.Connection) -> int:
            await con.execute("set local lock_timeout = '2s'")
            removed = int(await con.fetchval(self._of(LEAVE, day)))
            await con.execute(self._of(DROP, day))
            return removed

        try:
            if attached:
                await connection.do(detach)
            return await connection.together(drop)
        except StoreError:
            # A transaction still reads it, or another process prunes it. The next prune goes on from there.
            return 0
