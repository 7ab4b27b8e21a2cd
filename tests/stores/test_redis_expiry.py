"""Jobs that are too late on Redis: a claim cancels some of them and passes over the others, however many there are."""

from __future__ import annotations

import pytest

from hawser.job import State
from hawser.limit import Limit
from hawser.store import Store, Target
from hawser.stores import make_store
from hawser.stores.redis import runs
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import SIGN, a_job, add, add_many, done, ids, seen, take, take_one, write
from tests.mutants import in_redis
from tests.redis_servers import LANES, kinds, own_store, shared


@pytest.fixture(params=[f"{kind} {lanes}" for kind in kinds() for lanes in LANES])
def url(request):
    kind, _, lanes = request.param.partition(" ")
    return own_store(shared(kind), lanes)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def store(url, clock, monkeypatch):
    """A claim cancels 10 late jobs, and looks at 100."""
    monkeypatch.setattr(runs, "EXPIRED_PER_SCRIPT", 10)
    with in_redis(("shared/claim_sources", "min(max(limit, 1), 512), 1000, 1000,", "min(max(limit, 1), 64), 100, 100,")):
        store = make_store(url, clock=clock)
    await store.open()
    yield store
    await store.close()


async def test_a_claim_does_not_wait_for_the_late_jobs_of_other_queues(store: Store, clock):
    await add_many(store, 500, queue="other", expires=5)
    live = await add_many(store, 3)
    clock.advance(5)
    assert ids(await take(store)) == live
    stats = await store.stats("other")
    assert (stats.ready, stats.cancelled) == (490, 10)


FIELDS = {
    "fresh": {},
    "delayed": {"delay": 1},
    "grouped": {"group": "acme"},
    "delayed in a group": {"group": "acme", "delay": 1},
}


@pytest.mark.parametrize("ordered", [False, True], ids=["any order", "ordered"])
@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
async def test_late_jobs_in_front_are_passed_over_and_cancelled_in_the_end(store: Store, clock, fields, ordered):
    if ordered:
        await store.set_limit(Target("task", "work"), Limit(running=1, per_group=True, ordered=True), SIGN)
    first = await add(store, **fields)
    late = [*await add_many(store, 700, expires=5, **fields)]
    live = [first]
    for _ in range(3):
        live.append(await add(store, **fields))
        late += await add_many(store, 5, expires=5, **fields)
    clock.advance(5)
    given = []
    for _ in live:
        claimed = await take_one(store)
        given.append(claimed.id)
        await write(store, done(claimed))
    assert given == live
    assert await take(store) == []
    while await store.expire(200):
        pass
    assert {(await seen(store, id)).state for id in late} == {State.CANCELLED}
    stats = await store.stats("default")
    assert (stats.ready, stats.scheduled, stats.running, stats.done, stats.cancelled) == (0, 0, 0, 4, len(late))
    assert ids(await take(store)) == []
    again = await add_many(store, 2, **fields)
    clock.advance(5)
    assert (await take_one(store)).id == again[0]


async def test_late_jobs_that_were_passed_over_can_be_cancelled_and_requeued(store: Store, clock):
    late = await add_many(store, 50, expires=5)
    live = await add(store)
    clock.advance(5)
    assert ids(await take(store)) == [live]
    assert (await store.stats("default")).cancelled == 10
    assert len(await store.cancel(late[40:], SIGN)) == 10
    while await store.expire(10):
        pass
    await store.requeue(late, SIGN)
    assert sorted(ids(await take(store))) == sorted(late)


async def test_what_waits_for_late_jobs_goes_on(store: Store, clock):
    late = [a_job(expires=5) for _ in range(30)]
    waiter, strict = a_job(queue="next").after(*late, on="ended"), a_job(queue="next").after(late[-1])
    await store.enqueue([*late, waiter, strict])
    clock.advance(5)
    for _ in range(3):
        assert await take(store) == []
    assert ids(await take(store, queue="next")) == [waiter.id]
    assert (await seen(store, strict.id)).state is State.CANCELLED
