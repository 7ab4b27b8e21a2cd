"""The SQLite store: hands each call to the process's writer, or to a reader."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import wait as wait_for
from contextlib import suppress

from hawser.errors import StoreError
from hawser.job import Claimed, NewJob
from hawser.schedule.declaration import Declaration
from hawser.schedule.schedule import Advance, Schedule
from hawser.store import (
    LEAVE_NOTHING,
    NO_ROOM_SET,
    OUTPUT_READ,
    RECLAIM_WITHIN,
    Acted,
    Actor,
    Arrival,
    Beat,
    Chunk,
    Declined,
    Emitted,
    Enqueued,
    Event,
    LeaseRef,
    LeaseStatus,
    Leave,
    NewOutput,
    NewStep,
    OutputKept,
    Reclaimed,
    RecordedStep,
    RequestKey,
    Retention,
    SettleAnswer,
    Settlement,
    Share,
    Unaccepted,
)
from hawser.store.schedules import Advanced, DueSchedules
from hawser.stores.sqlite import claim, declined, ends, enqueue, operations, output, schedules, settle, steps, waits
from hawser.stores.sqlite.expiry import expire
from hawser.stores.sqlite.foreign import PreparedEmit, PreparedEnd, PreparedEnqueue, PreparedStep
from hawser.stores.sqlite.leases import extend, reclaim
from hawser.stores.sqlite.operator_side import OperatorSide
from hawser.stores.sqlite.tx import Tx

SLICE = 0.5
"""Seconds after which a waiting caller looks up, so that Ctrl-C is never missed for longer."""

_ENQUEUE_INSIDE = "try again; if it is a transaction of yours, enqueue in it, with .inside(connection)"
"""The process that waits may itself be the one that holds the file."""


class SqliteStore(OperatorSide):
    """One file that several processes may share."""

    inline = False
    retention = Retention()
    done_most: int | None = None

    # The worker's side.

    async def enqueue(self, jobs_: Sequence[NewJob], request: RequestKey | None = None) -> list[Enqueued]:
        return await self._write(lambda tx: enqueue.enqueue(tx, jobs_, request), self._enqueue_timeout, _ENQUEUE_INSIDE)

    async def made(self, jobs_: Sequence[NewJob], request: RequestKey | None = None) -> bool:
        return await self._read(lambda snapshot: snapshot.made(jobs_, request))

    def enqueue_waiting(self, jobs_: Sequence[NewJob]) -> list[Enqueued]:
        """`enqueue` for a caller without an event loop: its thread waits for the writer, and no other thread comes between."""
        future = self._opened().writer.submit(lambda tx: enqueue.enqueue(tx, jobs_, None))
        end = time.monotonic() + self._enqueue_timeout
        try:
            while not future.done() and (left := end - time.monotonic()) > 0:
                # In slices: a Ctrl-C that comes just before the thread goes to sleep does not wake it.
                wait_for((future,), timeout=min(SLICE, left))
        except BaseException:
            future.cancel()
            raise
        return self._in_time(future, self._enqueue_timeout, _ENQUEUE_INSIDE)

    async def prepare_enqueue(self, jobs_: Sequence[NewJob]) -> PreparedEnqueue:
        """The jobs, ready to be written by a connection of the user's own."""
        return PreparedEnqueue(self._path, self._clock, self._sql, jobs_)

    async def prepare_end(self, settlement: Settlement, output: NewOutput | None = None) -> PreparedEnd:
        """A settlement, behind what the run has written, ready to be written by the connection of its handler."""
        return PreparedEnd(self._path, self._clock, self._sql, settlement, output)

    async def prepare_step(self, step: NewStep) -> PreparedStep:
        """A step, ready to be recorded by the connection of its handler."""
        return PreparedStep(self._path, self._clock, self._sql, step)

    async def prepare_emit(self, name: str, body: bytes, keep: float) -> PreparedEmit:
        """An event, ready to be written by a connection of the user's own."""
        return PreparedEmit(self._path, self._clock, self._sql, (name, body, keep))

    async def claim(
        self,
        queues: Sequence[Share],
        limit: int,
        worker: str,
        lease_for: float,
        room: Mapping[str, int] = NO_ROOM_SET,
        leave: Leave = LEAVE_NOTHING,
    ) -> list[Claimed]:
        turn, self._claims = self._claims, self._claims + 1
        return await self._write(lambda tx: claim.claim(tx, queues, limit, worker, lease_for, turn, room, leave))

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        return await self._write(lambda tx: settle.settle(tx, settlements))

    async def extend(self, worker: str, leases: Sequence[LeaseRef], lease_for: float) -> list[LeaseStatus]:  # noqa: ARG002
        return await self._write(lambda tx: extend(tx, leases, lease_for))

    async def holders(self, leases: Sequence[LeaseRef]) -> list[str | None]:
        return await self._read(lambda snapshot: snapshot.holders(leases))

    async def asked_to_stop(self, workers: Sequence[str]) -> list[LeaseRef]:
        return await self._read(lambda snapshot: snapshot.asked_to_stop(workers))

    async def reclaim(self, limit: int) -> list[Reclaimed]:
        asked = time.monotonic()

        def work(tx: Tx) -> tuple[list[Reclaimed], int, bool]:
            if time.monotonic() - asked > RECLAIM_WITHIN:
                return [], self._cut_after, waits.wake_more(tx)
            set_back = self._watch.set_back
            reclaimed = reclaim(tx, limit, clock_was_set_back=set_back > self._cut_after)
            operations.cancel_members(tx)
            return reclaimed, set_back, waits.wake_more(tx)

        reclaimed, self._cut_after, more = await self._write(work)
        if more:
            await self._wake_more()
        return reclaimed

    async def go_on(self) -> bool:
        # No write, and no wait for the writer, as long as there is nothing to do.
        lasting, over = await self._read(lambda snapshot: snapshot.ask(ends.waits_over, self._clock.now()))
        if over:
            await self._wake_more()
        return lasting

    async def _wake_more(self) -> None:
        """Go on with jobs that waited, some in each transaction. What cannot be done now is done by a later look: those who wait
        stand in the file."""
        with suppress(StoreError):
            while await self._write(waits.wake_more):
                pass

    async def expire(self, limit: int) -> int:
        # No write, and no wait for the writer, as long as there is none.
        if not await self._read(lambda snapshot: snapshot.any_past_expiry()):
            return 0
        return await self._write(lambda tx: expire(tx, limit))

    async def end_returned(self, lost: LeaseRef) -> bool:
        return await self._write(lambda tx: operations.end_returned(tx, lost))

    async def decline(self, notes: Sequence[Declined]) -> list[Unaccepted | None]:
        return await self._write(lambda tx: declined.decline(tx, notes))

    async def record_steps(self, new: Sequence[NewStep]) -> list[RecordedStep | None]:
        return await self._write(lambda tx: steps.record(tx, new))

    async def arrive(self, arrival: Arrival) -> RecordedStep | None:
        return await self._write(lambda tx: waits.arrive(tx, arrival))

    async def emit(self, name: str, body: bytes, keep: float) -> Emitted:
        emitted, more = await self._write(lambda tx: waits.emit(tx, name, body, keep), self._enqueue_timeout, _ENQUEUE_INSIDE)
        if more:
            await self._wake_more()
        return emitted

    async def event(self, name: str) -> Event | None:
        return await self._read(lambda snapshot: snapshot.ask(ends.event, name))

    async def awaiting(self) -> int:
        return await self._read(lambda snapshot: snapshot.ask(ends.awaiting))

    async def rewind(self, id: str, to: str | None, actor: Actor) -> Acted:
        [answer] = await self._write(lambda tx: operations.act(tx, "rewind", [id], actor, steps.rewinding(to)))
        return answer

    async def steps(self, id: str) -> list[RecordedStep]:
        return await self._read(lambda snapshot: snapshot.steps(id))

    async def write_output(self, outputs: Sequence[NewOutput]) -> list[OutputKept | None]:
        return await self._write(lambda tx: output.write(tx, outputs))

    async def output(self, id: str, after: int = 0, limit: int = OUTPUT_READ) -> list[Chunk]:
        return await self._read(lambda snapshot: snapshot.ask(output.read, id, after, limit))

    async def beat(self, beats: Sequence[Beat], gone: Sequence[str] = ()) -> None:
        await self._write(lambda tx: operations.beat(tx, beats, gone))

    async def wait(self, queues: Sequence[str], timeout: float, leave: Leave = LEAVE_NOTHING) -> None:
        waiter = self._bell.join()
        try:
            with self._opened().watch.waking(waiter):
                due_in = await self._read(lambda snapshot: snapshot.due_in(queues, leave))
                await asyncio.wait((waiter,), timeout=timeout if due_in is None else min(timeout, due_in))
        finally:
            self._bell.leave(waiter)

    # The scheduler's side.

    async def schedules(self, names: Sequence[str] | None = None, after: str = "", limit: int | None = None) -> list[Schedule]:
        return await self._read(lambda snapshot: snapshot.schedules(names, after, limit))

    async def due_schedules(self, limit: int) -> DueSchedules:
        return await self._read(lambda snapshot: snapshot.due_schedules(limit))

    async def next_schedules(self, limit: int) -> list[Schedule]:
        return await self._read(lambda snapshot: snapshot.next_schedules(limit))

    async def fire(self, advances: Sequence[Advance]) -> list[Advanced]:
        return await self._write(lambda tx: schedules.fire(tx, advances))

    async def put_schedule(self, advance: Advance, action: str, actor: Actor) -> Advanced:
        return await self._write(lambda tx: schedules.put(tx, advance, action, actor))

    async def delete_schedule(self, name: str, actor: Actor) -> bool:
        return await self._write(lambda tx: schedules.delete(tx, name, actor))

    async def declare(self, declaration: Declaration) -> list[Declaration]:
        return await self._write(lambda tx: schedules.declare(tx, declaration))
