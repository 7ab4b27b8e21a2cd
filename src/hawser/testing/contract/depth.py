"""Depth limits, and what counts."""

from __future__ import annotations

import asyncio

import pytest

from hawser.errors import QueueFull
from hawser.limit import Limit
from hawser.store import Enqueued, Store, Target
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import SIGN, Opener, a_job, add, add_many, failed, snoozed, take, take_one, write


async def limit(store: Store, max_depth: int | None, queue: str = "default") -> None:
    await store.set_limit(Target("queue", queue), Limit(max_depth=max_depth), SIGN)


async def refused(store: Store, *jobs_of: str) -> QueueFull:
    with pytest.raises(QueueFull) as caught:
        await store.enqueue([a_job(queue=queue) for queue in jobs_of])
    return caught.value


async def test_a_queue_is_filled_to_its_limit_and_not_further(store: Store) -> None:
    """
    `QueueFull` is raised, and nothing is written, when a queue would wait deeper than its limit; jobs that are not
    added do not count.
    """
    await limit(store, 3)
    await add_many(store, 2)
    await add(store)
    full = await refused(store, "default")
    assert (full.queue, full.max_depth) == ("default", 3)
    assert (await store.stats("default")).ready == 3


async def test_a_batch_that_is_one_too_many_is_refused_whole(store: Store) -> None:
    """
    `QueueFull` is raised, and nothing is written, when a queue would wait deeper than its limit; jobs that are not
    added do not count.
    """
    await limit(store, 3)
    await refused(store, *["default"] * 4)
    assert (await store.stats("default")).ready == 0
    await add_many(store, 3)


async def test_a_refused_batch_takes_no_keys(store: Store) -> None:
    """
    `QueueFull` is raised, and nothing is written, when a queue would wait deeper than its limit; jobs that are not
    added do not count.
    """
    await limit(store, 1)
    batch = [a_job(queue="other", key="o"), a_job(key="k"), a_job(key="l")]
    with pytest.raises(QueueFull):
        await store.enqueue(batch)
    later = [a_job(queue="other", key="o"), a_job(key="k")]
    assert await store.enqueue(later) == [Enqueued(job.id, True) for job in later]


async def test_a_refused_batch_may_be_repeated_with_its_ids(store: Store) -> None:
    """
    `QueueFull` is raised, and nothing is written, when a queue would wait deeper than its limit; jobs that are not
    added do not count.
    """
    await limit(store, 1)
    batch = [a_job(), a_job()]
    with pytest.raises(QueueFull):
        await store.enqueue(batch)
    await limit(store, 2)
    assert await store.enqueue(batch) == [Enqueued(job.id, True) for job in batch]


async def test_one_full_queue_refuses_the_whole_batch(store: Store) -> None:
    """
    `QueueFull` is raised, and nothing is written, when a queue would wait deeper than its limit; jobs that are not
    added do not count.
    """
    await limit(store, 1, "small")
    await add(store, queue="small")
    full = await refused(store, "default", "small", "other")
    assert full.queue == "small"
    assert set(await store.queues()) == {"small"}
    await add(store, queue="other")


async def test_jobs_that_are_not_added_do_not_count(store: Store) -> None:
    """
    `QueueFull` is raised, and nothing is written, when a queue would wait deeper than its limit; jobs that are not
    added do not count.
    """
    await limit(store, 2)
    held, known = await add(store, key="k"), a_job()
    new = a_job(key="l")
    batch = [a_job(key="k"), known, known, a_job(key="k")]
    assert [answer.created for answer in await store.enqueue(batch)] == [False, True, False, False]
    assert await store.enqueue([a_job(key="k"), known]) == [Enqueued(held, False), Enqueued(known.id, False)]
    await limit(store, 3)
    assert await store.enqueue([new, a_job(key="l"), new]) == [
        Enqueued(new.id, True),
        Enqueued(new.id, False),
        Enqueued(new.id, False),
    ]


async def test_a_full_queue_takes_a_repeated_enqueue(store: Store) -> None:
    """
    `QueueFull` is raised, and nothing is written, when a queue would wait deeper than its limit; jobs that are not
    added do not count.
    """
    await limit(store, 2)
    jobs = [a_job(), a_job()]
    await store.enqueue(jobs)
    assert await store.enqueue(jobs) == [Enqueued(job.id, False) for job in jobs]


async def test_running_jobs_do_not_count(store: Store) -> None:
    """
    `QueueFull` is raised, and nothing is written, when a queue would wait deeper than its limit; jobs that are not
    added do not count.
    """
    await limit(store, 1)
    for _ in range(3):
        await add(store)
        await take_one(store)
    await add(store)
    await refused(store, "default")


async def test_jobs_that_wait_for_their_time_count(store: Store) -> None:
    """
    `QueueFull` is raised, and nothing is written, when a queue would wait deeper than its limit; jobs that are not
    added do not count.
    """
    await limit(store, 3)
    await add_many(store, 2)
    first, second = await take(store)
    await write(store, failed(first, after=60), snoozed(second, after=60))
    await add(store, delay=60)
    await refused(store, "default")


async def test_lost_runs_count_again(store: Store, clock: ManualClock) -> None:
    """
    `QueueFull` is raised, and nothing is written, when a queue would wait deeper than its limit; jobs that are not
    added do not count.
    """
    await limit(store, 1)
    await add(store)
    await take_one(store, lease_for=5)
    clock.advance(6)
    await store.reclaim(10)
    await refused(store, "default")


async def test_a_limit_of_none_is_no_limit_and_zero_is_one(store: Store) -> None:
    """
    `QueueFull` is raised, and nothing is written, when a queue would wait deeper than its limit; jobs that are not
    added do not count.
    """
    await limit(store, 0)
    await refused(store, "default")
    await limit(store, None)
    await add_many(store, 3)


async def test_many_producers_do_not_overfill_a_queue(store: Store, second: Opener) -> None:
    """
    `QueueFull` is raised, and nothing is written, when a queue would wait deeper than its limit; jobs that are not
    added do not count.
    """
    await limit(store, 10)
    handles = [store, await second(), await second()]
    answers = await asyncio.gather(*(handles[i % 3].enqueue([a_job(), a_job()]) for i in range(20)), return_exceptions=True)
    assert sum(isinstance(answer, QueueFull) for answer in answers) == 15
    assert (await store.stats("default")).ready == 10
