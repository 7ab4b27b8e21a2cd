"""The Redis store keeps the contract with lists and streams, on Valkey with the smallest rights; in a long run on Redis, too."""

import pytest

from hawser.testing.contract import *  # noqa: F403  # the tests of the contract become this module's
from tests.redis_servers import contracted, own_store, restricted, shared


@pytest.fixture(scope="module", params=contracted(), ids="-".join)
def server(request):
    return request.param


@pytest.fixture
def url(server):
    kind, lanes = server
    url = own_store(shared(kind), lanes)
    return restricted(url) if kind == "valkey" else url
