import pytest

from hawser.stores import make_store
from hawser.testing import ManualClock
from tests.postgres import emptied, own_schema, server, versions, with_schema


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request, tmp_path, clock):
    """Each store, with a clock that is moved by hand."""
    match request.param:
        case "memory":
            url = "memory://"
        case "sqlite":
            url = f"sqlite:///{tmp_path / 'jobs.db'}"
        case _:
            url = with_schema(server(versions()[-1]), own_schema())
            await emptied(url)
    store = make_store(url, clock=clock)
    await store.open()
    yield store
    await store.close()
