"""Keys, and transactions of open_transaction else that take their time: who waits for them, and who does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from hawser.errors import StoreUnavailable
from hawser.job import NewJob, new_job
from hawser.outcome import Dead, Done, Failure
from hawser.store import Acted, Actor, LeaseRef, LeaseStatus, SettleAnswer, Settled, Settlement, Share
from hawser.stores.postgres import PostgresStore, enqueue
from hawser.stores.postgres.enqueue_arguments import JOBS_PER_STATEMENT
from hawser.testing import ManualClock
from hawser.testing.contract.making import said
from tests.postgres import emptied, own_schema, postgres, server, until_it_blocks, versions, with_schema


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture(params=versions())
async def url(request):
    url = with_schema(server(request.param), f"{own_schema()}_keys")
    await emptied(url)
    return url


@pytest.fixture
async def store(url, clock):
    store = postgres(url, clock=clock)
    await store.open()
    yield store
    await store.close()


@asynccontextmanager
async def open_transaction(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A transaction that is open meanwhile, and then rolled back."""
    con = await asyncpg.connect(url.partition("&schema")[0])
    transaction = con.transaction()
    await transaction.start()
    try:
        yield con
    finally:
        await transaction.rollback()
        await con.close()


def job(key: str | None = None, **fields: Any) -> NewJob:
    return NewJob(task="work", body=b"{}", key=key, **fields)


async def put(store: PostgresStore, *jobs: NewJob) -> list[bool]:
    return [answer.created for answer in await store.enqueue(jobs)]


async def inside(store: PostgresStore, con: asyncpg.Connection, *jobs: NewJob) -> list[bool]:
    return [answer.created for answer in await (await store.prepare_enqueue(jobs)).arun(con)]


async def finish(store: PostgresStore) -> list[SettleAnswer]:
    runs = await store.claim([Share("default")], 10, "w", 60)
    return await store.settle([Settlement(run.id, run.lease, Done()) for run in runs])


async def test_a_job_may_end_while_a_transaction_goes_on_that_was_told_of_it(store, url):
    await put(store, job("k"))
    async with open_transaction(url) as con, asyncio.timeout(10):
        assert await inside(store, con, job("k")) == [False]
        assert said(await finish(store)) == [Settled.SETTLED]
        assert await put(store, job("k")) == [True]


async def test_it_may_end_too_when_that_transaction_had_to_wait_for_its_key(store, url):
    async with open_transaction(url) as second, asyncio.timeout(10):
        async with open_transaction(url) as first:
            await inside(store, first, job("k"))
            waits = asyncio.create_task(inside(store, second, job("k"), job("other")))
            await until_it_blocks(first)
            assert not waits.done()
            await first.execute("commit; begin")
        assert await waits == [False, True]
        assert said(await finish(store)) == [Settled.SETTLED]


async def test_a_key_whose_time_is_up_goes_to_the_first_who_commits(store, url, clock):
    await put(store, *(job(key, key_ttl=10) for key in ("a", "b")))
    await finish(store)
    clock.advance(11)
    async with open_transaction(url) as con:
        assert await inside(store, con, job("a"), job("b")) == [True, True]
        waits = asyncio.create_task(put(store, job("b"), job("c"), job("a")))
        await until_it_blocks(con)
        assert not waits.done()
    assert await waits == [True, True, True]
    assert (await store.stats("default")).ready == 3
    assert await put(store, job("a"), job("b")) == [False, False]


async def test_only_who_wants_the_same_key_waits_for_it(store, url):
    async with open_transaction(url) as con, asyncio.timeout(20):
        await inside(store, con, job("k"), job("l"))
        waiting = [asyncio.create_task(put(store, job(key), job())) for key in ("k", "l", "k")]
        await until_it_blocks(con)
        others = [
            put(store, job()),
            put(store, job("m")),
            put(store, *(job(f"n{n}") for n in range(JOBS_PER_STATEMENT + 1))),
        ]
        assert all(map(all, await asyncio.gather(*others)))
        assert not any(task.done() for task in waiting)
        await con.execute("rollback; begin")
        answers = [await task for task in waiting]
    assert [answer[1] for answer in answers] == [True, True, True]
    assert sorted(answer[0] for answer in answers) == [False, True, True]


async def test_a_key_is_not_waited_for_without_end_and_nothing_is_written_later(url, clock):
    store = postgres(f"{url}&timeout=1", clock=clock)
    await store.open()
    many = [job("k"), *(job() for _ in range(JOBS_PER_STATEMENT))]
    async with open_transaction(url) as con, asyncio.timeout(20):
        await inside(store, con, job("k"))
        for jobs in ([job("k")], many):
            with pytest.raises(StoreUnavailable, match=r"takes the same key.*nothing was written"):
                await store.enqueue(jobs)
    assert (await store.stats("default")).ready == 0
    assert await put(store, job("k")) == [True]
    await store.close()


async def test_leases_are_lengthened_while_a_reclaim_waits(store, url, clock):
    await put(store, job("k", max_attempts=1))
    await store.claim([Share("default")], 1, "dead", 1)
    await put(store, job())
    [alive] = await store.claim([Share("default")], 1, "w", 60)
    clock.advance(2)
    async with open_transaction(url) as con, asyncio.timeout(10):
        await con.execute(f"select from {store.address.schema}.held_key for update")
        reclaim = asyncio.create_task(store.reclaim(10))
        await until_it_blocks(con)
        assert await store.extend("w", [LeaseRef(alive.id, alive.lease)], 60) == [LeaseStatus.HELD]
        assert not reclaim.done()
    assert len(await reclaim) == 1


async def test_jobs_that_are_there_are_said_to_be_whatever_becomes_of_the_tally(store, monkeypatch):
    folds = 0

    async def fails() -> None:
        nonlocal folds
        folds += 1
        raise StoreUnavailable("no connection left")

    monkeypatch.setattr(enqueue, "FOLD_EVERY", 1)
    monkeypatch.setattr(store._enqueuer(), "_fold", fails)
    monkeypatch.setattr(store, "_fold", fails)
    assert await put(store, job()) == [True]
    assert await store.reclaim(1) == []
    await store._enqueuer().close()
    assert folds == 2


async def entries_read(store: PostgresStore) -> int:
    """Of the indexes of keys, by everybody until now."""
    line = store.server.connection("operate")
    for purpose in ("enqueue", "settle", "operate"):
        await store.server.connection(purpose).rows("select pg_stat_force_next_flush()")
    return int(
        await line.value(
            "select sum(idx_tup_read) from pg_stat_user_indexes where schemaname = $1 and relname = 'held_key'",
            store.address.schema,
        )
    )


async def test_the_keys_of_others_cost_nothing(store):
    """However many are held, and though the server's statistics say that the table is empty."""
    await put(store, *(job(f"other {n}", delay=3600) for n in range(2_000)))
    before = await entries_read(store)
    assert all(await put(store, *(job(f"k{n}", priority=9) for n in range(20))))
    assert not any(await put(store, *(job(f"k{n}") for n in range(20))))
    assert said(await finish(store) + await finish(store)) == [Settled.SETTLED] * 20
    assert await entries_read(store) - before < 200


async def test_a_crowd_that_wants_one_busy_key_holds_up_nobody_else(store, url):
    async with open_transaction(url) as con, asyncio.timeout(20):
        await inside(store, con, job("k"))
        crowd = [asyncio.create_task(put(store, job("k"))) for _ in range(200)]
        await asyncio.sleep(0)
        async with asyncio.timeout(5):  # each by itself would take ten seconds
            assert await put(store, job()) == [True]
            assert await put(store, job("other")) == [True]
        await con.execute("rollback; begin")
        assert sorted(created for [created] in await asyncio.gather(*crowd)) == [False] * 199 + [True]


async def test_jobs_that_follow_wait_for_their_key_and_leave_leases_and_outcomes_alone(store, url):
    await put(store, job(), job())
    chained, other = await store.claim([Share("default")], 2, "w", 60)
    async with open_transaction(url) as con, asyncio.timeout(20):
        await inside(store, con, job("k"))
        follow = Settlement(chained.id, chained.lease, Done(), (job("k"),))
        waits = asyncio.create_task(store.settle([follow]))
        await until_it_blocks(con)
        assert said(await store.settle([Settlement(other.id, other.lease, Done())])) == [Settled.SETTLED]
        assert await store.extend("w", [LeaseRef(chained.id, chained.lease)], 60) == [LeaseStatus.HELD]
        assert not waits.done()
    assert said(await waits) == [Settled.SETTLED]
    assert (await store.stats("default")).ready == 1


async def test_an_operator_does_not_wait_for_a_key_without_end(store, url):
    await put(store, job("k"))
    [run] = await store.claim([Share("default")], 1, "w", 60)
    await store.settle([Settlement(run.id, run.lease, Dead(Failure("no")))])
    async with open_transaction(url) as con, asyncio.timeout(20):
        await inside(store, con, job("k"))
        with pytest.raises(StoreUnavailable, match="takes the same key"):
            await store.requeue([run.id], Actor())
    assert await store.requeue([run.id], Actor()) == [Acted.DONE]


def debounced(n: int) -> NewJob:
    return new_job(task="work", body=b'{"n": %d}' % n, key="k", debounce=5)


async def test_nobody_waits_for_a_transaction_that_debounces(store, url, clock):
    [first] = await store.enqueue([debounced(1)])
    other = job()
    await store.enqueue([other])
    clock.advance(5)
    async with open_transaction(url) as con:
        [answer] = await (await store.prepare_enqueue([debounced(2)])).arun(con)
        assert (answer.id, answer.replaced) == (first.id, True)
        [claimed] = await asyncio.wait_for(store.claim([Share("default")], 10, "w1", 60), 30)
        assert claimed.id == other.id, "the job that is put off there is not started meanwhile"
        assert said(await store.settle([Settlement(claimed.id, claimed.lease, Done())])) == [Settled.SETTLED]
    [claimed] = await store.claim([Share("default")], 10, "w1", 60)
    assert (claimed.id, claimed.body) == (first.id, b'{"n": 1}'), "the transaction was rolled back"


async def test_what_a_transaction_debounced_is_due_after_its_commit(store, url, clock):
    [first] = await store.enqueue([debounced(1)])
    con = await asyncpg.connect(url.partition("&schema")[0])
    try:
        async with con.transaction():
            answer, _ = await (await store.prepare_enqueue([debounced(2), job()])).arun(con)
        assert answer.replaced
    finally:
        await con.close()
    clock.advance(5)
    assert {claimed.body for claimed in await store.claim([Share("default")], 10, "w1", 60)} == {b"{}", b'{"n": 2}'}
    assert (await store.get(first.id)).state == "running"
