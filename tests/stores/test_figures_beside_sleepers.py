"""What the figures of queues cost beside jobs that sleep or wait, on PostgreSQL: round trips and pages, counted and not timed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from hawser.job import Claimed, new_job
from hawser.outcome import Failed, Failure, Held, Outcome, Snoozed
from hawser.store import QueueStats, Settlement, Share
from hawser.stores.postgres import PostgresStore
from tests.postgres import new_schema, postgres, server, versions, with_schema
from tests.stores.test_postgres_reads import FETCHED, WITHOUT_AUTOVACUUM
from tests.stores.test_step_round_trips import Trips, trips

__all__ = ["trips"]

MANY = 3_000
MONTH = 30 * 86_400.0


@pytest.fixture(params=versions())
async def store(request: pytest.FixtureRequest) -> AsyncIterator[PostgresStore]:
    store = postgres(with_schema(server(request.param), new_schema()) + "&timeout=60")
    await store.open()
    await store.server.connection("operate").rows(WITHOUT_AUTOVACUUM.format(schema=store.address.schema))
    yield store
    await store.server.connection("operate").rows(f"drop schema {store.address.schema} cascade")
    await store.close()


async def started(store: PostgresStore, count: int, queue: str = "default") -> Sequence[Claimed]:
    await store.enqueue([new_job(task="flow", body=b"{}", queue=queue) for _ in range(count)])
    runs = await store.claim([Share(queue)], count, "w", 600.0)
    assert len(runs) == count
    return runs


async def end(store: PostgresStore, runs: Sequence[Claimed], outcomes: Sequence[Outcome]) -> None:
    await store.settle([Settlement(run.id, run.lease, end, hint=run.hint) for run, end in zip(runs, outcomes, strict=True)])


async def hold(store: PostgresStore, count: int) -> None:
    """So many jobs wait for an event of their own."""
    for _ in range(0, count, 500):
        runs = await started(store, 500)
        await end(store, runs, [Held("packed", event=run.id, timeout=MONTH) for run in runs])


async def size(store: PostgresStore, table: str) -> int:
    asked = "select pg_relation_size(to_regclass($1)) / 8192"
    return int(await store.server.connection("operate").value(asked, f"{store.address.schema}.{table}"))


async def pages_of_stats(store: PostgresStore) -> tuple[dict[str, int], QueueStats]:
    """The pages of each table and index that one call looks at."""
    line = store.server.connection("operate")

    async def seen() -> dict[str, int]:
        await store.server.connection("read").value("select pg_stat_force_next_flush()")
        return dict(await line.rows(FETCHED, store.address.schema))

    await store.stats(None)  # it has its plan
    before = await seen()
    figures = await store.stats(None)
    after = await seen()
    return {name: count - before[name] for name, count in after.items() if count > before[name]}, figures


async def test_the_figures_are_one_round_trip_whatever_waits(store: PostgresStore, trips: Trips):
    """There was one more as soon as anything waited: for the first jobs of each lane."""

    async def cost(queue: str | None) -> int:
        await store.stats(queue)
        trips.seen.clear()
        await store.stats(queue)
        return trips.seen.total()

    assert [await cost(None), await cost("default")] == [1, 1]
    runs = await started(store, 4)
    failed, held = Failed(Failure("E: no"), 60.0), Held("packed", event="packed", timeout=60.0)
    await end(store, runs, [held, Snoozed(60.0, "sleeps"), failed, Snoozed(0.0, "sleeps")])
    await store.enqueue([new_job(task="flow", body=b"{}")])
    assert [await cost(None), await cost("default")] == [1, 1]
    figures = await store.stats("default")
    assert (figures.held, figures.scheduled, figures.retrying, figures.ready, figures.due) == (1, 1, 1, 2, 2)


async def test_the_figures_read_no_more_pages_beside_jobs_that_wait(store: PostgresStore):
    """A job that was held was first put among those that are due, and left an entry there that had to be stepped over."""
    await hold(store, 500)
    await store.reclaim(100)
    few, _ = await pages_of_stats(store)
    await hold(store, MANY)
    await store.reclaim(100)
    many, figures = await pages_of_stats(store)
    assert figures.held == MANY + 500
    assert {name: count for name, count in many.items() if count > few.get(name, 0) + 4} == {}


async def test_runs_that_are_held_together_append_what_they_count_together(store: PostgresStore):
    """Each appended rows of its own, which stats read until they are added up, and left their pages behind."""
    await hold(store, MANY)
    assert await size(store, "counted") <= 2
