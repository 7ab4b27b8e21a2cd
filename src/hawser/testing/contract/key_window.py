"""Keys with a window: held for a time after enqueue, also after the end of the job."""

from __future__ import annotations

import pytest

from hawser.store import Enqueued, Retention, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.keys import End, every_end, holder_of
from hawser.testing.contract.making import (
    Opener,
    a_job,
    add,
    done,
    running,
    take_one,
    write,
)


@every_end
async def test_a_window_goes_on_after_the_end(store: Store, clock: ManualClock, end: End) -> None:
    """A key is held while its job is live and at least for `key_ttl` seconds after enqueue, or for as long as the job is kept."""
    claimed = await running(store, key="k", key_ttl=60, max_attempts=1)
    await end(store, claimed)
    clock.advance(59.9)
    assert await holder_of(store) == claimed.id
    clock.advance(0.2)
    assert await holder_of(store) is None


@pytest.mark.parametrize("swept", [False, True])
@every_end
async def test_a_job_that_outlives_its_window_holds_its_key_to_its_end(
    store: Store, clock: ManualClock, end: End, swept: bool
) -> None:
    """
    A key is held while its job is live and at least for `key_ttl` seconds after enqueue, or for as long as the job is kept.
    When that ends the key is free.
    """
    id = await add(store, key="k", key_ttl=60, max_attempts=1)
    clock.advance(59.9)
    assert await holder_of(store) == id
    clock.advance(100)
    if swept:
        assert await store.prune(Retention(), {}, 10) == 0
    assert await holder_of(store) == id
    assert (await store.stats()).keys == 1
    claimed = await take_one(store)
    assert await holder_of(store) == id
    await end(store, claimed)
    assert (await store.stats()).keys == 0
    assert await holder_of(store) is None


async def test_a_window_counts_from_the_enqueue_not_from_the_due_time(store: Store, clock: ManualClock) -> None:
    """A key is held while its job is live and at least for `key_ttl` seconds after enqueue, or for as long as the job is kept."""
    await add(store, key="k", key_ttl=60, delay=50)
    clock.advance(51)
    await write(store, done(await take_one(store)))
    assert await holder_of(store) is not None
    clock.advance(10)
    assert await holder_of(store) is None


async def test_a_window_is_not_lengthened_by_asking(store: Store, clock: ManualClock) -> None:
    """A key is held while its job is live and at least for `key_ttl` seconds after enqueue, or for as long as the job is kept."""
    claimed = await running(store, key="k", key_ttl=60)
    clock.advance(50)
    assert await store.enqueue([a_job(key="k", key_ttl=60)]) == [Enqueued(claimed.id, False)]
    await write(store, done(claimed))
    assert await store.enqueue([a_job(key="k", key_ttl=60)]) == [Enqueued(claimed.id, False)]
    clock.advance(11)
    assert await holder_of(store) is None


async def test_a_window_goes_on_when_its_job_is_removed(store: Store, clock: ManualClock) -> None:
    """A key is held while its job is live and at least for `key_ttl` seconds after enqueue, or for as long as the job is kept."""
    claimed = await running(store, key="k", key_ttl=60)
    await write(store, done(claimed, keep=False))
    assert await store.get(claimed.id) is None
    assert await holder_of(store) == claimed.id
    clock.advance(61)
    assert await holder_of(store) is None


async def test_a_window_holds_against_its_own_job_when_that_was_removed(store: Store, clock: ManualClock) -> None:
    """A key is held while its job is live and at least for `key_ttl` seconds after enqueue, or for as long as the job is kept."""
    job = a_job(key="k", key_ttl=60)
    await store.enqueue([job])
    await write(store, done(await take_one(store), keep=False))
    assert await store.enqueue([job]) == [Enqueued(job.id, False)]
    assert await store.get(job.id) is None
    clock.advance(61)
    assert await store.enqueue([job]) == [Enqueued(job.id, True)]


async def test_a_window_outlives_the_store_that_opened_it(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """A key is held while its job is live and at least for `key_ttl` seconds after enqueue, or for as long as the job is kept."""
    claimed = await running(store, key="k", key_ttl=60)
    await write(store, done(claimed))
    store = await reopen()
    assert await holder_of(store) == claimed.id
    clock.advance(61)
    assert await holder_of(store) is None
