"""Reclaim: what becomes of a run whose worker is gone."""

from __future__ import annotations

import asyncio

import pytest

from hawser.job import State
from hawser.store import LeaseStatus, Reclaimed, Settled, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    Opener,
    add,
    add_many,
    ask_to_stop,
    done,
    failed,
    ids,
    in_state,
    now,
    ref,
    released,
    running,
    said,
    seen,
    take,
    take_one,
    write,
)


async def test_a_run_is_taken_back_when_its_lease_ran_out(store: Store, clock: ManualClock) -> None:
    """Take back up to `limit` runs whose lease has run out, each once, by any number of reclaimers."""
    claimed = await running(store, task="t", queue="q", worker="w7", lease_for=10)
    clock.advance(9.9)
    assert await store.reclaim(10) == []
    clock.advance(0.2)
    assert await store.reclaim(10) == [Reclaimed(claimed.id, "t", "q", "w7", 1, State.READY, renewed=False, after=0.0)]
    assert await store.reclaim(10) == []


async def test_a_reclaim_says_where_each_job_went(store: Store, clock: ManualClock) -> None:
    """The answer says which, and in how many seconds the job is due again."""
    again = await running(store, task="again", lease_for=10)
    over = await running(store, task="over", lease_for=10, max_attempts=1)
    asked = await running(store, task="asked", lease_for=10)
    await ask_to_stop(store, asked)
    clock.advance(11)
    went = {run.id: (run.task, run.state, run.after) for run in await store.reclaim(10)}
    assert went == {
        again.id: ("again", State.READY, 0.0),
        over.id: ("over", State.DEAD, None),
        asked.id: ("asked", State.CANCELLED, None),
    }


async def test_a_reclaim_takes_no_more_than_its_limit(store: Store, clock: ManualClock) -> None:
    """Take back up to `limit` runs whose lease has run out, each once, by any number of reclaimers."""
    jobs = await add_many(store, 5)
    await take(store, lease_for=10)
    clock.advance(11)
    rounds = [await store.reclaim(2) for _ in range(4)]
    assert [len(lost) for lost in rounds] == [2, 2, 1, 0]
    assert sorted(lost.id for round in rounds for lost in round) == sorted(jobs)


async def test_many_reclaimers_take_each_run_once(store: Store, clock: ManualClock, second: Opener) -> None:
    """Take back up to `limit` runs whose lease has run out, each once, by any number of reclaimers."""
    jobs = await add_many(store, 30)
    await take(store, lease_for=10)
    clock.advance(11)
    handles = [store, await second(), await second(), await second()]
    taken: list[str] = []
    for _ in range(10):
        rounds = await asyncio.gather(*(handle.reclaim(5) for handle in handles))
        taken += [lost.id for some in rounds for lost in some]
    assert sorted(taken) == sorted(jobs)
    for id in jobs:
        job = await seen(store, id)
        assert (job.attempt, job.lease, len(job.attempts)) == (1, 2, 1)


async def test_two_reclaimers_at_once_do_not_share_a_run(store: Store, clock: ManualClock, second: Opener) -> None:
    """Take back up to `limit` runs whose lease has run out, each once, by any number of reclaimers."""
    other = await second()
    await running(store, lease_for=10)
    clock.advance(11)
    mine, theirs = await asyncio.gather(store.reclaim(10), other.reclaim(10))
    assert len(mine) + len(theirs) == 1


async def test_runs_of_every_queue_are_taken_back(store: Store, clock: ManualClock) -> None:
    """Take back up to `limit` runs whose lease has run out, each once, by any number of reclaimers."""
    for queue in ("a", "b", "c"):
        await running(store, queue=queue, lease_for=10)
    await running(store, queue="d", lease_for=60)
    clock.advance(11)
    assert sorted(lost.queue for lost in await store.reclaim(10)) == ["a", "b", "c"]


async def test_a_lost_attempt_counts(store: Store, clock: ManualClock) -> None:
    """
    The attempt counts: its job is ready again at once, or dead when its attempts are used up, or cancelled when that
    was asked.
    """
    id = await add(store, max_attempts=3)
    for attempt in (1, 2):
        assert (await take_one(store, lease_for=10)).attempt == attempt
        clock.advance(11)
        [lost] = await store.reclaim(10)
        assert (lost.attempt, lost.state) == (attempt, State.READY)
        job = await seen(store, id)
        assert (job.state, job.attempt, job.returned) == (State.READY, attempt, 0)
        assert job.run_at <= now(clock)
    assert (await take_one(store)).attempt == 3


async def test_a_lost_last_attempt_is_the_end(store: Store, clock: ManualClock) -> None:
    """
    The attempt counts: its job is ready again at once, or dead when its attempts are used up, or cancelled when that
    was asked.
    """
    claimed = await running(store, max_attempts=1, lease_for=10)
    clock.advance(11)
    [lost] = await store.reclaim(10)
    job = await seen(store, claimed.id)
    assert (lost.state, job.state, job.attempt) == (State.DEAD, State.DEAD, 1)
    assert job.finished_at == now(clock)
    assert await take(store) == []


@pytest.mark.parametrize("max_attempts", [1, 5])
async def test_a_lost_run_that_was_asked_to_stop_is_cancelled(store: Store, clock: ManualClock, max_attempts: int) -> None:
    """
    The attempt counts: its job is ready again at once, or dead when its attempts are used up, or cancelled when that
    was asked.
    """
    claimed = await running(store, max_attempts=max_attempts, lease_for=10)
    await ask_to_stop(store, claimed)
    clock.advance(11)
    [lost] = await store.reclaim(10)
    job = await seen(store, claimed.id)
    assert (lost.state, job.state, job.finished_at) == (State.CANCELLED, State.CANCELLED, now(clock))
    assert await take(store) == []


async def test_a_poisonous_job_is_dead_after_exactly_its_attempts(store: Store, clock: ManualClock) -> None:
    """
    The attempt counts: its job is ready again at once, or dead when its attempts are used up, or cancelled when that
    was asked.
    """
    id = await add(store, max_attempts=3)
    starts = 0
    for _ in range(10):
        starts += len(await take(store, lease_for=10))
        clock.advance(11)
        await store.reclaim(10)
    job = await seen(store, id)
    assert (starts, job.state, job.attempt) == (3, State.DEAD, 3)
    assert [attempt.number for attempt in job.attempts] == [1, 2, 3]


async def test_a_lost_run_can_never_settle(store: Store, clock: ManualClock) -> None:
    """The lease number rises, so the lost run can never settle."""
    claimed = await running(store, lease_for=10)
    clock.advance(11)
    await store.reclaim(10)
    assert (await seen(store, claimed.id)).lease > claimed.lease
    clock.advance(-11)
    assert said(await store.settle([done(claimed)])) == [Settled.LOST]
    assert await store.extend("w1", [ref(claimed)], 60) == [LeaseStatus.LOST]
    clock.advance(11)
    again = await take_one(store)
    assert again.lease > claimed.lease + 1
    assert said(await store.settle([done(claimed)])) == [Settled.LOST]
    await write(store, done(again))


async def test_a_lost_run_that_died_can_never_settle(store: Store, clock: ManualClock) -> None:
    """The lease number rises, so the lost run can never settle."""
    claimed = await running(store, lease_for=10, max_attempts=1)
    clock.advance(11)
    await store.reclaim(10)
    assert (await seen(store, claimed.id)).lease > claimed.lease
    assert said(await store.settle([done(claimed)])) == [Settled.LOST]
    assert (await seen(store, claimed.id)).state is State.DEAD


@pytest.mark.parametrize("max_attempts", [1, 5])
async def test_the_record_says_that_the_attempt_was_lost(store: Store, clock: ManualClock, max_attempts: int) -> None:
    """The attempt's record says that it was lost, and it counts as a crash of the job."""
    claimed = await running(store, worker="w7", lease_for=10, max_attempts=max_attempts)
    clock.advance(15)
    await store.reclaim(10)
    [attempt] = (await seen(store, claimed.id)).attempts
    assert (attempt.number, attempt.lease, attempt.worker, attempt.outcome) == (1, claimed.lease, "w7", "lost")
    assert (attempt.started_at, attempt.ended_at) == (now(clock, -15), now(clock))
    assert attempt.error is not None
    assert "w7" in attempt.error


async def test_a_lost_attempt_of_a_cancelled_job_is_recorded_too(store: Store, clock: ManualClock) -> None:
    """The attempt's record says that it was lost, and it counts as a crash of the job."""
    claimed = await running(store, lease_for=10)
    await ask_to_stop(store, claimed)
    clock.advance(11)
    await store.reclaim(10)
    job = await seen(store, claimed.id)
    assert ([attempt.outcome for attempt in job.attempts], job.crashes) == (["lost"], 1)


async def test_the_record_says_when_it_is_not_known_whether_the_run_began(store: Store, clock: ManualClock) -> None:
    """When the lease was not extended after the claim, the record and the answer say that it is not known whether the run
    began."""
    claimed, renewed = await running(store, lease_for=10), await running(store, lease_for=10)
    clock.advance(5)
    await store.extend("w", [ref(renewed)], 10)
    clock.advance(11)
    assert {lost.id: lost.renewed for lost in await store.reclaim(10)} == {claimed.id: False, renewed.id: True}
    said = [str((await seen(store, id)).attempts[0].error) for id in (claimed.id, renewed.id)]
    assert ["not known whether the run began" in error for error in said] == [True, False]


async def test_lost_runs_are_counted_as_crashes_and_others_are_not(store: Store, clock: ManualClock) -> None:
    """The attempt's record says that it was lost, and it counts as a crash of the job."""
    id = await add(store, max_attempts=9)
    crashes = []
    for back in (failed, None, released, None, failed):
        claimed = await take_one(store, lease_for=10)
        crashes.append(claimed.crashes)
        if back is None:
            clock.advance(11)
            await store.reclaim(10)
        else:
            await write(store, back(claimed))
    assert (crashes, (await seen(store, id)).crashes) == ([0, 0, 1, 1, 2], 2)


async def test_jobs_that_do_not_run_are_never_touched(store: Store, clock: ManualClock) -> None:
    """Jobs that are not running are never touched, but for held ones whose time is over: those are ready then, however many
    they are."""
    jobs = [await in_state(store, state, queue=state) for state in State if state is not State.RUNNING]
    for queue, end in (("f", failed), ("r", released), ("d", done)):
        claimed = await running(store, queue=queue, lease_for=10)
        await write(store, end(claimed))
        jobs.append(claimed.id)
    jobs.append(await add(store, queue="later", delay=5))
    before = [await seen(store, id) for id in jobs]
    clock.advance(1_000)
    assert await store.reclaim(100) == []
    assert [await seen(store, id) for id in jobs] == before


async def test_a_held_lease_is_not_touched(store: Store, clock: ManualClock) -> None:
    """Take back up to `limit` runs whose lease has run out, each once, by any number of reclaimers."""
    short = await running(store, lease_for=10)
    held = await running(store, lease_for=60)
    clock.advance(11)
    before = await seen(store, held.id)
    assert [lost.id for lost in await store.reclaim(10)] == [short.id]
    assert await seen(store, held.id) == before


async def test_a_few_lost_runs_are_found_among_many(store: Store, clock: ManualClock) -> None:
    """Take back up to `limit` runs whose lease has run out, each once, by any number of reclaimers."""
    await add_many(store, 300)
    claims = [claimed for second in range(30) for claimed in await take(store, 10, lease_for=30 - second)]
    lost, held, over = claims[::10], claims[1::10], [c for i, c in enumerate(claims) if i % 10 > 1]
    await store.extend("w1", [ref(claimed) for claimed in held], 100)
    await write(store, *(done(claimed) for claimed in over))
    clock.advance(31)
    assert sorted(run.id for run in await store.reclaim(100)) == sorted(ids(lost))
    clock.advance(70)
    assert sorted(run.id for run in await store.reclaim(100)) == sorted(ids(held))
