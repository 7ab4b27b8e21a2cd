"""Breakers: read, decided here, and written by a script only if they are still as they were read."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from hawser.clock import to_us
from hawser.errors import StoreError
from hawser.store import Actor
from hawser.store.breakers import BreakerStatus
from hawser.stores.breakers import NO_BREAKER, BreakerChanges, Change, KeptBreaker, decoded, encoded
from hawser.stores.redis.codec import text
from hawser.stores.redis.operations import said_by
from hawser.stores.redis.server import Server

BREAKER_TRIES = 20
"""How often a change is decided anew because another process changed the breaker meanwhile."""


class Breakers(BreakerChanges):
    """What code, people and judges do to breakers."""

    def __init__(self, server: Server, ring: Callable[[], None]) -> None:
        self._server = server
        self._ring = ring

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
        for _ in range(BREAKER_TRIES):
            now, rows = await self._read()
            before, kept = rows.get(task, (b"", NO_BREAKER))
            after = change(kept, now)
            if after is None:
                return False
            every = 0 if after.rule is None else to_us(after.rule.probe_every)
            # One that stays open keeps the probe that is under way; a claim may take one between the read and this write.
            how = "closed" if not after.open else "still" if (kept.open, kept.by_hand) == (True, after.by_hand) else "open"
            words = encoded(after) if after.is_needed else b"", how, after.probe_at, every
            said = (*said_by(noted[1]), noted[0]) if noted else ("", "", "", "")
            if await self._server.run("set_breaker", task, before, *words, *said):
                self._ring()
                return True
        raise StoreError(f"the breaker of {task} changed {BREAKER_TRIES} times while it was being changed; try again")
