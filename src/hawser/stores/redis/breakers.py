"""Breakers: read, decided here, and written by a script only if they are still as they were read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from hawser.breaker import Breaker
from hawser.clock import to_us
from hawser.errors import StoreError
from hawser.store import Actor
from hawser.store.breakers import AttemptCount, BreakerStatus, BreakerVerdict
from hawser.stores.breakers import NO_BREAKER, KeptBreaker, decoded, encoded
from hawser.stores.redis.codec import text
from hawser.stores.redis.operations import said_by
from hawser.stores.redis.server import Server

TRIES = 20
"""How often a change is decided anew because another process changed the breaker meanwhile."""

Change = Callable[[KeptBreaker, int], KeptBreaker | None]
"""What becomes of a breaker at a time; None is no change."""


class Breakers:
    """What code, people and judges do to breakers."""

    def __init__(self, server: Server, ring: Callable[[], None]) -> None:
        self._server = server
        self._ring = ring

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
        _, rows = await self._read()
        return [kept.status(task) for task, (_, kept) in sorted(rows.items())]

    async def _read(self) -> tuple[int, dict[str, tuple[bytes, KeptBreaker]]]:
        now, *rows = await self._server.look("breakers")
        found = {}
        for task, about, probe_at, lease, id in rows:
            probe = {"probe_at": int(probe_at), "probe_lease": int(lease), "probe_id": text(id) if id else ""}
            found[task.decode()] = about, replace(decoded(about), **probe)
        return int(now), found

    async def _change(self, task: str, change: Change, noted: tuple[str, Actor] | None = None) -> bool:
        for _ in range(TRIES):
            now, rows = await self._read()
            before, kept = rows.get(task, (b"", NO_BREAKER))
            after = change(kept, now)
            if after is None:
                return False
            every = 0 if after.rule is None else to_us(after.rule.probe_every)
            words = encoded(after) if after.is_needed else b"", "open" if after.open else "closed", after.probe_at, every
            said = (*said_by(noted[1]), noted[0]) if noted else ("", "", "", "")
            if await self._server.run("set_breaker", task, before, *words, *said):
                self._ring()
                return True
        raise StoreError(f"the breaker of {task} changed {TRIES} times while it was being changed; try again")


def _declared(rule: Breaker | None, kept: KeptBreaker, now: int) -> KeptBreaker | None:
    return kept.declared(rule, now) if kept.rule != rule else None


def _judged(verdict: BreakerVerdict, kept: KeptBreaker, now: int) -> KeptBreaker | None:
    return kept.judged(verdict, now)
