"""The scheduler's side. A call of the database's own `fire` is one statement: no lock is held while Python decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import asyncpg
import msgspec

from hawser.clock import from_datetime, to_us
from hawser.job import DEFAULT_ATTEMPTS, DEFAULT_TIMEOUT
from hawser.schedule.declaration import Declaration
from hawser.schedule.schedule import Advance, Schedule
from hawser.store import Actor
from hawser.store.schedules import DECLARED_FOR, Advanced, DueSchedules
from hawser.stores.columns import arrays_of
from hawser.stores.postgres.enqueue_arguments import made_on
from hawser.stores.postgres.lane_catalog import LaneCatalog
from hawser.stores.postgres.managed_connection import ManagedConnection
from hawser.stores.postgres.server import Server
from hawser.stores.record import about_of

_KEPT: Final = to_us(DECLARED_FOR)
_json = msgspec.json.Encoder().encode
_schedule = msgspec.json.Decoder(Schedule).decode


class ScheduleTable:
    """The schedules of a store. One process reads and fires them by it."""

    def __init__(self, server: Server, catalog: LaneCatalog, wake: Callable[[set[str]], list[str]]) -> None:
        self._server = server
        self._catalog = catalog
        self._wake = wake

    async def named(self, names: Sequence[str] | None, after: str, limit: int | None) -> list[Schedule]:
        wanted = None if names is None else list(names)
        rows = await self._server.connection("read").rows(self._server.sql["schedules"], wanted, after, limit, writing=False)
        return [_schedule(about) for (about,) in rows]

    async def due(self, limit: int) -> DueSchedules:
        connection, statement = self._server.connection("operate"), self._server.sql["due_schedules"]
        rows = await connection.rows(statement, self._server.given, limit + 1, writing=False)
        now, next_at, _ = rows[0]
        found = [row[2] for row in rows if row[2] is not None]
        next_in = 0.0 if len(found) > limit else None if next_at is None else (next_at - now) / 1_000_000
        return DueSchedules(now, list(map(_schedule, found[:limit])), next_in)

    async def next(self, limit: int) -> list[Schedule]:
        rows = await self._server.connection("read").rows(self._server.sql["next_schedules"], limit, writing=False)
        return [_schedule(about) for (about,) in rows]

    async def fire(self, advances: Sequence[Advance]) -> list[Advanced]:
        connection = self._server.connection("operate")
        answers: dict[int, Advanced] = {}
        for places in rounds(advances):
            some = [advances[n] for n in places]
            said = await self._catalog.surely(partial(self._fire, connection, some))
            answers |= dict(zip(places, map(Advanced, said), strict=True))
        return [answers[n] for n in range(len(advances))]

    async def _fire(self, connection: ManagedConnection, advances: Sequence[Advance]) -> Sequence[str]:
        said: Sequence[str] = await connection.value(self._server.sql["fire"], *await self._arguments(advances))
        return said

    async def put(self, advance: Advance, action: str, actor: Actor) -> Advanced:
        return await self._catalog.surely(lambda: self._put(advance, action, actor))

    async def _put(self, advance: Advance, action: str, actor: Actor) -> Advanced:
        asked = await self._arguments([advance])

        async def work(con: asyncpg.Connection) -> Advanced:
            [said] = await con.fetchval(self._server.sql["fire"], *asked)
            if said in (Advanced.DONE, Advanced.SKIPPED):
                made = len(advance.jobs) if said == Advanced.DONE else 0
                await self._note(con, action, advance.schedule.name, made, actor)
            return Advanced(said)

        return await self._server.connection("operate").together(work)

    async def delete(self, name: str, actor: Actor) -> bool:
        async def work(con: asyncpg.Connection) -> bool:
            gone = await con.fetchval(self._server.sql["delete_schedule"], name) is not None
            if gone:
                await self._note(con, "delete_schedule", name, 0, actor)
            return gone

        return await self._server.connection("operate").together(work)

    async def _note(self, con: asyncpg.Connection, action: str, name: str, count: int, actor: Actor) -> None:
        record = actor.by, action, f"schedule:{name}", count, actor.reason, about_of(actor)
        await con.execute(self._server.sql["note"], self._server.given, *record)

    async def declare(self, declaration: Declaration) -> list[Declaration]:
        server = self._server
        names = _json(declaration.names).decode()

        async def work(con: asyncpg.Connection) -> list[Declaration]:
            await con.execute(server.sql["clamp_declarations"], server.given)
            await con.execute(server.sql["forget_declarations"], server.given, _KEPT)
            await con.execute(server.sql["declare"], server.given, declaration.id, names)
            rows = await con.fetch(server.sql["declarations"])
            return [Declaration(id=id, names=tuple(msgspec.json.decode(text))) for id, text in rows]

        return await server.connection("operate").together(work)

    async def _arguments(self, advances: Sequence[Advance]) -> tuple[Any, ...]:
        """The advances as the arguments of the database's `fire`."""
        jobs = [(place, job) for place, advance in enumerate(advances, 1) for job in advance.jobs]
        lanes = await self._catalog.make_for((job for _, job in jobs), self._server.connection("operate")) if jobs else {}
        return (
            self._server.given,
            [advance.schedule.name for advance in advances],
            [advance.expect for advance in advances],
            [advance.schedule.revision for advance in advances],
            [advance.schedule.due_us for advance in advances],
            [_json(advance.schedule).decode() for advance in advances],
            [advance.unless_live for advance in advances],
            [advance.otherwise and advance.otherwise.due_us for advance in advances],
            [None if advance.otherwise is None else _json(advance.otherwise).decode() for advance in advances],
            [place for place, _ in jobs],
            made_on(job.id for _, job in jobs) if jobs else 0,
            [job.id for _, job in jobs],
            [lanes[job.queue, job.task, job.priority] for _, job in jobs],
            [None if job.run_at is None else from_datetime(job.run_at) for _, job in jobs],
            [job.max_attempts for _, job in jobs],
            self._wake({job.queue for _, job in jobs}) if jobs else None,
            DEFAULT_ATTEMPTS,
            DEFAULT_TIMEOUT,
            *arrays_of(job for _, job in jobs),
        )


def rounds(advances: Sequence[Advance]) -> Iterator[list[int]]:
    """The places of the advances, in groups in which no schedule stands twice: the second must see what became of the first."""
    left = list(range(len(advances)))
    while left:
        first = {advances[n].schedule.name: n for n in reversed(left)}
        yield sorted(first.values())
        left = [n for n in left if n not in first.values()]
