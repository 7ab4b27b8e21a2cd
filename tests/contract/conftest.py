"""The handles that the contract asks for, on the store that a module names by its fixture `url`.

It can be run on broken stores, to see that it notices: HAWSER_MUTANT names one of `tests.mutants`.
"""

from __future__ import annotations

import pytest

from hawser.store import Store
from hawser.stores import make_store
from hawser.testing import ManualClock
from tests.mutants import planted, planted_by_environment


@pytest.fixture(autouse=True)
def mutant(request):
    """The bug that the test asks for, or the environment."""
    name = getattr(request, "param", None)
    with planted(name) if name else planted_by_environment():
        yield name


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def second(url, clock, mutant):
    """Another handle on the same jobs. In memory the object is the data: every handle on it is the object itself."""
    handles: list[Store] = []

    async def another():
        if url.startswith("memory://") and handles:
            return handles[0]
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
    """The store after a restart."""

    async def again():
        await store.close()
        found = await second()
        if found is store:
            await store.open()
        return found

    return again
