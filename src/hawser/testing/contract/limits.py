"""Limits on queues and tasks: how many run at once, how many start in a period."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from hawser.clock import at
from hawser.job import Claimed
from hawser.limit import Limit
from hawser.store import Actor, Settled, Share, Store, Target
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    Opener,
    a_job,
    add_many,
    ask_to_stop,
    cancelled,
    dead,
    done,
    failed,
    looks,
    released,
    said,
    snoozed,
    take,
    write,
)

WORK = Target("task", "work")
QUEUE = Target("queue", "default")
QUEUES = [Share("default"), Share("other")]


async def limit(store: Store, target: Target = WORK, **fields: object) -> None:
    assert await store.set_limit(target, Limit(**fields), SIGN)  # type: ignore[arg-type]


async def taken(store: Store, limit: int = 100) -> dict[str, int]:
    return dict(Counter(claimed.task for claimed in await store.claim(QUEUES, limit, "w1", 60)))


@pytest.mark.parametrize("target", [WORK, QUEUE], ids=["task", "queue"])
async def test_no_more_run_at_once_than_the_limit_says(store: Store, second: Opener, target: Target) -> None:
    """
    Of a queue or task with a limit, no more jobs run at once than it says, over all claimers, where a run counts until it is
    settled or reclaimed.
    """
    other = await second()
    await add_many(store, 10)
    await limit(store, target, running=3)
    first = await take(store, 2)
    assert len(first) == 2
    [third] = await take(other, 5)
    assert await take(store, 5) == await take(other, 5) == []
    await write(other, done(first[0]))
    assert len(await take(store, 5)) == 1
    await write(store, done(third), done(first[1]))
    assert len(await take(other, 5)) == 2


@pytest.mark.parametrize("target", [WORK, QUEUE], ids=["task", "queue"])
async def test_claims_at_once_do_not_pass_a_limit(store: Store, second: Opener, target: Target) -> None:
    """
    Of a queue or task with a limit, no more jobs run at once than it says, over all claimers, where a run counts until it is
    settled or reclaimed.
    """
    stores = [store, *[await second() for _ in range(3)]]
    await add_many(store, 60)
    await limit(store, target, running=7)
    running: dict[str, Claimed] = {}
    most = ended = 0
    for turn in range(12):
        for claimed in await asyncio.gather(*(take(each, 1 + turn % 4) for each in stores)):
            running |= {job.id: job for job in claimed}
        most = max(most, len(running))
        leaving = list(running.values())[: 1 + turn % 5]
        await asyncio.gather(
            *(each.settle([done(job) for job in leaving[n::4]]) for n, each in enumerate(stores) if leaving[n::4])
        )
        ended += len(leaving)
        running = {id: job for id, job in running.items() if job not in leaving}
    assert most == 7
    [use] = await store.limits()
    assert use.running == len(running)


async def test_an_expired_run_counts_until_it_is_reclaimed(store: Store, clock: ManualClock) -> None:
    """
    Of a queue or task with a limit, no more jobs run at once than it says, over all claimers, where a run counts until it is
    settled or reclaimed.
    """
    await add_many(store, 4)
    await limit(store, running=2)
    first = await take(store, 9, lease_for=60)
    clock.advance(61)
    assert await take(store) == []
    assert len(await store.reclaim(1)) == 1
    assert len(await take(store)) == 1
    assert len(await store.reclaim(9)) == 1
    # A settlement that comes too late gives nothing back.
    assert said(await store.settle([done(job) for job in first])) == [Settled.LOST, Settled.LOST]
    assert len(await take(store)) == 1
    assert await take(store) == []


@pytest.mark.parametrize("ending", [done, failed, dead, snoozed, released, cancelled])
async def test_every_end_of_a_run_makes_room(store: Store, ending: object) -> None:
    """
    Of a queue or task with a limit, no more jobs run at once than it says, over all claimers, where a run counts until it is
    settled or reclaimed.
    """
    await add_many(store, 6)
    await limit(store, running=2)
    for _ in range(3):
        first = await take(store)
        assert len(first) == 2
        await write(store, *(ending(job) for job in first))  # type: ignore[operator]


async def test_a_run_that_is_asked_to_stop_counts_until_it_ends(store: Store) -> None:
    """
    Of a queue or task with a limit, no more jobs run at once than it says, over all claimers, where a run counts until it is
    settled or reclaimed.
    """
    await add_many(store, 2)
    await limit(store, running=1)
    [job] = await take(store)
    await ask_to_stop(store, job)
    assert await take(store) == []
    await write(store, failed(job))
    assert len(await take(store)) == 1


async def test_a_done_job_that_is_not_kept_makes_room_and_so_does_a_chain(store: Store) -> None:
    """
    Of a queue or task with a limit, no more jobs run at once than it says, over all claimers, where a run counts until it is
    settled or reclaimed.
    """
    await add_many(store, 3)
    await limit(store, running=1)
    [job] = await take(store)
    await write(store, done(job, keep=False))
    [job] = await take(store)
    await write(store, done(job, a_job(task="next")))
    assert await taken(store) == {"work": 1, "next": 1}


async def test_a_crowd_behind_a_limit_costs_the_others_nothing(store: Store, clock: ManualClock) -> None:
    """Jobs that a limit keeps back cost the others nothing."""
    await add_many(store, 40, task="crowd", priority=9)
    await add_many(store, 40, task="crowd", priority=5)
    await add_many(store, 40, task="crowd", priority=5, delay=1)
    await add_many(store, 8, task="other", priority=5)
    await limit(store, Target("task", "crowd"), running=1)
    clock.advance(60)
    assert await taken(store, 6) == {"crowd": 1, "other": 5}
    assert await taken(store, 6) == {"other": 3}


async def test_a_shut_limit_does_not_wake_those_who_wait(store: Store) -> None:
    """Jobs that a limit keeps back cost the others nothing."""
    await add_many(store, 4)
    await limit(store, running=1)
    [job] = await take(store)
    assert await take(store) == []
    assert await looks(store, 1.0) <= 40
    await write(store, done(job))
    assert len(await take(store)) == 1


@pytest.mark.parametrize("target", [WORK, QUEUE], ids=["task", "queue"])
async def test_a_limit_counts_what_ran_before_it(store: Store, target: Target) -> None:
    """It applies from the next enqueue and claim on; what runs already goes on, and counts."""
    await add_many(store, 8)
    before = await take(store, 3)
    await limit(store, target, running=4)
    assert len(await take(store)) == 1
    assert await take(store) == []
    await write(store, done(before[0]), failed(before[1], after=60))
    assert len(await take(store)) == 2
    assert [use.running for use in await store.limits()] == [4]


async def test_a_lower_limit_is_reached_as_runs_end(store: Store) -> None:
    """A lower limit is reached as runs end."""
    await add_many(store, 12)
    await limit(store, running=5)
    first = await take(store)
    await limit(store, running=2)
    for job in first[:3]:
        await write(store, done(job))
        assert await take(store) == []
    await write(store, done(first[3]))
    assert len(await take(store)) == 1
    await limit(store, running=4)
    assert len(await take(store)) == 2


async def test_a_limit_that_is_taken_away_lets_all_run(store: Store) -> None:
    """None takes back what an operator set; False when there was nothing, which leaves no audit record."""
    await add_many(store, 9)
    await limit(store, running=1, rate="5/m")
    first = await take(store)
    assert await store.set_limit(WORK, None, SIGN)
    assert not await store.set_limit(WORK, None, SIGN)
    assert len(await take(store, 4)) == 4
    await write(store, *(done(job) for job in first))
    assert await store.limits() == []
    assert [record.action for record in await store.audit()] == ["clear_limit", "set_limit"]
    # Set again, it counts what runs.
    await limit(store, running=6)
    assert len(await take(store)) == 2


async def test_what_an_operator_set_wins(store: Store, reopen: Opener) -> None:
    """What an operator set stands in place of what code declares, also when it says nothing."""
    await add_many(store, 9)
    await store.declare_limits({"work": Limit(running=1)})
    assert len(await take(store)) == 1
    await limit(store, running=3)
    await store.declare_limits({"work": Limit(running=2)})
    store = await reopen()
    assert len(await take(store)) == 2
    [use] = await store.limits()
    assert (use.limit, use.declared, use.set, use.by) == (Limit(running=3), Limit(running=2), True, "ann")
    await limit(store)
    assert len(await take(store, 2)) == 2
    assert await store.set_limit(WORK, None, SIGN)
    assert await take(store) == []
    [use] = await store.limits()
    assert (use.limit, use.set, use.running) == (Limit(running=2), False, 5)


async def test_what_code_declares_holds_for_every_claimer(store: Store, second: Opener) -> None:
    """Note the limits that a worker's code declares of its tasks, in place of what was declared of them before; None
    declares none."""
    other = await second()
    await add_many(store, 9)
    await add_many(store, 2, task="free")
    await store.declare_limits({"work": Limit(running=2), "free": None})
    assert await taken(other) == {"work": 2, "free": 2}
    await other.declare_limits({"work": Limit(running=3), "another": Limit(rate="1/s")})
    assert await taken(store) == {"work": 1}
    await store.declare_limits({"work": None})
    assert await taken(other) == {"work": 6}
    assert [use.target.name for use in await store.limits()] == ["another"]
    assert await store.audit() == []


async def test_limits_are_told_with_their_use(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """The limits that are set or declared, each with how much of it is in use, by kind and name."""
    await add_many(store, 3)
    await store.declare_limits({"work": Limit(rate="2/h")})
    clock.advance(1)
    assert await store.set_limit(QUEUE, Limit(running=9, max_depth=50), Actor("bob"))
    await take(store)
    store = await reopen()
    queue, task = await store.limits()
    assert (queue.target, queue.limit, queue.set, queue.by) == (QUEUE, Limit(running=9, max_depth=50), True, "bob")
    assert queue.since == at(clock.now())
    assert (queue.running, queue.started, queue.opens_at, queue.shut) == (2, 0, None, False)
    assert (task.target, task.limit, task.declared, task.set) == (WORK, Limit(rate="2/h"), Limit(rate="2/h"), False)
    assert (task.running, task.started, task.shut) == (2, 2, True)
