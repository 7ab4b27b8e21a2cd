"""Jobs that wait for one that ended without a word: upkeep finds them, on every store that two releases may share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple
from unittest import mock

import asyncpg
import pytest

from hawser.job import NewJob, State
from hawser.outcome import Cancelled, Dead, Done, Failure, Outcome
from hawser.store import Actor, Retention, Settlement, Share, Store
from hawser.stores import make_store
from hawser.stores.postgres import PostgresStore
from hawser.stores.sqlite import settle as sqlite_settle
from hawser.testing.clock import ManualClock
from tests.mutants import FINISH, Patch, in_postgres, in_redis
from tests.postgres import emptied, own_schema, postgres, server, versions, with_schema
from tests.redis_servers import LANES, kinds, own_store, shared

DEAD = Dead(Failure("no"))
TOLD = "(select dependencies from hawser.control)"


class Shared(NamedTuple):
    """A store's address, and what makes a process there one of the release before: it goes on with no job that waits."""

    url: str
    older: Callable[[], Patch]


def _older_sqlite() -> Patch:
    return mock.patch.object(sqlite_settle, "tell_waiters")


def _older_postgres() -> Patch:
    return in_postgres(*((name, TOLD, "false") for name in (*FINISH, "leave")))


def _older_redis() -> Patch:
    return in_redis(("settle", "wake = go_on() or wake", "over = {}"))


SERVERS = [*(f"postgres {version}" for version in versions()), *(f"{kind} {lanes}" for kind in kinds() for lanes in LANES)]


@pytest.fixture(params=["sqlite", *SERVERS])
async def found(request, tmp_path) -> Shared:
    kind, _, which = request.param.partition(" ")
    match kind:
        case "sqlite":
            return Shared(f"sqlite:///{tmp_path}/jobs.db", _older_sqlite)
        case "postgres":
            url = with_schema(server(which), own_schema())
            await emptied(url)
            return Shared(url, _older_postgres)
        case _:
            return Shared(own_store(shared(kind), which), _older_redis)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = make_store(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def ended_by_an_older_process(found: Shared, *outcomes: Outcome, keep: bool = True) -> None:
    """It claims the jobs that can be claimed, and settles them."""
    with found.older():
        async with opened(found.url) as store:
            runs = await store.claim([Share("default")], len(outcomes), "old", 60)
            pairs = zip(runs, outcomes, strict=True)
            await store.settle([Settlement(run.id, run.lease, outcome, keep=keep) for run, outcome in pairs])


async def prune(url: str) -> None:
    async with opened(url) as store:
        await store.prune(Retention(), {}, 100)


async def state_of(store: Store, id: str) -> tuple[State, bool]:
    job = await store.get(id)
    assert job is not None
    return job.state, job.held


READY, HELD = (State.READY, False), (State.READY, True)


@pytest.mark.parametrize("keep", [True, False])
async def test_a_job_goes_on_when_an_older_process_has_ended_what_it_waits_for(found, keep):
    upstream = [NewJob(task="t", body=b"{}") for _ in range(2)]
    waiter = NewJob(task="t", body=b"{}", queue="later").after(*upstream)
    async with opened(found.url) as store:
        await store.enqueue([*upstream, waiter])
        await ended_by_an_older_process(found, Done(), keep=keep)
        await prune(found.url)
        assert await state_of(store, waiter.id) == HELD
        await ended_by_an_older_process(found, Done(), keep=keep)
        assert await state_of(store, waiter.id) == HELD
        await prune(found.url)
        assert await state_of(store, waiter.id) == READY
        assert [run.id for run in await store.claim([Share("later")], 1, "new", 60)] == [waiter.id]
        assert (await store.stats()).held == 0


async def test_a_job_is_cancelled_when_an_older_process_has_cancelled_what_it_waits_for(found):
    upstream = NewJob(task="t", body=b"{}")
    waiter = NewJob(task="t", body=b"{}", queue="later").after(upstream)
    last = NewJob(task="t", body=b"{}", queue="later").after(waiter)
    async with opened(found.url) as store:
        await store.enqueue([upstream, waiter, last])
        await ended_by_an_older_process(found, Cancelled("not wanted"))
        await prune(found.url)
        assert await state_of(store, waiter.id) == await state_of(store, last.id) == (State.CANCELLED, False)


async def test_a_dead_job_keeps_those_that_wait_for_its_success_and_lets_the_others_go(found):
    upstream = NewJob(task="t", body=b"{}")
    waiter = NewJob(task="t", body=b"{}", queue="later").after(upstream)
    any_end = NewJob(task="t", body=b"{}", queue="later").after(upstream, on="ended")
    async with opened(found.url) as store:
        await store.enqueue([upstream, waiter, any_end])
        await ended_by_an_older_process(found, DEAD)
        await prune(found.url)
        assert (await state_of(store, waiter.id), await state_of(store, any_end.id)) == (HELD, READY)
        await store.requeue([upstream.id], Actor("test"))
        await ended_by_an_older_process(found, Done())
        await prune(found.url)
        assert await state_of(store, waiter.id) == READY


@pytest.fixture(params=versions())
async def url(request):
    url = with_schema(server(request.param), own_schema())
    await emptied(url)
    return url


class UnseenEnd(NamedTuple):
    """A job has ended in a transaction that is not committed yet, and another one has come to wait for it."""

    store: PostgresStore
    clock: ManualClock
    waiter: str
    commit: Callable[[], Awaitable[None]]


@asynccontextmanager
async def unseen_end(url: str) -> AsyncIterator[UnseenEnd]:
    clock = ManualClock()
    store = postgres(url, clock=clock)
    await store.open()
    con = await asyncpg.connect(store.address.dsn)
    upstream = NewJob(task="t", body=b"{}")
    waiter = NewJob(task="t", body=b"{}", queue="later").after(upstream)
    try:
        await store.enqueue([upstream])
        [run] = await store.claim([Share("default")], 1, "w", 600)
        transaction = con.transaction()
        await transaction.start()
        await (await store.prepare_end(Settlement(run.id, run.lease, Done()))).arun(con)
        await store.enqueue([waiter])
        yield UnseenEnd(store, clock, waiter.id, transaction.commit)
    finally:
        await con.close()
        await store.close()


async def test_a_job_goes_on_that_waits_for_one_whose_transaction_was_open_for_over_a_minute(url):
    """The dependency is written while the end of the job is, unseen, and no look in the minute after finds it ended."""
    async with unseen_end(url) as unseen:
        for _ in range(4):
            unseen.clock.advance(30)
            await unseen.store.reclaim(10)
        await unseen.commit()
        await unseen.store.reclaim(10)
        assert await state_of(unseen.store, unseen.waiter) == HELD
        await unseen.store.prune(Retention(), {}, 100)
        assert await state_of(unseen.store, unseen.waiter) == READY


async def test_what_is_waited_for_is_looked_at_again_by_reclaims_a_few_times(url):
    """Not by each settlement or enqueue: many dependencies may be new."""
    clock = ManualClock()
    store = postgres(url, clock=clock)
    await store.open()
    upstream, tied = NewJob(task="t", body=b"{}", queue="up"), NewJob(task="t", body=b"{}")
    waiter = NewJob(task="t", body=b"{}", queue="later").after(upstream)
    look = f"select looks, seen from {store.address.schema}.dependency where waiter = '{waiter.id}'"
    read = store.server.connection("operate").rows
    try:
        await store.enqueue([upstream])
        await store.enqueue([waiter])
        await store.enqueue([tied, NewJob(task="t", body=b"{}", queue="later").after(tied)])
        [run] = await store.claim([Share("default")], 1, "w", 600)
        await store.settle([Settlement(run.id, run.lease, Done())])
        await store.reclaim(10)
        assert [row[0] for row in await read(look)] == [1], "by the call that added it"
        for looks, seconds in enumerate((2, 10, 60), 2):
            clock.advance(seconds)
            for _ in range(2):
                await store.reclaim(10)
            assert [row[0] for row in await read(look)] == [looks]
        assert [row[1] for row in await read(look)] == [None]
    finally:
        await store.close()


@pytest.mark.parametrize("lasts", [0, 3, 30])
async def test_a_reclaim_finds_the_end_of_a_job_that_was_not_committed_when_another_came_to_wait_for_it(url, lasts):
    async with unseen_end(url) as unseen:
        for _ in range(lasts):
            unseen.clock.advance(1)
            await unseen.store.reclaim(10)
        await unseen.commit()
        unseen.clock.advance(61)
        await unseen.store.reclaim(10)
        assert await state_of(unseen.store, unseen.waiter) == READY


@pytest.mark.parametrize("table", ["failed", "job"], ids=["the sweep", "the look after an enqueue"])
async def test_a_job_is_not_released_by_a_look_between_the_removal_of_a_dead_one_and_its_word(url, table):
    """The end of the removed one stands in the store, and is not taken yet."""
    upstream = NewJob(task="t", body=b"{}")
    waiter = NewJob(task="t", body=b"{}", queue="later").after(upstream)
    async with opened(url) as store:
        await store.enqueue([upstream])
        [run] = await store.claim([Share("default")], 1, "w", 600)
        await store.enqueue([waiter])
        if table == "failed":
            await store.settle([Settlement(run.id, run.lease, DEAD)])
        address = postgres(url).address
        con = await asyncpg.connect(address.dsn)
        assert await con.execute(f"delete from {address.schema}.{table} where id = $1", upstream.id) == "DELETE 1"
        await con.execute(f"insert into {address.schema}.ended_upstream (job, state) values ($1, 'removed')", upstream.id)
        await con.close()
        await prune(url)
        await store.reclaim(10)
        assert await state_of(store, waiter.id) == (State.CANCELLED, False)
