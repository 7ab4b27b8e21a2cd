"""The operator's side of the SQLite store: what people, the API and charts ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from hawser.batch import Batch, BatchPage, BatchState, NewBatch
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
    JobEnd,
    LimitUse,
    Page,
    Pause,
    QueueStats,
    Retention,
    Target,
    Waits,
    Weight,
    WorkerSeen,
)
from hawser.store.api_key import ApiKey, KeyRecord
from hawser.store.breakers import NOTHING_COUNTED, AttemptCount, BreakerVerdict
from hawser.store.rollup import EventCount, LaneDepth, Measured, Rollup, TaskDepth
from hawser.stores.order import spread_delays
from hawser.stores.sqlite import api_keys, batches, breakers, bulk, declined, edits, ends, enqueue, limits, operations
from hawser.stores.sqlite.calls import FileCalls
from hawser.stores.sqlite.ending import FoundJob
from hawser.stores.sqlite.queries import Snapshot
from hawser.stores.sqlite.tx import Tx


class OperatorSide(FileCalls):
    """One short method for each one of `Operator`, `Editor`, `BulkStore`, `Watcher` and `KeyStore`."""

    async def waits(self, id: str) -> Waits | None:
        return await self._read(lambda snapshot: snapshot.ask(ends.waits, id))

    async def open_batch(self, batch: NewBatch) -> bool:
        return await self._write(lambda tx: enqueue.open_batch(tx, batch))

    async def close_batch(self, id: str, actor: Actor | None = None) -> Acted:
        return await self._write(lambda tx: operations.close_batch(tx, id, actor))

    async def cancel_batch(self, id: str, actor: Actor) -> Acted:
        said = await self._write(lambda tx: operations.cancel_batch(tx, id, actor))
        while said is Acted.DONE and await self._write(operations.cancel_members):
            pass
        return said

    async def batch(self, id: str) -> Batch | None:
        return await self._read(lambda snapshot: snapshot.ask(batches.read, id))

    async def batches(self, state: BatchState | None = None, after: str | None = None, limit: int = JOBS_PER_PAGE) -> BatchPage:
        return await self._read(lambda snapshot: snapshot.ask(batches.page, state, after, limit))

    async def failovers(self) -> int:
        return 0

    async def live_batches(self) -> dict[BatchState, int]:
        return await self._read(lambda snapshot: snapshot.ask(batches.live))

    async def group_wait(self, id: str) -> GroupWait | None:
        return await self._read(lambda snapshot: snapshot.group_wait(id))

    async def ended(self, ids: Sequence[str]) -> list[JobEnd | None]:
        return await self._read(lambda snapshot: snapshot.ask(ends.ended, ids))

    async def get(self, id: str) -> Job | None:
        return await self._read(lambda snapshot: snapshot.get(id))

    async def find(self, filter: Filter, after: str | None = None, limit: int = JOBS_PER_PAGE) -> Page:
        return await self._read(lambda snapshot: snapshot.find(filter, after, limit))

    async def dead_letters(
        self, queue: str | None = None, task: str | None = None, after: str | None = None, limit: int = JOBS_PER_PAGE
    ) -> DeadLetters:
        return await self._read(lambda snapshot: snapshot.dead_letters(queue, task, after, limit))

    async def dead_groups(self, queue: str | None = None, task: str | None = None, limit: int = JOBS_PER_PAGE) -> DeadGroups:
        return await self._read(lambda snapshot: snapshot.dead_groups(queue, task, limit))

    async def group_dead(self, limit: int) -> int:
        if not await self._read(Snapshot.has_ungrouped):
            return 0
        return await self._write(lambda tx: operations.group_dead(tx, limit))

    async def stats(self, queue: str | None = None) -> QueueStats:
        return await self._read(lambda snapshot: snapshot.stats(queue))

    async def queues(self) -> dict[str, QueueStats]:
        return await self._read(Snapshot.queues)

    async def cancel(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return await self._write(lambda tx: operations.act(tx, "cancel", ids, actor, operations.cancel))

    async def requeue(self, ids: Sequence[str], actor: Actor, spread: float = 0.0, delay: float = 0.0) -> list[Acted]:
        later = dict(zip(ids, spread_delays(len(ids), spread, delay), strict=True))

        def do(tx: Tx, job: FoundJob, actor: Actor) -> Acted:
            return operations.requeue(tx, job, actor, later[job.id])

        return await self._write(lambda tx: operations.act(tx, "requeue", ids, actor, do))

    async def discard(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return await self._write(lambda tx: operations.act(tx, "discard", ids, actor, operations.discard))

    async def replace(self, id: str, job: NewJob, actor: Actor) -> Acted:
        [answer] = await self._write(lambda tx: operations.act(tx, "replace", (id,), actor, operations.replacing(job)))
        return answer

    async def change(self, ids: Sequence[str], change: Change, actor: Actor) -> list[Acted]:
        return await self._write(lambda tx: operations.act(tx, "change", ids, actor, edits.changing(change)))

    async def dead_letter(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return await self._write(lambda tx: operations.act(tx, "dead_letter", ids, actor, edits.dead_letter))

    async def end_leases(self, worker: str, actor: Actor) -> int:
        return await self._write(lambda tx: edits.end_leases(tx, worker, actor))

    async def pause(self, target: Target, actor: Actor, until: datetime | None = None) -> None:
        await self._write(lambda tx: operations.pause(tx, target, actor, until))

    async def resume(self, target: Target, actor: Actor) -> bool:
        return await self._write(lambda tx: operations.resume(tx, target, actor))

    async def pauses(self) -> list[Pause]:
        return await self._read(Snapshot.pauses)

    async def set_weight(self, weight: Weight, actor: Actor) -> None:
        await self._write(lambda tx: operations.set_weight(tx, weight, actor))

    async def weights(self, queue: str | None = None) -> list[Weight]:
        return await self._read(lambda snapshot: snapshot.weights(queue))

    async def set_limit(self, target: Target, limit: Limit | None, actor: Actor) -> bool:
        return await self._write(lambda tx: operations.set_limit(tx, target, limit, actor))

    async def declare_limits(self, declared: Mapping[str, Limit | None]) -> None:
        await self._write(lambda tx: limits.declare(tx, declared))

    async def limits(self) -> list[LimitUse]:
        return await self._read(Snapshot.limits)

    async def declare_breakers(self, declared: Mapping[str, Breaker | None]) -> None:
        await self._write(lambda tx: breakers.declare(tx, declared))

    async def breakers(self) -> list[BreakerStatus]:
        return await self._read(Snapshot.breakers)

    async def judge(self, verdicts: Sequence[BreakerVerdict]) -> list[bool]:
        return await self._write(lambda tx: breakers.judge(tx, verdicts))

    async def open_breaker(self, task: str, actor: Actor) -> bool:
        return await self._write(lambda tx: breakers.open_by_hand(tx, task, actor))

    async def close_breaker(self, task: str, actor: Actor, counted: AttemptCount = NOTHING_COUNTED) -> bool:
        return await self._write(lambda tx: breakers.close_by_hand(tx, task, actor, counted))

    async def set_policy(self, queue: str, policy: QueuePolicy, actor: Actor) -> None:
        await self._write(lambda tx: operations.set_policy(tx, queue, policy, actor))

    async def policies(self) -> dict[str, QueuePolicy]:
        return await self._read(Snapshot.policies)

    async def prune(self, retention: Retention, by_task: Mapping[str, Retention], limit: int) -> int:
        def work(tx: Tx) -> int:
            bulk.forget(tx)
            declined.forget(tx)
            return operations.prune(tx, retention, by_task, limit)

        return await self._write(work)

    async def workers(self) -> list[WorkerSeen]:
        return await self._read(Snapshot.workers)

    async def note(self, action: str, target: str, actor: Actor) -> None:
        await self._write(lambda tx: operations.note(tx, action, target, 0, actor))

    async def audit(
        self, limit: int = JOBS_PER_PAGE, before: int | None = None, action: str | None = None, by: str | None = None
    ) -> list[AuditRecord]:
        return await self._read(lambda snapshot: snapshot.audit(limit, before, action, by))

    # Bulk operations.

    async def start_bulk(self, id: str, plan: BulkPlan, owner: str) -> BulkOperation:
        return await self._write(lambda tx: bulk.start(tx, id, plan, owner))

    async def bulk(self, id: str) -> BulkOperation | None:
        return await self._read(lambda snapshot: snapshot.bulk(id))

    async def bulks(self) -> list[BulkOperation]:
        return await self._read(Snapshot.bulks)

    async def step_bulk(self, step: BulkStep) -> BulkOperation | None:
        return await self._write(lambda tx: bulk.step(tx, step))

    async def take_bulks(self, owner: str, limit: int) -> list[BulkOperation]:
        return await self._write(lambda tx: bulk.take(tx, owner, limit))

    async def release_bulk(self, id: str, turn: int) -> None:
        await self._write(lambda tx: bulk.release(tx, id, turn))

    async def stop_bulk(self, id: str, actor: Actor) -> BulkOperation | None:
        return await self._write(lambda tx: bulk.stop(tx, id, actor))

    # Charts and alarms.

    async def lanes(self) -> list[LaneDepth]:
        return await self._read(Snapshot.lanes)

    async def task_depths(self) -> list[TaskDepth]:
        return await self._read(Snapshot.task_depths)

    async def measure(self, measured: Sequence[Measured]) -> None:
        await self._write(lambda tx: operations.measure(tx, measured))

    async def rollups(self, minutes: int, queue: str | None = None, task: str | None = None) -> list[Rollup]:
        return await self._read(lambda snapshot: snapshot.rollups(minutes, queue, task))

    async def times(self, minutes: int, queue: str | None = None) -> list[Measured]:
        return await self._read(lambda snapshot: snapshot.times(minutes, queue))

    async def event_counts(self, minutes: int, events: Sequence[str], back: int = 0) -> list[EventCount]:
        return await self._read(lambda snapshot: snapshot.event_counts(minutes, events, back))

    # Keys of the HTTP API.

    async def put_api_key(self, key: ApiKey, lasts: float | None, actor: Actor) -> None:
        await self._write(lambda tx: api_keys.put(tx, key, lasts, actor))

    async def api_keys(self) -> list[KeyRecord]:
        return await self._read(Snapshot.api_keys)

    async def revoke_api_key(self, id: str, actor: Actor) -> bool:
        return await self._write(lambda tx: api_keys.revoke(tx, id, actor))

    async def use_api_keys(self, ids: Sequence[str]) -> None:
        await self._write(lambda tx: api_keys.use(tx, ids))
