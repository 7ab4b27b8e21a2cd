"""All that SQLite is asked on the hot path is read by an index, from a known place, whatever the file holds."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Self

import pytest

from hawser.job import NewJob
from hawser.outcome import Cancelled, Dead, Done, Failed, Failure, Outcome, Released, Snoozed
from hawser.store import Filter, LeaseRef, Settlement, Share
from hawser.stores.sqlite import SqliteStore
from hawser.testing import ManualClock
from tests.stores.test_sqlite_file import reading, writing

SIZES = {"empty": 0, "one": 1, "large": 50_000}
"""Jobs that wait before it begins."""

READ_THROUGH = {
    "hawser_breaker": "as many as tasks have breakers",
    "hawser_limit": "as many as an operator has set",
    "hawser_pause": "as many as an operator has set",
    "hawser_queue": "one row for each queue",
    "hawser_stirred": "events with more jobs to wake than one transaction should",
    "hawser_batch USING INDEX hawser_batch_cancelling": "batches that are being cancelled",
    "hawser_dependency USING COVERING INDEX hawser_dependency_job": "whether there is any: one row",
    "hawser_job USING INDEX hawser_job_running": "as many as run now",
}
"""What a statement may read from end to end, with the reason why it is short."""

BOOM = Failure("boom")


class Asked:
    """The statements that a store sends, with their values."""

    def __init__(self, store: SqliteStore) -> None:
        self.connections = [writing(store), reading(store)]
        self.statements: list[str] = []

    def __enter__(self) -> Self:
        for con in self.connections:
            con.set_trace_callback(self.statements.append)
        return self

    def __exit__(self, *_: object) -> None:
        for con in self.connections:
            con.set_trace_callback(None)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "jobs.db", clock=clock, enqueue_timeout=60)
    await store.open()
    yield store
    await store.close()


async def run_jobs(store: SqliteStore, clock: ManualClock) -> list[str]:
    """Enqueue, claim, extend, settle in each way, and reclaim; the ids of the jobs."""
    timed = [NewJob(task="work", body=b"{}", delay=delay, key=key) for delay in (0, 60) for key in (None, f"k{delay}")]
    made = await store.enqueue([*timed, *(NewJob(task="work", body=b"{}") for _ in range(10))])
    claimed = await store.claim([Share("default")], 20, "w", 30)
    assert len(claimed) >= 10
    await store.extend("w", [LeaseRef(job.id, job.lease) for job in claimed], 40)
    ends: tuple[Outcome, ...] = (Done(), Done(b"1"), Failed(BOOM, 5), Dead(BOOM), Snoozed(5), Released(), Cancelled("no"))
    await store.settle([Settlement(job.id, job.lease, end) for job, end in zip(claimed, ends, strict=False)])
    clock.advance(100)
    assert len(await store.reclaim(100)) == len(claimed) - len(ends)
    await store.settle([Settlement(claimed[-1].id, claimed[-1].lease, Done())])
    assert await store.claim([Share("default")], 1, "w", 30)
    return [answer.id for answer in made]


async def look_for_jobs(store: SqliteStore, made: list[str]) -> None:
    """Searches by other fields have a module of their own, test_sqlite_find.py."""
    assert await store.get(made[0])
    assert await store.ended(made)
    assert (await store.find(Filter(), None, 20)).jobs
    assert (await store.find(Filter(key="k0"), None, 20)).jobs


def plan_steps(path: Path, statements: list[str]) -> set[str]:
    """How the statements are read, by a connection that knows no more than a new one does."""
    asked = {sql for sql in statements if sql.lower().startswith(("select", "insert", "update", "delete", "with"))}
    with closing(sqlite3.connect(path)) as con:
        return {row[3] for sql in asked for row in con.execute(f"explain query plan {sql}")}


def read_through(steps: set[str]) -> set[str]:
    """The tables and indexes that are read from end to end. Lists of arguments and findings of the statement are none."""
    scans = {step.removeprefix("SCAN ") for step in steps if step.startswith("SCAN") and "VIRTUAL TABLE" not in step}
    return {re.sub(r"^j ", "hawser_job ", scan) for scan in scans} - {"f", "w"}


@pytest.mark.parametrize("is_analyzed", [False, True], ids=["no statistics", "analyzed"])
@pytest.mark.parametrize("size", SIZES)
async def test_no_statement_of_the_hot_path_reads_a_table_through(
    store: SqliteStore, clock: ManualClock, tmp_path: Path, size: str, is_analyzed: bool
):
    """An operator may have run ANALYZE, and long before the file grew."""
    path = tmp_path / "jobs.db"
    if SIZES[size]:
        await store.enqueue([NewJob(task="work", body=b"{}") for _ in range(SIZES[size])])
    if is_analyzed:
        with closing(sqlite3.connect(path)) as con:
            con.execute("analyze")
    with Asked(store) as running:
        made = await run_jobs(store, clock)
    with Asked(store) as searching:
        await look_for_jobs(store, made)
    assert len(set(running.statements)) > 40, "they were heard"
    hot, searches = plan_steps(path, running.statements), plan_steps(path, searching.statements)
    assert read_through(hot | searches) - READ_THROUGH.keys() == set()
    # Lanes are sorted, which are few; that their first jobs are not is looked at by test_sqlite_lanes.py.
    jobs = plan_steps(path, [sql for sql in running.statements if "hawser_job" in sql and "hawser_depth" not in sql])
    assert {step for step in jobs if "TEMP B-TREE" in step} == set(), "no jobs are sorted"
