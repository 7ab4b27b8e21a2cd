"""Workers of the release before beside new ones on Redis: what they end or release without a word is found."""

from __future__ import annotations

import pytest

from hawser.batch import BatchState, new_batch
from hawser.job import NewJob, State
from hawser.outcome import Cancelled, Dead, Done, Failure, Outcome
from hawser.store import Retention, Settlement, Share, Store
from hawser.stores import make_store
from hawser.testing.contract.making import a_job, dead, done, ids, seen, take, write
from tests.mutants import in_redis
from tests.redis_servers import LANES, kinds, own_store, shared

OLDER = (
    # Whether any end will do was a truth value: any number counts as true.
    ("shared/dependencies", "(about[3] == true and 1 or about[3] or 0)", "(about[3] and 1 or 0)"),
    # A released job went into its lane, and its group was not told.
    ("shared/dependencies", "if UNGROUPED[r.kind] then\n    join_members", "if false then\n    join_members"),
    # It knew no batches.
    ("settle", "if batch then batches.count(batch, READY, DONE) end", ""),
    ("shared/ending", "if batch then batches.count(batch, READY, r.state) end", ""),
    ("shared/types", "if meta.b then mark(P .. 'x:b:' .. meta.b) end", ""),
    ("shared/dependencies", "if not removed then batches.count_again(id, state) end", ""),
)


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


async def end_as_before(url: str, *outcomes: Outcome, changes=OLDER, keep: bool = True) -> None:
    """A worker of the release before claims jobs and settles them."""
    with in_redis(*changes):
        older = make_store(url)
    await older.open()
    try:
        runs = await older.claim([Share("default")], len(outcomes), "old", 60)
        pairs = zip(runs, outcomes, strict=True)
        await older.settle([Settlement(run.id, run.lease, outcome, keep=keep) for run, outcome in pairs])
    finally:
        await older.close()


async def prune(store: Store) -> None:
    await store.prune(Retention(), {}, 100)


async def a_batch(store: Store, *jobs: NewJob, closed: bool = True) -> tuple[str, dict[str, NewJob]]:
    batch = new_batch(name="import", **{word: a_job(task=word, queue="next") for word in ("then", "on_success", "on_dead")})
    await store.open_batch(batch)
    await store.enqueue([job.of_batch(batch.id) for job in jobs])
    if closed:
        await store.close_batch(batch.id)
    return batch.id, dict(batch.follow_ups)


async def counts(store: Store, id: str) -> tuple[BatchState, int, int, int, int]:
    batch = await store.batch(id)
    assert batch is not None
    return batch.state, batch.waiting, batch.done, batch.dead, batch.cancelled


async def test_a_job_that_waits_for_success_is_not_released_by_a_death(store: Store, url):
    upstream = a_job()
    strict, any_end = a_job(queue="next").after(upstream), a_job(queue="next").after(upstream, on="ended")
    await store.enqueue([upstream, strict, any_end])
    await end_as_before(url, Dead(Failure("no")))
    assert ids(await take(store, queue="next")) == [any_end.id]
    assert (await seen(store, strict.id)).held


async def test_a_job_that_waits_for_success_is_cancelled_with_what_it_waits_for(store: Store, url):
    upstream = a_job()
    strict = a_job(queue="next").after(upstream)
    await store.enqueue([upstream, strict])
    await end_as_before(url, Cancelled("not wanted"))
    assert (await seen(store, strict.id)).state is State.CANCELLED


async def test_a_job_of_a_group_that_was_released_as_before_runs(store: Store, url):
    upstream = a_job()
    waiters = [a_job(queue="next", group=group).after(upstream) for group in ("acme", "acme", "zeta")]
    await store.enqueue([upstream, *waiters])
    await end_as_before(url, Done())
    await prune(store)
    assert sorted(ids(await take(store, queue="next"))) == sorted(ids(waiters))
    stats = await store.stats("next")
    assert (stats.ready, stats.held, stats.running) == (0, 0, 3)


@pytest.mark.parametrize("keep", [True, False])
async def test_members_of_a_batch_that_were_ended_as_before_are_counted(store: Store, url, keep):
    batch, then = await a_batch(store, *(a_job() for _ in range(3)))
    await end_as_before(url, Done(), Done(), keep=keep)
    await prune(store)
    assert await counts(store, batch) == (BatchState.RUNNING, 1, 2, 0, 0)
    await end_as_before(url, Done(), keep=keep)
    await prune(store)
    assert await counts(store, batch) == (BatchState.DONE, 0, 3, 0, 0)
    assert sorted(ids(await take(store, queue="next"))) == sorted([then["then"].id, then["on_success"].id])
    await prune(store)
    assert await counts(store, batch) == (BatchState.DONE, 0, 3, 0, 0)


async def test_members_of_a_batch_that_died_or_were_cancelled_as_before_are_counted_so(store: Store, url):
    batch, then = await a_batch(store, *(a_job() for _ in range(6)))
    [first] = await take(store, 1)
    await write(store, dead(first))
    await end_as_before(url, Done(), Dead(Failure("no")), Cancelled("not wanted"))
    await prune(store)
    assert await counts(store, batch) == (BatchState.RUNNING, 2, 1, 2, 1)
    await end_as_before(url, Cancelled("not wanted"), Done(), keep=False)
    await prune(store)
    assert await counts(store, batch) == (BatchState.DEAD, 0, 2, 2, 2)
    assert sorted(ids(await take(store, queue="next"))) == sorted([then["then"].id, then["on_dead"].id])


async def test_a_job_that_holds_a_key_and_was_ended_as_before_is_counted(store: Store, url):
    await store.enqueue([a_job(key="k")])
    batch, _ = await a_batch(store, a_job(key="k"), a_job())
    await end_as_before(url, Done(), Done())
    await prune(store)
    assert await counts(store, batch) == (BatchState.DONE, 0, 2, 0, 0)


async def test_members_are_counted_in_several_looks_while_the_batch_goes_on(url):
    with in_redis(("prune", "recount_batches(1000)", "recount_batches(7)")):
        store = make_store(url)
    await store.open()
    try:
        small = [(await a_batch(store, a_job()))[0] for _ in range(3)]
        large, _ = await a_batch(store, *(a_job() for _ in range(40)), closed=False)
        await end_as_before(url, *[Done()] * 23, keep=False)
        await store.close_batch(large)
        for _ in range(10):
            await prune(store)
            [run] = await take(store, 1)
            await write(store, done(run))
        assert [(await counts(store, id))[0] for id in small] == [BatchState.DONE] * 3
        for _ in range(20):
            await prune(store)
        assert await counts(store, large) == (BatchState.RUNNING, 10, 30, 0, 0)
        runs = await take(store)
        await write(store, *map(done, runs))
        assert await counts(store, large) == (BatchState.DONE, 0, 40, 0, 0)
    finally:
        await store.close()
