"""The Redis store keeps the contract, on Valkey and on Redis."""

import pytest

from hawser.testing.contract import *  # noqa: F403  # the tests of the contract become this module's
from tests.redis_servers import kinds, own_store, shared


@pytest.fixture(scope="module", params=kinds())
def server(request):
    return shared(request.param)


@pytest.fixture
def url(server):
    return own_store(server)
