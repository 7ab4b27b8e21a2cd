"""The SQLite store keeps the contract, in a file."""

import pytest

from hawser.stores import make_store
from hawser.testing import ManualClock
from hawser.testing.contract import *  # noqa: F403  # the tests of the contract become this module's


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def second(tmp_path, clock):
    handles = []

    async def another():
        store = make_store(f"sqlite:///{tmp_path / 'jobs.db'}", clock=clock)
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
