"""The PostgreSQL store: hands each call to the part that does it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

import asyncpg
import msgspec

from hawser.clock import Clock
from hawser.errors import ConfigError, StoreError
from hawser.job import Claimed, NewJob
from hawser.schedule.declaration import Declaration
from hawser.schedule.schedule import Advance, Schedule
from hawser.store import (
    LEAVE_NOTHING,
    NO_ROOM_SET,
    OUTPUT_READ,
    Actor,
    Arrival,
    Beat,
    Chunk,
    Declined,
    Durability,
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
from hawser.stores.batches import any_tied
from hawser.stores.dependencies import check_order
from hawser.stores.postgres import requests
from hawser.stores.postgres.address import Address
from hawser.stores.postgres.claims import ClaimStatements
from hawser.stores.postgres.dependencies import DependencyStatements
from hawser.stores.postgres.enqueue import Enqueuer
from hawser.stores.postgres.events import EventStatements
from hawser.stores.postgres.expiry import ExpiryStatements
from hawser.stores.postgres.foreign import PreparedEmit, PreparedEnd, PreparedEnqueue, PreparedStep, prepare_end, prepare_enqueue
from hawser.stores.postgres.lane_catalog import LaneCatalog
from hawser.stores.postgres.leases import Leases
from hawser.stores.postgres.migrate import is_current, migrate, migrations
from hawser.stores.postgres.operator_side import OperatorSide
from hawser.stores.postgres.output import OutputStatements
from hawser.stores.postgres.schedules import ScheduleTable
from hawser.stores.postgres.server import SQL, Server
from hawser.stores.postgres.set_back import SetBack
from hawser.stores.postgres.settle import SettleStatements
from hawser.stores.postgres.steps import StepStatements
from hawser.stores.postgres.wake import ASK_FROM_S, Wake

RELAXED = {
    "fsync": "the server does not write to the disk before it answers",
    "synchronous_commit": "the server answers before a commit is on the disk",
    "full_page_writes": "a power cut may tear pages",
}
"""Settings that must be on for what was answered to be durable, and what it means when they are not."""


class PostgresStore(OperatorSide):
    """A schema in a database that many machines may share."""

    retention = Retention()
    done_most: int | None = None

    def __init__(self, address: Address, *, clock: Clock | None = None, sql: Mapping[str, str] = SQL) -> None:
        self.durability: Durability = address.durability
        self.address = address
        self.server = Server(address, clock, sql)
        self.catalog = LaneCatalog(self.server)
        self._wake = Wake(self.server)
        dependencies = DependencyStatements(self.server, self.catalog, self._wake.tell)
        super().__init__(self.server, self.catalog, dependencies, self._wake.tell)
        set_back = SetBack(self.server, self.catalog)
        self._expiry = ExpiryStatements(self.server, self.catalog, self._dependencies)
        self._claims = ClaimStatements(self.server, self.catalog, set_back, self._expiry)
        self._settler = SettleStatements(self.server, self.catalog, self._history, self._wake.tell, self._dependencies)
        self._leases = Leases(self.server, self.catalog, set_back)
        self._schedules = ScheduleTable(self.server, self.catalog, self._wake.tell)
        self._steps = StepStatements(self.server)
        self._output = OutputStatements(self.server)
        self._events = EventStatements(self.server, self._dependencies)
        self._enqueuers: dict[int, tuple[asyncio.AbstractEventLoop, Enqueuer]] = {}

    async def open(self) -> None:
        if not await self.server.connection("operate").do(self._is_prepared):
            await self._migrate()
        await self._history.make_days()

    async def _is_prepared(self, con: asyncpg.Connection) -> bool:
        """Whether the schema is current; refuses a server that is set up wrongly."""
        if self.durability == "durable":
            for name, meaning in RELAXED.items():
                if await con.fetchval("select current_setting($1)", name) in ("off", "local"):
                    raise ConfigError(
                        f"store: {name} is off at {self.address.where}: {meaning}. Turn it on, "
                        "or say that losing jobs is acceptable by adding ?durability=relaxed to the URL"
                    )
        current = await is_current(con, self.address.schema, migrations())
        if self.address.pooled and not current:
            # The lock that keeps two from migrating at once belongs to a session, which a pooler does not give us.
            raise ConfigError("store: the schema is not current; run hawser migrate by a URL that does not go through the pooler")
        return current

    async def _migrate(self) -> None:
        """On a connection of its own, for as long as it takes: an index of a large history takes minutes."""
        connection = self.server.new_connection(timeout=None)
        try:
            await connection.do(lambda con: migrate(con, self.address.schema, within=self.address.timeout))
        finally:
            await connection.close()

    async def close(self) -> None:
        for loop, enqueuer in self._enqueuers.values():
            if loop is asyncio.get_running_loop():
                await enqueuer.close()
        await self._wake.close()
        await self._claims.close()
        await self.server.close()

    # The worker's side.

    async def enqueue(self, jobs: Sequence[NewJob], request: RequestKey | None = None) -> list[Enqueued]:
        return await self._enqueuer().put(jobs, request)

    async def made(self, jobs: Sequence[NewJob], request: RequestKey | None = None) -> bool:
        return await requests.made(self.server, jobs, request)

    async def prepare_enqueue(self, jobs: Sequence[NewJob]) -> PreparedEnqueue:
        """The jobs, ready to be written in a transaction of the caller's own."""
        if any_tied(jobs):
            check_order(jobs)
            await self._dependencies.use(self.server.connection("enqueue"))
        return await prepare_enqueue(self.server, self.catalog, jobs)

    async def prepare_emit(self, name: str, body: bytes, keep: float) -> PreparedEmit:
        """An event, ready to be written in a transaction of the caller's own."""
        await self._dependencies.use(self.server.connection("events"))
        return PreparedEmit(self.server, (*self._events.arguments(name, body, keep), None))

    async def prepare_end(self, settlement: Settlement, output: NewOutput | None = None) -> PreparedEnd:
        """A settlement, ready to be written in a transaction of the handler's own. What the run has written is written before."""
        if output is not None:
            await self._output.write([output])
        await self._history.have_days()
        if any_tied(settlement.then):
            check_order(settlement.then)
            await self._dependencies.use(self.server.connection("enqueue"))
        return await prepare_end(self.server, self.catalog, settlement)

    async def prepare_step(self, step: NewStep) -> PreparedStep:
        """A step, ready to be recorded in a transaction of the handler's own."""
        return PreparedStep(self.server, step)

    def _enqueuer(self) -> Enqueuer:
        loop = asyncio.get_running_loop()
        found = self._enqueuers.get(id(loop))
        if found is None or found[0] is not loop:
            found = self._enqueuers[id(loop)] = (loop, self._new_enqueuer())
        return found[1]

    def _new_enqueuer(self) -> Enqueuer:
        return Enqueuer(self.server, self.catalog, self._wake.tell, self._fold, self._dependencies)

    async def claim(
        self,
        queues: Sequence[Share],
        limit: int,
        worker: str,
        lease_for: float,
        room: Mapping[str, int] = NO_ROOM_SET,
        leave: Leave = LEAVE_NOTHING,
    ) -> list[Claimed]:
        claimed = await self._claims.claim(queues, limit, worker, lease_for, room, leave)
        if claimed:
            self._wake.had_work()
        return claimed

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        return await self._settler.settle(settlements)

    async def extend(self, worker: str, leases: Sequence[LeaseRef], lease_for: float) -> list[LeaseStatus]:  # noqa: ARG002
        return await self._leases.extend(leases, lease_for) if leases else []

    async def holders(self, leases: Sequence[LeaseRef]) -> list[str | None]:
        return await self._leases.holders(leases)

    async def asked_to_stop(self, workers: Sequence[str]) -> list[LeaseRef]:
        return await self._leases.asked_to_stop(workers)

    async def reclaim(self, limit: int) -> list[Reclaimed]:
        reclaimed = await self._leases.reclaim(limit)
        if reclaimed:
            with suppress(StoreError):  # those who wait look again within a second
                await self.catalog.read(self.server.connection("reclaim"))
                await self._settler.make_room_known(((each.queue, each.task) for each in reclaimed), "reclaim")
        used = await self._dependencies.learn_use("reclaim")
        if used:
            await self._dependencies.go_on("reclaim", overdue=True)
        with suppress(StoreError):  # what was taken back is: the tally and the batches can wait
            await self._fold()
            if used:
                await self._batches.cancel_members()
        return reclaimed

    async def go_on(self) -> bool:
        if not self._dependencies.in_use:
            return False
        if await self._dependencies.anything_left("reclaim"):
            await self._dependencies.go_on("reclaim", overdue=True)
        return True

    async def expire(self, limit: int) -> int:
        return await self._expiry.expire(limit)

    async def end_returned(self, lost: LeaseRef) -> bool:
        return await self._then_go_on(await self._operations.end_returned(lost))

    async def decline(self, declined: Sequence[Declined]) -> list[Unaccepted | None]:
        return await self._declined.decline(declined)

    async def record_steps(self, steps: Sequence[NewStep]) -> list[RecordedStep | None]:
        return await self._steps.record(steps)

    async def arrive(self, arrival: Arrival) -> RecordedStep | None:
        return await self._steps.arrive(arrival)

    async def emit(self, name: str, body: bytes, keep: float) -> Emitted:
        return await self._events.emit(name, body, keep)

    async def event(self, name: str) -> Event | None:
        return await self._events.get(name)

    async def awaiting(self) -> int:
        return await self._events.awaiting()

    async def steps(self, id: str) -> list[RecordedStep]:
        return await self._steps.of(id)

    async def write_output(self, outputs: Sequence[NewOutput]) -> list[OutputKept | None]:
        return await self._output.write(outputs)

    async def output(self, id: str, after: int = 0, limit: int = OUTPUT_READ) -> list[Chunk]:
        return await self._output.of(id, after, limit)

    async def beat(self, beats: Sequence[Beat], gone: Sequence[str] = ()) -> None:
        connection, sql = self.server.connection("keep"), self.server.sql
        if beats:
            about = [each.worker for each in beats], [msgspec.json.encode(each).decode() for each in beats]
            await connection.rows(sql["beat"], self.server.given, *about)
        if gone:
            await connection.rows(sql["forget_worker"], list(gone))

    async def wait(self, queues: Sequence[str], timeout: float, leave: Leave = LEAVE_NOTHING) -> None:
        pause = min(timeout, self._wake.next_look(), self._claims.opens_in())
        with self._wake.listening() as heard:
            if pause > ASK_FROM_S:
                due_in = await self._claims.due_in(queues, leave)
                pause = pause if due_in is None else min(pause, due_in)
            await asyncio.wait((heard,), timeout=pause)

    async def _fold(self) -> None:
        """Add what was counted to the tally."""
        await self.server.connection("reclaim").rows(self.server.sql["fold"])

    # The scheduler's side.

    async def schedules(self, names: Sequence[str] | None = None, after: str = "", limit: int | None = None) -> list[Schedule]:
        return await self._schedules.named(names, after, limit)

    async def due_schedules(self, limit: int) -> DueSchedules:
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
