"""The Redis store: hands each call to the part that does it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Final

from hawser.clock import Clock
from hawser.job import Claimed, NewJob
from hawser.schedule.declaration import Declaration
from hawser.schedule.schedule import Advance, Schedule
from hawser.store import (
    LEAVE_NOTHING,
    NO_ROOM_SET,
    Actor,
    Beat,
    Declined,
    Durability,
    Enqueued,
    LeaseRef,
    LeaseStatus,
    Leave,
    Reclaimed,
    RequestKey,
    Retention,
    SettleAnswer,
    Settlement,
    Share,
    Unaccepted,
)
from hawser.store.schedules import Advanced, DueSchedules
from hawser.stores.redis.address import Address, LaneKind
from hawser.stores.redis.batches import Batches
from hawser.stores.redis.enqueue import Enqueuer
from hawser.stores.redis.operator_side import OperatorSide
from hawser.stores.redis.outlook import Outlook
from hawser.stores.redis.output import Output
from hawser.stores.redis.runs import Runs
from hawser.stores.redis.schedules import ScheduleTable
from hawser.stores.redis.scripts import SCRIPTS, Script
from hawser.stores.redis.server import Server
from hawser.stores.redis.steps import Steps
from hawser.stores.redis.wake import ASK_FROM_S, Wake

REDIS_RETENTION: Final = Retention(done=3_600.0, cancelled=86_400.0)
"""All jobs are in memory: at 100 a second a week of done ones would take 20 GB."""


class RedisStore(OperatorSide):
    """A namespace in a Redis or Valkey server that many machines may share."""

    def __init__(
        self, address: Address, *, clock: Clock | None = None, scripts: Mapping[LaneKind, Mapping[str, Script]] = SCRIPTS
    ) -> None:
        self.durability: Durability = address.durability
        self.retention, self.done_most = REDIS_RETENTION, address.done_most
        self.address = address
        self.server = Server(address, clock, scripts[address.lanes])
        self._wake = Wake(self.server)
        self._outlook = Outlook(self.server, self._wake)
        super().__init__(self.server, self._wake.ring)
        of = Batches(self.server, self._wake.ring)
        self._runs = Runs(self.server, self._wake, of.cancel_members)
        self._schedules = ScheduleTable(self.server, self._wake.ring)
        self._steps = Steps(self.server, self._wake.ring)
        output = Output(self.server)
        self.write_output, self.output = output.write, output.of
        self.arrive, self.emit, self.event = self._steps.arrive, self._steps.emit, self._steps.event
        self.awaiting = self._steps.awaiting
        self.record_steps, self.steps = self._steps.record, self._steps.of
        self.open_batch, self.close_batch, self.cancel_batch = of.open_batch, of.close_batch, of.cancel_batch
        self.batch, self.batches, self.live_batches = of.batch, of.batches, of.live_batches
        self._enqueuers: dict[int, tuple[asyncio.AbstractEventLoop, Enqueuer]] = {}

    async def open(self) -> None:
        try:
            await self.server.prepare()
        except BaseException:
            # A store that was refused is not closed by its caller.
            await self.server.close()
            raise

    async def close(self) -> None:
        for loop, enqueuer in list(self._enqueuers.values()):
            if loop is asyncio.get_running_loop():
                await enqueuer.close()
        await self._wake.close()
        await self.server.close()

    # The worker's side.

    async def enqueue(self, jobs: Sequence[NewJob], request: RequestKey | None = None) -> list[Enqueued]:
        return await self._enqueuer().put(jobs, request)

    async def made(self, jobs: Sequence[NewJob], request: RequestKey | None = None) -> bool:
        return await self._enqueuer().made(jobs, request)

    def _enqueuer(self) -> Enqueuer:
        loop = asyncio.get_running_loop()
        found = self._enqueuers.get(id(loop))
        if found is None or found[0] is not loop:
            found = self._enqueuers[id(loop)] = (loop, Enqueuer(self.server, self._wake.ring))
        return found[1]

    async def claim(
        self,
        queues: Sequence[Share],
        limit: int,
        worker: str,
        lease_for: float,
        room: Mapping[str, int] = NO_ROOM_SET,
        leave: Leave = LEAVE_NOTHING,
    ) -> list[Claimed]:
        claimed = await self._runs.claim(queues, limit, worker, lease_for, room, leave)
        if claimed:
            self._wake.had_work()
        return claimed

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        return await self._runs.settle(settlements)

    async def extend(self, worker: str, leases: Sequence[LeaseRef], lease_for: float) -> list[LeaseStatus]:  # noqa: ARG002
        return await self._runs.extend(leases, lease_for)

    async def holders(self, leases: Sequence[LeaseRef]) -> list[str | None]:
        return await self._runs.holders(leases)

    async def asked_to_stop(self, workers: Sequence[str]) -> list[LeaseRef]:
        return await self._runs.asked_to_stop(workers)

    async def reclaim(self, limit: int) -> list[Reclaimed]:
        if limit and await self._outlook.rest("runs"):
            return []
        return await self._runs.reclaim(limit)

    async def go_on(self) -> bool:
        if not await self._outlook.rest("runs"):
            await self._runs.go_on()
        return True

    async def expire(self, limit: int) -> int:
        if limit and await self._outlook.rest("expiry"):
            return 0
        return await self._runs.expire(limit)

    async def end_returned(self, lost: LeaseRef) -> bool:
        return await self._runs.end_returned(lost)

    async def decline(self, declined: Sequence[Declined]) -> list[Unaccepted | None]:
        return await self._runs.decline(declined)

    async def beat(self, beats: Sequence[Beat], gone: Sequence[str] = ()) -> None:
        await self._outlook.look(lambda: self._operations.beat(beats, gone))

    async def wait(self, queues: Sequence[str], timeout: float, leave: Leave = LEAVE_NOTHING) -> None:
        waiter = self._wake.join()
        try:
            pause = min(timeout, self._wake.next_look())
            if pause > ASK_FROM_S and not self._wake.knows_empty(queues):
                due_in = await self._runs.due_in(queues, leave)
                pause = pause if due_in is None else min(pause, due_in)
            await asyncio.wait((waiter,), timeout=pause)
        finally:
            self._wake.leave(waiter)

    # The scheduler's side.

    async def schedules(self, names: Sequence[str] | None = None, after: str = "", limit: int | None = None) -> list[Schedule]:
        return await self._schedules.named(names, after, limit)

    async def due_schedules(self, limit: int) -> DueSchedules:
        rest = await self._outlook.rest("schedules") if limit else None
        if rest is not None:
            return DueSchedules(rest.now, [], None if math.isinf(rest.left) else rest.left)
        return await self._schedules.due(limit)

    async def next_schedules(self, limit: int) -> list[Schedule]:
        return await self._schedules.next(limit)

    async def fire(self, advances: Sequence[Advance]) -> list[Advanced]:
        return await self._schedules.fire(advances)

    async def put_schedule(self, advance: Advance, action: str, actor: Actor) -> Advanced:
        return await self._schedules.put(advance, action, actor)

    async def delete_schedule(self, name: str, actor: Actor) -> bool:
        return await self._schedules.delete(name, actor)

    async def declare(self, declaration: Declaration) -> list[Declaration]:
        return await self._schedules.declare(declaration)
