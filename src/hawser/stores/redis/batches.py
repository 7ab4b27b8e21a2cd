"""Batches: each call is one script; members are cancelled some in each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from hawser.batch import Batch, BatchPage, BatchState, NewBatch
from hawser.clock import at
from hawser.errors import IdConflict, InvalidJob, QueueFull
from hawser.store import JOBS_PER_PAGE, Acted, Actor
from hawser.stores.batches import CANCELLED, ENDED, refusal
from hawser.stores.dependencies import UNKNOWN
from hawser.stores.redis.codec import packed_job, raw, text, unpack
from hawser.stores.redis.operations import said_by
from hawser.stores.redis.server import Server
from hawser.value.ids import is_id

MEMBERS_PER_SCRIPT: Final = 300
"""Members that one script cancels."""

_WHY: Final = {b"unknown": UNKNOWN, b"cancelled": CANCELLED, b"ended": ENDED}


def no_batch(words: Sequence[Any], field: str = "batch") -> InvalidJob:
    """Our error for a batch that takes no more."""
    return refusal(text(words[1]), _WHY[words[2]], field)


class Batches:
    """What producers and operators do with batches."""

    def __init__(self, server: Server, ring: Callable[[], None]) -> None:
        self._server = server
        self._ring = ring

    async def open_batch(self, batch: NewBatch) -> bool:
        jobs = batch.follow_ups
        ids = [jobs[word].id if word in jobs else "" for word in ("then", "on_success", "on_dead")]
        parent = b"" if batch.parent is None else raw(batch.parent)
        packed = [packed_job(job) for job in jobs.values()]
        said = await self._server.run("open_batch", raw(batch.id), parent, batch.name, *ids, *packed, connection="enqueue")
        if isinstance(said, int):
            return bool(said)
        match said[0]:
            case b"parent":
                raise no_batch(said, "parent")
            case b"batch":
                raise no_batch(said)
            case b"full":
                raise QueueFull(said[1].decode(), int(said[2]), int(said[3]))
            case _:
                raise IdConflict(text(said[1]))

    async def close_batch(self, id: str, actor: Actor | None = None) -> Acted:
        by, reason, about = ("", "", "") if actor is None else said_by(actor)
        said = await self._server.run("close_batch", raw(id), by, reason, about, f"batch:{id}")
        self._ring()
        return Acted(said.decode())

    async def cancel_batch(self, id: str, actor: Actor) -> Acted:
        said = Acted((await self._server.run("cancel_batch", raw(id), *said_by(actor), f"batch:{id}")).decode())
        if said is Acted.DONE:
            await self.cancel_members()
        return said

    async def cancel_members(self) -> None:
        """Cancel members of batches that are to be cancelled, also what a process that died has left of it."""
        while await self._server.run("cancel_members", MEMBERS_PER_SCRIPT):
            pass
        self._ring()

    async def batch(self, id: str) -> Batch | None:
        found = await self._server.look("batches", "=", raw(id)) if is_id(id) else []
        return _shown(*found[0]) if found else None

    async def batches(self, state: BatchState | None = None, after: str | None = None, limit: int = JOBS_PER_PAGE) -> BatchPage:
        if after is not None and not is_id(after):
            return BatchPage([])
        asked = "" if state is None else state.value, b"" if after is None else raw(after), limit + 1
        found = [_shown(*row) for row in await self._server.look("batches", *asked)]
        return BatchPage(found[:limit], found[limit - 1].id if len(found) > limit else None)

    async def live_batches(self) -> dict[BatchState, int]:
        open_, running = await self._server.look("live_batches")
        return {BatchState.OPEN: open_, BatchState.RUNNING: running}


def _shown(id: bytes, packed: bytes, running: int) -> Batch:
    kept = unpack(packed)
    ended: int = kept["done"] + kept["dead"] + kept["given_up"]
    return Batch(
        id=text(id),
        name=kept["name"],
        created_at=at(kept["created"]),
        total=kept["members"],
        waiting=kept["members"] - ended - running,
        running=running,
        done=kept["done"],
        dead=kept["dead"],
        cancelled=kept["given_up"],
        closed=kept["closed"],
        cancel_asked=kept["cancelled"],
        reason=kept.get("reason") or None,
        parent=kept["parent"] or None,
        ended_at=at(kept["ended"]) if "ended" in kept else None,
        then=kept["then_"] or None,
        on_success=kept["success"] or None,
        on_dead=kept["on_dead"] or None,
    )
