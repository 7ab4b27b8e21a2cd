"""Limits are kept on PostgreSQL, too, while their meters go from one epoch to the next: here at every third change."""

from __future__ import annotations

import asyncpg
import pytest

from hawser.testing.contract.group_limits import *  # noqa: F403  # the tests of limits become this module's
from hawser.testing.contract.group_order import *  # noqa: F403
from hawser.testing.contract.group_rates import *  # noqa: F403
from hawser.testing.contract.limits import *  # noqa: F403
from hawser.testing.contract.limits import limit
from hawser.testing.contract.making import add_many, done, take, write
from hawser.testing.contract.rates import *  # noqa: F403
from tests.postgres import emptied, own_schema, postgres, server, versions, with_schema


@pytest.fixture(scope="module", params=versions())
def database(request):
    return server(request.param)


@pytest.fixture
async def url(database):
    url = with_schema(database, own_schema())
    await emptied(url)
    return url


@pytest.fixture(autouse=True)
def few_changes(monkeypatch):
    for module in ("taking", "turns"):
        monkeypatch.setattr(f"hawser.stores.postgres.{module}.CHANGES", 2)


@pytest.mark.parametrize("group", [None, "a"], ids=["task", "group"])
async def test_a_meter_goes_on_in_its_next_epoch_and_leaves_no_row_behind(url, store, group):
    """Else the tests above would say nothing."""
    await add_many(store, 20, group=group)
    await limit(store, running=3)
    for _ in range(9):
        await write(store, *(done(run) for run in await take(store, 2)))
    con = await asyncpg.connect(postgres(url).address.dsn)
    try:
        [(epoch, changes)] = await con.fetch(f"select epoch, changes from {postgres(url).address.schema}.meter")
    finally:
        await con.close()
    assert epoch >= 4
    assert changes <= 2
