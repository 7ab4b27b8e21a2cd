"""Enqueue. Calls that come while a write is under way go together in the next one: a thousand callers make few commits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Final, Literal, NamedTuple

import asyncpg
import msgspec

from hawser.batcher import Batcher
from hawser.errors import HawserError, IdConflict, QueueFull, StoreError, StoreUnavailable
from hawser.job import DEFAULT_ATTEMPTS, KeyScope, NewJob
from hawser.store import Enqueued, RequestKey
from hawser.stores.batches import any_tied
from hawser.stores.columns import GIVEN, values_of
from hawser.stores.debounce import any_debounced
from hawser.stores.dedup import Stands, is_same
from hawser.stores.dependencies import check_order
from hawser.stores.order import Lane as Order
from hawser.stores.order import due_at, first_lane
from hawser.stores.postgres.arrivals import Arrivals
from hawser.stores.postgres.debounce import Terms, fetched, steps_of
from hawser.stores.postgres.dependencies import DependencyStatements, circle_arguments, hold_back_arguments, join_arguments
from hawser.stores.postgres.enqueue_arguments import DAY_MS, JOBS_PER_STATEMENT, EnqueueArguments, keys_of, made_on, stands_twice
from hawser.stores.postgres.errors import Locked, lanes_forgotten
from hawser.stores.postgres.lane_catalog import GROUPED_KIND, Kind, LaneCatalog
from hawser.stores.postgres.managed_connection import ManagedConnection
from hawser.stores.postgres.requests import once
from hawser.stores.postgres.server import Server

KEY_WAIT_MS: Final = 50
"""Milliseconds that a write waits for a key that another transaction is about to take, while others wait behind it."""

BY_TURNS: Final = 100
"""The same, of a call that waits for its key apart from the others; then it is the next one's turn."""

FOLD_EVERY: Final = 500
"""Calls after which what was counted is added up, also where no worker does."""

DAY_US: Final = DAY_MS * 1_000
COPIED: Final = ("id", "lane", "run_at", "enqueued_at", "max_attempts", "kind", *(column.name for column in GIVEN))


class NotSoSimple(HawserError):
    """These jobs cannot just be copied; nothing was written."""


class WaitingCall(NamedTuple):
    """A call whose jobs are not written yet."""

    jobs: Sequence[NewJob]
    keys: frozenset[KeyScope | RequestKey]
    answer: asyncio.Future[list[Enqueued]]
    until: float
    """The loop's time at which it gives up waiting for a key."""
    request: RequestKey | None = None


class Enqueuer:
    """The enqueues of one process on one event loop.

    A key may be taken in a transaction that stays open for long. Only calls that want the same key wait for it.
    """

    def __init__(
        self,
        server: Server,
        catalog: LaneCatalog,
        wake: Callable[[set[str]], list[str]],
        fold: Callable[[], Awaitable[None]],
        dependencies: DependencyStatements,
    ) -> None:
        self._server = server
        self._catalog = catalog
        self._wake = wake
        self._fold = fold
        self._dependencies = dependencies
        self._waiting: Batcher[WaitingCall] = Batcher(JOBS_PER_STATEMENT, size=lambda call: len(call.jobs))
        self._writing: asyncio.Task[None] | None = None
        self._apart: list[WaitingCall] = []
        self._by_turns: asyncio.Task[None] | None = None
        self._calls = 0
        self._folding: asyncio.Task[None] | None = None

    async def put(self, jobs: Sequence[NewJob], request: RequestKey | None = None) -> list[Enqueued]:
        loop = asyncio.get_running_loop()
        keys: set[KeyScope | RequestKey] = {*keys_of(jobs)} if request is None else {*keys_of(jobs), request}
        mine = WaitingCall(jobs, frozenset(keys), loop.create_future(), loop.time() + self._server.address.timeout, request)
        if self._must_wait(mine):
            self._wait_apart(mine)
        elif len(jobs) > JOBS_PER_STATEMENT or request is not None or any_tied(jobs) or any_debounced(jobs):
            await self._alone(mine)
        else:
            self._waiting.add(mine)
            if self._writing is None or self._writing.done():
                self._writing = loop.create_task(self._write_all())
        answers = await mine.answer
        if any_tied(jobs):
            await self._dependencies.go_on("enqueue", new=True)
        self._fold_now_and_then()
        return answers

    async def close(self) -> None:
        """Let what is under way in the background end."""
        if self._folding is not None:
            await self._folding

    def _fold_now_and_then(self) -> None:
        """In the background: a failure does not concern the caller, whose jobs are written."""
        self._calls += 1
        if self._calls >= FOLD_EVERY and (self._folding is None or self._folding.done()):
            self._calls = 0
            self._folding = asyncio.get_running_loop().create_task(self._fold_quietly())

    async def _fold_quietly(self) -> None:
        with suppress(StoreError):
            await self._fold()

    async def _write_all(self) -> None:
        while taken := self._waiting.take():
            calls = self._ready(taken)
            try:
                await self._write(calls)
            except BaseException as error:
                # When the store is away, the calls that wait would get the same error, later.
                for call in (*calls, *(self._waiting.clear() if isinstance(error, StoreUnavailable) else ())):
                    _refuse(call, error)
                if not isinstance(error, Exception):
                    raise

    def _ready(self, calls: Sequence[WaitingCall]) -> list[WaitingCall]:
        """Those that still wait for an answer, and for no key that another call waits for."""
        ready = []
        for call in calls:
            if not call.answer.done():
                if self._must_wait(call):
                    self._wait_apart(call)
                else:
                    ready.append(call)
        return ready

    async def _write(self, calls: Sequence[WaitingCall]) -> None:
        if len(calls) == 1:
            await self._alone(calls[0])
            return
        try:
            answers = await self._add(list(chain.from_iterable(call.jobs for call in calls)))
        except (QueueFull, IdConflict, Locked):
            # One of them does not fit, has the id of another job, or must wait for its key. Each is tried alone, so that only
            # that one gets the error.
            self._waiting.split(calls)
            return
        done = 0
        for call in calls:
            _answer(call, answers[done : done + len(call.jobs)])
            done += len(call.jobs)

    async def _alone(self, call: WaitingCall) -> None:
        """One call; if it must wait for its key, then apart from the others."""
        try:
            _answer(call, await self._add(call.jobs, call.request))
        except Locked:
            self._wait_apart(call)

    def _must_wait(self, call: WaitingCall) -> bool:
        """Whether another call waits already for a key that this one wants."""
        return any(not call.keys.isdisjoint(other.keys) for other in self._apart)

    def _wait_apart(self, call: WaitingCall) -> None:
        self._apart.append(call)
        if self._by_turns is None or self._by_turns.done():
            self._by_turns = asyncio.get_running_loop().create_task(self._wait_by_turns())

    async def _wait_by_turns(self) -> None:
        """The calls that wait for their keys, on a connection of their own. Each stays in the list while it is tried: a call that
        wants the same key comes behind it."""
        while self._apart:
            call, again = self._apart[0], False
            try:
                if not call.answer.done():
                    _answer(call, await self._add(call.jobs, call.request, "keys", BY_TURNS))
            except BaseException as error:
                again = isinstance(error, Locked) and asyncio.get_running_loop().time() < call.until
                if not again:
                    _refuse(call, error)
                if not isinstance(error, Exception):
                    raise
            finally:
                self._apart.pop(0)
                if again:
                    self._apart.append(call)

    async def _add(
        self,
        jobs: Sequence[NewJob],
        request: RequestKey | None = None,
        purpose: Literal["enqueue", "keys"] = "enqueue",
        patience: int = KEY_WAIT_MS,
    ) -> list[Enqueued]:
        if not jobs:
            return []
        waits_its_turn = request is not None or any(job.key is not None or (job.batch and job.waits_for) for job in jobs)
        at_most = patience if waits_its_turn else None
        connection = self._server.connection(purpose)
        try:
            answers = await self._catalog.surely(lambda: self._insert(jobs, connection, at_most, request))
        except IdConflict as conflict:
            alike = await self._written_alike(jobs, conflict, connection)
            answers = await self._catalog.surely(lambda: self._insert(alike, connection, at_most, request))
        if not all(answer.created for answer in answers):
            await connection.rows(self._server.sql["await_standby"])
        return answers

    async def _written_alike(self, jobs: Sequence[NewJob], conflict: IdConflict, connection: ManagedConnection) -> list[NewJob]:
        """The database compares payloads as they are written. The same payload in other words is written as it is there."""
        asked = self._server.given, list(conflict.ids), made_on(conflict.ids)
        rows = await connection.rows(self._server.sql["known_jobs"], *asked, writing=False)
        known = {id: Stands(*stands) for id, *stands in rows}
        alike = []
        for job in jobs:
            stands = known.setdefault(job.id, Stands(job.task, job.queue, job.body))
            if not is_same(job, stands):
                raise conflict
            alike.append(msgspec.structs.replace(job, body=stands.body))
        return alike

    async def _insert(
        self, jobs: Sequence[NewJob], connection: ManagedConnection, patience: int | None, request: RequestKey | None
    ) -> list[Enqueued]:
        server, lanes = self._server, await self._lanes(jobs)
        if any_tied(jobs):
            check_order(jobs)
            await self._dependencies.use(connection)
        wake = self._wake({job.queue for job in jobs})
        if request is not None:
            most = patience or KEY_WAIT_MS
            return await once(server, connection, request, most, lambda con: self._in_pieces(con, jobs, lanes, wake, patience))
        if stands_twice(jobs) or any_tied(jobs) or any_debounced(jobs):
            return await connection.together(lambda con: self._in_pieces(con, jobs, lanes, wake, patience))
        if len(jobs) > JOBS_PER_STATEMENT:
            return await self._many(jobs, lanes, wake, connection, patience)
        call = EnqueueArguments(jobs, lanes)
        return call.answers(
            await connection.rows(server.sql["enqueue"], *call.arguments(server.given, wake=wake, patience=patience))
        )

    async def _lanes(self, jobs: Sequence[NewJob]) -> list[int]:
        view = self._catalog.view
        with suppress(KeyError):
            lanes = [view.ids[job.queue, job.task, job.priority] for job in jobs]
            known_groups = all(job.group is None or view.lanes[lane].grouped for job, lane in zip(jobs, lanes, strict=True))
            if known_groups and (view.expiries or all(job.expires is None for job in jobs)):
                return lanes
        known = await self._catalog.make_for(jobs, self._server.connection("enqueue"))
        return [known[job.queue, job.task, job.priority] for job in jobs]

    async def _many(
        self,
        jobs: Sequence[NewJob],
        lanes: Sequence[int],
        wake: Sequence[str],
        connection: ManagedConnection,
        patience: int | None,
    ) -> list[Enqueued]:
        """Very many jobs of one call, in one transaction."""
        if patience is None:
            try:
                return await connection.together(lambda con: self._copied(con, jobs, lanes, wake))
            except NotSoSimple:
                pass
        return await connection.together(lambda con: self._in_pieces(con, jobs, lanes, wake, patience))

    async def _copied(
        self, con: asyncpg.Connection, jobs: Sequence[NewJob], lanes: Sequence[int], wake: Sequence[str]
    ) -> list[Enqueued]:
        """All are new and no queue has a limit or a policy for attempts; otherwise nothing is written."""
        server, known = self._server, set(lanes)
        [(now, asked, there)] = await con.fetch(server.sql["before_copy"], server.given, list(known))
        if there < len(known):
            raise lanes_forgotten(server.address.where)
        if asked:
            raise NotSoSimple("a queue has a limit or a policy")
        counts: Counter[tuple[int, str]] = Counter()
        arrived = Arrivals()
        records = []
        for job, lane in zip(jobs, lanes, strict=True):
            run_at = due_at(job, now)
            kind = Kind.TIMED if first_lane(job, run_at, now) is Order.TIMED else Kind.FRESH if job.run_at is None else Kind.LATE
            counts[lane, f"@{kind.waiting.name.lower()}"] += 1
            counts[lane, "enqueued"] += 1
            number = kind if job.group is None else kind + GROUPED_KIND
            if job.group is not None:
                arrived.add(lane, job.group, run_at, waited=kind is not Kind.FRESH)
            records.append((job.id, lane, run_at, now, job.max_attempts or DEFAULT_ATTEMPTS, number, *values_of(job, now)))
        try:
            await con.copy_records_to_table("job", schema_name=server.address.schema, columns=COPIED, records=records)
        except asyncpg.UniqueViolationError:
            raise NotSoSimple("some are there already") from None
        if await con.fetch(
            server.sql["known"], [job.id for job in jobs], min(made_on(job.id for job in jobs), now // DAY_US) - 1
        ):
            raise NotSoSimple("some have come to their end already")
        places = [(lane, name, n) for (lane, name), n in counts.items()]
        await con.execute(server.sql["count"], server.given, *(list(column) for column in zip(*places, strict=True)))
        if arrived:
            await con.execute(server.sql["arrive"], *arrived.columns())
        if wake:
            await con.execute(server.sql["wake"], list(wake))
        return [Enqueued(job.id, created=True) for job in jobs]

    async def _in_pieces(
        self, con: asyncpg.Connection, jobs: Sequence[NewJob], lanes: Sequence[int], wake: Sequence[str], patience: int | None
    ) -> list[Enqueued]:
        return await add_within(self._server, con, jobs, lanes, wake, patience)


async def add_within(
    server: Server,
    con: asyncpg.Connection,
    jobs: Sequence[NewJob],
    lanes: Sequence[int],
    wake: Sequence[str],
    patience: int | None,
    coming: frozenset[str] = frozenset(),
) -> list[Enqueued]:
    """Add jobs in a transaction that is open, with what they wait for and the batches that they count in. `coming` is what
    the same transaction has made that they may wait for."""
    answers = await fetched(con, steps_of(server, jobs, lanes, Terms(False, wake, patience)))
    if (held := hold_back_arguments(server.given, jobs, answers, coming=coming)) is not None:
        await con.execute(server.sql["hold_back"], *held)
    if (joined := join_arguments(server.given, jobs, answers)) is not None:
        await con.execute(server.sql["join_batches"], *joined)
    if (circles := circle_arguments(jobs, answers, patience)) is not None:
        await con.execute(server.sql["check_circles"], *circles)
    return answers


def _answer(call: WaitingCall, answers: list[Enqueued]) -> None:
    if not call.answer.done():
        call.answer.set_result(answers)


def _refuse(call: WaitingCall, error: BaseException) -> None:
    if not call.answer.done():
        call.answer.set_exception(error if isinstance(error, Exception) else StoreUnavailable("the store was closed"))
