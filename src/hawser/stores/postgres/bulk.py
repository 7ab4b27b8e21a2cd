"""The bulk operations of the PostgreSQL store. Each change is one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import asyncpg
import msgspec

from hawser.clock import to_us
from hawser.store import BULK_KEPT, BULK_SILENCE, BULKS_LISTED, Actor, BulkOperation, BulkPlan, BulkStep
from hawser.stores.order import spread_delays
from hawser.stores.postgres.edits import EditStatements
from hawser.stores.postgres.managed_connection import IMPATIENT
from hawser.stores.postgres.operations import Act, Action, OperatorStatements
from hawser.stores.postgres.server import Server
from hawser.stores.record import about_of, bulk_of, changed
from hawser.value.ids import is_id

_DO: Final[Mapping[str, Act]] = {"cancel": Action.cancel, "discard": Action.discard}
_SILENCE: Final = to_us(BULK_SILENCE)


class Bulks:
    """Bulk operations and their steps."""

    def __init__(self, server: Server, operations: OperatorStatements, edits: EditStatements) -> None:
        self._server = server
        self._operations = operations
        self._edits = edits

    async def start(self, id: str, plan: BulkPlan, owner: str) -> BulkOperation:
        text = msgspec.json.encode(plan).decode()
        await self._server.connection("operate").rows(self._server.sql["start_bulk"], self._server.given, id, text, owner)
        kept = await self.get(id)
        assert kept is not None
        return kept

    async def get(self, id: str) -> BulkOperation | None:
        if not is_id(id):
            return None
        rows = await self._server.connection("read").rows(self._server.sql["bulk"], self._server.given, id, writing=False)
        return bulk_of(*rows[0]) if rows else None

    async def latest(self) -> list[BulkOperation]:
        asked = (self._server.given, BULKS_LISTED)
        rows = await self._server.connection("read").rows(self._server.sql["bulks"], *asked, writing=False)
        return [bulk_of(*row) for row in rows]

    async def step(self, step: BulkStep) -> BulkOperation | None:
        sql, given = self._server.sql, self._server.given

        async def work(con: asyncpg.Connection) -> BulkOperation | None:
            found = await con.fetchval(sql["current_bulk"], step.id, step.turn, step.behind)
            if found is None:
                return None
            plan = msgspec.json.decode(found, type=BulkPlan)
            later = dict(zip(step.ids, spread_delays(len(step.ids), step.spread, step.delay), strict=True))
            do = _DO.get(plan.action, partial(Action.requeue, later=later))
            if plan.action == "change":
                do = self._edits.changing(plan.change)
            answers = await self._operations.act_within(con, plan.action, step.ids, plan.actor(step.id), do)
            did = changed(answers)
            skipped = step.skipped + len(answers) - did
            await con.execute(sql["step_bulk"], given, step.id, step.cursor, did, skipped, step.ends, step.error)
            [row] = await con.fetch(sql["bulk"], given, step.id)
            return bulk_of(*row)

        return await self._server.connection("operate").together(work, begin=IMPATIENT)

    async def take(self, owner: str, limit: int) -> list[BulkOperation]:
        asked = (self._server.given, owner, limit, _SILENCE)
        rows = await self._server.connection("operate").rows(self._server.sql["take_bulks"], *asked)
        return sorted((bulk_of(*row) for row in rows), key=lambda taken: taken.id)

    async def release(self, id: str, turn: int) -> None:
        await self._server.connection("operate").rows(self._server.sql["release_bulk"], self._server.given, id, turn, _SILENCE)

    async def stop(self, id: str, actor: Actor) -> BulkOperation | None:
        sql, given = self._server.sql, self._server.given

        async def work(con: asyncpg.Connection) -> BulkOperation | None:
            if await con.fetchval(sql["stop_bulk"], given, id) is not None:
                noted = (actor.by, "stop_operation", f"operation:{id}", 0, actor.reason, about_of(actor))
                await con.execute(sql["note"], given, *noted)
            row = await con.fetchrow(sql["bulk"], given, id)
            return None if row is None else bulk_of(*row)

        return await self._server.connection("operate").together(work, begin=IMPATIENT) if is_id(id) else None

    async def forget(self) -> None:
        await self._server.connection("operate").rows(self._server.sql["forget_bulks"], self._server.given, to_us(BULK_KEPT))
