"""An enqueue that the server broke off in the middle: what it left stands in nobody's way."""

from __future__ import annotations

import pytest

from hawser.errors import HawserError
from hawser.job import NewJob, State
from hawser.limit import Limit
from hawser.store import Retention, Store, Target
from hawser.stores import make_store
from hawser.testing.contract.making import SIGN, a_job, add, done, ids, seen, take, take_one, write
from tests.mutants import in_redis
from tests.redis_servers import LANES, kinds, own_store, shared

AN_INSTANT = 0.000_001

IN_THE_MIDDLE = ("shared/intake", "num(now + j.meta.e)", "num(now + nil)")
BEFORE_BODIES = ("shared/intake", "many('HSET', P .. 'b:' .. k, b)", "many('HSET', P .. 'b:' .. k, nil)")


@pytest.fixture(params=[f"{kind} {lanes}" for kind in kinds() for lanes in LANES])
def url(request):
    kind, _, lanes = request.param.partition(" ")
    return own_store(shared(kind), lanes)


@pytest.fixture
async def store(url):
    store = make_store(url)
    await store.open()
    yield store
    await store.close()


async def break_off(url: str, *jobs, change=IN_THE_MIDDLE) -> None:
    """Enqueue jobs, and break off when their entries are written and they are not."""
    with in_redis(change):
        broken = make_store(url)
        await broken.open()
        try:
            with pytest.raises(HawserError):
                await broken.enqueue([*jobs, a_job(expires=60)])
        finally:
            await broken.close()


@pytest.mark.parametrize("ordered", [False, True], ids=["any order", "ordered"])
@pytest.mark.parametrize("fields", [{}, {"group": "acme"}], ids=["plain", "grouped"])
async def test_a_claim_drops_entries_without_a_job(store: Store, url, fields, ordered):
    if ordered:
        await store.set_limit(Target("task", "work"), Limit(running=1, per_group=True, ordered=True), SIGN)
    left = [a_job(delay=AN_INSTANT, **fields) for _ in range(3)]
    await break_off(url, *left)
    jobs = [await add(store, delay=AN_INSTANT, **fields) for _ in range(2)]
    given = []
    for _ in jobs:
        claimed = await take_one(store)
        given.append(claimed.id)
        await write(store, done(claimed))
    assert given == jobs
    assert await take(store) == []
    stats = await store.stats("default")
    assert (stats.ready, stats.running, stats.done) == (0, 0, 2)
    assert [await store.get(job.id) for job in left] == [None] * 3


async def test_an_entry_of_a_fresh_lane_without_a_job_goes(store: Store, url):
    await break_off(url, a_job(), a_job(), change=BEFORE_BODIES)
    jobs = [await add(store) for _ in range(2)]
    assert [ids(await take(store, 1)) for _ in range(3)] == [[jobs[0]], [jobs[1]], []]
    stats = await store.stats("default")
    assert (stats.ready, stats.running) == (0, 2)


async def test_a_key_whose_holder_was_never_written_is_free(store: Store, url):
    await break_off(url, a_job(key="k"))
    assert await store.get(await add(store, key="k")) is not None


async def test_a_job_goes_on_beside_one_that_was_never_written(store: Store, url):
    upstream = a_job()
    await store.enqueue([upstream])
    await break_off(url, a_job().after(upstream), a_job(group="acme").after(upstream))
    waiter = a_job().after(upstream)
    await store.enqueue([waiter])
    await write(store, done(await take_one(store)))
    assert ids(await take(store)) == [waiter.id]
    await store.prune(Retention(), {}, 100)
    assert (await seen(store, upstream.id)).state is State.DONE


async def test_an_expiry_that_was_not_checked_breaks_nothing_off(store: Store):
    """Flag and time of a job on its way in come from one number."""
    job, other = NewJob(task="work", body=b"{}", expires=4e-7), a_job()
    await store.enqueue([job, other])
    assert ids(await take(store)) == [job.id, other.id]
    assert (await seen(store, job.id)).expires_at is None
