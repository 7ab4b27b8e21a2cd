"""Breakers: each change is one transaction, and raises the number that tells every claimer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import asyncpg
from msgspec.structs import replace

from hawser.breaker import Breaker
from hawser.clock import to_us
from hawser.store import Actor
from hawser.store.breakers import AttemptCount, BreakerStatus, BreakerVerdict
from hawser.stores.breakers import NO_BREAKER, KeptBreaker, decoded, encoded
from hawser.stores.postgres.lane_catalog import LaneCatalog
from hawser.stores.postgres.managed_connection import IMPATIENT
from hawser.stores.postgres.operations import Action
from hawser.stores.postgres.server import Server

Change = Callable[[KeptBreaker, int], KeptBreaker | None]
"""What becomes of a breaker at a time; None is no change."""


class BreakerStatements:
    """What code, people and judges do to breakers."""

    def __init__(self, server: Server, directory: LaneCatalog) -> None:
        self._server = server
        self._directory = directory

    async def declare(self, breakers: Mapping[str, Breaker | None]) -> None:
        known = {status.task: status.rule for status in await self.statuses()}
        for task, rule in sorted(breakers.items()):
            if known.get(task) != rule:
                await self._change(task, partial(_declared, rule))

    async def judge(self, verdicts: Sequence[BreakerVerdict]) -> list[bool]:
        return [await self._change(verdict.task, partial(_judged, verdict)) for verdict in verdicts]

    async def open_by_hand(self, task: str, actor: Actor) -> bool:
        def opened(kept: KeptBreaker, now: int) -> KeptBreaker | None:
            return None if kept.open and kept.by_hand else kept.opened(now, actor.by, by_hand=True)

        return await self._change(task, opened, ("open_breaker", actor))

    async def close_by_hand(self, task: str, actor: Actor, counted: AttemptCount) -> bool:
        def closed(kept: KeptBreaker, now: int) -> KeptBreaker | None:
            return kept.closed(now, actor.by, counted) if kept.open else None

        return await self._change(task, closed, ("close_breaker", actor))

    async def statuses(self) -> list[BreakerStatus]:
        rows = await self._server.line("operate").rows(self._server.sql["breakers"], writing=False)
        return [_read(*row).status(task) for task, *row in rows]

    async def _change(self, task: str, change: Change, noted: tuple[str, Actor] | None = None) -> bool:
        sql = self._server.sql

        async def work(con: asyncpg.Connection) -> bool:
            row = await con.fetchrow(sql["breaker"], task)
            now = await con.fetchval(sql["store_time"], self._server.given)
            kept = change(NO_BREAKER if row is None else _read(*row), now)
            if kept is None:
                return False
            if kept.is_needed:
                every = None if kept.rule is None else to_us(kept.rule.probe_every)
                await con.execute(sql["put_breaker"], task, encoded(kept).decode(), kept.open, kept.probe_at or None, every)
            else:
                await con.execute(sql["drop_breaker"], task)
            if noted is not None:
                await Action(self._server, self._directory, con, noted[1]).note(noted[0], f"task:{task}", 0)
            await con.execute(sql["changed"])
            return True

        return await self._server.line("operate").together(work, begin=IMPATIENT)


def _declared(rule: Breaker | None, kept: KeptBreaker, now: int) -> KeptBreaker | None:
    return kept.declared(rule, now) if kept.rule != rule else None


def _judged(verdict: BreakerVerdict, kept: KeptBreaker, now: int) -> KeptBreaker | None:
    return kept.judged(verdict, now)


def _read(about: str, probe_at: int | None, probe_id: str | None, probe_lease: int | None) -> KeptBreaker:
    return replace(decoded(about), probe_at=probe_at or 0, probe_id=probe_id or "", probe_lease=probe_lease or 0)
