"""A store that misbehaves as told: slow, refusing, forgetful of requests or of replies, or doing things twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hawser.batch import Batch, BatchPage, BatchState, NewBatch
from hawser.job import Claimed, NewJob
from hawser.schedule.declaration import Declaration
from hawser.schedule.schedule import Advance, Schedule
from hawser.store import (
    JOBS_PER_PAGE,
    LEAVE_NOTHING,
    NO_ROOM_SET,
    OUTPUT_READ,
    Acted,
    Actor,
    Arrival,
    Beat,
    Chunk,
    Declined,
    Emitted,
    Enqueued,
    Event,
    GroupWait,
    JobEnd,
    LeaseRef,
    LeaseStatus,
    Leave,
    NewOutput,
    NewStep,
    OutputKept,
    Reclaimed,
    RecordedStep,
    RequestKey,
    SettleAnswer,
    Settlement,
    Share,
    Unaccepted,
    Waits,
)
from hawser.store.schedules import Advanced, DueSchedules
from hawser.testing.faulty_operator import FaultyOperator


class FaultyStore(FaultyOperator):
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

    async def batches(self, state: BatchState | None = None, after: str | None = None, limit: int = JOBS_PER_PAGE) -> BatchPage:
        return await self._do("batches", lambda: self._store.batches(state, after, limit))

    async def live_batches(self) -> dict[BatchState, int]:
        return await self._do("live_batches", self._store.live_batches)

    async def go_on(self) -> bool:
        return await self._do("go_on", self._store.go_on)

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

    async def failovers(self) -> int:
        return await self._do("failovers", self._store.failovers)

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

    async def next_schedules(self, limit: int) -> list[Schedule]:
        return await self._do("next_schedules", lambda: self._store.next_schedules(limit))

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
