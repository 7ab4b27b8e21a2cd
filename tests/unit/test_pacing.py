"""Many jobs at a pace: due times are spread, writes are bounded, a full queue is waited for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from hawser import ConfigError, Hawser, QueueFull
from hawser.client import pacing
from hawser.client.pacing import PacedWrites, spread
from hawser.job import NewJob, State
from hawser.limit import Limit
from hawser.store import Filter, Target
from hawser.store.api_key import Actor
from hawser.testing.clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def app(clock):
    app = Hawser("memory://", clock=clock)

    @app.task
    def work(n: int = 0) -> None: ...

    return app


def _jobs(app: Hawser, count: int, **options: Any) -> list[NewJob]:
    return [app.tasks["work"].using(**options).job(n) for n in range(count)]


def test_due_times_are_even_and_keep_the_order(app):
    jobs = spread(_jobs(app, 5), "2/s")
    assert [job.delay for job in jobs] == [0, 0.5, 1, 1.5, 2]
    assert [job.delay for job in spread(_jobs(app, 3, delay=10), "60/m")] == [10, 11, 12]
    when = datetime(2031, 1, 1, tzinfo=UTC)
    assert [job.run_at for job in spread(_jobs(app, 2, run_at=when), "1/h")] == [when, when + timedelta(hours=1)]


async def test_all_are_in_the_store_at_once_and_due_one_by_one(app, clock, monkeypatch):
    monkeypatch.setattr("hawser.app.PacedWrites", partial(PacedWrites, clock=lambda: 0.0))  # the writes take no time
    handles = await app.aenqueue_many(_jobs(app, 2_500), rate="500/s")
    assert len({handle.id for handle in handles}) == 2_500
    store = await app.store()
    stats = await store.stats()
    assert stats.ready + stats.scheduled == 2_500
    assert stats.due < 50
    clock.advance(2.5)
    assert 1_200 <= (await store.stats()).due <= 1_300
    clock.advance(3)
    assert (await store.stats()).due == 2_500


def test_the_plain_call_does_the_same(app, clock):
    app.enqueue_many(_jobs(app, 10), rate="1/s")
    assert app.stats().due == 1
    clock.advance(5)
    assert app.stats().due == 6


def test_the_time_that_writes_take_is_made_up_for(app, monkeypatch):
    monkeypatch.setattr(pacing, "JOBS_PER_WRITE", 2)
    now = [0.0]
    writes = PacedWrites(_jobs(app, 4), "1/s", clock=lambda: now[0])
    delays = []
    for some in writes:
        delays.append([job.delay for job in some])
        now[0] += 1.5
        writes.wrote(len(some))
    assert delays == [[0, 1], [0.5, 1.5]]


async def test_a_full_queue_is_waited_for(app, monkeypatch):
    monkeypatch.setattr(pacing, "FULL_QUEUE_RETRY_S", 0.0)
    store = await app.store()
    await store.set_limit(Target("queue", "default"), Limit(max_depth=5), Actor())
    put, refused = app._connection.aput, 0

    async def drained(jobs: Any) -> Any:
        nonlocal refused
        try:
            return await put(jobs)
        except QueueFull:
            refused += 1
            if refused > 15:
                page = await store.find(Filter(state=State.READY))
                await store.cancel([job.id for job in page.jobs], Actor())
            raise

    monkeypatch.setattr(app._connection, "aput", drained)
    handles = await app.aenqueue_many(_jobs(app, 12), rate="1000/s")
    assert len({handle.id for handle in handles}) == 12
    assert all(handle.created for handle in handles)
    assert refused > 15


async def test_a_repeated_call_adds_what_is_missing(app):
    jobs = _jobs(app, 20)
    await app.aenqueue_many(jobs[:7], rate="10/s")
    handles = await app.aenqueue_many(jobs, rate="10/s")
    assert [handle.created for handle in handles] == [False] * 7 + [True] * 13


@pytest.mark.parametrize("rate", ["", "5", "0/s", "-1/s", "5/y", "5 /s", 5, "1/8d"])
async def test_a_wrong_rate_is_named_and_nothing_is_written(app, rate: Any):
    with pytest.raises(ConfigError, match=r"rate: .* is not a rate"):
        await app.aenqueue_many(_jobs(app, 3), rate=rate)
    assert (await app.astats()).ready == 0


def test_a_pace_of_more_than_ten_years_is_refused(app):
    with pytest.raises(ConfigError, match="rate: 600 jobs at 1/7d would take longer than 10 years"):
        app.enqueue_many(_jobs(app, 600), rate="1/7d")
