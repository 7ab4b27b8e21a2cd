"""The steps of jobs, in the Redis store."""

from __future__ import annotations

from collections.abc import Sequence

from hawser.clock import to_us
from hawser.store import LeaseRef, NewStep, RecordedStep
from hawser.stores.redis.codec import lease_of, raw, unpack
from hawser.stores.redis.server import Server
from hawser.stores.redis.server_connection import Argument
from hawser.stores.steps import step_of


class Steps:
    """What runs have achieved."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def record(self, steps: Sequence[NewStep]) -> list[RecordedStep | None]:
        if not steps:
            return []
        arguments: list[Argument] = []
        for step in steps:
            lasts = "" if step.lasts is None else to_us(step.lasts)
            arguments += [lease_of(LeaseRef(step.id, step.lease)), step.name, step.kind, step.value, lasts]
        now, kept = await self._server.run("record_steps", *arguments, line="settle")
        return [_step(each, int(now))[1] if each else None for each in kept]

    async def of(self, id: str) -> list[RecordedStep]:
        now, kept = await self._server.look("steps", raw(id))
        return [step for _, step in sorted((_step(each, int(now)) for each in kept), key=lambda pair: pair[0])]


def _step(packed: bytes, now: int) -> tuple[int, RecordedStep]:
    """A step and its place in the order of records."""
    number, name, kind, value, at, lease, until = unpack(packed)
    row = name, kind, value.encode(), int(at), int(lease), int(until) if until else None
    return number, step_of(row, now)
