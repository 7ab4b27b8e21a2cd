"""The changes of single jobs: each is one script, which leaves the audit record, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hawser.clock import from_datetime, to_us
from hawser.store import AUDIT_IDS, Acted, Actor, Change
from hawser.stores.redis.codec import raw, shown_job
from hawser.stores.redis.operations import said_by
from hawser.stores.redis.server import Server
from hawser.stores.redis.server_connection import Argument
from hawser.value.fingerprint import fingerprint


class Edits:
    """What a person changes of single jobs."""

    def __init__(self, server: Server, ring: Callable[[], None]) -> None:
        self._server = server
        self._ring = ring

    async def change(self, ids: Sequence[str], change: Change, actor: Actor) -> list[Acted]:
        if not ids:
            return []
        said = await self._server.run("change", *said_by(actor), AUDIT_IDS, *words_of(change), *map(raw, ids))
        self._ring()
        return [Acted(word.decode()) for word in said]

    async def dead_letter(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        """What its error has in common with others is found here, and written while the job has had no other run since."""
        while ids:
            judged = [await self._judged(id, actor) for id in ids]
            if said := await self._server.run("dead_letter", *said_by(actor), AUDIT_IDS, *judged):
                return [Acted(word.decode()) for word in said]
        return []

    async def _judged(self, id: str, actor: Actor) -> bytes:
        view = await self._server.look("get", raw(id))
        job = shown_job(view) if view else None
        error = job.errors[-1].error if job is not None and job.errors else None
        lease = 0 if job is None else job.lease
        return raw(id) + lease.to_bytes(8, "big") + fingerprint(error or actor.reason).encode()

    async def rewind(self, id: str, to: str | None, actor: Actor) -> Acted:
        said = await self._server.run("rewind", *said_by(actor), AUDIT_IDS, raw(id), 0 if to is None else 1, to or "")
        self._ring()
        return Acted(said.decode())

    async def end_leases(self, worker: str, actor: Actor) -> int:
        return int(await self._server.run("end_leases", *said_by(actor), worker))


def words_of(change: Change) -> tuple[Argument, ...]:
    """Queue and priority, empty where they stay, and what the time means, and the time."""
    how: tuple[Argument, Argument] = ("", "")
    if change.delay is not None:
        how = ("in", to_us(change.delay))
    elif change.run_at is not None:
        how = ("at", from_datetime(change.run_at))
    return change.queue or "", "" if change.priority is None else change.priority, *how
