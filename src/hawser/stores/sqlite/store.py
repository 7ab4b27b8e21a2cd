"""The SQLite store: hands each call to the process's writer, or to a reader."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from hawser.access import ApiKey, KeyRecord
from hawser.clock import Clock, SystemClock
from hawser.clock import Watch as ClockWatch
from hawser.declaration import Declaration
from hawser.errors import ConfigError, OutcomeUnknown, StoreUnavailable
from hawser.firing import Advanced, DueSchedules
from hawser.history import LaneDepth, Measured, Rollup
from hawser.job import Claimed, Job, NewJob
from hawser.policy import QueuePolicy
from hawser.schedule import Advance, Schedule
from hawser.store import (
    NO_ROOM_SET,
    PAGE,
    Acted,
    AuditRecord,
    Beat,
    DeadLetters,
    Durability,
    Enqueued,
    Filter,
    LeaseRef,
    LeaseStatus,
    Limits,
    Page,
    Pause,
    QueueStats,
    Reclaimed,
    Retention,
    Settled,
    Settlement,
    Share,
    Signature,
    Target,
    WorkerSeen,
)
from hawser.stores.sqlite import access, jobs, operations, schedules
from hawser.stores.sqlite.checkpointer import Checkpointer
from hawser.stores.sqlite.connection import connect, explain, lock_within, prepare_file
from hawser.stores.sqlite.guest import Visit
from hawser.stores.sqlite.migrate import is_current, migrate
from hawser.stores.sqlite.queries import Snapshot
from hawser.stores.sqlite.reader import Reader
from hawser.stores.sqlite.tx import SQL, Tx
from hawser.stores.sqlite.watch import Watch
from hawser.stores.sqlite.writer import Writer
from hawser.stores.wakeup import Wakeups

T = TypeVar("T")

OLDEST = (3, 38, 0)
"""The first SQLite that has `->>` and RETURNING."""


ENQUEUE_TIMEOUT = 5.0
"""Seconds that an enqueue waits for the file unless told otherwise: somebody's request waits with it."""


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
        self._open: _Open | None = None
        self._left_behind: list[_Open] = []
        self._bell = Wakeups()
        self._claims = 0
        self._cut_after = 0

    async def open(self) -> None:
        if not self._is_open():
            await asyncio.to_thread(self._opened)

    async def close(self) -> None:
        with self._opening:
            opened, self._open = self._open, None
        if opened is not None and opened.pid == os.getpid():
            await asyncio.to_thread(opened.close)

    def _is_open(self) -> bool:
        return self._open is not None and self._open.pid == os.getpid()

    def _opened(self) -> _Open:
        """The open file of this process. A forked child opens its own: connections must not cross a fork."""
        with self._opening:
            if self._open is not None and self._open.pid != os.getpid():
                self._left_behind.append(self._open)
                self._open = None
            if self._open is None:
                self._open = _Open(self)
                self._claims = 0
                self._cut_after = 0
            return self._open

    async def _write(self, work: Callable[[Tx], T], within: float | None = None, hint: str = "try again") -> T:
        if not self._is_open():
            await asyncio.to_thread(self._opened)
        return await self._answer(self._opened().writer.submit(work), within or self._timeout, hint)

    async def _read(self, work: Callable[[Snapshot], T]) -> T:
        if not self._is_open():
            await asyncio.to_thread(self._opened)
        return await self._answer(self._opened().reader.submit(work), self._timeout)

    async def _answer(self, future: Future[T], within: float, hint: str = "try again") -> T:
        """Wait for it until our time is up. Work that was not begun by then is withdrawn, so nothing was written."""
        answer = asyncio.wrap_future(future)
        done, _ = await asyncio.wait((answer,), timeout=within)
        if done:
            return answer.result()
        if future.cancel():
            raise StoreUnavailable(
                f"{str(self._path)!r} was held by another connection for {within:g} s; nothing was written: {hint}"
            )
        raise OutcomeUnknown(f"{str(self._path)!r} did not answer within {within:g} s; repeat with the same ids")

    # The worker's side.

    async def enqueue(self, jobs_: Sequence[NewJob]) -> list[Enqueued]:
        return await self._write(lambda tx: jobs.enqueue(tx, jobs_), self._enqueue_timeout, _ENQUEUE_INSIDE)

    async def visit(self, jobs_: Sequence[NewJob]) -> Visit:
        """The jobs, ready to be written by a connection of the user's own."""
        return Visit(self._path, self._clock, self._sql, jobs_)

    async def claim(
        self, queues: Sequence[Share], limit: int, worker: str, lease_for: float, room: Mapping[str, int] = NO_ROOM_SET
    ) -> list[Claimed]:
        turn, self._claims = self._claims, self._claims + 1
        return await self._write(lambda tx: jobs.claim(tx, queues, limit, worker, lease_for, turn, room))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        return await self._write(lambda tx: jobs.settle(tx, settlements))

    async def extend(self, worker: str, leases: Sequence[LeaseRef], lease_for: float) -> list[LeaseStatus]:  # noqa: ARG002
        return await self._write(lambda tx: jobs.extend(tx, leases, lease_for))

    async def asked_to_stop(self, workers: Sequence[str]) -> list[LeaseRef]:
        return await self._read(lambda snapshot: snapshot.asked_to_stop(workers))

    async def reclaim(self, limit: int) -> list[Reclaimed]:
        def work(tx: Tx) -> tuple[list[Reclaimed], int]:
            set_back = self._watch.set_back
            return jobs.reclaim(tx, limit, clock_was_set_back=set_back > self._cut_after), set_back

        reclaimed, self._cut_after = await self._write(work)
        return reclaimed

    async def beat(self, beats: Sequence[Beat], gone: Sequence[str] = ()) -> None:
        await self._write(lambda tx: operations.beat(tx, beats, gone))

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        waiter = self._bell.join()
        try:
            with self._opened().watch.waking(waiter):
                due_in = await self._read(lambda snapshot: snapshot.due_in(queues))
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

    async def put_schedule(self, advance: Advance, action: str, sign: Signature) -> Advanced:
        return await self._write(lambda tx: schedules.put(tx, advance, action, sign))

    async def delete_schedule(self, name: str, sign: Signature) -> bool:
        return await self._write(lambda tx: schedules.delete(tx, name, sign))

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

    async def stats(self, queue: str | None = None) -> QueueStats:
        return await self._read(lambda snapshot: snapshot.stats(queue))

    async def queues(self) -> dict[str, QueueStats]:
        return await self._read(Snapshot.queues)

    async def cancel(self, ids: Sequence[str], sign: Signature) -> list[Acted]:
        return await self._write(lambda tx: operations.act(tx, "cancel", ids, sign, operations.cancel))

    async def requeue(self, ids: Sequence[str], sign: Signature) -> list[Acted]:
        return await self._write(lambda tx: operations.act(tx, "requeue", ids, sign, operations.requeue))

    async def discard(self, ids: Sequence[str], sign: Signature) -> list[Acted]:
        return await self._write(lambda tx: operations.act(tx, "discard", ids, sign, operations.discard))

    async def replace(self, id: str, job: NewJob, sign: Signature) -> Acted:
        [answer] = await self._write(lambda tx: operations.act(tx, "replace", (id,), sign, operations.replacing(job)))
        return answer

    async def pause(self, target: Target, sign: Signature, until: datetime | None = None) -> None:
        await self._write(lambda tx: operations.pause(tx, target, sign, until))

    async def resume(self, target: Target, sign: Signature) -> bool:
        return await self._write(lambda tx: operations.resume(tx, target, sign))

    async def pauses(self) -> list[Pause]:
        return await self._read(Snapshot.pauses)

    async def set_limits(self, queue: str, limits: Limits, sign: Signature) -> None:
        await self._write(lambda tx: operations.set_limits(tx, queue, limits, sign))

    async def limits(self) -> dict[str, Limits]:
        return await self._read(Snapshot.limits)

    async def set_policy(self, queue: str, policy: QueuePolicy, sign: Signature) -> None:
        await self._write(lambda tx: operations.set_policy(tx, queue, policy, sign))

    async def policies(self) -> dict[str, QueuePolicy]:
        return await self._read(Snapshot.policies)

    async def prune(self, retention: Retention, by_task: Mapping[str, Retention], limit: int) -> int:
        return await self._write(lambda tx: operations.prune(tx, retention, by_task, limit))

    async def workers(self) -> list[WorkerSeen]:
        return await self._read(Snapshot.workers)

    async def audit(self, limit: int = PAGE, before: int | None = None) -> list[AuditRecord]:
        return await self._read(lambda snapshot: snapshot.audit(limit, before))

    # Charts and alarms.

    async def lanes(self) -> list[LaneDepth]:
        return await self._read(Snapshot.lanes)

    async def measure(self, measured: Sequence[Measured]) -> None:
        await self._write(lambda tx: operations.measure(tx, measured))

    async def rollups(self, minutes: int, queue: str | None = None, task: str | None = None) -> list[Rollup]:
        return await self._read(lambda snapshot: snapshot.rollups(minutes, queue, task))

    # The server's door.

    async def put_api_key(self, key: ApiKey, lasts: float | None, sign: Signature) -> None:
        await self._write(lambda tx: access.put(tx, key, lasts, sign))

    async def api_keys(self) -> list[KeyRecord]:
        return await self._read(Snapshot.api_keys)

    async def revoke_api_key(self, id: str, sign: Signature) -> bool:
        return await self._write(lambda tx: access.revoke(tx, id, sign))

    async def use_api_keys(self, ids: Sequence[str]) -> None:
        await self._write(lambda tx: access.use(tx, ids))


class _Open:
    """The file as one process has it open: a lock between processes, a writer, a reader, and an eye on what others write."""

    def __init__(self, store: SqliteStore) -> None:
        self.pid = os.getpid()
        path, make = store._path, partial(connect, store._path, store.durability, store._timeout)  # noqa: SLF001
        prepare_file(path)
        self._path = path
        self._timeout = store._timeout  # noqa: SLF001
        self._lock = -1
        self._cons: list[sqlite3.Connection] = []
        try:
            # The writer gives up on a program that is not ours before its callers do: then nothing was written, for sure.
            writing = self._made(connect(path, store.durability, store._timeout / 2))  # noqa: SLF001
            current = is_current(writing)
            self._lock = os.open(f"{path}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if not current:
                self._migrate(writing)
            # The log is moved into the file by a helper, or between transactions, not inside somebody's commit.
            writing.execute("pragma wal_autocheckpoint = 0")
            self._watching = self._made(make(read_only=True))
            self.reader = Reader(self._made(make(read_only=True)), path, store._clock, store._sql)  # noqa: SLF001
            self.watch = Watch(f"{path}-wal", self._version)
            self._checkpointer = Checkpointer(self._made(make()))
            self.writer = Writer(
                writing,
                path,
                lock=self._lock,
                clock=store._watch,  # noqa: SLF001
                sql=store._sql,  # noqa: SLF001
                checkpointer=self._checkpointer,
                done=store._bell.ring,  # noqa: SLF001
            )
        except sqlite3.Error as error:
            self._let_go()
            raise explain(error, path) from error
        except BaseException:
            self._let_go()
            raise

    def _migrate(self, con: sqlite3.Connection) -> None:
        """Under the lock, which a file whose schema is current never waits for."""
        lock_within(self._lock, self._timeout)
        try:
            con.execute("pragma journal_mode = wal")
            con.execute("begin immediate")
            migrate(con)
            con.execute("commit")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            raise StoreUnavailable(
                f"the tables of this version are not in {str(self._path)!r} yet, and a transaction that is open there keeps us "
                "from making them; nothing was written: if it is yours, call app.open() before it begins"
            ) from error
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _made(self, con: sqlite3.Connection) -> sqlite3.Connection:
        self._cons.append(con)
        return con

    def _version(self) -> Any:
        """Changes when anybody commits a write."""
        return self._watching.execute("pragma data_version").fetchone()

    def close(self) -> None:
        self.reader.close()
        self._checkpointer.close()
        self.writer.close(self._timeout, self._let_go)

    def _let_go(self) -> None:
        for con in self._cons:
            con.close()
        if self._lock >= 0:
            os.close(self._lock)
