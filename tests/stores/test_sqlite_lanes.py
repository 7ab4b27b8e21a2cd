"""What a claim on SQLite reads of many lanes: where each begins, and jobs of those only that it takes from."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hawser.job import NewJob
from hawser.store import Share
from hawser.stores.sqlite import SqliteStore, claim
from hawser.testing.clock import ManualClock
from tests.stores.test_sqlite_file import writing


def a_job(**fields: Any) -> NewJob:
    return NewJob(**{"task": "work", "body": b"{}", **fields})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "jobs.db", clock=clock)
    await store.open()
    yield store
    await store.close()


async def test_a_claim_of_few_reads_few_of_many_lanes(store: SqliteStore):
    await store.enqueue([a_job(task=f"task{n}") for n in range(300)])
    said: list[str] = []
    writing(store).set_trace_callback(said.append)
    claimed = await store.claim([Share("default")], 5, "w", 30)
    writing(store).set_trace_callback(None)
    assert [job.task for job in claimed] == [f"task{n}" for n in range(5)]
    assert len([text for text in said if "hawser_job_ready" in text]) <= 7
    assert len(said) < 40


async def test_lanes_and_what_they_have_next_are_read_from_the_order_of_the_index(store: SqliteStore):
    plan = [row[3] for row in writing(store).execute(f"explain query plan {store._sql['lanes']}", {"queue": "q"})]
    assert sum("hawser_job_ready (queue=? AND task=? AND priority=? AND lane=?)" in step for step in plan) == 6, plan
    assert [step for step in plan if "TEMP B-TREE" in step] == ["USE TEMP B-TREE FOR ORDER BY"], "of the lanes themselves"
    due = [row[3] for row in writing(store).execute(f"explain query plan {store._sql['due']}", ("q", "t", 0, 0, 1, 1, 2, 2, 5))]
    assert ["AND run_at>? AND run_at<?)" in step for step in due] == [True], due


async def test_what_is_too_late_at_the_head_of_a_lane_does_not_bring_it_forward(
    store: SqliteStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(claim, "EXPIRED_PER_CLAIM", 0)
    await store.enqueue([a_job(task="late", expires=5) for _ in range(20)])
    clock.advance(1)
    await store.enqueue([a_job(task="prompt"), a_job(task="late"), a_job(task="prompt")])
    clock.advance(5)
    assert [job.task for job in await store.claim([Share("default")], 5, "w", 30)] == ["prompt", "late", "prompt"]


async def test_a_lane_in_which_all_is_too_late_has_not_aged(
    store: SqliteStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(claim, "EXPIRED_PER_CLAIM", 0)
    await store.enqueue([a_job(task="late", priority=-1, expires=5) for _ in range(3)])
    clock.advance(10)
    await store.enqueue([a_job(task="low", priority=-2)])
    clock.advance(7_200)
    await store.enqueue([a_job(task="high") for _ in range(20)])
    took = [job.task for job in await store.claim([Share("default")], 10, "w", 30)]
    assert took == ["low", *["high"] * 9]
