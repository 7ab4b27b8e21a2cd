"""Workers of the release whose schema was version 13 claim jobs under limits and breakers during and after the migration."""

from __future__ import annotations

import pkgutil
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import asyncpg
import pytest

from hawser.clock import to_us
from hawser.store import Share
from hawser.stores.postgres import PostgresStore, migrate
from hawser.stores.postgres.server import SESSION_SETTINGS, in_schema
from hawser.stores.statements import load
from hawser.testing import ManualClock
from hawser.value.ids import new_id
from tests.postgres import new_schema, postgres, server, versions, with_schema

VERSION = 13
OLD = load("tests.stores.version_13", "postgres.sql")
COLUMNS = [
    *(
        "now",
        "version",
        "mixed",
        "seq",
        "id",
        "lane",
        "attempt",
        "max_attempts",
        "lease",
        "run_at",
        "enqueued_at",
        "crashes",
        "returned",
    ),
    *("body", "timeout", "key", "parent_id", "schedule", "tags", "tick", "group_name"),
]
"""What that release reads of a job that it has claimed, by place."""


class Before(NamedTuple):
    """A store of that release, with jobs of a task that has a limit, and of one whose breaker is open."""

    store: PostgresStore
    con: asyncpg.Connection

    async def execute(self, text: str, *arguments: Any) -> Any:
        return await self.con.fetchval(in_schema(text, self.store.address.schema), *arguments)

    async def lane(self, task: str, now: int, jobs: int) -> int:
        lane: int = await self.execute(
            "insert into hawser.lane (queue, task, priority) values ('default', $1, 5) returning id", task
        )
        for _ in range(jobs):
            await self.execute(
                "insert into hawser.job (id, lane, run_at, enqueued_at, timeout, max_attempts, kind, body)"
                " values ($1, $2, $3, $3, 300, 5, 0, '{}')",
                *(new_id(), lane, now),
            )
        return lane

    async def claim(self, lane: int, meters: list[int], probed: str | None = None) -> list[Any]:
        """The jobs that a worker of that release gets, and what it reads of them."""
        version = await self.execute("select version from hawser.control")
        start = [lane], [0], [0], [0], [1]
        nothing: list[str] = []
        whom = "old", to_us(60.0), to_us(10.0), 2**62, nothing
        limits = meters, [0 for _ in meters], [1 if meters else None], [None]
        statement = in_schema(OLD["take_limited" if probed is None else "take_probe"], self.store.address.schema)
        whose = () if probed is None else (probed,)
        now = self.store.server.given
        rows = await self.con.fetch(statement, *whose, now, version, *start, *whom, *limits, to_us(1.0), 2_000)
        assert all(list(row.keys()) == COLUMNS for row in rows)
        return [row for row in rows if row["seq"] is not None]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=versions())
async def before(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncIterator[Before]:
    store = postgres(with_schema(server(request.param), new_schema()), clock=clock)
    con = await asyncpg.connect(store.address.dsn, server_settings=dict(SESSION_SETTINGS))
    await migrate.migrate(con, store.address.schema, migrate.migrations()[:VERSION])
    functions = pkgutil.get_data("tests.stores.version_13", "functions.sql")
    assert functions is not None
    await con.execute(in_schema(functions.decode(), store.address.schema))
    yield Before(store, con)
    await store.close()
    await con.execute(f"drop schema {store.address.schema} cascade")
    await con.close()


async def test_an_old_worker_claims_under_a_limit_and_a_breaker_at_every_step_of_a_migration(before: Before, clock: ManualClock):
    steps, now = migrate.migrations(), clock.now()
    limited, broken = await before.lane("limited", now, len(steps)), await before.lane("broken", now, len(steps))
    meter = await before.execute("insert into hawser.limited (kind, name, running) values ('task', 'limited', 99) returning id")
    await before.execute("insert into hawser.meter (id, epoch) values ($1, 1)", meter)
    await before.execute(
        "insert into hawser.breaker (task, about, open, probe_at, probe_every) values ('broken', '{}', true, 0, 0)"
    )
    for version in range(VERSION, len(steps) + 1):
        await migrate.migrate(before.con, before.store.address.schema, steps[:version])
        assert len(await before.claim(limited, [meter])) == 1, f"schema {version}"
        assert len(await before.claim(broken, [], "broken")) == 1, f"schema {version}"
    await before.execute("delete from hawser.breaker")
    await before.store.open()
    assert {job.task for job in await before.store.claim([Share("default")], 99, "new", 60)} == {"limited", "broken"}
