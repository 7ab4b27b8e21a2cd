"""Limits: what is said of queues and tasks, and the room that they leave to a claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import asyncpg
import msgspec

from hawser.clock import to_us
from hawser.limit import Limit
from hawser.store import Actor, LimitUse, Target
from hawser.stores.group_limits import GROUPS_COUNTED
from hawser.stores.limits import Bound, KeptLimit, Room, Window, bound_of
from hawser.stores.postgres.lane_catalog import CatalogLane, CatalogView, LaneCatalog
from hawser.stores.postgres.managed_connection import IMPATIENT, ManagedConnection
from hawser.stores.postgres.operations import Action
from hawser.stores.postgres.server import Server

NO_SLACK: Final = 0
"""Functions of the database have an argument for how late a run's end may become visible. It is not used any more."""

CHANGES: Final = 2_000
"""Changes of a meter's row after which the next epoch begins. Under a held snapshot each costs those after it 0.013 µs."""

GROUPS_PER_STATEMENT: Final = 20_000
"""Groups that one statement of a prune looks at, in 35 ms."""

STATEMENTS_PER_PRUNE: Final = 5
"""Such statements in one prune, as long as most of these groups are forgotten."""

GROUP_IDLE_FOR: Final = to_us(60.0)
"""How long a group that has nothing waiting keeps its row."""

BEFORE_ALL_GROUPS: Final = (0, "")
"""Before all groups."""


class SourceLimits(NamedTuple):
    """The limits of some sources, as arguments of `take_limited`."""

    meters: list[int]
    epochs: list[int]
    first: list[int | None]
    second: list[int | None]


class TurnLimits(NamedTuple):
    """The limits of lanes with groups, as arguments of `take_turns`."""

    meters: list[int]
    epochs: list[int]
    first: list[int | None]
    second: list[int | None]
    own: list[int | None]
    """The limits per group."""


class LimitRooms:
    """What limits leave to the claims of one process."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._epochs: dict[int, int] = {}
        self.opens_at: int | None = None
        """When the first rate that keeps jobs back lets one start, in the store's time; as the last claim saw it."""

    async def read(self, view: CatalogView, lanes: Iterable[CatalogLane], connection: ManagedConnection) -> dict[Target, Room]:
        """The room of the limits that these lanes have."""
        self.opens_at = None
        wanted = sorted({id for lane in lanes for id in view.limited.get(lane.id, ())})
        if not wanted:
            return {}
        asked = wanted, [self._epochs.get(id, 0) for id in wanted]
        rooms = {}
        for now, id, epoch, most, starts, width, slot, slots, running in await connection.rows(
            self._server.sql["rooms"], self._server.given, *asked, writing=False
        ):
            self._epochs[id] = epoch
            bound = Bound(most, starts, width)
            rooms[view.limits[id]] = bound.room(running, bound.window(Window(slot, tuple(slots)), now))
        self.opens_at = min((room.opens_at for room in rooms.values() if room.opens_at is not None), default=None)
        return rooms

    def of(self, view: CatalogView, lanes: Sequence[int]) -> SourceLimits:
        """The limits of these lanes, in the order in which they are locked."""
        meters = sorted({id for lane in lanes for id in view.limited.get(lane, ())})
        place = {id: n for n, id in enumerate(meters, 1)}
        pairs = [[*(place[id] for id in view.limited.get(lane, ())), None, None] for lane in lanes]
        epochs = [self._epochs.get(id, 0) for id in meters]
        return SourceLimits(meters, epochs, [pair[0] for pair in pairs], [pair[1] for pair in pairs])

    def of_turns(self, view: CatalogView, lanes: Sequence[CatalogLane]) -> TurnLimits:
        """The limits of these lanes, those per group among them, in the order in which they are locked."""
        per_group = [view.group_limits.get(lane.task) for lane in lanes]
        own = [None if limit is None else limit.id for limit in per_group]
        meters = sorted({*(id for lane in lanes for id in view.limited.get(lane.id, ())), *(id for id in own if id is not None)})
        place = {id: n for n, id in enumerate(meters, 1)}
        pairs = [[*(place[id] for id in view.limited.get(lane.id, ())), None, None] for lane in lanes]
        epochs = [self._epochs.get(id, 0) for id in meters]
        places = [None if id is None else place[id] for id in own]
        return TurnLimits(meters, epochs, [pair[0] for pair in pairs], [pair[1] for pair in pairs], places)

    def lost(self, meters: Iterable[int]) -> None:
        """These meters are not where they were."""
        for id in meters:
            self._epochs.pop(id, None)


class LimitStatements:
    """What an operator and code say of limits."""

    def __init__(self, server: Server, catalog: LaneCatalog) -> None:
        self._server = server
        self._catalog = catalog
        self._looked: tuple[int, str] = BEFORE_ALL_GROUPS

    async def set(self, target: Target, limit: Limit | None, actor: Actor) -> bool:
        async def work(con: asyncpg.Connection) -> bool:
            kept = await self._kept(con, target)
            if limit is None and kept.chosen is None:
                return False
            now = await con.fetchval(self._server.sql["store_time"], self._server.given)
            await self._put(con, target, kept, kept.choosing(target, limit, now, actor.by))
            action = Action(self._server, self._catalog, con, actor)
            await action.note("clear_limit" if limit is None else "set_limit", f"{target.kind}:{target.name}", 0)
            return True

        return await self._server.connection("operate").together(work, begin=IMPATIENT)

    async def declare(self, limits: Mapping[str, Limit | None]) -> None:
        async def work(con: asyncpg.Connection) -> None:
            for task, limit in sorted(limits.items()):
                target = Target("task", task)
                kept = await self._kept(con, target)
                if kept.declared != limit:
                    now = await con.fetchval(self._server.sql["store_time"], self._server.given)
                    await self._put(con, target, kept, kept.declaring(limit, now))

        if limits:
            await self._server.connection("operate").together(work, begin=IMPATIENT)

    async def _kept(self, con: asyncpg.Connection, target: Target) -> KeptLimit:
        row = await con.fetchrow(self._server.sql["limit"], target.kind, target.name)
        return KeptLimit() if row is None else KeptLimit(_read(row[0]), _read(row[1]), row[2], row[3])

    async def _put(self, con: asyncpg.Connection, target: Target, before: KeptLimit, kept: KeptLimit) -> None:
        sql, limit = self._server.sql, kept.in_force
        was, bound = bound_of(before.in_force) or Bound(), bound_of(limit) or Bound()
        await con.execute(sql["lock_meter"], target.kind, target.name)
        if target.kind == "queue":
            await con.execute(sql["set_depth"], target.name, None if limit is None else limit.max_depth)
        if limit is None:
            await con.execute(sql["drop_limit"], target.kind, target.name)
        else:
            said = _written(kept.declared), _written(kept.chosen), kept.since, kept.by
            id = await con.fetchval(sql["put_limit"], target.kind, target.name, *said, *bound)
            await con.execute(sql["make_meter"], id)
            if (was.width, was.per_group) != (bound.width, bound.per_group):
                await con.execute(sql["forget_starts"], id)
                await con.execute(sql["forget_group_starts"], id)
            if was.ordered and not bound.ordered:
                await con.execute(sql["forget_heads"], id)
        await con.execute(sql["changed"])
        if limit is not None and limit.running is not None:
            await con.fetch(sql["recount"], id)
        if target.kind == "task":
            await con.fetch(sql["reopen_groups"], self._server.given, target.name)

    async def recount(self) -> None:
        """Count the runs of all limits anew. Some may have begun while a limit was being set, and workers of the release before
        count none."""
        await self._server.connection("operate").rows(self._server.sql["recount_all"])

    async def forget_groups(self) -> None:
        """Forget some groups of which nothing counts any longer, from where the last call stopped."""
        connection, statement = self._server.connection("operate"), self._server.sql["forget_groups"]
        for _ in range(STATEMENTS_PER_PRUNE):
            rows = await connection.rows(statement, self._server.given, *self._looked, GROUPS_PER_STATEMENT)
            limit, name, looked_at, gone = rows[0] if rows else (*BEFORE_ALL_GROUPS, 0, 0)
            self._looked = (limit, name) if looked_at == GROUPS_PER_STATEMENT else BEFORE_ALL_GROUPS
            if gone * 2 < GROUPS_PER_STATEMENT:
                return

    async def forget_idle_groups(self) -> None:
        """Forget groups that have had nothing waiting for a while. Those that come back sooner are found by their row."""
        connection, statement = self._server.connection("operate"), self._server.sql["forget_idle_groups"]
        for queue in sorted(self._catalog.view.grouped):
            for _ in range(STATEMENTS_PER_PRUNE):
                gone = await connection.value(statement, self._server.given, queue, GROUP_IDLE_FOR, GROUPS_PER_STATEMENT)
                if gone < GROUPS_PER_STATEMENT:
                    break

    async def uses(self) -> list[LimitUse]:
        rows = await self._server.connection("read").rows(
            self._server.sql["limits"], self._server.given, GROUPS_COUNTED, writing=False
        )
        return [_use(*row) for row in rows]


def _use(
    kind: Any, name: str, declared: str | None, chosen: str | None, since: int | None, by: str, slot: int, *rest: Any
) -> LimitUse:
    slots, running, now, kept_groups = rest
    kept = KeptLimit(_read(declared), _read(chosen), since, by)
    return kept.use(Target(kind, name), running, Window(slot, tuple(slots)), now, kept_groups)


def _read(text: str | None) -> Limit | None:
    return None if text is None else msgspec.json.decode(text, type=Limit)


def _written(limit: Limit | None) -> str | None:
    return None if limit is None else msgspec.json.encode(limit).decode()
