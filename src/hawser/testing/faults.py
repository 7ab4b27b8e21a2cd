"""A store that misbehaves as told: slow, refusing, forgetful of requests or of replies, or doing things twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from hawser.batch import Batch, BatchPage, BatchState, NewBatch
from hawser.breaker import Breaker
from hawser.job import Claimed, Job, NewJob
from hawser.limit import Limit
from hawser.policy import QueuePolicy
from hawser.schedule.declaration import Declaration
from hawser.schedule.schedule import Advance, Schedule
from hawser.store import (
    LEAVE_NOTHING,
    NO_ROOM_SET,
    OUTPUT_READ,
    PAGE,
    Acted,
    Actor,
    Arrival,
    AuditRecord,
    Beat,
    BulkOperation,
    BulkPlan,
    BulkStep,
    Change,
    Chunk,
    DeadGroups,
    DeadLetters,
    Declined,
    Emitted,
    Enqueued,
    Event,
    Filter,
    GroupWait,
    JobEnd,
    LeaseRef,
    LeaseStatus,
    Leave,
    LimitUse,
    NewOutput,
    NewStep,
    OutputKept,
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
    Waits,
    Weight,
    WorkerSeen,
)
from hawser.store.api_key import ApiKey, KeyRecord
from hawser.store.breakers import NOTHING_COUNTED, AttemptCount, BreakerStatus, BreakerVerdict
from hawser.store.rollup import EventCount, LaneDepth, Measured, Rollup
from hawser.store.schedules import Advanced, DueSchedules
from hawser.testing.fault import Faults


class FaultyStore(Faults):
    """Wraps a store. Faults come from a script (`next`), and where it says nothing, by chance from a seed.

    `chances` are probabilities per call, the same for every method but `open` and `close`; those of a method in
    `chances_of` replace them. `done` counts the faults by method.
    """

    async def open(self) -> None:
        await self._do("open", self._store.open)

    async def close(self) -> None:
        await self._do("close", self._store.close)

    async def enqueue(self, jobs: Sequence[NewJob], request: RequestKey | None = None) -> list[Enqueued]:
        return await self._do("enqueue", lambda: self._store.enqueue(jobs, request))

    async def made(self, jobs: Sequence[NewJob], request: RequestKey | None = None) -> bool:
        return await self._do("made", lambda: self._store.made(jobs, request))

    async def claim(
        self,
        queues: Sequence[Share],
        limit: int,
        worker: str,
        lease_for: float,
        room: Mapping[str, int] = NO_ROOM_SET,
        leave: Leave = LEAVE_NOTHING,
    ) -> list[Claimed]:
        return await self._do("claim", lambda: self._store.claim(queues, limit, worker, lease_for, room, leave))

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        return await self._do("settle", lambda: self._store.settle(settlements))

    async def extend(self, worker: str, leases: Sequence[LeaseRef], lease_for: float) -> list[LeaseStatus]:
        return await self._do("extend", lambda: self._store.extend(worker, leases, lease_for))

    async def open_batch(self, batch: NewBatch) -> bool:
        return await self._do("open_batch", lambda: self._store.open_batch(batch))

    async def close_batch(self, id: str, actor: Actor | None = None) -> Acted:
        return await self._do("close_batch", lambda: self._store.close_batch(id, actor))

    async def cancel_batch(self, id: str, actor: Actor) -> Acted:
        return await self._do("cancel_batch", lambda: self._store.cancel_batch(id, actor))

    async def batch(self, id: str) -> Batch | None:
        return await self._do("batch", lambda: self._store.batch(id))

    async def batches(self, state: BatchState | None = None, after: str | None = None, limit: int = PAGE) -> BatchPage:
        return await self._do("batches", lambda: self._store.batches(state, after, limit))

    async def live_batches(self) -> dict[BatchState, int]:
        return await self._do("live_batches", self._store.live_batches)

    async def waits(self, id: str) -> Waits | None:
        return await self._do("waits", lambda: self._store.waits(id))

    async def group_wait(self, id: str) -> GroupWait | None:
        return await self._do("group_wait", lambda: self._store.group_wait(id))

    async def ended(self, ids: Sequence[str]) -> list[JobEnd | None]:
        return await self._do("ended", lambda: self._store.ended(ids))

    async def holders(self, leases: Sequence[LeaseRef]) -> list[str | None]:
        return await self._do("holders", lambda: self._store.holders(leases))

    async def asked_to_stop(self, workers: Sequence[str]) -> list[LeaseRef]:
        return await self._do("asked_to_stop", lambda: self._store.asked_to_stop(workers))

    async def reclaim(self, limit: int) -> list[Reclaimed]:
        return await self._do("reclaim", lambda: self._store.reclaim(limit))

    async def expire(self, limit: int) -> int:
        return await self._do("expire", lambda: self._store.expire(limit))

    async def end_returned(self, lost: LeaseRef) -> bool:
        return await self._do("end_returned", lambda: self._store.end_returned(lost))

    async def decline(self, declined: Sequence[Declined]) -> list[Unaccepted | None]:
        return await self._do("decline", lambda: self._store.decline(declined))

    async def record_steps(self, steps: Sequence[NewStep]) -> list[RecordedStep | None]:
        return await self._do("record_steps", lambda: self._store.record_steps(steps))

    async def arrive(self, arrival: Arrival) -> RecordedStep | None:
        return await self._do("arrive", lambda: self._store.arrive(arrival))

    async def emit(self, name: str, body: bytes, keep: float) -> Emitted:
        return await self._do("emit", lambda: self._store.emit(name, body, keep))

    async def event(self, name: str) -> Event | None:
        return await self._do("event", lambda: self._store.event(name))

    async def awaiting(self) -> int:
        return await self._do("awaiting", self._store.awaiting)

    async def steps(self, id: str) -> list[RecordedStep]:
        return await self._do("steps", lambda: self._store.steps(id))

    async def write_output(self, outputs: Sequence[NewOutput]) -> list[OutputKept | None]:
        return await self._do("write_output", lambda: self._store.write_output(outputs))

    async def output(self, id: str, after: int = 0, limit: int = OUTPUT_READ) -> list[Chunk]:
        return await self._do("output", lambda: self._store.output(id, after, limit))

    async def beat(self, beats: Sequence[Beat], gone: Sequence[str] = ()) -> None:
        await self._do("beat", lambda: self._store.beat(beats, gone))

    async def wait(self, queues: Sequence[str], timeout: float, leave: Leave = LEAVE_NOTHING) -> None:
        await self._do("wait", lambda: self._store.wait(queues, timeout, leave))

    async def schedules(self, names: Sequence[str] | None = None, after: str = "", limit: int | None = None) -> list[Schedule]:
        return await self._do("schedules", lambda: self._store.schedules(names, after, limit))

    async def due_schedules(self, limit: int) -> DueSchedules:
        return await self._do("due_schedules", lambda: self._store.due_schedules(limit))

    async def fire(self, advances: Sequence[Advance]) -> list[Advanced]:
        return await self._do("fire", lambda: self._store.fire(advances))

    async def put_schedule(self, advance: Advance, action: str, actor: Actor) -> Advanced:
        return await self._do("put_schedule", lambda: self._store.put_schedule(advance, action, actor))

    async def delete_schedule(self, name: str, actor: Actor) -> bool:
        return await self._do("delete_schedule", lambda: self._store.delete_schedule(name, actor))

    async def declare(self, declaration: Declaration) -> list[Declaration]:
        return await self._do("declare", lambda: self._store.declare(declaration))

    async def get(self, id: str) -> Job | None:
        return await self._do("get", lambda: self._store.get(id))

    async def find(self, filter: Filter, after: str | None = None, limit: int = PAGE) -> Page:
        return await self._do("find", lambda: self._store.find(filter, after, limit))

    async def dead_groups(self, queue: str | None = None, task: str | None = None, limit: int = PAGE) -> DeadGroups:
        return await self._do("dead_groups", lambda: self._store.dead_groups(queue, task, limit))

    async def group_dead(self, limit: int) -> int:
        return await self._do("group_dead", lambda: self._store.group_dead(limit))

    async def dead_letters(
        self, queue: str | None = None, task: str | None = None, after: str | None = None, limit: int = PAGE
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
        self, limit: int = PAGE, before: int | None = None, action: str | None = None, by: str | None = None
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

    async def measure(self, measured: Sequence[Measured]) -> None:
        await self._do("measure", lambda: self._store.measure(measured))

    async def rollups(self, minutes: int, queue: str | None = None, task: str | None = None) -> list[Rollup]:
        return await self._do("rollups", lambda: self._store.rollups(minutes, queue, task))

    async def event_counts(self, minutes: int, events: Sequence[str]) -> list[EventCount]:
        return await self._do("event_counts", lambda: self._store.event_counts(minutes, events))

    async def put_api_key(self, key: ApiKey, lasts: float | None, actor: Actor) -> None:
        await self._do("put_api_key", lambda: self._store.put_api_key(key, lasts, actor))

    async def api_keys(self) -> list[KeyRecord]:
        return await self._do("api_keys", self._store.api_keys)

    async def revoke_api_key(self, id: str, actor: Actor) -> bool:
        return await self._do("revoke_api_key", lambda: self._store.revoke_api_key(id, actor))

    async def use_api_keys(self, ids: Sequence[str]) -> None:
        await self._do("use_api_keys", lambda: self._store.use_api_keys(ids))
