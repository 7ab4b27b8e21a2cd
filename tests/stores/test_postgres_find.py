"""A search in pages on PostgreSQL, whose jobs lie in several tables."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hawser.job import NewJob
from hawser.outcome import Dead, Done, Failure
from hawser.store import Filter, Settlement, Share, Store
from hawser.stores.postgres import queries
from tests.postgres import emptied, own_schema, postgres, server, versions, with_schema


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    url = with_schema(server(versions()[0]), own_schema())
    await emptied(url)
    store = postgres(url)
    await store.open()
    yield store
    await store.close()


async def test_a_search_past_its_bound_leaves_out_no_job_of_another_table(store: Store, monkeypatch: pytest.MonkeyPatch):
    """Matches in one table must not carry the cursor past jobs of another that were not looked at yet."""
    monkeypatch.setattr(queries, "SCAN", 5)
    old = [NewJob(task="t", body=b"{}", tags=("x",)) for _ in range(8)]
    await store.enqueue(old)
    claimed = await store.claim([Share("default")], 8, "w", 60)
    outcomes = (Dead(Failure("no")), Done())
    await store.settle([Settlement(job.id, job.lease, outcomes[n % 2]) for n, job in enumerate(claimed)])
    live = [NewJob(task="t", body=b"{}", queue="live", tags=("x",)) for _ in range(4)]
    await store.enqueue(live)
    await store.enqueue([NewJob(task="t", body=b"{}", queue="live") for _ in range(7)])
    found: list[str] = []
    after = None
    while True:
        page = await store.find(Filter(tag="x"), after, 3)
        found += [job.id for job in page.jobs]
        after = page.next
        if after is None:
            break
    assert found == sorted((job.id for job in [*old, *live]), reverse=True)
