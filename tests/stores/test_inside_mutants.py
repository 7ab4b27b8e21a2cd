"""The own test of the tests of users' transactions: of every planted bug it is known which test notices it, on each database."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hawser import Hawser
from tests.mutants import INSIDE, planted
from tests.stores import test_emit_inside, test_settled_inside, test_step_inside
from tests.stores.test_postgres_settling import app, url
from tests.stores.test_step_inside import shop

__all__ = ["app", "shop", "url"]  # fixtures


class Noticed(NamedTuple):
    """The tests that notice a bug."""

    on_postgresql: Callable[..., Awaitable[None]]
    on_sqlite: Callable[..., Awaitable[None]]


NOTICED_BY = {
    "ends_are_counted_outside_of_the_commit": Noticed(
        test_settled_inside.test_a_rollback_on_postgresql_leaves_no_end_counted,
        test_settled_inside.test_a_rollback_on_sqlite_leaves_no_end_counted,
    ),
    "emit_inside_tells_none": Noticed(
        test_emit_inside.test_a_wait_from_before_during_or_after_the_transaction_is_woken,
        test_emit_inside.test_on_sqlite_the_commit_wakes_and_a_rollback_leaves_nothing,
    ),
    "step_inside_without_fence": Noticed(
        test_step_inside.test_a_run_whose_lease_is_gone_records_nothing_and_writes_no_rows,
        test_step_inside.test_a_stale_run_leaves_nothing_in_the_file,
    ),
}


@pytest.fixture(autouse=True)
def bug(request: pytest.FixtureRequest):
    """Planted before the store is opened."""
    with planted(request.param):
        yield request.param


@pytest.mark.parametrize("bug", INSIDE, indirect=True)
async def test_a_planted_bug_is_noticed_on_postgresql(bug: str, app: Hawser, url: str):
    await _fails(NOTICED_BY[bug].on_postgresql, app=app, url=url)


@pytest.mark.parametrize("bug", INSIDE, indirect=True)
async def test_a_planted_bug_is_noticed_on_sqlite(bug: str, shop: tuple[Hawser, Path]):
    with closing(sqlite3.connect(shop[1])) as con:
        await _fails(NOTICED_BY[bug].on_sqlite, shop=shop, con=con, commits=True)


async def _fails(test: Callable[..., Awaitable[None]], **given: Any) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await test(**{name: given[name] for name in test.__code__.co_varnames[: test.__code__.co_argcount]})
