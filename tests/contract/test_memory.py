"""The memory store keeps the contract. The object is the data, so every handle on it is the object itself."""

import pytest

from hawser.stores.memory import MemoryStore
from hawser.testing import ManualClock
from hawser.testing.contract import *  # noqa: F403  # the tests of the contract become this module's


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def store(clock):
    store = MemoryStore(clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def reopen(store):
    async def again():
        await store.close()
        await store.open()
        return store

    return again


@pytest.fixture
def second(store):
    async def same():
        return store

    return same
