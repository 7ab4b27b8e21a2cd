"""What an operator does: each action is one script, which leaves the audit record, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from hawser.clock import from_datetime, to_us
from hawser.job import NewJob
from hawser.limit import NO_LIMIT, Limit
from hawser.policy import NO_POLICY, QueuePolicy
from hawser.store import AUDIT_IDS, AUDIT_KEPT, BULK_KEPT, WORKER_KEPT, Acted, Actor, Beat, Retention, Target, Weight
from hawser.store.api_key import ApiKey
from hawser.stores.limits import Bound, bound_of
from hawser.stores.record import about_of
from hawser.stores.redis.codec import packed_job, raw
from hawser.stores.redis.server import Server
from hawser.stores.redis.server_connection import Argument

PIECE: Final = 1_000
"""Jobs that one script removes at most."""

_KEPT: Final = (to_us(AUDIT_KEPT), to_us(BULK_KEPT), to_us(WORKER_KEPT))


class Operations:
    """What an operator does with jobs and queues."""

    def __init__(self, server: Server, ring: Callable[[], None]) -> None:
        self._server = server
        self._ring = ring

    async def act(self, action: str, ids: Sequence[str], actor: Actor, spread: float = 0.0, delay: float = 0.0) -> list[Acted]:
        if not ids:
            return []
        by, reason, about = said_by(actor)
        said = await self._server.run("act", action, by, reason, about, AUDIT_IDS, to_us(spread), to_us(delay), *map(raw, ids))
        self._ring()
        return [Acted(word.decode()) for word in said]

    async def replace(self, id: str, job: NewJob, actor: Actor) -> Acted:
        said = await self._server.run("replace", *said_by(actor), raw(id), packed_job(job, id))
        self._ring()
        return Acted(said.decode())

    async def _control(self, action: str, target: str, actor: Actor, what: str, *arguments: Argument) -> bool:
        return bool(await self._server.run("control", *said_by(actor), action, target, what, *arguments))

    async def note(self, action: str, target: str, actor: Actor) -> None:
        await self._control(action, target, actor, "nothing")

    async def pause(self, target: Target, actor: Actor, until: datetime | None) -> None:
        when = 0 if until is None else from_datetime(until)
        await self._control("pause", f"{target.kind}:{target.name}", actor, "pause", f"{target.kind}|{target.name}", when)

    async def resume(self, target: Target, actor: Actor) -> bool:
        stood = await self._control("resume", f"{target.kind}:{target.name}", actor, "resume", f"{target.kind}|{target.name}")
        self._ring()
        return stood

    async def set_weight(self, weight: Weight, actor: Actor) -> None:
        value = "" if weight.weight == 1 else weight.weight
        field = f"{weight.queue}|{weight.group}"
        await self._control("set_weight", f"queue:{weight.queue}", actor, "set", "weights", field, value)

    async def set_limit(self, target: Target, limit: Limit | None, actor: Actor) -> bool:
        action = "clear_limit" if limit is None else "set_limit"
        chosen = None if target.kind == "queue" and limit == NO_LIMIT else limit
        changed = bool(await self._server.run("set_limit", *said_by(actor), action, *_limit_words(target, chosen)))
        self._ring()
        return changed

    async def declare_limits(self, limits: Mapping[str, Limit | None]) -> None:
        words = [word for task, limit in limits.items() for word in _limit_words(Target("task", task), limit)]
        if words:
            await self._server.run("set_limit", "code", "", "", "", *words)
            self._ring()

    async def set_policy(self, queue: str, policy: QueuePolicy, actor: Actor) -> None:
        text = b"" if policy == NO_POLICY else msgspec.json.encode(policy)
        await self._control("set_policy", f"queue:{queue}", actor, "policy", queue, text, policy.max_attempts or "")

    async def put_api_key(self, key: ApiKey, lasts: float | None, actor: Actor) -> None:
        lasting = "" if lasts is None else to_us(lasts)
        await self._control("create_key", f"key:{key.id}", actor, "put_key", key.id, msgspec.json.encode(key), lasting)

    async def revoke_api_key(self, id: str, actor: Actor) -> bool:
        return await self._control("revoke_key", f"key:{id}", actor, "revoke_key", id)

    async def use_api_keys(self, ids: Sequence[str]) -> None:
        if ids:
            await self._server.run("use_keys", *ids)

    async def beat(self, beats: Sequence[Beat], gone: Sequence[str]) -> Sequence[bytes]:
        """Returns when upkeep has something to do next, as the script `outlook` does."""
        said = [word for beat in beats for word in (beat.worker.encode(), msgspec.json.encode(beat))]
        times: Sequence[bytes] = await self._server.run("beat", len(beats), *said, *gone, connection="keep")
        return times

    async def prune(self, retention: Retention, by_task: Mapping[str, Retention], limit: int) -> int:
        kept: list[Argument] = [*_kept(retention)]
        for task, own in by_task.items():
            kept += [task, *_kept(own)]
        removed = 0
        await self._server.run("forget_groups", PIECE)
        while True:
            piece = min(PIECE, limit - removed)
            some: int = await self._server.run("prune", piece, *kept, self._server.address.done_most, *_KEPT)
            removed += some
            if some < piece or removed >= limit:
                return removed


def said_by(actor: Actor) -> tuple[str, str, str]:
    """By, reason and about, for an audit record; empty where not given."""
    return actor.by, actor.reason or "", about_of(actor) or ""


def _kept(retention: Retention) -> tuple[int, int, int]:
    return to_us(retention.done), to_us(retention.dead), to_us(retention.cancelled)


def _limit_words(target: Target, limit: Limit | None) -> tuple[Argument, ...]:
    """What `set_limit` is told of one limit; empty where nothing is said."""
    if limit is None:
        return target.kind, target.name, "", "", "", "", "", "", ""
    bound = bound_of(limit) or Bound()
    said = (bound.running, bound.starts, bound.width or None, limit.max_depth, int(bound.per_group), int(bound.ordered))
    return target.kind, target.name, msgspec.json.encode(limit), *("" if number is None else number for number in said)
