"""Pauses and limits."""

from __future__ import annotations

import pytest

from hawser.errors import QueueFull
from hawser.limit import Limit
from hawser.store import Actor, Pause, Share, Store, Target
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    Opener,
    a_job,
    add,
    add_many,
    done,
    failed,
    ids,
    now,
    ref,
    running,
    take,
    write,
)

QUEUE, TASK = Target("queue", "default"), Target("task", "work")
every_target = pytest.mark.parametrize("target", [QUEUE, TASK], ids=["queue", "task"])


@every_target
async def test_a_pause_stops_and_a_resume_starts_at_once(store: Store, second: Opener, target: Target) -> None:
    """
    Stop giving out jobs of a queue or task, at once, until resumed or until that instant.
    End a pause; False when there was none.
    """
    other = await second()
    jobs = await add_many(store, 3)
    await store.pause(target, SIGN)
    assert await take(store) == await take(other) == []
    assert await other.resume(target, SIGN) is True
    assert ids(await take(store, 1)) == jobs[:1]
    await other.pause(target, SIGN)
    assert await take(store) == []
    await store.resume(target, SIGN)
    assert ids(await take(other)) == jobs[1:]


@every_target
async def test_a_pause_ends_at_its_instant(store: Store, clock: ManualClock, target: Target) -> None:
    """Stop giving out jobs of a queue or task, at once, until resumed or until that instant."""
    id = await add(store)
    await store.pause(target, SIGN, until=now(clock, 60))
    clock.advance(59.9)
    assert await take(store) == []
    assert len(await store.pauses()) == 1
    clock.advance(0.2)
    assert await store.pauses() == []
    assert not (await store.stats("default")).paused
    assert ids(await take(store)) == [id]


@every_target
async def test_a_pause_without_an_end_does_not_end(store: Store, clock: ManualClock, target: Target) -> None:
    """Stop giving out jobs of a queue or task, at once, until resumed or until that instant."""
    await add(store)
    await store.pause(target, SIGN)
    clock.advance(365 * 86_400)
    assert await take(store) == []


@every_target
async def test_jobs_enqueued_in_a_pause_wait(store: Store, target: Target) -> None:
    """Stop giving out jobs of a queue or task, at once, until resumed or until that instant."""
    await store.pause(target, SIGN)
    id = await add(store)
    assert await take(store) == []
    await store.resume(target, SIGN)
    assert ids(await take(store)) == [id]


@every_target
async def test_what_runs_is_not_stopped_by_a_pause(store: Store, target: Target) -> None:
    """Stop giving out jobs of a queue or task, at once, until resumed or until that instant."""
    first, second = await running(store), await running(store)
    await store.pause(target, SIGN)
    assert await store.extend("w1", [ref(first)], 60) == ["held"]
    await write(store, done(first), failed(second))
    assert await take(store) == []


async def test_other_queues_and_tasks_go_on(store: Store) -> None:
    """Stop giving out jobs of a queue or task, at once, until resumed or until that instant."""
    await store.pause(Target("queue", "work"), SIGN)
    await store.pause(Target("task", "default"), SIGN)
    id = await add(store)
    assert ids(await take(store)) == [id]


async def test_a_job_waits_for_both_its_queue_and_its_task(store: Store) -> None:
    """Stop giving out jobs of a queue or task, at once, until resumed or until that instant."""
    id = await add(store)
    await store.pause(QUEUE, SIGN)
    await store.pause(TASK, SIGN)
    await store.resume(QUEUE, SIGN)
    assert await take(store) == []
    await store.resume(TASK, SIGN)
    assert ids(await store.claim([Share("default")], 5, "w1", 60)) == [id]


async def test_a_pause_outlives_the_store(store: Store, reopen: Opener) -> None:
    """Stop giving out jobs of a queue or task, at once, until resumed or until that instant."""
    await add(store)
    await store.pause(QUEUE, SIGN)
    store = await reopen()
    assert await take(store) == []


async def test_a_second_pause_replaces_the_first(store: Store, clock: ManualClock) -> None:
    """A second pause replaces the first."""
    await add(store)
    await store.pause(QUEUE, SIGN, until=now(clock, 10))
    clock.advance(1)
    await store.pause(QUEUE, Actor("bob", "longer"), until=now(clock, 100))
    assert [(pause.by, pause.reason, pause.until) for pause in await store.pauses()] == [("bob", "longer", now(clock, 100))]
    clock.advance(50)
    assert await take(store) == []
    await store.pause(QUEUE, SIGN)
    clock.advance(1_000)
    assert await take(store) == []
    await store.pause(QUEUE, SIGN, until=now(clock, 5))
    clock.advance(6)
    assert len(await take(store)) == 1


async def test_one_resume_ends_a_pause_that_was_replaced(store: Store) -> None:
    """A second pause replaces the first."""
    await store.pause(QUEUE, SIGN)
    await store.pause(QUEUE, SIGN)
    assert await store.resume(QUEUE, SIGN) is True
    assert await store.resume(QUEUE, SIGN) is False


@every_target
async def test_a_resume_without_a_pause_says_so(store: Store, clock: ManualClock, target: Target) -> None:
    """End a pause; False when there was none."""
    other = TASK if target is QUEUE else QUEUE
    assert await store.resume(target, SIGN) is False
    await store.pause(other, SIGN)
    assert await store.resume(target, SIGN) is False
    await store.pause(target, SIGN, until=now(clock, 10))
    clock.advance(11)
    assert await store.resume(target, SIGN) is False
    assert await store.resume(other, SIGN) is True


async def test_the_pauses_in_force_are_told_in_full(store: Store, clock: ManualClock) -> None:
    """The pauses in force."""
    await store.pause(QUEUE, SIGN, until=now(clock, 3600))
    await store.pause(Target("queue", "over"), SIGN, until=now(clock, 1))
    start = now(clock)
    clock.advance(2)
    await store.pause(TASK, Actor("bob"))
    assert sorted(await store.pauses(), key=lambda pause: pause.target.kind) == [
        Pause(target=QUEUE, since=start, until=now(clock, 3598), reason="asked for", by="ann"),
        Pause(target=TASK, since=now(clock), until=None, reason=None, by="bob"),
    ]


async def test_a_limit_applies_from_the_next_enqueue_on(store: Store, second: Opener) -> None:
    """It applies from the next enqueue and claim on; what runs already goes on, and counts."""
    other = await second()
    await add_many(store, 3)
    await store.set_limit(Target("queue", "default"), Limit(max_depth=2), SIGN)
    assert (await store.stats("default")).ready == 3
    for handle in (store, other):
        with pytest.raises(QueueFull):
            await handle.enqueue([a_job()])
    await take(store, 2)
    await other.enqueue([a_job()])
    with pytest.raises(QueueFull):
        await store.enqueue([a_job()])
    await other.set_limit(Target("queue", "default"), Limit(max_depth=3), SIGN)
    await store.enqueue([a_job()])


async def test_a_limit_is_of_one_queue(store: Store) -> None:
    """It applies from the next enqueue and claim on; what runs already goes on, and counts."""
    await store.set_limit(Target("queue", "default"), Limit(max_depth=0), SIGN)
    await add(store, queue="other")


async def test_the_limits_that_are_set_are_told(store: Store, reopen: Opener) -> None:
    """The limits that are set or declared, each with how much of it is in use, by kind and name."""
    await store.set_limit(Target("queue", "a"), Limit(max_depth=5), SIGN)
    await store.set_limit(Target("queue", "b"), Limit(max_depth=0), SIGN)
    await store.set_limit(Target("queue", "a"), Limit(max_depth=7), SIGN)
    store = await reopen()
    found = {use.target.name: use.limit for use in await store.limits()}
    assert found == {"a": Limit(max_depth=7), "b": Limit(max_depth=0)}


async def test_a_limit_may_be_taken_away(store: Store) -> None:
    """None takes back what an operator set; False when there was nothing, which leaves no audit record."""
    await store.set_limit(Target("queue", "default"), Limit(max_depth=0), SIGN)
    await store.set_limit(Target("queue", "default"), Limit(), SIGN)
    assert await store.limits() == []
    await add(store)
