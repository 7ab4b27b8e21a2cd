"""Jobs on Redis that very many wait for, and that wait for very many: each script does a part, and none is forgotten."""

from __future__ import annotations

from typing import Literal

import pytest

from hawser.job import State
from hawser.outcome import Done
from hawser.store import Retention, Settlement, Share, Store
from hawser.stores import make_store
from hawser.stores.redis.runs import Runs
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import SIGN, a_job, cancelled, dead, done, ids, take, take_one, write
from tests.mutants import in_redis
from tests.redis_servers import LANES, kinds, own_store, shared

TELLS = 10


@pytest.fixture(params=[f"{kind} {lanes}" for kind in kinds() for lanes in LANES])
def url(request):
    kind, _, lanes = request.param.partition(" ")
    return own_store(shared(kind), lanes)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def store(url, clock):
    """A script tells ten of those who wait, and looks for what older workers missed at fifty."""
    with in_redis(
        ("shared/dependencies", "batches.tells = 1000", f"batches.tells = {TELLS}"),
        ("prune", "find_missed(2000)", "find_missed(50)"),
    ):
        store = make_store(url, clock=clock)
    await store.open()
    yield store
    await store.close()


async def held(store: Store, queue: str = "next") -> int:
    return (await store.stats(queue)).held


async def _stop_here(_: Runs) -> None:
    """The process dies before it goes on."""


@pytest.mark.parametrize("ending", [done, dead, cancelled])
async def test_all_are_told_when_the_end_is_written(store: Store, ending):
    upstream = a_job()
    on: Literal["done", "ended"] = "ended" if ending is not done else "done"
    waiters = [a_job(queue="next").after(upstream, on=on) for _ in range(200)]
    await store.enqueue([upstream, *waiters])
    await write(store, ending(await take_one(store)))
    assert sorted(ids(await take(store, 500, queue="next"))) == sorted(ids(waiters))
    assert await held(store) == 0


async def test_one_script_tells_a_few_and_reclaim_goes_on_when_the_process_died(store: Store, monkeypatch):
    upstream = a_job()
    waiters = [a_job(queue="next").after(upstream) for _ in range(35)]
    await store.enqueue([upstream, *waiters])
    with monkeypatch.context() as patched:
        patched.setattr(Runs, "_go_on", _stop_here)
        await write(store, done(await take_one(store), keep=False))
        assert await held(store) == 25
    await store.reclaim(10)
    assert await held(store) == 0
    assert sorted(ids(await take(store, queue="next"))) == sorted(ids(waiters))


async def test_a_death_lets_only_those_go_that_wait_for_any_end(store: Store):
    upstream = a_job()
    strict = [a_job(queue="strict").after(upstream) for _ in range(150)]
    any_end = [a_job(queue="any").after(upstream, on="ended") for _ in range(150)]
    await store.enqueue([upstream, *(job for pair in zip(strict, any_end, strict=True) for job in pair)])
    await write(store, dead(await take_one(store)))
    assert (await held(store, "strict"), await held(store, "any")) == (150, 0)
    await store.requeue([upstream.id], SIGN)
    assert await held(store, "strict") == 150
    await write(store, done(await take_one(store)))
    assert sorted(ids(await take(store, 500, queue="strict"))) == sorted(ids(strict))


async def test_cancels_go_on_down(store: Store):
    upstream = a_job()
    below = [a_job(queue="next").after(upstream) for _ in range(15)]
    last = [a_job(queue="next").after(job) for job in below for _ in range(15)]
    await store.enqueue([upstream, *below, *last])
    await store.cancel([upstream.id], SIGN)
    await store.reclaim(10)
    stats = await store.stats("next")
    assert (stats.held, stats.cancelled) == (0, 15 + 15 * 15)


async def test_a_job_that_was_requeued_meanwhile_has_not_ended(store: Store, monkeypatch):
    upstream = a_job()
    await store.enqueue([upstream, *(a_job(queue="next").after(upstream, on="ended") for _ in range(20))])
    with monkeypatch.context() as patched:
        patched.setattr(Runs, "_go_on", _stop_here)
        await write(store, dead(await take_one(store)))
    await store.requeue([upstream.id], SIGN)
    late = a_job(queue="late").after(upstream, on="ended")
    await store.enqueue([late])
    await store.reclaim(10)
    assert await held(store, "late") == 1
    await write(store, done(await take_one(store)))
    assert (await held(store), await held(store, "late")) == (0, 0)


async def test_all_are_cancelled_that_wait_for_a_dead_job_that_is_removed(store: Store, clock):
    upstream = a_job()
    waiters = [a_job(queue="next").after(upstream) for _ in range(35)]
    await store.enqueue([upstream, *waiters])
    await write(store, dead(await take_one(store)))
    clock.advance(60)
    await store.prune(Retention(dead=30), {}, 100)
    assert await held(store) > 0
    # It is nowhere now, and yet it was not done.
    await store.prune(Retention(dead=30), {}, 100)
    assert (await store.stats("next")).ready == 0
    await store.reclaim(10)
    jobs = [await store.get(job.id) for job in waiters]
    assert {(job.state, job.reason) for job in jobs if job} == {
        (State.CANCELLED, f"it waited for job {upstream.id}, which was removed while it was dead")
    }


async def test_a_walk_through_what_jobs_wait_for_takes_several_looks(store: Store, url, clock):
    upstream = [a_job() for _ in range(400)]
    waiters = [a_job(queue="next").after(*upstream), a_job(queue="next").after(upstream[-1])]
    await store.enqueue([*upstream, *waiters])
    with in_redis(("settle", "wake = go_on() or wake", "over = {}")):
        older = make_store(url, clock=clock)
    await older.open()
    runs = await older.claim([Share("default")], 400, "old", 60)
    await older.settle([Settlement(run.id, run.lease, Done()) for run in runs])
    await older.close()
    await store.prune(Retention(), {}, 1_000)
    assert await held(store) > 0
    for _ in range(30):
        await store.prune(Retention(), {}, 1_000)
    await store.reclaim(10)
    assert sorted(ids(await take(store, queue="next"))) == sorted(ids(waiters))
    assert await store.prune(Retention(), {}, 1_000) == 0
