"""The PostgreSQL store keeps the contract, on the oldest and the newest server that is found."""

import pytest

from hawser.testing.contract import *  # noqa: F403  # the tests of the contract become this module's
from tests.postgres import emptied, own_schema, server, versions, with_schema


@pytest.fixture(scope="module", params=versions())
def database(request):
    return server(request.param)


@pytest.fixture
async def url(database):
    url = with_schema(database, own_schema())
    await emptied(url)
    return url
