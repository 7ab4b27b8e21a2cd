"""The judge of breakers: what opens one, what closes it, and that the probe alone is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from unittest import mock

import pytest

from hawser.breaker import Breaker
from hawser.job import Claimed, new_job
from hawser.outcome import Done, Failed, Failure
from hawser.store import Actor, Settlement, Share, Store
from hawser.store.breakers import ENDS, BreakerStatus, BreakerVerdict, counted_in
from hawser.store.rollup import EventCount
from hawser.stores import make_store
from hawser.testing import ManualClock
from hawser.upkeep.breaker import EVERY, IDLE, BreakerJudge

RULE = Breaker(share=0.8, window=120, least=5, probe_every=60)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: object, clock: ManualClock) -> AsyncIterator[Store]:
    store = make_store("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db", clock=clock)
    await store.open()
    await store.declare_breakers({"pay": RULE})
    yield store
    await store.close()


async def claimed(store: Store, count: int) -> list[Claimed]:
    await store.enqueue([new_job(task="pay", body=b"{}", max_attempts=50) for _ in range(count)])
    return await store.claim([Share("default")], count, "w1", 600)


async def ended(store: Store, jobs: list[Claimed], failures: int) -> None:
    outcomes = [Failed(Failure("OSError: away"), 3600) if n < failures else Done() for n in range(len(jobs))]
    await store.settle([Settlement(job.id, job.lease, outcome) for job, outcome in zip(jobs, outcomes, strict=True)])


async def is_open(store: Store) -> bool:
    assert await BreakerJudge(store).turn() == EVERY
    [status] = await store.breakers()
    return status.open


async def test_it_opens_when_the_share_of_at_least_so_many_failed(store: Store) -> None:
    await ended(store, await claimed(store, 4), 4)
    assert not await is_open(store)
    await ended(store, await claimed(store, 2), 0)
    assert not await is_open(store)
    await ended(store, await claimed(store, 4), 4)
    assert await is_open(store)
    [status] = await store.breakers()
    assert (status.failed, status.attempts) == (8, 10)


async def test_failures_of_long_ago_do_not_count(store: Store, clock: ManualClock) -> None:
    await ended(store, await claimed(store, 9), 9)
    clock.advance(200)
    assert not await is_open(store)


async def test_only_the_probe_closes_it(store: Store, clock: ManualClock) -> None:
    under_way = await claimed(store, 3)
    await ended(store, await claimed(store, 9), 9)
    assert await is_open(store)
    await ended(store, under_way, 0)
    assert await is_open(store)
    clock.advance(61)
    [probe] = await claimed(store, 1)
    assert await is_open(store)
    await ended(store, [probe], 1)
    assert await is_open(store)
    clock.advance(61)
    [probe] = await claimed(store, 1)
    await ended(store, [probe], 0)
    assert not await is_open(store)


async def test_what_failed_before_it_closed_does_not_count_again(store: Store, clock: ManualClock) -> None:
    await ended(store, await claimed(store, 9), 9)
    assert await is_open(store)
    counts = await store.event_counts(1, ENDS)
    await store.close_breaker("pay", Actor("ann"), counted_in(counts, "pay", counts[0].minute))
    assert not await is_open(store)
    await ended(store, await claimed(store, 4), 4)
    assert not await is_open(store)
    await ended(store, await claimed(store, 1), 1)
    assert await is_open(store)


async def test_a_probe_whose_job_is_not_kept_closes_it(store: Store, clock: ManualClock) -> None:
    await ended(store, await claimed(store, 9), 9)
    assert await is_open(store)
    clock.advance(61)
    [probe] = await claimed(store, 1)
    await store.settle([Settlement(probe.id, probe.lease, Done(), (), keep=False)])
    assert not await is_open(store)


async def test_without_breakers_it_looks_seldom(clock: ManualClock) -> None:
    assert await BreakerJudge(make_store("memory://", clock=clock)).turn() == IDLE


async def _any_run_counts(_: BreakerJudge, status: BreakerStatus, counts: Sequence[EventCount]) -> BreakerVerdict | None:
    done = any(each.task == status.task and each.event == "done" for each in counts)
    return BreakerVerdict(task=status.task, revision=status.revision, open=False) if done else None


async def test_a_judge_that_takes_any_run_for_the_probe_is_noticed(store: Store, clock: ManualClock) -> None:
    with mock.patch.object(BreakerJudge, "_closing", _any_run_counts), pytest.raises(AssertionError):
        await test_only_the_probe_closes_it(store, clock)
