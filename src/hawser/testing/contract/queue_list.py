"""The list of queues: those that hold jobs, are paused or limited, each with its own figures."""

from __future__ import annotations

import pytest

from hawser.job import State
from hawser.limit import Limit
from hawser.store import Retention, Store, Target
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    add,
    add_many,
    done,
    failed,
    in_state,
    running,
    take_one,
    write,
)


async def test_queues_that_hold_jobs_are_listed(store: Store) -> None:
    """The figures of every queue that holds jobs, is paused, or has a limit or a policy."""
    for state in State:
        await in_state(store, state, queue=f"is-{state}")
    await add(store, queue="scheduled", delay=60)
    queues = await store.queues()
    assert set(queues) == {"scheduled", *(f"is-{state}" for state in State)}
    for queue, figures in queues.items():
        assert figures == await store.stats(queue)


async def test_queues_that_are_paused_or_limited_are_listed(store: Store) -> None:
    """The figures of every queue that holds jobs, is paused, or has a limit or a policy."""
    await store.pause(Target("queue", "paused"), SIGN)
    await store.pause(Target("task", "no-queue"), SIGN)
    await store.set_limit(Target("queue", "limited"), Limit(max_depth=0), SIGN)
    queues = await store.queues()
    assert set(queues) == {"paused", "limited"}
    assert (queues["paused"].paused, queues["limited"].paused) == (True, False)
    await store.resume(Target("queue", "paused"), SIGN)
    assert set(await store.queues()) == {"limited"}


async def test_what_happened_is_told_of_each_queue_apart(store: Store, clock: ManualClock) -> None:
    """The figures of every queue that holds jobs, is paused, or has a limit or a policy."""
    for queue, attempts in (("a", 3), ("b", 1), ("b", 2)):
        for task in ("one", "two"):
            await add(store, queue=queue, task=task)
            for _ in range(attempts - 1):
                await write(store, failed(await take_one(store, queue=queue)))
            await write(store, done(await take_one(store, queue=queue)))
        clock.advance(400)
    await add_many(store, 30, queue="b")
    queues, every = await store.queues(), await store.stats()
    assert {queue: figures.attempts_p99 for queue, figures in queues.items()} == {"a": 3, "b": 2}
    assert every.attempts_p99 == 3
    assert queues["a"].rates["enqueued"] == queues["a"].rates["done"] == queues["b"].rates["done"] == 0
    assert queues["b"].rates["enqueued"] == every.rates["enqueued"] > 0
    for queue, figures in queues.items():
        assert figures == await store.stats(queue)


@pytest.mark.parametrize("keep", [True, False])
async def test_a_queue_whose_jobs_are_gone_is_not_listed(store: Store, clock: ManualClock, keep: bool) -> None:
    """The figures of every queue that holds jobs, is paused, or has a limit or a policy."""
    await write(store, done(await running(store, queue="q"), keep=keep))
    assert ("q" in await store.queues()) is keep
    clock.advance(8 * 86_400)
    await store.prune(Retention(), {}, 10)
    assert await store.queues() == {}
