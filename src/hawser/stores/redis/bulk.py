"""Bulk operations, kept as one packed value each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from hawser.clock import to_us
from hawser.store import AUDIT_IDS, BULK_SILENCE, BULKS_LISTED, Actor, BulkOperation, BulkPlan, BulkStep
from hawser.stores.record import bulk_of
from hawser.stores.redis.codec import raw, unpack
from hawser.stores.redis.edits import words_of
from hawser.stores.redis.operations import said_by
from hawser.stores.redis.server import Server
from hawser.stores.redis.server_connection import Argument

_SILENCE: Final = to_us(BULK_SILENCE)


class Bulks:
    """Bulk operations and their steps."""

    def __init__(self, server: Server, ring: Callable[[], None]) -> None:
        self._server = server
        self._ring = ring

    async def start(self, id: str, plan: BulkPlan, owner: str) -> BulkOperation:
        [operation] = _shown(await self._server.run("start_bulk", id, msgspec.json.encode(plan), owner))
        return operation

    async def get(self, id: str) -> BulkOperation | None:
        return _one(_shown(await self._server.look("bulks", id)))

    async def latest(self) -> list[BulkOperation]:
        return _shown(await self._server.look("bulks", BULKS_LISTED))

    async def step(self, step: BulkStep) -> BulkOperation | None:
        """The plan never changes, so it may be read before; what may change is judged in the script that writes."""
        kept = await self.get(step.id)
        if kept is None:
            return None
        where: list[Argument] = [step.id, step.turn, step.behind or "", step.cursor or ""]
        how: list[Argument] = [step.skipped, step.ends or "", step.error or "", kept.plan.action]
        who = said_by(kept.plan.actor(step.id))
        written = await self._server.run(
            "step_bulk",
            *(*where, *how, *who, AUDIT_IDS, to_us(step.spread), to_us(step.delay), *words_of(kept.plan.change)),
            *map(raw, step.ids),
        )
        self._ring()
        return _one(_shown(written)) if written else None

    async def take(self, owner: str, limit: int) -> list[BulkOperation]:
        return _shown(await self._server.run("take_bulks", owner, limit, _SILENCE))

    async def release(self, id: str, turn: int) -> None:
        await self._server.run("release_bulk", id, turn, _SILENCE)

    async def stop(self, id: str, actor: Actor) -> BulkOperation | None:
        return _one(_shown(await self._server.run("stop_bulk", id, *said_by(actor))))


def _shown(said: Sequence[bytes]) -> list[BulkOperation]:
    now, *packed = said
    operations = []
    for each in packed:
        # Lua has no null in a list: false stands for it.
        fields: list[Any] = [None if value is False else value for value in unpack(each)]
        operations.append(bulk_of(int(now), *fields))
    return operations


def _one(operations: Sequence[BulkOperation]) -> BulkOperation | None:
    return operations[0] if operations else None
