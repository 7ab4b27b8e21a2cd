"""What the store's calls read on PostgreSQL, inside of functions too, where no plan of the call shows it.

The server counts the pages that a call looks at, for each table and index. They may not grow with what else the tables hold.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from hawser.batch import new_batch
from hawser.breaker import Breaker
from hawser.job import Claimed, NewJob, State
from hawser.limit import Limit
from hawser.outcome import Dead, Done, Failed, Failure, Outcome
from hawser.store import Acted, Actor, Filter, LeaseRef, Settlement, Share, Target
from hawser.store.breakers import BreakerVerdict
from hawser.stores.postgres import PostgresStore
from hawser.testing import ManualClock
from hawser.value.ids import new_id
from tests.postgres import new_schema, postgres, server, versions, with_schema

SIGN = Actor("test")
FEW, MANY = 100, 6_000
"""Jobs of each kind that stand in the tables."""


def expected(pages: int) -> float:
    """At the most, of a table or index of which a call looked at so many pages while it was small: a level more for each row that
    is looked up or written, and pages of rows that are not the newest. The smallest of those that are large now have 40."""
    return 2.5 * pages + 20


FETCHED = """
select c.relname, pg_stat_get_blocks_fetched(c.oid) from pg_class as c
where c.relnamespace = to_regnamespace($1) and c.relkind in ('r', 'i')"""


WITHOUT_AUTOVACUUM = """
do $$
declare name text;
begin
    for name in
        select c.oid::regclass::text from pg_class as c where c.relnamespace = to_regnamespace('{schema}') and c.relkind = 'r'
    loop
        execute format('alter table %s set (autovacuum_enabled = off)', name);
    end loop;
end
$$"""
"""What autovacuum reads of a table counts as pages of the table, too."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=versions())
async def store(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncIterator[PostgresStore]:
    store = postgres(with_schema(server(request.param), new_schema()) + "&timeout=60", clock=clock)
    await store.open()
    yield store
    await store.server.connection("operate").rows(f"drop schema {store.address.schema} cascade")
    await store.close()


def jobs(count: int, **fields: Any) -> list[NewJob]:
    return [NewJob(body=b"{}", **{"task": "work", **fields}) for _ in range(count)]


async def fill(store: PostgresStore, count: int) -> None:
    """So many jobs of each kind: due, late, with groups, with keys, under limits, done and dead."""
    ended = jobs(2 * count, queue="ended")
    grouped = [NewJob(task="work", body=b"{}", queue="grouped", group=f"g{n % 50}") for n in range(count)]
    keyed = [NewJob(task="work", body=b"{}", queue="keyed", key=f"k{n}", key_ttl=60.0 * (n % 2)) for n in range(count)]
    kinds = (jobs(count), jobs(count, queue="late", delay=1_000.0), jobs(count, queue="limited", task="limited"))
    waiting = (jobs(count, queue="broken", task="broken"), jobs(count, queue="running"), grouped, keyed, ended)
    for some in (*kinds, *waiting):
        for n in range(0, len(some), 1_000):
            await store.enqueue(some[n : n + 1_000])
    for n in range(0, 2 * count, 400):
        runs = await store.claim([Share("ended")], min(400, 2 * count - n), "w", 600.0)
        outcomes = (Done(b"1"), Dead(Failure("E: no")))
        await store.settle([Settlement(run.id, run.lease, outcomes[i % 2]) for i, run in enumerate(runs)])
    for _ in range(0, count, 400):
        await store.claim([Share("running")], 400, "w", 600.0)


Call = tuple[str, Callable[[], Awaitable[Any]]]


async def claim(store: PostgresStore, queue: str = "default", count: int = 5, lease_for: float = 600.0) -> Sequence[Claimed]:
    runs = await store.claim([Share(queue)], count, "w", lease_for)
    assert len(runs) == count
    return runs


async def settle(store: PostgresStore, queue: str, outcome: Outcome, count: int = 5) -> None:
    runs = await claim(store, queue, count)
    await store.settle([Settlement(run.id, run.lease, outcome) for run in runs])


def enqueues(store: PostgresStore) -> Iterator[Call]:
    keyed = [NewJob(task="work", body=b"{}", key=new_id(), key_ttl=60.0) for _ in range(50)]
    yield "enqueue", lambda: store.enqueue(jobs(5))
    yield "enqueue with keys", lambda: store.enqueue([keyed.pop() for _ in range(5)])
    yield "enqueue with a key that is held", lambda: store.enqueue(jobs(1, queue="keyed", key="k7"))
    yield "enqueue with groups", lambda: store.enqueue(jobs(5, queue="grouped", group="g7"))


def runs(store: PostgresStore, clock: ManualClock) -> Iterator[Call]:
    async def probe() -> None:
        clock.advance(31)
        await claim(store, "broken", 1)

    async def extend() -> None:
        runs = await claim(store, lease_for=10.0)
        await store.extend("w", [LeaseRef(run.id, run.lease) for run in runs], 600.0)

    async def reclaim() -> None:
        await claim(store, lease_for=0.1)
        clock.advance(6)
        assert len(await store.reclaim(100)) == 5

    failure = Failure("E: no")
    yield "claim", lambda: claim(store)
    yield "claim with groups", lambda: claim(store, "grouped")
    yield "claim with keys", lambda: claim(store, "keyed")
    yield "claim under a limit", lambda: claim(store, "limited")
    yield "claim a probe", probe
    yield "settle as done", lambda: settle(store, "default", Done(b"1"))
    yield "settle as failed", lambda: settle(store, "default", Failed(failure, 10.0))
    yield "settle as dead", lambda: settle(store, "keyed", Dead(failure))
    yield "settle with groups", lambda: settle(store, "grouped", Done(b"1"))
    yield "settle under a limit", lambda: settle(store, "limited", Done(b"1"))
    yield "extend", extend
    yield "reclaim", reclaim


def others(store: PostgresStore) -> Iterator[Call]:
    async def requeue() -> None:
        [run] = await claim(store, count=1)
        await store.settle([Settlement(run.id, run.lease, Dead(Failure("E: no")))])
        assert await store.requeue([run.id], SIGN) == [Acted.DONE]

    async def follow() -> None:
        [first] = jobs(1, queue="first")
        await store.enqueue([first, *jobs(5, queue="behind", waits_for=(first.id,))])
        await settle(store, "first", Done(b"1"), 1)
        await claim(store, "behind")

    async def batch() -> None:
        opened = new_batch(name="b")
        await store.open_batch(opened)
        await store.enqueue(jobs(5, queue="members", batch=opened.id))
        await store.close_batch(opened.id)
        await settle(store, "members", Done(b"1"))

    yield "expire", lambda: store.expire(100)
    yield "die and be requeued", requeue
    yield "jobs that wait for another", follow
    yield "a batch", batch
    yield "emit", lambda: store.emit(new_id(), b"1", 60.0)
    yield "cancel", lambda: store.cancel([new_id()], SIGN)


def looks(store: PostgresStore) -> Iterator[Call]:
    """What people and charts ask, again and again. Not here: searches that look at jobs one after the other, up to a number and a
    time, and stats, which look at up to 10,000 keys whose time is over."""
    filters = {
        "all": Filter(),
        "the dead": Filter(state=State.DEAD),
        "the done": Filter(state=State.DONE),
        "a key": Filter(key="k7"),
        "a group": Filter(group_name="g7"),
    }
    for name, wanted in filters.items():
        yield f"find {name}", partial(store.find, wanted, limit=20)
    yield "get", lambda: store.get(new_id())
    yield "dead letters", lambda: store.dead_letters(limit=20)
    yield "dead groups", store.dead_groups
    yield "lanes", store.lanes
    yield "rollups", lambda: store.rollups(60)
    yield "limits", store.limits
    yield "breakers", store.breakers
    yield "workers", store.workers
    yield "due schedules", lambda: store.due_schedules(100)
    yield "next due", lambda: store.wait(["nowhere"], 0.01)


async def pages(store: PostgresStore) -> dict[str, int]:
    """The pages of each table and index that were looked at so far."""
    for line in list(store.server._here()._connections.values()):
        await line.rows("select pg_stat_force_next_flush()")
    schema = store.address.schema
    return dict(await store.server.connection("read").rows(FETCHED, schema, writing=False))


async def read(store: PostgresStore, clock: ManualClock) -> dict[str, dict[str, int]]:
    """The pages that each call looks at, by table and index: the fewest of three calls, as upkeep may go on beside."""
    found = {}
    await store.server.connection("read").rows(WITHOUT_AUTOVACUUM.format(schema=store.address.schema))
    for name, call in (*enqueues(store), *runs(store, clock), *others(store), *looks(store)):
        await call()
        each = []
        for _ in range(3):
            before = await pages(store)
            await call()
            after = await pages(store)
            each.append({table: count - before.get(table, 0) for table, count in after.items() if count > before.get(table, 0)})
        found[name] = min(each, key=lambda one: sum(one.values()))
    return found


async def prepared(store: PostgresStore, clock: ManualClock, count: int) -> dict[str, dict[str, int]]:
    await store.set_limit(Target("task", "limited"), Limit(running=10 * MANY), SIGN)
    await store.declare_breakers({"broken": Breaker(share=0.5, window=60, least=2, probe_every=30)})
    [status] = await store.breakers()
    assert await store.judge([BreakerVerdict(task="broken", revision=status.revision, open=True, failed=3, attempts=4)]) == [True]
    await fill(store, count)
    return await read(store, clock)


async def test_no_call_of_the_hot_path_reads_more_of_large_tables(store: PostgresStore, clock: ManualClock):
    few = await prepared(store, clock, FEW)
    await fill(store, MANY)
    many = await read(store, clock)
    more = {
        f"{name}: {table}": (few[name].get(table, 0), count)
        for name, tables in many.items()
        for table, count in tables.items()
        if count > expected(few[name].get(table, 0))
    }
    assert more == {}, "pages of small and of large tables"


async def test_a_statement_inside_of_a_function_that_reads_a_table_through_is_seen(store: PostgresStore, clock: ManualClock):
    """The measure itself: no plan of the call would show this."""
    await fill(store, MANY)
    schema, line = store.address.schema, store.server.connection("read")
    await line.rows(
        f"create function {schema}.through() returns bigint language plpgsql as $$ begin"
        f" return (select count(*) from {schema}.job where body = 'no'); end $$"
    )
    before = await pages(store)
    await line.rows(f"select {schema}.through()")
    after = await pages(store)
    assert sum(after.values()) - sum(before.values()) > expected(0)
