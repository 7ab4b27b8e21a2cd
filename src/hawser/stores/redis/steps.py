"""The steps of jobs, in the Redis store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hawser.clock import at, to_us
from hawser.store import DUE_COUNTED, Arrival, Emitted, Event, LeaseRef, NewStep, RecordedStep
from hawser.stores.redis.codec import lease_of, raw, unpack
from hawser.stores.redis.server import Server
from hawser.stores.redis.server_connection import Argument
from hawser.stores.steps import step_of


class Steps:
    """What runs have achieved, and the events that they wait for."""

    def __init__(self, server: Server, ring: Callable[[], None]) -> None:
        self._server = server
        self._ring = ring

    async def record(self, steps: Sequence[NewStep]) -> list[RecordedStep | None]:
        if not steps:
            return []
        arguments: list[Argument] = []
        for step in steps:
            lasts = "" if step.lasts is None else to_us(step.lasts)
            arguments += [lease_of(LeaseRef(step.id, step.lease)), step.name, step.kind, step.value, lasts]
        now, kept = await self._server.run("record_steps", *arguments, connection="settle")
        return [_step(each, int(now))[1] if each else None for each in kept]

    async def arrive(self, arrival: Arrival) -> RecordedStep | None:
        lease = lease_of(LeaseRef(arrival.id, arrival.lease))
        given = lease, arrival.name, arrival.event or "", arrival.value or b""
        now, kept = await self._server.run("arrive", *given, connection="settle")
        return _step(kept, int(now))[1] if kept else None

    async def emit(self, name: str, body: bytes, keep: float) -> Emitted:
        created, came_at, same, more = await self._server.run("emit", name, body, to_us(keep))
        while more:
            more = await self._server.run("wake", name)
        self._ring()
        return Emitted(created=bool(created), at=at(int(came_at)), same=bool(same))

    async def event(self, name: str) -> Event | None:
        found = await self._server.look("event", name)
        if not found:
            return None
        came_at, until, body = found
        return Event(name=name, body=body, at=at(int(came_at)), until=at(int(until)))

    async def awaiting(self) -> int:
        return min(max(int(await self._server.look("awaiting")), 0), DUE_COUNTED)

    async def of(self, id: str) -> list[RecordedStep]:
        now, kept = await self._server.look("steps", raw(id))
        return [step for _, step in sorted((_step(each, int(now)) for each in kept), key=lambda pair: pair[0])]


def _step(packed: bytes, now: int) -> tuple[int, RecordedStep]:
    """A step and its place in the order of records."""
    number, name, kind, value, recorded_at, lease, until, *rest = unpack(packed)
    event = (rest[0] or None) if rest else None  # steps of earlier releases have none
    row = name, kind, value.encode(), int(recorded_at), int(lease), int(until) if until else None, event
    return number, step_of(row, now)
