import pytest

from hawser.stores import make_store
from hawser.testing import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite"])
async def store(request, tmp_path, clock):
    """Each store, with a clock that is moved by hand."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    store = make_store(url, clock=clock)
    await store.open()
    yield store
    await store.close()
