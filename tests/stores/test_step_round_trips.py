"""What steps, sleeps and waits cost: statements, scripts or transactions, by operation. Counted, not timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hawser.job import Claimed, NewJob, new_job
from hawser.outcome import Held, Outcome, Snoozed
from hawser.store import Arrival, NewStep, Settled, Settlement, Share, Store
from hawser.stores import make_store
from hawser.stores.postgres.managed_connection import ManagedConnection
from hawser.stores.redis.server_connection import ServerConnection
from hawser.stores.sqlite.reader import Reader
from hawser.stores.sqlite.writer import Writer
from tests.worker.test_breaker import url_of

KEPT = 20
"""Steps of the job that is run again."""

OPERATIONS = (
    "a step",
    "a sleep: its record",
    "a sleep: the end of the run",
    "a wait: the look",
    "a wait: the end of the run",
    "a wait: what it came to",
    "an emit",
    "a gather: the end of the run",
    "a later run: all its steps",
)

ROUND_TRIPS = {
    "sqlite": dict.fromkeys(OPERATIONS, 1),
    "postgres": {
        **dict.fromkeys(OPERATIONS, 1),
        # The run as it stands, and its end. A run that recorded nothing sends what its claim said, and needs the second only.
        "a sleep: the end of the run": 2,
        # Those two, the wait itself, begin and commit; then three looks for what came at the same moment.
        "a wait: the end of the run": 8,
        # Besides, the jobs, and that it waits for them.
        "a gather: the end of the run": 9,
        # The event, and those that it wakes, with a word to their workers.
        "an emit": 2,
    },
    "redis": dict.fromkeys(OPERATIONS, 1),
}
"""Of SQLite transactions, of Redis scripts, of PostgreSQL statements. The bar is one for a step. A wait is paid once for days."""


def asks_of_types(query: str) -> bool:
    """What asyncpg asks once, when a connection meets a type that it does not know."""
    return "typeinfo_tree" in query or "set_config('jit'" in query


class Trips:
    """Counts what is asked, on every connection of this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: Counter[str] = Counter()
        self._patch = monkeypatch
        known: set[asyncpg.Connection] = set()
        connected = ManagedConnection._connected

        async def logged(connection: ManagedConnection) -> asyncpg.Connection:
            con = await connected(connection)
            if con not in known:
                known.add(con)
                con.add_query_logger(lambda query: None if asks_of_types(query.query) else self.saw(query.query))
            return con

        monkeypatch.setattr(ManagedConnection, "_connected", logged)
        self.count(ServerConnection, "_asked")
        self.count(Writer, "submit")
        self.count(Reader, "submit")

    def saw(self, what: str) -> None:
        self.seen[what] += 1

    def count(self, owner: Any, name: str) -> None:
        work = getattr(owner, name)

        def counting(*arguments: Any, **options: Any) -> Any:
            self.saw(f"{owner.__name__}.{name}")
            return work(*arguments, **options)

        self._patch.setattr(owner, name, counting)


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Trips:
    return Trips(monkeypatch)


@pytest.fixture(params=sorted(ROUND_TRIPS))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def store(kind: str, tmp_path: Path, trips: Trips) -> AsyncIterator[Store]:
    store = make_store(await url_of(kind, tmp_path))
    await store.open()
    yield store
    await store.close()


class Flow:
    """A job that makes steps, sleeps, waits for an event, then for a job of its own. Each operation is told when it is over."""

    def __init__(self, store: Store, over: Callable[[str], None]) -> None:
        self.store = store
        self.over = over

    async def play(self) -> None:
        await self.store.enqueue([new_job(task="order", body=b"{}")])
        run = await self._started()
        for n in range(KEPT):
            await self._record("a step", run, name=f"turn {n}", value=b"1")
        await self._record("a sleep: its record", run, name="cool off", value=b"null", kind="sleep", lasts=0.0)
        await self._end("a sleep: the end of the run", run, Snoozed(0.0, "sleeps"))
        run = await self._started()
        assert len(await self.store.steps(run.id)) == KEPT + 1
        self.over("a later run: all its steps")
        await self._arrive("a wait: the look", run, "wait")
        await self._end("a wait: the end of the run", run, Held("packed", event=run.id, timeout=60.0))
        assert (await self.store.emit(run.id, b"1", 60.0)).created
        self.over("an emit")
        run = await self._started()
        await self._arrive("a wait: what it came to", run, "event")
        child = new_job(task="label", queue="parts", body=b"{}")
        await self._end("a gather: the end of the run", run, Held("gather", jobs=(child.id,)), child)

    async def _started(self) -> Claimed:
        [run] = await self.store.claim([Share("default")], 1, "w1", 60.0)
        self.over("")
        return run

    async def _record(self, what: str, run: Claimed, **fields: Any) -> None:
        assert None not in await self.store.record_steps([NewStep(id=run.id, lease=run.lease, **fields)])
        self.over(what)

    async def _arrive(self, what: str, run: Claimed, kind: str) -> None:
        found = await self.store.arrive(Arrival(id=run.id, lease=run.lease, name="packed", event=run.id))
        assert found is not None
        assert found.kind == kind
        self.over(what)

    async def _end(self, what: str, run: Claimed, outcome: Outcome, *then: NewJob) -> None:
        [answer] = await self.store.settle([Settlement(run.id, run.lease, outcome, then=then)])
        assert answer.said is Settled.SETTLED
        self.over(what)


async def test_each_operation_costs_so_many_round_trips(store: Store, kind: str, trips: Trips):
    """The least of three times: the first one makes connections and prepares statements."""
    costs: dict[str, int] = {}

    def noted(what: str) -> None:
        if what:
            costs[what] = min(costs.get(what, 1_000), trips.seen.total())
        trips.seen.clear()

    for _ in range(3):
        await Flow(store, noted).play()
    assert costs == ROUND_TRIPS[kind]
