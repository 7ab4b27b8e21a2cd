"""The PostgreSQL store keeps the contract, on the oldest and the newest server that is found."""

import pytest

from hawser.stores import make_store
from hawser.testing import ManualClock
from hawser.testing.contract import *  # noqa: F403  # the tests of the contract become this module's
from tests.postgres import emptied, own_schema, server, versions, with_schema


@pytest.fixture(scope="module", params=versions())
def database(request):
    return server(request.param)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def second(database, clock):
    url = with_schema(database, own_schema())
    await emptied(url)
    handles = []

    async def another():
        store = make_store(url, clock=clock)
        handles.append(store)
        await store.open()
        return store

    yield another
    for store in handles:
        await store.close()


@pytest.fixture
async def store(second):
    return await second()


@pytest.fixture
def reopen(store, second):
    async def again():
        await store.close()
        return await second()

    return again
