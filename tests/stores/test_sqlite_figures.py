"""What the figures of queues read on SQLite beside jobs that sleep or wait: counted, not timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hawser.job import new_job
from hawser.outcome import Held, Outcome, Snoozed
from hawser.store import Settlement, Share
from hawser.stores.sqlite import SqliteStore
from hawser.stores.sqlite.due_times import DueTimes
from hawser.testing import ManualClock


async def test_jobs_that_wait_for_their_time_are_not_counted_where_the_first_is_not_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clock, counted = ManualClock(), list[str]()
    count = DueTimes.count

    def noted(times: DueTimes, statement: str, *arguments: Any) -> int:
        counted.append(statement)
        return count(times, statement, *arguments)

    monkeypatch.setattr(DueTimes, "count", noted)
    store = SqliteStore(tmp_path / "figures.db", clock=clock)
    await store.open()
    await store.enqueue([new_job(task=task, body=b"{}") for task in ("sleeper", "waiter")])
    runs = await store.claim([Share("default")], 2, "w", 60)
    ends: dict[str, Outcome] = {"sleeper": Snoozed(60.0, "sleeps"), "waiter": Held("packed", event="packed", timeout=60.0)}
    await store.settle([Settlement(run.id, run.lease, ends[run.task]) for run in runs])
    figures = await store.stats(None)
    assert (figures.scheduled, figures.held, figures.due, counted) == (1, 1, 0, [])
    clock.advance(61)
    figures = await store.stats(None)
    assert (figures.scheduled, figures.held, figures.due, counted) == (0, 1, 1, ["count_due"])
    await store.close()
