"""The scheduler's side: what is due, fired, put, deleted and declared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from hawser.clock import to_us
from hawser.schedule.declaration import Declaration
from hawser.schedule.schedule import Advance, Schedule
from hawser.store import Actor
from hawser.store.schedules import DECLARED_FOR, Advanced, DueSchedules
from hawser.stores.redis.codec import pack, packed_job, raw
from hawser.stores.redis.operations import said_by
from hawser.stores.redis.server import Server
from hawser.stores.redis.server_connection import Argument

_ALL: Final = -1


class ScheduleTable:
    """The schedules of a store. They are kept as JSON text, each with its revision and its due time beside it."""

    def __init__(self, server: Server, ring: Callable[[], None]) -> None:
        self._server = server
        self._ring = ring

    async def named(self, names: Sequence[str] | None, after: str, limit: int | None) -> list[Schedule]:
        most = _ALL if limit is None else limit
        if names is None:
            return [_schedule(text) for text in await self._server.look("schedules", after, most)]
        wanted = sorted(name for name in set(names) if name > after)
        if not wanted:
            return []
        return [_schedule(text) for text in await self._server.look("schedules", after, most, *wanted)][:limit]

    async def due(self, limit: int) -> DueSchedules:
        now, next_, texts = await self._server.look("due_schedules", limit)
        next_in = max(0.0, (int(next_) - int(now)) / 1_000_000) if next_ else None
        return DueSchedules(int(now), [_schedule(text) for text in texts], next_in)

    async def next(self, limit: int) -> list[Schedule]:
        return [_schedule(text) for text in await self._server.look("next_schedules", limit)]

    async def fire(self, advances: Sequence[Advance], note: bytes = b"") -> list[Advanced]:
        if not advances:
            return []
        arguments: list[Argument] = []
        for advance in advances:
            arguments += [pack(_told(advance)), *map(packed_job, advance.jobs)]
        said = await self._server.run("fire", note, *arguments)
        self._ring()
        return [Advanced(word.decode()) for word in said]

    async def put(self, advance: Advance, action: str, actor: Actor) -> Advanced:
        [answer] = await self.fire((advance,), pack([*said_by(actor), action]))
        return answer

    async def delete(self, name: str, actor: Actor) -> bool:
        return bool(await self._server.run("delete_schedule", name, *said_by(actor)))

    async def declare(self, declaration: Declaration) -> list[Declaration]:
        text = msgspec.json.encode(declaration)
        said = await self._server.run("declare", declaration.id, text, to_us(DECLARED_FOR), connection="keep")
        return [msgspec.json.decode(each, type=Declaration) for each in said]


def _schedule(text: bytes) -> Schedule:
    return msgspec.json.decode(text, type=Schedule)


def _told(advance: Advance) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": advance.schedule.name,
        "expect": advance.expect,
        "count": len(advance.jobs),
        **_row(advance.schedule),
        "unless_live": None if advance.unless_live is None else raw(advance.unless_live).hex(),
        "otherwise": None if advance.otherwise is None else _row(advance.otherwise),
    }
    return {name: value for name, value in told.items() if value is not None}


def _row(schedule: Schedule) -> dict[str, Any]:
    row = {"revision": schedule.revision, "text": msgspec.json.encode(schedule).decode(), "due": schedule.due_us}
    return {name: value for name, value in row.items() if value is not None}
