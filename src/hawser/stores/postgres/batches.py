"""Batches: opened and closed by their producers, looked at and cancelled by operators."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import asyncpg

from hawser.batch import Batch, BatchPage, BatchState, NewBatch
from hawser.clock import to_us
from hawser.errors import StoreError
from hawser.store import Acted, Actor, Retention
from hawser.stores.batches import shown
from hawser.stores.dependencies import any_waits
from hawser.stores.postgres.dependencies import SWEEP_EVERY, DependencyStatements, joining
from hawser.stores.postgres.enqueue import KEY_WAIT_MS, add_within
from hawser.stores.postgres.errors import Locked
from hawser.stores.postgres.lane_catalog import LaneCatalog
from hawser.stores.postgres.managed_connection import IMPATIENT
from hawser.stores.postgres.operations import Action, OperatorStatements
from hawser.stores.postgres.server import Server
from hawser.value.ids import is_id

MEMBERS_PER_CANCEL: Final = 1_000
"""Members that are cancelled in one transaction."""

RUNNING_COUNTED_UP_TO: Final = 1_000
"""Members that have not ended up to which the running ones are counted among them, else among all runs."""

RECOUNTED: Final = 500
"""Batches that one prune counts anew."""

MEMBERS_COUNTED_UP_TO: Final = 200
"""Members that have not ended up to which it counts them."""

BEFORE_ALL_BATCHES: Final = "00000000-0000-0000-0000-000000000000"
_LAST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_ENDED: Final = (BatchState.DONE, BatchState.DEAD, BatchState.CANCELLED)


class BatchStatements:
    """What a process does with batches."""

    def __init__(
        self,
        server: Server,
        catalog: LaneCatalog,
        operations: OperatorStatements,
        dependencies: DependencyStatements,
        wake: Callable[[set[str]], list[str]],
    ) -> None:
        self._server = server
        self._catalog = catalog
        self._operations = operations
        self._dependencies = dependencies
        self._wake = wake
        self._recounted = BEFORE_ALL_BATCHES
        self._recount_at = 0.0

    async def open(self, batch: NewBatch) -> bool:
        server, connection, jobs = self._server, self._server.connection("enqueue"), list(batch.follow_ups.values())
        await self._dependencies.use(connection)

        async def write() -> bool:
            lanes = await self._catalog.make_for(jobs, connection)
            places = [lanes[job.queue, job.task, job.priority] for job in jobs]
            wake = self._wake({job.queue for job in jobs})

            async def work(con: asyncpg.Connection) -> bool:
                ids = (each and each.id for each in (batch.then, batch.on_success, batch.on_dead))
                row = batch.id, batch.name, batch.parent, *ids
                if await con.fetchval(server.sql["add_batch"], server.given, *row) is None:
                    return False
                if batch.parent is not None:
                    asked = joining(server.given, None, {}, [(batch.parent, batch.id)], "parent")
                    await con.execute(server.sql["join_batches"], *asked)
                if any_waits(jobs):
                    await add_within(server, con, jobs, places, wake, KEY_WAIT_MS, frozenset((batch.id,)))
                return True

            return await connection.together(work)

        return await self._catalog.surely(write)

    async def close(self, id: str, actor: Actor | None) -> Acted:
        async def work(con: asyncpg.Connection) -> Acted:
            if await con.fetchval(self._server.sql["batch_state"], id) is None:
                return Acted.NOT_FOUND
            if await con.fetchval(self._server.sql["close_batch"], id) is None:
                return Acted.WRONG_STATE
            if actor is not None:
                await self._operations.note_within(con, "close_batch", f"batch:{id}", 0, actor)
            return Acted.DONE

        said = await self._server.connection("operate").together(work, begin=IMPATIENT) if is_id(id) else Acted.NOT_FOUND
        if said is Acted.DONE:
            await self._dependencies.go_on("operate")
        return said

    async def cancel(self, id: str, actor: Actor) -> Acted:
        async def work(con: asyncpg.Connection) -> Acted:
            if await con.fetchval(self._server.sql["batch_state"], id) is None:
                return Acted.NOT_FOUND
            if await con.fetchval(self._server.sql["cancel_batch"], id, actor.reason, actor.by) is None:
                return Acted.WRONG_STATE
            await self._operations.note_within(con, "cancel_batch", f"batch:{id}", 0, actor)
            return Acted.DONE

        said = await self._server.connection("operate").together(work, begin=IMPATIENT) if is_id(id) else Acted.NOT_FOUND
        if said is Acted.DONE:
            with suppress(StoreError):  # it is marked: each reclaim goes on with its members
                await self.cancel_members()
        return said

    async def cancel_members(self) -> None:
        """Cancel members of all batches that are to be cancelled, some in each transaction. What others hold meanwhile is looked
        at by a later reclaim again: a member, or a batch that a transaction of its producer's may still add to."""
        connection, statement, place = self._server.connection("operate"), self._server.sql["cancelling"], BEFORE_ALL_BATCHES
        some = False
        while rows := await connection.rows(statement, place, writing=False):
            [(place,)], some = rows, True
            with suppress(Locked):
                if await self._cancel_within(place):
                    place = BEFORE_ALL_BATCHES
        if some:
            await self._dependencies.go_on("operate")

    async def _cancel_within(self, id: str) -> bool:
        """Cancel the members of one batch; whether there are batches inside it that were not to be cancelled before."""
        outer = False
        while True:
            found, inside = await self._server.connection("operate").together(partial(self._cancel_some, id), begin=IMPATIENT)
            outer = outer or inside
            if not found:
                return outer
            await self._dependencies.go_on("operate")

    async def _cancel_some(self, id: str, con: asyncpg.Connection) -> tuple[bool, bool]:
        """Whether members were found that could be cancelled, and batches inside."""
        sql = self._server.sql
        signed = await con.fetchrow(sql["cancelled_by"], id)
        if signed is None:
            return False, False
        inside = await con.fetch(sql["cancel_inside"], id)
        ids = [member for (member,) in await con.fetch(sql["uncancelled"], id, MEMBERS_PER_CANCEL)]
        if ids:
            await Action(self._server, self._catalog, con, Actor(signed["by"], signed["reason"])).cancel(ids)
        else:
            await con.execute(sql["all_cancelled"], id)
        return bool(ids), bool(inside)

    async def get(self, id: str) -> Batch | None:
        found = await self._read(None, None, 1, [id]) if is_id(id) else []
        return found[0] if found else None

    async def page(self, state: BatchState | None, after: str | None, limit: int) -> BatchPage:
        if after is not None and not is_id(after):
            return BatchPage([])
        found = await self._read(state, after, limit + 1)
        return BatchPage(found[:limit], found[limit - 1].id if len(found) > limit else None)

    async def live(self) -> dict[BatchState, int]:
        rows = await self._server.connection("read").rows(self._server.sql["live_batches"], writing=False)
        found = {BatchState(state): count for state, count in rows}
        return {state: found.get(state, 0) for state in (BatchState.OPEN, BatchState.RUNNING)}

    async def _read(
        self, state: BatchState | None, after: str | None, limit: int, ids: Sequence[str] | None = None
    ) -> list[Batch]:
        asked = None if state is None else state.value, after or _LAST, ids, limit, RUNNING_COUNTED_UP_TO
        rows = await self._server.connection("read").rows(self._server.sql["batches"], *asked, writing=False)
        return [shown(*row) for row in rows]

    async def recount(self) -> None:
        """Count members that workers of the release before have ended, in some batches, from where the last call stopped."""
        if time.monotonic() < self._recount_at:
            return
        self._recount_at = time.monotonic() + SWEEP_EVERY
        connection, statement = self._server.connection("operate"), self._server.sql["recount_batches"]
        [(last,)] = await connection.rows(statement, self._recounted, RECOUNTED, MEMBERS_COUNTED_UP_TO)
        self._recounted = last or BEFORE_ALL_BATCHES

    async def prune(self, retention: Retention, limit: int) -> None:
        kept = [to_us(getattr(retention, state)) for state in _ENDED]
        statement = self._server.sql["prune_batches"]
        await self._server.connection("operate").rows(statement, self._server.given, [*_ENDED], kept, limit)
