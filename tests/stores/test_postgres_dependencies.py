"""Jobs that begin to wait for another at the very moment in which that one ends: neither transaction sees the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

import asyncpg
import pytest

from hawser.batch import new_batch
from hawser.errors import StoreUnavailable
from hawser.job import NewJob
from hawser.outcome import Dead, Done, Failure, Outcome
from hawser.store import Settlement, Share
from hawser.stores.postgres import PostgresStore
from hawser.stores.postgres.managed_connection import ManagedConnection
from tests.postgres import emptied, own_schema, postgres, server, until_it_blocks, versions, with_schema
from tests.stores.test_postgres_transaction import dsn


@pytest.mark.parametrize("outcome", [Done(), Dead(Failure("no"))], ids=["done", "dead"])
async def test_a_job_that_comes_while_the_other_ends_is_ready_when_settle_answers(outcome: Outcome) -> None:
    """The settlement has begun and is kept from its end by a locked row, so that it cannot see who comes to wait meanwhile."""
    url = with_schema(server(versions()[-1]), f"{own_schema()}_dependencies")
    await emptied(url)
    store = postgres(url)
    await store.open()
    con = await asyncpg.connect(dsn(url))
    try:
        first, second = NewJob(task="a", body=b"{}"), NewJob(task="a", body=b"{}")
        await store.enqueue([first, second, NewJob(task="a", body=b"{}", queue="later").after(first.id)])
        runs = {run.id: run for run in await store.claim([Share("default")], 2, "w", 60)}
        lock = con.transaction()
        await lock.start()
        await con.execute(f"select from {store.address.schema}.job where id = $1 for update", second.id)
        settled = asyncio.create_task(
            store.settle([Settlement(id, run.lease, Done() if id == first.id else outcome) for id, run in runs.items()])
        )
        await until_it_blocks(con)
        late = NewJob(task="a", body=b"{}", queue="later").after(second.id, on="ended")
        await store.enqueue([late])
        await lock.rollback()
        await settled
        assert late.id in {run.id for run in await store.claim([Share("later")], 5, "w", 60)}
    finally:
        await con.close()
        await store.close()


@pytest.fixture
async def stores() -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    """Two processes, so to speak; the second has not heard yet that jobs wait for others here."""
    url = with_schema(server(versions()[-1]), f"{own_schema()}_dependencies")
    await emptied(url)
    both = postgres(url), postgres(url)
    for store in both:
        await store.open()
    yield both
    for store in both:
        await store.close()


@asynccontextmanager
async def dying_before_it_goes_on(store: PostgresStore) -> AsyncIterator[None]:
    """The process dies after the commit that ends a job or closes a batch, before it goes on with those that wait."""

    async def dies(*_: object, **__: object) -> None:
        raise StoreUnavailable("the process is gone")

    with mock.patch.multiple(store._dependencies, go_on=dies, tell_ended=dies), pytest.raises(StoreUnavailable):
        yield


async def released_by_the_other(other: PostgresStore) -> list[str]:
    """What another process releases without a reclaim, and that it does so once."""
    await other.reclaim(0)  # which it does anyway: it hears that jobs wait here
    assert await other.go_on()
    first = [run.task for run in await other.claim([Share("later")], 9, "w2", 60)]
    assert await other.go_on()
    assert await other.claim([Share("later")], 9, "w2", 60) == []
    return first


async def test_a_death_between_the_end_of_a_job_and_its_release_is_made_good_without_a_reclaim(stores) -> None:
    store, other = stores
    first = NewJob(task="a", body=b"{}")
    await store.enqueue([first])
    await other.reclaim(0)
    await store.enqueue([NewJob(task="then", body=b"{}", queue="later").after(first.id)])
    [run] = await store.claim([Share("default")], 1, "w", 30)
    async with dying_before_it_goes_on(store):
        await store.settle([Settlement(run.id, run.lease, Done())])
    assert await released_by_the_other(other) == ["then"]


async def test_a_death_between_the_end_of_the_last_member_and_the_count_is_made_good(stores) -> None:
    store, other = stores
    batch = new_batch(name="b", then=NewJob(task="then", body=b"{}", queue="later"))
    await store.open_batch(batch)
    await store.enqueue([NewJob(task="a", body=b"{}", batch=batch.id)])
    await store.close_batch(batch.id)
    [run] = await store.claim([Share("default")], 1, "w", 30)
    async with dying_before_it_goes_on(store):
        await store.settle([Settlement(run.id, run.lease, Done())])
    assert await other.claim([Share("later")], 9, "w2", 60) == []
    assert await released_by_the_other(other) == ["then"]
    assert (await other.batch(batch.id)).done == 1


async def test_a_death_in_the_close_of_a_batch_is_made_good(stores) -> None:
    store, other = stores
    batch = new_batch(name="b", then=NewJob(task="then", body=b"{}", queue="later"))
    await store.open_batch(batch)
    async with dying_before_it_goes_on(store):
        await store.close_batch(batch.id)
    assert await released_by_the_other(other) == ["then"]


async def test_as_long_as_no_job_waits_the_recovery_asks_nothing(stores) -> None:
    """And a reclaim asks one statement for all that could wait."""
    store, _ = stores
    await store.server.connection("operate").rows(
        f"update {store.address.schema}.control set dependencies = false, version = version + 1"
    )
    await store.catalog.read(store.server.connection("operate"))
    asked: list[str] = []
    with mock.patch.object(ManagedConnection, "do", _noting(asked, ManagedConnection.do)):
        assert await store.go_on() is False
    assert asked == []
    with mock.patch.multiple(store._dependencies, go_on=None):
        await store.reclaim(1)


def _noting(asked: list[str], do: Any) -> Any:
    async def noting(line: Any, work: Any, **options: Any) -> Any:
        asked.append(repr(work))
        return await do(line, work, **options)

    return noting
