"""The Redis store: hands each call to the part that does it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

from hawser.breaker import Breaker
from hawser.clock import Clock
from hawser.job import Claimed, Job, NewJob
from hawser.limit import Limit
from hawser.policy import QueuePolicy
from hawser.schedule.declaration import Declaration
from hawser.schedule.schedule import Advance, Schedule
from hawser.store import (
    LEAVE_NOTHING,
    NO_ROOM_SET,
    PAGE,
    Acted,
    Actor,
    AuditRecord,
    Beat,
    BreakerStatus,
    BulkOperation,
    BulkPlan,
    BulkStep,
    Change,
    DeadGroups,
    DeadLetters,
    Declined,
    Durability,
    Enqueued,
    Filter,
    LeaseRef,
    LeaseStatus,
    Leave,
    LimitUse,
    NewStep,
    Page,
    Pause,
    QueueStats,
    Reclaimed,
    RecordedStep,
    RequestKey,
    Retention,
    SettleAnswer,
    Settlement,
    Share,
    Target,
    Unaccepted,
    Weight,
    WorkerSeen,
)
from hawser.store.api_key import ApiKey, KeyRecord
from hawser.store.breakers import NOTHING_COUNTED, AttemptCount, BreakerVerdict
from hawser.store.rollup import EventCount, LaneDepth, Measured, Rollup
from hawser.store.schedules import Advanced, DueSchedules
from hawser.stores.redis.address import Address
from hawser.stores.redis.breakers import Breakers
from hawser.stores.redis.bulk import Bulks
from hawser.stores.redis.edits import Edits
from hawser.stores.redis.enqueue import Enqueuer
from hawser.stores.redis.operations import Operations
from hawser.stores.redis.queries import Queries
from hawser.stores.redis.runs import Runs
from hawser.stores.redis.schedules import ScheduleTable
from hawser.stores.redis.scripts import LISTS, Script
from hawser.stores.redis.server import Server
from hawser.stores.redis.steps import Steps
from hawser.stores.redis.wake import CALM, Wake


class RedisStore:
    """A namespace in a Redis or Valkey server that many machines may share."""

    def __init__(self, address: Address, *, clock: Clock | None = None, scripts: Mapping[str, Script] = LISTS) -> None:
        self.durability: Durability = address.durability
        self.address = address
        self.server = Server(address, clock, scripts)
        self._wake = Wake(self.server)
        self._runs = Runs(self.server, self._wake.ring)
        self._schedules = ScheduleTable(self.server, self._wake.ring)
        self._operations = Operations(self.server, self._wake.ring)
        self._edits = Edits(self.server, self._wake.ring)
        self._breakers = Breakers(self.server, self._wake.ring)
        self._bulks = Bulks(self.server, self._wake.ring)
        self._queries = Queries(self.server)
        self.ended, self.waits = self._queries.ended, self._queries.waits
        self._steps = Steps(self.server)
        self._enqueuers: dict[int, tuple[asyncio.AbstractEventLoop, Enqueuer]] = {}

    async def open(self) -> None:
        await self.server.prepare()

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
        return await self._runs.reclaim(limit)

    async def end_returned(self, lost: LeaseRef) -> bool:
        return await self._runs.end_returned(lost)

    async def decline(self, declined: Sequence[Declined]) -> list[Unaccepted | None]:
        return await self._runs.decline(declined)

    async def record_steps(self, steps: Sequence[NewStep]) -> list[RecordedStep | None]:
        return await self._steps.record(steps)

    async def steps(self, id: str) -> list[RecordedStep]:
        return await self._steps.of(id)

    async def beat(self, beats: Sequence[Beat], gone: Sequence[str] = ()) -> None:
        await self._operations.beat(beats, gone)

    async def wait(self, queues: Sequence[str], timeout: float, leave: Leave = LEAVE_NOTHING) -> None:
        waiter = self._wake.join()
        try:
            pause = min(timeout, self._wake.next_look())
            if pause > CALM:
                due_in = await self._runs.due_in(queues, leave)
                pause = pause if due_in is None else min(pause, due_in)
            await asyncio.wait((waiter,), timeout=pause)
        finally:
            self._wake.leave(waiter)

    # The scheduler's side.

    async def schedules(self, names: Sequence[str] | None = None, after: str = "", limit: int | None = None) -> list[Schedule]:
        return await self._schedules.named(names, after, limit)

    async def due_schedules(self, limit: int) -> DueSchedules:
        return await self._schedules.due(limit)

    async def fire(self, advances: Sequence[Advance]) -> list[Advanced]:
        return await self._schedules.fire(advances)

    async def put_schedule(self, advance: Advance, action: str, actor: Actor) -> Advanced:
        return await self._schedules.put(advance, action, actor)

    async def delete_schedule(self, name: str, actor: Actor) -> bool:
        return await self._schedules.delete(name, actor)

    async def declare(self, declaration: Declaration) -> list[Declaration]:
        return await self._schedules.declare(declaration)

    # The operator's side.

    async def get(self, id: str) -> Job | None:
        return await self._queries.get(id)

    async def find(self, filter: Filter, after: str | None = None, limit: int = PAGE) -> Page:
        return await self._queries.find(filter, after, limit)

    async def dead_letters(
        self, queue: str | None = None, task: str | None = None, after: str | None = None, limit: int = PAGE
    ) -> DeadLetters:
        return await self._queries.dead_letters(queue, task, after, limit)

    async def dead_groups(self, queue: str | None = None, task: str | None = None, limit: int = PAGE) -> DeadGroups:
        return await self._queries.dead_groups(queue, task, limit)

    async def group_dead(self, limit: int) -> int:  # noqa: ARG002  # each gets its group as it dies
        return 0

    async def stats(self, queue: str | None = None) -> QueueStats:
        return await self._queries.stats(queue)

    async def queues(self) -> dict[str, QueueStats]:
        return await self._queries.queues()

    async def cancel(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return await self._operations.act("cancel", ids, actor)

    async def requeue(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return await self._operations.act("requeue", ids, actor)

    async def discard(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return await self._operations.act("discard", ids, actor)

    async def replace(self, id: str, job: NewJob, actor: Actor) -> Acted:
        return await self._operations.replace(id, job, actor)

    async def change(self, ids: Sequence[str], change: Change, actor: Actor) -> list[Acted]:
        return await self._edits.change(ids, change, actor)

    async def dead_letter(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return await self._edits.dead_letter(ids, actor)

    async def end_leases(self, worker: str, actor: Actor) -> int:
        return await self._edits.end_leases(worker, actor)

    async def pause(self, target: Target, actor: Actor, until: datetime | None = None) -> None:
        await self._operations.pause(target, actor, until)

    async def resume(self, target: Target, actor: Actor) -> bool:
        return await self._operations.resume(target, actor)

    async def pauses(self) -> list[Pause]:
        return await self._queries.pauses()

    async def set_weight(self, weight: Weight, actor: Actor) -> None:
        await self._operations.set_weight(weight, actor)

    async def weights(self, queue: str | None = None) -> list[Weight]:
        return await self._queries.weights(queue)

    async def set_limit(self, target: Target, limit: Limit | None, actor: Actor) -> bool:
        return await self._operations.set_limit(target, limit, actor)

    async def declare_limits(self, limits: Mapping[str, Limit | None]) -> None:
        await self._operations.declare_limits(limits)

    async def limits(self) -> list[LimitUse]:
        return await self._queries.limits()

    async def declare_breakers(self, breakers: Mapping[str, Breaker | None]) -> None:
        await self._breakers.declare(breakers)

    async def breakers(self) -> list[BreakerStatus]:
        return await self._breakers.statuses()

    async def judge(self, verdicts: Sequence[BreakerVerdict]) -> list[bool]:
        return await self._breakers.judge(verdicts)

    async def open_breaker(self, task: str, actor: Actor) -> bool:
        return await self._breakers.open_by_hand(task, actor)

    async def close_breaker(self, task: str, actor: Actor, counted: AttemptCount = NOTHING_COUNTED) -> bool:
        return await self._breakers.close_by_hand(task, actor, counted)

    async def set_policy(self, queue: str, policy: QueuePolicy, actor: Actor) -> None:
        await self._operations.set_policy(queue, policy, actor)

    async def policies(self) -> dict[str, QueuePolicy]:
        return await self._queries.policies()

    async def prune(self, retention: Retention, by_task: Mapping[str, Retention], limit: int) -> int:
        return await self._operations.prune(retention, by_task, limit)

    async def workers(self) -> list[WorkerSeen]:
        return await self._queries.workers()

    async def note(self, action: str, target: str, actor: Actor) -> None:
        await self._operations.note(action, target, actor)

    async def audit(
        self, limit: int = PAGE, before: int | None = None, action: str | None = None, by: str | None = None
    ) -> list[AuditRecord]:
        return await self._queries.audit(limit, before, action, by)

    # Bulk operations.

    async def start_bulk(self, id: str, plan: BulkPlan, owner: str) -> BulkOperation:
        return await self._bulks.start(id, plan, owner)

    async def bulk(self, id: str) -> BulkOperation | None:
        return await self._bulks.get(id)

    async def bulks(self) -> list[BulkOperation]:
        return await self._bulks.latest()

    async def step_bulk(self, step: BulkStep) -> BulkOperation | None:
        return await self._bulks.step(step)

    async def take_bulks(self, owner: str, limit: int) -> list[BulkOperation]:
        return await self._bulks.take(owner, limit)

    async def release_bulk(self, id: str, turn: int) -> None:
        await self._bulks.release(id, turn)

    async def stop_bulk(self, id: str, actor: Actor) -> BulkOperation | None:
        return await self._bulks.stop(id, actor)

    # Charts and alarms.

    async def lanes(self) -> list[LaneDepth]:
        return await self._queries.lanes()

    async def measure(self, measured: Sequence[Measured]) -> None:
        await self._queries.measure(measured)

    async def rollups(self, minutes: int, queue: str | None = None, task: str | None = None) -> list[Rollup]:
        return await self._queries.rollups(minutes, queue, task)

    async def event_counts(self, minutes: int, events: Sequence[str]) -> list[EventCount]:
        return await self._queries.event_counts(minutes, events)

    # The server's door.

    async def put_api_key(self, key: ApiKey, lasts: float | None, actor: Actor) -> None:
        await self._operations.put_api_key(key, lasts, actor)

    async def api_keys(self) -> list[KeyRecord]:
        return await self._queries.api_keys()

    async def revoke_api_key(self, id: str, actor: Actor) -> bool:
        return await self._operations.revoke_api_key(id, actor)

    async def use_api_keys(self, ids: Sequence[str]) -> None:
        await self._operations.use_api_keys(ids)
