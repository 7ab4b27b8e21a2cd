"""Open, close and wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from hawser.errors import StoreUnavailable
from hawser.job import State
from hawser.limit import Limit
from hawser.store import Filter, QueueStats, Share, Store, Target
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    Opener,
    a_job,
    add,
    done,
    in_state,
    released,
    running,
    seen,
    take,
    take_one,
    write,
)

WITHIN_S = 5.0
Act = Callable[[], Awaitable[object]]
Make = Callable[[Store, ManualClock], Awaitable[Act]]


async def test_a_new_store_is_ready_and_empty(store: Store) -> None:
    """Make the store ready, creating what is missing."""
    assert await store.claim([Share("default")], 10, "w1", 60) == []
    assert await store.reclaim(10) == []
    assert await store.queues() == {}
    assert (await store.find(Filter())).jobs == []
    assert (await store.stats()).ready == 0
    assert await store.pauses() == []
    assert await store.limits() == []
    assert await store.audit() == []


async def test_opening_again_leaves_everything_as_it_was(store: Store) -> None:
    """Opening an open store does nothing."""
    waiting = await add(store, queue="other")
    claimed = await running(store)
    await store.open()
    assert (await seen(store, waiting)).state is State.READY
    await write(store, done(claimed))


async def test_everything_is_there_after_the_store_was_closed_and_opened(store: Store, reopen: Opener) -> None:
    """Finish what was begun and let go of files and connections."""
    claimed = await running(store, key="k")
    ready = await add(store, delay=60, tags=["a"])
    await store.pause(Target("queue", "other"), SIGN)
    await store.set_limit(Target("queue", "other"), Limit(max_depth=3), SIGN)
    jobs = [await store.get(claimed.id), await store.get(ready)]
    pauses, limits, audit = await store.pauses(), await store.limits(), await store.audit()
    store = await reopen()
    assert [await store.get(claimed.id), await store.get(ready)] == jobs
    assert (await store.pauses(), await store.limits(), await store.audit()) == (pauses, limits, audit)
    await write(store, done(claimed))


async def test_what_was_begun_before_a_close_is_written_or_refused(store: Store, reopen: Opener) -> None:
    """Finish what was begun and let go of files and connections."""
    jobs = [a_job() for _ in range(20)]
    calls = [asyncio.create_task(store.enqueue([job])) for job in jobs]
    await asyncio.sleep(0)
    await store.close()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    store = await reopen()
    for job, answer in zip(jobs, answers, strict=True):
        if isinstance(answer, BaseException):
            assert isinstance(answer, StoreUnavailable)
            assert await store.get(job.id) is None
        else:
            assert (await seen(store, job.id)).state is State.READY


async def test_closing_twice_is_harmless(store: Store) -> None:
    """Closing a closed store does nothing."""
    await store.close()
    await store.close()


async def test_a_closed_store_may_be_opened_again(store: Store, reopen: Opener) -> None:
    """Make the store ready, creating what is missing. Closing a closed store does nothing."""
    id = await add(store)
    await store.close()
    store = await reopen()
    assert (await take_one(store)).id == id


async def test_a_store_says_what_its_durability_is(store: Store) -> None:
    assert store.durability in ("durable", "relaxed")


async def test_a_store_may_be_used_from_another_thread_and_loop(store: Store) -> None:
    def elsewhere() -> str:
        return asyncio.run(add(store))

    ids = await asyncio.gather(*(asyncio.to_thread(elsewhere) for _ in range(4)))
    assert {claimed.id for claimed in await take(store)} == set(ids)


async def test_a_wait_ends_after_its_timeout(store: Store) -> None:
    """
    Return when a job may have become due in these queues, or after `timeout` seconds; only a hint, may be early.
    """
    started = time.monotonic()
    await store.wait(["default", "other"], 0.02)
    await store.wait(["default"], 0)
    assert time.monotonic() - started < WITHIN_S


async def test_a_wait_ends_when_a_job_is_enqueued(store: Store) -> None:
    """
    Return when a job may have become due in these queues, or after `timeout` seconds; only a hint, may be early.
    """
    async with asyncio.timeout(WITHIN_S):
        waiter = asyncio.create_task(store.wait(["default"], 600))
        await asyncio.sleep(0.01)
        await add(store)
        await waiter


async def _handed_back(store: Store, _: ManualClock) -> Act:
    claimed = await running(store)
    return lambda: store.settle([released(claimed)])


async def _followed(store: Store, _: ManualClock) -> Act:
    claimed = await running(store, queue="other")
    return lambda: store.settle([done(claimed, a_job())])


async def _lost(store: Store, clock: ManualClock) -> Act:
    await running(store, lease_for=1)
    clock.advance(2)
    return lambda: store.reclaim(10)


async def _requeued(store: Store, _: ManualClock) -> Act:
    id = await in_state(store, State.DEAD)
    return lambda: store.requeue([id], SIGN)


async def _replaced(store: Store, _: ManualClock) -> Act:
    id = await in_state(store, State.DEAD, queue="other")
    return lambda: store.replace(id, a_job(), SIGN)


async def _resumed(store: Store, _: ManualClock) -> Act:
    await store.pause(Target("queue", "default"), SIGN)
    await add(store)
    return lambda: store.resume(Target("queue", "default"), SIGN)


@pytest.mark.parametrize(
    "make",
    [_handed_back, _followed, _lost, _requeued, _replaced, _resumed],
    ids=lambda make: make.__name__.removeprefix("_"),
)
async def test_a_wait_ends_when_a_job_comes_another_way(store: Store, clock: ManualClock, make: Make) -> None:
    """
    Return when a job may have become due in these queues, or after `timeout` seconds; only a hint, may be early.
    """
    act = await make(store, clock)
    async with asyncio.timeout(WITHIN_S):
        waiter = asyncio.create_task(store.wait(["default"], 600))
        await asyncio.sleep(0.01)
        await act()
        await waiter
    assert len(await take(store)) == 1


async def test_a_wait_ends_when_a_job_is_due_already(store: Store) -> None:
    """
    Return when a job may have become due in these queues, or after `timeout` seconds; only a hint, may be early.
    """
    assert await take(store) == []
    await add(store)
    async with asyncio.timeout(WITHIN_S):
        await store.wait(["default"], 600)


async def test_a_wait_that_is_given_up_leaves_the_store_working(store: Store) -> None:
    waiter = asyncio.create_task(store.wait(["default"], 600))
    await asyncio.sleep(0.01)
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    id = await add(store)
    assert (await take_one(store)).id == id
    assert isinstance(await store.stats(), QueueStats)
