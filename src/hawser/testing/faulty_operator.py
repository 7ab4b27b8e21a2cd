"""The operator's side of a store that misbehaves as told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    BulkOperation,
    BulkPlan,
    BulkStep,
    Change,
    DeadGroups,
    DeadLetters,
    Filter,
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
from hawser.store.breakers import NOTHING_COUNTED, AttemptCount, BreakerStatus, BreakerVerdict
from hawser.store.rollup import EventCount, LaneDepth, Measured, Rollup, TaskDepth
from hawser.testing.fault import Faults


class FaultyOperator(Faults):
    """What an operator asks for, each call with its faults."""

    async def get(self, id: str) -> Job | None:
        return await self._do("get", lambda: self._store.get(id))

    async def find(self, filter: Filter, after: str | None = None, limit: int = JOBS_PER_PAGE) -> Page:
        return await self._do("find", lambda: self._store.find(filter, after, limit))

    async def dead_groups(self, queue: str | None = None, task: str | None = None, limit: int = JOBS_PER_PAGE) -> DeadGroups:
        return await self._do("dead_groups", lambda: self._store.dead_groups(queue, task, limit))

    async def group_dead(self, limit: int) -> int:
        return await self._do("group_dead", lambda: self._store.group_dead(limit))

    async def dead_letters(
        self, queue: str | None = None, task: str | None = None, after: str | None = None, limit: int = JOBS_PER_PAGE
    ) -> DeadLetters:
        return await self._do("dead_letters", lambda: self._store.dead_letters(queue, task, after, limit))

    async def stats(self, queue: str | None = None) -> QueueStats:
        return await self._do("stats", lambda: self._store.stats(queue))

    async def queues(self) -> dict[str, QueueStats]:
        return await self._do("queues", self._store.queues)

    async def cancel(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return await self._do("cancel", lambda: self._store.cancel(ids, actor))

    async def requeue(self, ids: Sequence[str], actor: Actor, spread: float = 0.0, delay: float = 0.0) -> list[Acted]:
        return await self._do("requeue", lambda: self._store.requeue(ids, actor, spread, delay))

    async def discard(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return await self._do("discard", lambda: self._store.discard(ids, actor))

    async def replace(self, id: str, job: NewJob, actor: Actor) -> Acted:
        return await self._do("replace", lambda: self._store.replace(id, job, actor))

    async def change(self, ids: Sequence[str], change: Change, actor: Actor) -> list[Acted]:
        return await self._do("change", lambda: self._store.change(ids, change, actor))

    async def dead_letter(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return await self._do("dead_letter", lambda: self._store.dead_letter(ids, actor))

    async def rewind(self, id: str, to: str | None, actor: Actor) -> Acted:
        return await self._do("rewind", lambda: self._store.rewind(id, to, actor))

    async def end_leases(self, worker: str, actor: Actor) -> int:
        return await self._do("end_leases", lambda: self._store.end_leases(worker, actor))

    async def pause(self, target: Target, actor: Actor, until: datetime | None = None) -> None:
        await self._do("pause", lambda: self._store.pause(target, actor, until))

    async def resume(self, target: Target, actor: Actor) -> bool:
        return await self._do("resume", lambda: self._store.resume(target, actor))

    async def pauses(self) -> list[Pause]:
        return await self._do("pauses", self._store.pauses)

    async def set_weight(self, weight: Weight, actor: Actor) -> None:
        await self._do("set_weight", lambda: self._store.set_weight(weight, actor))

    async def weights(self, queue: str | None = None) -> list[Weight]:
        return await self._do("weights", lambda: self._store.weights(queue))

    async def set_limit(self, target: Target, limit: Limit | None, actor: Actor) -> bool:
        return await self._do("set_limit", lambda: self._store.set_limit(target, limit, actor))

    async def declare_limits(self, limits: Mapping[str, Limit | None]) -> None:
        await self._do("declare_limits", lambda: self._store.declare_limits(limits))

    async def limits(self) -> list[LimitUse]:
        return await self._do("limits", self._store.limits)

    async def declare_breakers(self, breakers: Mapping[str, Breaker | None]) -> None:
        await self._do("declare_breakers", lambda: self._store.declare_breakers(breakers))

    async def breakers(self) -> list[BreakerStatus]:
        return await self._do("breakers", self._store.breakers)

    async def judge(self, verdicts: Sequence[BreakerVerdict]) -> list[bool]:
        return await self._do("judge", lambda: self._store.judge(verdicts))

    async def open_breaker(self, task: str, actor: Actor) -> bool:
        return await self._do("open_breaker", lambda: self._store.open_breaker(task, actor))

    async def close_breaker(self, task: str, actor: Actor, counted: AttemptCount = NOTHING_COUNTED) -> bool:
        return await self._do("close_breaker", lambda: self._store.close_breaker(task, actor, counted))

    async def set_policy(self, queue: str, policy: QueuePolicy, actor: Actor) -> None:
        await self._do("set_policy", lambda: self._store.set_policy(queue, policy, actor))

    async def policies(self) -> dict[str, QueuePolicy]:
        return await self._do("policies", self._store.policies)

    async def prune(self, retention: Retention, by_task: Mapping[str, Retention], limit: int) -> int:
        return await self._do("prune", lambda: self._store.prune(retention, by_task, limit))

    async def workers(self) -> list[WorkerSeen]:
        return await self._do("workers", self._store.workers)

    async def note(self, action: str, target: str, actor: Actor) -> None:
        await self._do("note", lambda: self._store.note(action, target, actor))

    async def audit(
        self, limit: int = JOBS_PER_PAGE, before: int | None = None, action: str | None = None, by: str | None = None
    ) -> list[AuditRecord]:
        return await self._do("audit", lambda: self._store.audit(limit, before, action, by))

    async def start_bulk(self, id: str, plan: BulkPlan, owner: str) -> BulkOperation:
        return await self._do("start_bulk", lambda: self._store.start_bulk(id, plan, owner))

    async def bulk(self, id: str) -> BulkOperation | None:
        return await self._do("bulk", lambda: self._store.bulk(id))

    async def bulks(self) -> list[BulkOperation]:
        return await self._do("bulks", self._store.bulks)

    async def step_bulk(self, step: BulkStep) -> BulkOperation | None:
        return await self._do("step_bulk", lambda: self._store.step_bulk(step))

    async def take_bulks(self, owner: str, limit: int) -> list[BulkOperation]:
        return await self._do("take_bulks", lambda: self._store.take_bulks(owner, limit))

    async def release_bulk(self, id: str, turn: int) -> None:
        await self._do("release_bulk", lambda: self._store.release_bulk(id, turn))

    async def stop_bulk(self, id: str, actor: Actor) -> BulkOperation | None:
        return await self._do("stop_bulk", lambda: self._store.stop_bulk(id, actor))

    async def lanes(self) -> list[LaneDepth]:
        return await self._do("lanes", self._store.lanes)

    async def task_depths(self) -> list[TaskDepth] | None:
        return await self._do("task_depths", self._store.task_depths)

    async def measure(self, measured: Sequence[Measured]) -> None:
        await self._do("measure", lambda: self._store.measure(measured))

    async def times(self, minutes: int, queue: str | None = None) -> list[Measured]:
        return await self._do("times", lambda: self._store.times(minutes, queue))

    async def rollups(self, minutes: int, queue: str | None = None, task: str | None = None) -> list[Rollup]:
        return await self._do("rollups", lambda: self._store.rollups(minutes, queue, task))

    async def event_counts(self, minutes: int, events: Sequence[str], back: int = 0) -> list[EventCount]:
        return await self._do("event_counts", lambda: self._store.event_counts(minutes, events, back))

    async def put_api_key(self, key: ApiKey, lasts: float | None, actor: Actor) -> None:
        await self._do("put_api_key", lambda: self._store.put_api_key(key, lasts, actor))

    async def api_keys(self) -> list[KeyRecord]:
        return await self._do("api_keys", self._store.api_keys)

    async def revoke_api_key(self, id: str, actor: Actor) -> bool:
        return await self._do("revoke_api_key", lambda: self._store.revoke_api_key(id, actor))

    async def use_api_keys(self, ids: Sequence[str]) -> None:
        await self._do("use_api_keys", lambda: self._store.use_api_keys(ids))
