"""The SQLite store: hands each call to the process's writer, or to a reader."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from hawser.clock import Clock, SystemClock
from hawser.clock import Watch as ClockWatch
from hawser.errors import ConfigError, OutcomeUnknown, StoreUnavailable
from hawser.job import Claimed, Job, NewJob
from hawser.policy import QueuePolicy
from hawser.schedule.declaration import Declaration
from hawser.schedule.schedule import Advance, Schedule
from hawser.store import (
    LEAVE_NOTHING,
    NO_ROOM_SET,
    PAGE,
    RECLAIM_WITHIN,
    Acted,
    Actor,
    AuditRecord,
    Beat,
    BulkOperation,
    BulkPlan,
    BulkStep,
    DeadGroups,
    DeadLetters,
    Declined,
    Durability,
    Enqueued,
    Filter,
    LeaseRef,
    LeaseStatus,
    Leave,
    Limits,
    Page,
    Pause,
    QueueStats,
    Reclaimed,
    RequestKey,
    Retention,
    SettleAnswer,
    Settlement,
    Share,
    Target,
    Unaccepted,
    WorkerSeen,
)
from hawser.store.api_key import ApiKey, KeyRecord
from hawser.store.rollup import EventCount, LaneDepth, Measured, Rollup
from hawser.store.schedules import Advanced, DueSchedules
from hawser.stores.sqlite import api_keys, bulk, declined, jobs, operations, schedules
from hawser.stores.sqlite.file import OpenFile
from hawser.stores.sqlite.foreign import Visit
from hawser.stores.sqlite.fork import renew_in_children
from hawser.stores.sqlite.queries import Snapshot
from hawser.stores.sqlite.tx import SQL, Tx
from hawser.stores.wakeup import Wakeups

T = TypeVar("T")

OLDEST = (3, 38, 0)
"""The first SQLite that has `->>` and RETURNING."""


ENQUEUE_TIMEOUT = 5.0
"""Seconds that an enqueue waits for the file unless told otherwise: somebody's request waits with it."""


SLICE = 0.5
"""Seconds after which a waiting caller looks up, so that Ctrl-C is never missed for longer."""

_ENQUEUE_INSIDE = "try again; if it is a transaction of yours, enqueue in it, with .inside(connection)"
"""The process that waits may itself be the one that holds the file."""


class SqliteStore:
    """One file that several processes may share."""

    inline = False

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Clock | None = None,
        durability: Durability = "durable",
        timeout: float = 30.0,
        enqueue_timeout: float | None = None,
        sql: Mapping[str, str] = SQL,
    ) -> None:
        if sqlite3.sqlite_version_info < OLDEST:
            raise ConfigError(f"store: SQLite {sqlite3.sqlite_version} is too old; Hawser needs 3.38 or newer")
        self.durability: Durability = durability
        self._path = Path(path)
        self._clock = clock or SystemClock()
        self._watch = ClockWatch(self._clock)
        self._timeout = timeout
        self._enqueue_timeout = min(timeout, ENQUEUE_TIMEOUT) if enqueue_timeout is None else enqueue_timeout
        self._sql = sql
        self._opening = threading.Lock()
        self._open: OpenFile | None = None
        self._left_behind: list[OpenFile] = []
        self._bell = Wakeups()
        self._claims = 0
        self._cut_after = 0
        renew_in_children(self)

    async def open(self) -> None:
        if self._open is None:
            await asyncio.to_thread(self._opened)

    async def close(self) -> None:
        with self._opening:
            opened, self._open = self._open, None
        if opened is not None:
            await asyncio.to_thread(opened.close)

    def _opened(self) -> OpenFile:
        with self._opening:
            if self._open is None:
                self._open = OpenFile(
                    self._path,
                    durability=self.durability,
                    timeout=self._timeout,
                    clock=self._clock,
                    watched=self._watch,
                    sql=self._sql,
                    done=self._bell.ring,
                )
                self._claims = 0
                self._cut_after = 0
            return self._open

    def forked(self) -> None:
        """A child opens the file anew. Its threads are gone, and any lock may have been held by one of them."""
        self._opening = threading.Lock()
        self._bell = Wakeups()
        if self._open is not None:
            # Kept, not freed: an event loop of the parent may know its descriptors.
            self._left_behind.append(self._open)
            self._open = None

    async def _write(self, work: Callable[[Tx], T], within: float | None = None, hint: str = "try again") -> T:
        if self._open is None:
            await asyncio.to_thread(self._opened)
        return await self._answer(self._opened().writer.submit(work), within or self._timeout, hint)

    async def _read(self, work: Callable[[Snapshot], T]) -> T:
        if self._open is None:
            await asyncio.to_thread(self._opened)
        return await self._answer(self._opened().reader.submit(work), self._timeout)

    async def _answer(self, future: Future[T], within: float, hint: str = "try again") -> T:
        """Wait for it until our time is up. Work that was not begun by then is withdrawn, so nothing was written."""
        answer = asyncio.wrap_future(future)
        try:
            done, _ = await asyncio.wait((answer,), timeout=within)
        except asyncio.CancelledError:
            # Nobody waits any more: neither is it written later, nor does closing wait for it.
            future.cancel()
            raise
        return answer.result() if done else self._in_time(future, within, hint)

    def _in_time(self, future: Future[T], within: float, hint: str) -> T:
        """The answer, when our time is up. Work that was not begun is withdrawn."""
        if future.done():
            return future.result()
        if future.cancel():
            raise StoreUnavailable(
                f"{str(self._path)!r} was held by another connection for {within:g} s; nothing was written: {hint}"
            )
        raise OutcomeUnknown(f"{str(self._path)!r} did not answer within {within:g} s; repeat with the same ids")

    # The worker's side.

    async def enqueue(self, jobs_: Sequence[NewJob], request: RequestKey | None = None) -> list[Enqueued]:
        return await self._write(lambda tx: jobs.enqueue(tx, jobs_, request), self._enqueue_timeout, _ENQUEUE_INSIDE)

    async def made(self, jobs_: Sequence[NewJob], request: RequestKey | None = None) -> bool:
        return await self._read(lambda snapshot: snapshot.made(jobs_, request))

    def enqueue_waiting(self, jobs_: Sequence[NewJob]) -> list[Enqueued]:
        """`enqueue` for a caller without an event loop: its thread waits for the writer, and no other thread comes between."""
        future = self._opened().writer.submit(lambda tx: jobs.enqueue(tx, jobs_, None))
        end = time.monotonic() + self._enqueue_timeout
        try:
            while not future.done() and (left := end - time.monotonic()) > 0:
                # In slices: a Ctrl-C that comes just before the thread goes to sleep does not wake it.
                wait_for((future,), timeout=min(SLICE, left))
        except BaseException:
            future.cancel()
            raise
        return self._in_time(future, self._enqueue_timeout, _ENQUEUE_INSIDE)

    async def visit(self, jobs_: Sequence[NewJob]) -> Visit:
        """The jobs, ready to be written by a connection of the user's own."""
        return Visit(self._path, self._clock, self._sql, jobs_)

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
        return await self._write(lambda tx: jobs.claim(tx, queues, limit, worker, lease_for, turn, room, leave))

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        return await self._write(lambda tx: jobs.settle(tx, settlements))

    async def extend(self, worker: str, leases: Sequence[LeaseRef], lease_for: float) -> list[LeaseStatus]:  # noqa: ARG002
        return await self._write(lambda tx: jobs.extend(tx, leases, lease_for))

    async def holders(self, leases: Sequence[LeaseRef]) -> list[str | None]:
        return await self._read(lambda snapshot: snapshot.holders(leases))

    async def asked_to_stop(self, workers: Sequence[str]) -> list[LeaseRef]:
        return await self._read(lambda snapshot: snapshot.asked_to_stop(workers))

    async def reclaim(self, limit: int) -> list[Reclaimed]:
        asked = time.monotonic()

        def work(tx: Tx) -> tuple[list[Reclaimed], int]:
            if time.monotonic() - asked > RECLAIM_WITHIN:
                return [], self._cut_after
            set_back = self._watch.set_back
            return jobs.reclaim(tx, limit, clock_was_set_back=set_back > self._cut_after), set_back

        reclaimed, self._cut_after = await self._write(work)
        return reclaimed

    async def end_returned(self, lost: LeaseRef) -> bool:
        return await self._write(lambda tx: operations.end_returned(tx, lost))

    async def decline(self, notes: Sequence[Declined]) -> list[Unaccepted | None]:
        return await self._write(lambda tx: declined.decline(tx, notes))

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

    async def fire(self, advances: Sequence[Advance]) -> list[Advanced]:
        return await self._write(lambda tx: schedules.fire(tx, advances))

    async def put_schedule(self, advance: Advance, action: str, actor: Actor) -> Advanced:
        return await self._write(lambda tx: schedules.put(tx, advance, action, actor))

    async def delete_schedule(self, name: str, actor: Actor) -> bool:
        return await self._write(lambda tx: schedules.delete(tx, name, actor))

    async def declare(self, declaration: Declaration) -> list[Declaration]:
        return await self._write(lambda tx: schedules.declare(tx, declaration))

    # The operator's side.

    async def get(self, id: str) -> Job | None:
        return await self._read(lambda snapshot: snapshot.get(id))

    async def find(self, filter: Filter, after: str | None = None, limit: int = PAGE) -> Page:
        return await self._read(lambda snapshot: snapshot.find(filter, after, limit))

    async def dead_letters(
        self, queue: str | None = None, task: str | None = None, after: str | None = None, limit: int = PAGE
    ) -> DeadLetters:
        return await self._read(lambda snapshot: snapshot.dead_letters(queue, task, after, limit))

    async def dead_groups(self, queue: str | None = None, task: str | None = None, limit: int = PAGE) -> DeadGroups:
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

    async def requeue(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return await self._write(lambda tx: operations.act(tx, "requeue", ids, actor, operations.requeue))

    async def discard(self, ids: Sequence[str], actor: Actor) -> list[Acted]:
        return await self._write(lambda tx: operations.act(tx, "discard", ids, actor, operations.discard))

    async def replace(self, id: str, job: NewJob, actor: Actor) -> Acted:
        [answer] = await self._write(lambda tx: operations.act(tx, "replace", (id,), actor, operations.replacing(job)))
        return answer

    async def pause(self, target: Target, actor: Actor, until: datetime | None = None) -> None:
        await self._write(lambda tx: operations.pause(tx, target, actor, until))

    async def resume(self, target: Target, actor: Actor) -> bool:
        return await self._write(lambda tx: operations.resume(tx, target, actor))

    async def pauses(self) -> list[Pause]:
        return await self._read(Snapshot.pauses)

    async def set_limits(self, queue: str, limits: Limits, actor: Actor) -> None:
        await self._write(lambda tx: operations.set_limits(tx, queue, limits, actor))

    async def limits(self) -> dict[str, Limits]:
        return await self._read(Snapshot.limits)

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
        self, limit: int = PAGE, before: int | None = None, action: str | None = None, by: str | None = None
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

    async def measure(self, measured: Sequence[Measured]) -> None:
        await self._write(lambda tx: operations.measure(tx, measured))

    async def rollups(self, minutes: int, queue: str | None = None, task: str | None = None) -> list[Rollup]:
        return await self._read(lambda snapshot: snapshot.rollups(minutes, queue, task))

    async def event_counts(self, minutes: int, events: Sequence[str]) -> list[EventCount]:
        return await self._read(lambda snapshot: snapshot.event_counts(minutes, events))

    # The server's door.

    async def put_api_key(self, key: ApiKey, lasts: float | None, actor: Actor) -> None:
        await self._write(lambda tx: api_keys.put(tx, key, lasts, actor))

    async def api_keys(self) -> list[KeyRecord]:
        return await self._read(Snapshot.api_keys)

    async def revoke_api_key(self, id: str, actor: Actor) -> bool:
        return await self._write(lambda tx: api_keys.revoke(tx, id, actor))

    async def use_api_keys(self, ids: Sequence[str]) -> None:
        await self._write(lambda tx: api_keys.use(tx, ids))
