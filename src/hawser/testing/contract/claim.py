"""Claim: which jobs, to whom, under which lease."""

from __future__ import annotations

import asyncio

import pytest

from hawser.job import Claimed, State
from hawser.store import Share, Store, Target
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    Opener,
    a_job,
    add,
    add_many,
    ask_to_stop,
    dead,
    done,
    failed,
    ids,
    lose,
    now,
    released,
    running,
    seen,
    snoozed,
    take,
    take_one,
    write,
)


async def test_a_claim_takes_no_more_than_its_limit(store: Store) -> None:
    """Take up to `limit` due jobs under a lease, in one atomic step; no job is given to two claimers."""
    jobs = await add_many(store, 5)
    assert [ids(await take(store, 2)) for _ in range(4)] == [jobs[:2], jobs[2:4], jobs[4:], []]


async def test_a_claimed_job_is_running_under_a_lease(store: Store, clock: ManualClock) -> None:
    """Take up to `limit` due jobs under a lease, in one atomic step; no job is given to two claimers."""
    id = await add(store)
    clock.advance(3)
    [claimed] = await store.claim([Share("default")], 1, "w7", 12.5)
    job = await seen(store, id)
    assert (job.state, job.worker, job.lease) == (State.RUNNING, "w7", claimed.lease)
    assert (job.started_at, job.lease_until) == (now(clock), now(clock, 12.5))


async def test_concurrent_claimers_get_different_jobs(store: Store, second: Opener) -> None:
    """Take up to `limit` due jobs under a lease, in one atomic step; no job is given to two claimers."""
    jobs = await add_many(store, 100)
    handles = [store, await second(), await second(), await second()]
    given: list[str] = []
    while len(given) < 100:
        rounds = await asyncio.gather(*(take(handle, 7, worker=f"w{i}") for i, handle in enumerate(handles)))
        assert any(rounds)
        given += [claimed.id for claims in rounds for claimed in claims]
    assert sorted(given) == sorted(jobs)
    assert await take(store) == []


async def test_claimers_and_producers_at_once_lose_nothing(store: Store, second: Opener) -> None:
    """Take up to `limit` due jobs under a lease, in one atomic step; no job is given to two claimers."""
    handles = [store, await second()]
    batches = [[a_job() for _ in range(5)] for _ in range(10)]
    given: list[str] = []

    async def claim(number: int) -> None:
        given.extend(ids(await take(handles[number % 2], 5)))

    await asyncio.gather(*(store.enqueue(batch) for batch in batches), *(claim(number) for number in range(10)))
    given += ids(await take(store))
    assert sorted(given) == sorted(job.id for batch in batches for job in batch)


async def test_a_claim_of_nothing_gives_nothing(store: Store) -> None:
    """Take up to `limit` due jobs under a lease, in one atomic step; no job is given to two claimers."""
    await add(store)
    assert await store.claim([], 10, "w1", 60) == []
    assert await store.claim([Share("empty")], 10, "w1", 60) == []
    assert await store.claim([Share("default")], 0, "w1", 60) == []
    assert len(await take(store)) == 1


async def test_every_claim_counts_the_attempt_and_the_lease(store: Store) -> None:
    """Every claim raises the job's lease number by at least one and its attempt by one."""
    id = await add(store, max_attempts=10)
    for attempt in range(1, 6):
        before = await seen(store, id)
        claimed = await take_one(store)
        after = await seen(store, id)
        assert (claimed.attempt, claimed.lease) == (before.attempt + 1, before.lease + 1)
        assert (after.attempt, after.lease) == (claimed.attempt, claimed.lease)
        assert claimed.attempt == attempt
        await write(store, failed(claimed))


async def test_lease_numbers_grow_through_a_whole_life(store: Store, clock: ManualClock) -> None:
    """Every claim raises the job's lease number by at least one and its attempt by one. The lease number does not go back."""
    id = await add(store, max_attempts=3)
    leases: list[int] = []

    async def claim() -> Claimed:
        before = await seen(store, id)
        claimed = await take_one(store)
        assert (claimed.lease, claimed.attempt) == (before.lease + 1, before.attempt + 1)
        leases.append(claimed.lease)
        return claimed

    for back in (released, snoozed, failed):
        await write(store, back(await claim()))
    await claim()
    await lose(store, clock)
    await write(store, dead(await claim()))
    await store.requeue([id], SIGN)
    last = await claim()
    await ask_to_stop(store, last)
    await write(store, released(last))
    await store.requeue([id], SIGN)
    last = await claim()
    assert leases == sorted(set(leases))
    assert (await seen(store, id)).lease == leases[-1]
    await write(store, done(last))
    assert (await seen(store, id)).lease == leases[-1]


async def test_an_attempt_given_back_is_given_again(store: Store) -> None:
    """Every claim raises the job's lease number by at least one and its attempt by one."""
    await add(store)
    given = []
    for back in (released, snoozed, failed, released, failed):
        claimed = await take_one(store)
        given.append((claimed.attempt, claimed.lease))
        await write(store, back(claimed))
    assert given == [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5)]


async def test_a_job_is_not_given_out_before_its_time(store: Store, clock: ManualClock) -> None:
    """A job that is not due is not given out."""
    delayed = await add(store, delay=10, priority=9)
    timed = await add(store, run_at=now(clock, 20), priority=9)
    ready = await add(store, priority=0)
    assert ids(await take(store)) == [ready]
    clock.advance(9.999999)
    assert await take(store) == []
    clock.advance(0.000001)
    assert ids(await take(store)) == [delayed]
    clock.advance(10)
    assert ids(await take(store)) == [timed]


async def test_a_job_that_failed_is_not_given_out_before_its_wait_is_over(store: Store, clock: ManualClock) -> None:
    """A job that is not due is not given out."""
    claimed = await running(store)
    await write(store, failed(claimed, after=30))
    clock.advance(29.9)
    assert await take(store) == []
    clock.advance(0.2)
    assert ids(await take(store)) == [claimed.id]


@pytest.mark.parametrize("target", [Target("queue", "slow"), Target("task", "halted")], ids=lambda t: t.kind)
async def test_a_paused_crowd_costs_the_others_nothing(store: Store, clock: ManualClock, target: Target) -> None:
    """Jobs of a paused queue or task are not given out, and cost the others nothing."""
    halted = [await add(store, task="halted", queue="slow", priority=9) for _ in range(30)]
    halted += await add_many(store, 5, task="halted", queue="slow", delay=1)
    queue = "slow" if target.kind == "task" else "quick"
    others = await add_many(store, 6, queue=queue, priority=1)
    others += await add_many(store, 4, queue=queue, priority=1, delay=2)
    clock.advance(60)
    await store.pause(target, SIGN)
    shares = [Share("slow", 5), Share("quick", 5)]
    assert sorted(ids(await store.claim(shares, 10, "w1", 60))) == sorted(others)
    assert await store.claim(shares, 10, "w1", 60) == []
    await store.resume(target, SIGN)
    assert sorted(ids(await store.claim(shares, 100, "w1", 60))) == sorted(halted)


async def test_a_paused_task_is_paused_in_every_queue(store: Store) -> None:
    """Jobs of a paused queue or task are not given out, and cost the others nothing."""
    await store.pause(Target("task", "halted"), SIGN)
    await add(store, task="halted", queue="a")
    await add(store, task="halted", queue="b")
    other = await add(store, task="other", queue="b")
    assert ids(await store.claim([Share("a"), Share("b")], 10, "w1", 60)) == [other]
