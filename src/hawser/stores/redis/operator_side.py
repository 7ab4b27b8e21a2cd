"""The operator's side of the Redis store: what people, the API and charts ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from hawser.breaker import Breaker
from hawser.job import Job, NewJob
from hawser.limit import Limit
from hawser.policy import QueuePolicy
from hawser.store import (
    JOBS_PER_PAGE,
    Acted,
    Actor,
    AuditRecord,
    BreakerStatus,
    BulkOperation,
    BulkPlan,
    BulkStep,
    Change,
    DeadGroups,
    DeadLetters,
    Filter,
    GroupWait,
    LimitUse,
    Page,
    Pause,
    QueueStats,
    Retention,
    Target,
    Weight,
    WorkerSeen,
)
from hawser.store.api_key import ApiKey, KeyRecord
from hawser.store.breakers import NOTHING_COUNTED, AttemptCount, BreakerVerdict
from hawser.store.rollup import EventCount, LaneDepth, Measured, Rollup, TaskDepth
from hawser.stores.redis.breakers import Breakers
from hawser.stores.redis.bulk import Bulks
from hawser.stores.redis.edits import Edits
from hawser.stores.redis.operations import Operations
from hawser.stores.redis.queries import Queries
from hawser.stores.redis.server import Server


class OperatorSide:
    """One short method for each one of `Operator`, `Editor`, `BulkStore`, `Watcher` and `KeyStore`."""

    def __init__(self, server: Server, ring: Callable[[], None]) -> None:
        self._operations = Operations(server, ring)
        self._edits = Edits(server, ring)
        self._breakers = Breakers(server, ring)
        self._bulks = Bulks(server, ring)
        self._queries = Queries(server)
        self.ended, self.waits = self._queries.ended, self._queries.waits
        self.failovers = self._queries.failovers

    async def get(self, id: str) -> Job | None:
        return await self._queries.get(id)

    async def find(self, filter: Filter, after: str | None = None, limit: int = JOBS_PER_PAGE) -> Page:
        return await self._queries.find(filter, after, limit)

    async def group_wait(self, id: str) -> GroupWait | None:
        return await self._queries.group_wait(id)

    async def dead_letters(
        self, queue: str | None = None, task: str | None = None, after: str | None = None, limit: int = JOBS_PER_PAGE
    ) -> DeadLetters:
        return await self._queries.dead_letters(queue, task, after, limit)

    async def dead_groups(self, queue: str | None = None, task: str | None = None, limit: int = JOBS_PER_PAGE) -> DeadGroups:
        return await self._queries.dead_groups(queue, task, limit)

    async def group_dead(self, limit: int) -> int:  # noqa: ARG002  # each gets its group as it dies
        return 0

    async def stats(self, queue: str | None = None) -> QueueStats:
        return await self._queries.stats(queue)

    async def queues(self) -> dict[str, QueueStats]:
        return await self._queries.queues()

    async def cancel(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return await self._operations.act("cancel", ids, actor)

    async def requeue(self, ids: Sequence[str], actor: Actor, spread: float = 0.0, delay: float = 0.0) -> list[Acted]:
        return await self._operations.act("requeue", ids, actor, spread, delay)

    async def discard(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return await self._operations.act("discard", ids, actor)

    async def replace(self, id: str, job: NewJob, actor: Actor) -> Acted:
        return await self._operations.replace(id, job, actor)

    async def change(self, ids: Sequence[str], change: Change, actor: Actor) -> list[Acted]:
        return await self._edits.change(ids, change, actor)

    async def dead_letter(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return await self._edits.dead_letter(ids, actor)

    async def rewind(self, id: str, to: str | None, actor: Actor) -> Acted:
        return await self._edits.rewind(id, to, actor)

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
        self, limit: int = JOBS_PER_PAGE, before: int | None = None, action: str | None = None, by: str | None = None
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

    async def task_depths(self) -> list[TaskDepth] | None:
        return None  # finished jobs are counted by queue alone

    async def measure(self, measured: Sequence[Measured]) -> None:
        await self._queries.measure(measured)

    async def rollups(self, minutes: int, queue: str | None = None, task: str | None = None) -> list[Rollup]:
        return await self._queries.rollups(minutes, queue, task)

    async def times(self, minutes: int, queue: str | None = None) -> list[Measured]:
        return await self._queries.times(minutes, queue)

    async def event_counts(self, minutes: int, events: Sequence[str], back: int = 0) -> list[EventCount]:
        return await self._queries.event_counts(minutes, events, back)

    # API keys.

    async def put_api_key(self, key: ApiKey, lasts: float | None, actor: Actor) -> None:
        await self._operations.put_api_key(key, lasts, actor)

    async def api_keys(self) -> list[KeyRecord]:
        return await self._queries.api_keys()

    async def revoke_api_key(self, id: str, actor: Actor) -> bool:
        return await self._operations.revoke_api_key(id, actor)

    async def use_api_keys(self, ids: Sequence[str]) -> None:
        await self._operations.use_api_keys(ids)
