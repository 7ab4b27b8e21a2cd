"""The Redis store keeps the contract, on Valkey and on Redis, with lists and with streams."""

import pytest

from hawser.testing.contract import *  # noqa: F403  # the tests of the contract become this module's
from tests.redis_servers import LANES, kinds, own_store, shared


@pytest.fixture(scope="module", params=[(kind, lanes) for kind in kinds() for lanes in LANES], ids="-".join)
def server(request):
    return request.param


@pytest.fixture
def url(server):
    kind, lanes = server
    return own_store(shared(kind), lanes)
