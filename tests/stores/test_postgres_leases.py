"""Where a reclaim looks for claims whose leases may have run out."""

from __future__ import annotations

import pytest

from hawser.job import NewJob
from hawser.store import Share
from hawser.stores.postgres import PostgresStore, leases
from hawser.testing import ManualClock
from tests.postgres import emptied, own_schema, postgres, server, versions, with_schema


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture(params=versions())
async def store(request, clock):
    url = with_schema(server(request.param), f"{own_schema()}_leases")
    await emptied(url)
    store = postgres(url, clock=clock)
    await store.open()
    yield store
    await store.close()


async def claimed(store: PostgresStore) -> str:
    job = NewJob(task="work", body=b"{}")
    await store.enqueue([job])
    [run] = await store.claim([Share("default")], 1, "w", 5)
    return run.id


async def test_it_begins_where_the_last_one_ended(store, clock):
    """Else it reads past all claims that were ever made, while somebody's snapshot keeps them from being vacuumed."""
    await store.reclaim(10)
    clock.advance(100)
    await store.reclaim(10)
    first = await claimed(store)
    clock.advance(6)
    assert [each.id for each in await store.reclaim(10)] == [first]
    [(plan,)] = await store.server.connection("keep").rows(
        f"explain (format json) {store.server.sql['look_later']}", clock.now(), store._leases._done_to
    )
    assert '"Index Name": "granted_look"' in plan
    assert store._leases._done_to == clock.now() - leases.BEHIND


async def test_now_and_then_it_begins_at_the_beginning(store, clock, monkeypatch):
    """Somebody may have looked at a claim and died of it, or committed it long after."""
    clock.advance(100)
    await store.reclaim(10)
    late = await claimed(store)
    await store.server.connection("operate").rows(f"update {store.address.schema}.granted set look_at = 1")
    clock.advance(6)
    assert await store.reclaim(10) == []
    monkeypatch.setattr(leases, "WHOLE_EVERY", 0.0)
    assert [each.id for each in await store.reclaim(10)] == [late]


async def test_what_one_call_could_not_take_back_is_there_for_the_next(store, clock):
    ids = {await claimed(store) for _ in range(5)}
    await store.reclaim(10)
    clock.advance(100)
    found = [each.id for _ in range(3) for each in await store.reclaim(2)]
    assert len(found) == 5
    assert set(found) == ids


async def test_a_clock_that_is_set_back_takes_its_place_along(store, clock):
    clock.advance(10_000)
    await store.reclaim(10)
    clock.advance(-5_000)
    id = await claimed(store)
    clock.advance(6)
    assert [each.id for each in await store.reclaim(10)] == [id]
