"""Batches on PostgreSQL: transactions that stay open beside them, and what the bookkeeping of batches costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec
import pytest

from hawser.batch import BatchState, NewBatch, new_batch
from hawser.errors import ConfigError, InvalidJob
from hawser.store import Acted, LeaseRef
from hawser.stores.postgres import PostgresStore
from hawser.testing.contract.making import SIGN, a_job, dead, done, take, take_one, write
from tests.postgres import emptied, own_schema, postgres, server, versions, with_schema


@pytest.fixture(params=versions())
async def store(request) -> AsyncIterator[PostgresStore]:
    url = with_schema(server(request.param), own_schema())
    await emptied(url)
    store = postgres(url)
    await store.open()
    yield store
    await store.close()


@asynccontextmanager
async def own_transaction(store: PostgresStore, isolation: Any = "read_committed") -> AsyncIterator[asyncpg.Connection]:
    """A user's own transaction, which commits."""
    con = await asyncpg.connect(store.address.dsn)
    try:
        async with con.transaction(isolation=isolation):
            yield con
    finally:
        await con.close()


@asynccontextmanager
async def rolled_back(store: PostgresStore) -> AsyncIterator[asyncpg.Connection]:
    """A user's own transaction, which does not commit."""
    con = await asyncpg.connect(store.address.dsn)
    transaction = con.transaction()
    await transaction.start()
    try:
        yield con
    finally:
        await transaction.rollback()
        await con.close()


async def opened(store: PostgresStore, members: int, **follow_ups: object) -> NewBatch:
    batch = new_batch(name="b", **follow_ups)
    await store.open_batch(batch)
    await store.enqueue([a_job(batch=batch.id) for _ in range(members)])
    return batch


async def test_a_batch_ends_whose_last_member_dies_beside_a_transaction_that_adds_to_it_and_rolls_back(store):
    batch = await opened(store, 1, on_dead=a_job(queue="later"))
    await store.close_batch(batch.id)
    run = await take_one(store)
    async with rolled_back(store) as con:
        await (await store.prepare_enqueue([a_job(batch=batch.id)])).arun(con)
        await write(store, dead(run))
        assert (await store.batch(batch.id)).ended_at is None, "one more may come"
    await store.reclaim(10)
    found = await store.batch(batch.id)
    assert (found.state, found.total, found.ended_at is None) == (BatchState.DEAD, 1, False)
    assert len(await take(store, queue="later")) == 1


async def test_all_batches_are_cancelled_beside_a_transaction_that_adds_to_one(store):
    blocked, other = await opened(store, 3), await opened(store, 3)
    async with rolled_back(store) as con:
        await (await store.prepare_enqueue([a_job(batch=blocked.id)])).arun(con)
        for batch in (blocked, other):
            assert await store.cancel_batch(batch.id, SIGN) is Acted.DONE
        assert [(await store.batch(batch.id)).cancelled for batch in (blocked, other)] == [3, 3]
        assert (await store.batch(other.id)).ended_at is not None
    await store.reclaim(10)
    assert (await store.batch(blocked.id)).ended_at is not None


async def test_a_member_whose_end_is_not_committed_holds_up_the_cancel_of_no_other(store):
    blocked = await opened(store, 1)
    run = await take_one(store)
    await store.enqueue([a_job(batch=blocked.id)])
    other = await opened(store, 2)
    async with rolled_back(store) as con:
        await (await store.prepare_end(done(run))).arun(con)
        for batch in (blocked, other):
            assert await store.cancel_batch(batch.id, SIGN) is Acted.DONE
        found = await store.batch(blocked.id)
        assert (found.waiting, found.running, found.cancelled) == (0, 1, 1)
        assert (await store.batch(other.id)).state is BatchState.CANCELLED
    await store.reclaim(10)
    assert await store.asked_to_stop(["w1"]) == [LeaseRef(run.id, run.lease)], "the run was not ended, so it is asked"


async def test_a_batch_inside_that_is_older_than_the_one_around_it_is_cancelled_with_it(store):
    """They are walked through by their ids, and a producer's clock may have been ahead."""
    outer = new_batch(name="outer")
    inner = new_batch(name="inner", parent=outer.id)
    inner = msgspec.structs.replace(inner, id="0" * 8 + inner.id[8:])
    await store.open_batch(outer)
    await store.open_batch(inner)
    await store.enqueue([a_job(batch=inner.id)])
    assert await store.cancel_batch(outer.id, SIGN) is Acted.DONE
    assert (await store.batch(inner.id)).cancelled == 1


async def test_half_a_circle_in_an_open_transaction_is_waited_for(store):
    """Else both halves of a circle would be written: neither sees the other."""
    x, y = new_batch(name="x"), new_batch(name="y")
    for batch in (x, y):
        await store.open_batch(batch)
    async with own_transaction(store) as con:
        await (await store.prepare_enqueue([a_job(batch=x.id, waits_for=(y.id,))])).arun(con)
        other_half = asyncio.create_task(store.enqueue([a_job(batch=y.id, waits_for=(x.id,))]))
        await store.enqueue([a_job(batch=y.id), a_job(waits_for=(x.id,))])
        while not await con.fetchval("select true from pg_locks where locktype = 'advisory' and not granted limit 1"):
            assert not other_half.done()
    with pytest.raises(InvalidJob, match=f"{x.id} waits for batch {y.id}, in which this job counts"):
        await other_half
    assert [(await store.batch(batch.id)).total for batch in (x, y)] == [1, 1]


async def test_in_a_transaction_of_the_users_own_no_circle_is_written(store):
    x, y = new_batch(name="x"), new_batch(name="y")
    for batch in (x, y):
        await store.open_batch(batch)
    halves = [await store.prepare_enqueue([a_job(batch=one.id, waits_for=(other.id,))]) for one, other in ((x, y), (y, x))]
    async with rolled_back(store) as con:
        await halves[0].arun(con)
        with pytest.raises(InvalidJob, match="neither would ever start"):
            await halves[1].arun(con)
    assert [(await store.batch(batch.id)).total for batch in (x, y)] == [0, 0]


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_a_member_that_waits_is_added_under_read_committed_only(store, isolation):
    """Another transaction may have added the other half of a circle since the snapshot."""
    x, y = new_batch(name="x"), new_batch(name="y")
    for batch in (x, y):
        await store.open_batch(batch)
    plain = a_job(batch=x.id)
    async with own_transaction(store, isolation) as con:
        await (await store.prepare_enqueue([plain, a_job(batch=x.id, waits_for=(plain.id,))])).arun(con)
    with pytest.raises(ConfigError, match=f"read committed only; this transaction runs under {isolation.replace('_', ' ')}"):
        async with own_transaction(store, isolation) as con:
            await (await store.prepare_enqueue([a_job(batch=x.id, waits_for=(y.id,))])).arun(con)
    assert (await store.batch(x.id)).total == 2
