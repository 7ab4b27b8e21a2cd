"""Groups whose order is kept: strictly one job after the other, also under retries, snoozes and lost runs."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from hawser.job import Claimed, State
from hawser.outcome import Held
from hawser.store import Change, Leave, Share, Store, Target
from hawser.testing.clock import ManualClock
from hawser.testing.contract.limits import WORK, limit
from hawser.testing.contract.making import (
    SIGN,
    Opener,
    a_job,
    add,
    add_many,
    ask_to_stop,
    cancelled,
    dead,
    done,
    failed,
    ids,
    looks,
    lose,
    now,
    released,
    seen,
    settle,
    snoozed,
    take,
    take_one,
    write,
)


async def keep_order(store: Store) -> None:
    await limit(store, WORK, running=1, per_group=True, ordered=True)


async def test_jobs_of_an_ordered_group_start_one_after_the_other(store: Store, second: Opener) -> None:
    """
    Before one has started, the job that has been due for longest is the first of its group, in any queue and priority.
    """
    other = await second()
    wanted = await add_many(store, 5, group="a")
    await keep_order(store)
    ungrouped = set(await add_many(store, 2))
    jobs = await take(store)
    assert {*ids(jobs)} == {wanted[0], *ungrouped}
    [job] = [each for each in jobs if each.id == wanted[0]]
    for id in wanted[1:]:
        assert await take(store) == await take(other) == []
        await write(store, done(job))
        job = await take_one(other)
        assert job.id == id
    await write(other, done(job))
    assert await take(store) == []


@pytest.mark.parametrize("ending", [failed, released, snoozed])
async def test_a_started_job_keeps_its_group_while_it_waits(store: Store, clock: ManualClock, ending: object) -> None:
    """
    Where the order of groups is kept, a job that has started goes before all others of its group, until it is done, dead or
    cancelled.
    """
    first, second_ = await add_many(store, 2, group="a", max_attempts=9)
    await keep_order(store)
    job = await take_one(store)
    assert job.id == first
    for _ in range(3):
        await write(store, ending(job))  # type: ignore[operator]
        await add(store, group="a")
        clock.advance(0.1)
        [job] = await take(store)
        assert job.id == first
    await write(store, done(job))
    assert ids(await take(store)) == [second_]


@pytest.mark.parametrize("ending", [lambda job: failed(job, after=30), lambda job: snoozed(job, after=30)])
async def test_others_wait_until_a_started_job_is_due_again(store: Store, clock: ManualClock, ending: object) -> None:
    """
    Where the order of groups is kept, a job that has started goes before all others of its group, until it is done, dead or
    cancelled.
    """
    first, second_ = await add_many(store, 2, group="a")
    await add_many(store, 2, group="b")
    await keep_order(store)
    jobs = {job.group: job for job in await take(store)}
    await write(store, ending(jobs["a"]), done(jobs["b"]))  # type: ignore[operator]
    assert [job.group for job in await take(store)] == ["b"]
    await add(store, group="a")
    assert await take(store) == []
    assert await looks(store) <= 30
    clock.advance(29)
    assert await take(store) == []
    clock.advance(2)
    [job] = await take(store)
    assert job.id == first
    await write(store, done(job))
    assert ids(await take(store)) == [second_]


@pytest.mark.parametrize("ending", [done, dead, cancelled, lambda job: done(job, keep=False)])
async def test_the_end_of_a_job_lets_the_next_of_its_group_go(store: Store, ending: object) -> None:
    """
    Where the order of groups is kept, a job that has started goes before all others of its group, until it is done, dead or
    cancelled.
    """
    wanted = await add_many(store, 4, group="a")
    await keep_order(store)
    for id in wanted:
        job = await take_one(store)
        assert job.id == id
        await write(store, ending(job))  # type: ignore[operator]


async def test_a_lost_run_comes_again_before_the_others(store: Store, clock: ManualClock) -> None:
    """
    Where the order of groups is kept, a job that has started goes before all others of its group, until it is done, dead or
    cancelled.
    """
    first, second_ = await add_many(store, 2, group="a", max_attempts=2)
    await keep_order(store)
    assert ids(await take(store)) == [first]
    await lose(store, clock)
    assert ids(await take(store)) == [first]
    await lose(store, clock)  # its attempts are used up
    assert ids(await take(store)) == [second_]


@pytest.mark.parametrize("how", ["cancel", "dead_letter", "ask"])
async def test_a_person_may_end_the_job_that_keeps_a_group(store: Store, clock: ManualClock, how: str) -> None:
    """
    Where the order of groups is kept, a job that has started goes before all others of its group, until it is done, dead or
    cancelled.
    """
    first, second_ = await add_many(store, 2, group="a")
    await keep_order(store)
    job = await take_one(store)
    if how == "ask":
        await ask_to_stop(store, job)
        await write(store, failed(job, after=3600))
    else:
        await write(store, failed(job, after=3600))
        assert await take(store) == []
        await (store.cancel([first], SIGN) if how == "cancel" else store.dead_letter([first], SIGN))
    job = await take_one(store)
    assert job.id == second_
    # Run again, it is one like the others.
    third = await add(store, group="a")
    clock.advance(0.001)
    await store.requeue([first], SIGN)
    await write(store, done(job))
    assert ids(await take(store)) == [third]


async def test_a_person_may_make_the_job_that_keeps_a_group_due(store: Store) -> None:
    """Change the queue, the priority or the due time of waiting jobs, at once; what the change does not name stays."""
    first, second_ = await add_many(store, 2, group="a")
    await keep_order(store)
    await write(store, failed(await take_one(store), after=3600))
    assert await take(store) == []
    await store.change([first], Change(queue="other", delay=0), SIGN)
    assert await take(store) == []
    job = await take_one(store, queue="other")
    assert job.id == first
    await write(store, done(job))
    assert ids(await take(store)) == [second_]


async def test_the_first_of_a_group_goes_first_whatever_its_queue_and_priority(store: Store, clock: ManualClock) -> None:
    """
    Before one has started, the job that has been due for longest is the first of its group, in any queue and priority.
    """
    places = [("default", 1), ("other", 9), ("default", 9), ("other", 1), ("default", 5)]
    wanted = []
    for queue, priority in places:
        wanted.append(await add(store, group="a", queue=queue, priority=priority))
        clock.advance(0.001)
    await keep_order(store)
    shares = [Share("other"), Share("default")]
    for id in wanted:
        [job] = await store.claim(shares, 9, "w1", 60)
        assert job.id == id
        await write(store, done(job))
    assert await store.claim(shares, 9, "w1", 60) == []


async def test_a_group_waits_for_its_first_job_in_another_queue(store: Store, clock: ManualClock) -> None:
    """
    Before one has started, the job that has been due for longest is the first of its group, in any queue and priority.
    """
    first = await add(store, group="a", queue="other")
    clock.advance(0.001)
    second_ = await add(store, group="a")
    await keep_order(store)
    await store.pause(Target("queue", "other"), SIGN)
    assert await take(store) == []
    # One that is dated back goes before it.
    before = await add(store, group="a", run_at=now(clock, -60))
    job = await take_one(store)
    assert job.id == before
    await write(store, done(job))
    assert await take(store) == []
    await store.cancel([first], SIGN)
    assert ids(await take(store)) == [second_]


async def test_a_delayed_job_takes_its_place_when_it_is_due(store: Store, clock: ManualClock) -> None:
    """
    Before one has started, the job that has been due for longest is the first of its group, in any queue and priority.
    """
    late = await add(store, group="a", delay=10)
    await keep_order(store)
    first = await add(store, group="a")
    job = await take_one(store)
    assert job.id == first
    clock.advance(11)
    last = await add(store, group="a")
    await write(store, done(job))
    job = await take_one(store)
    assert job.id == late
    await write(store, done(job))
    assert ids(await take(store)) == [last]


async def test_a_first_job_that_is_left_to_others_keeps_the_order(store: Store) -> None:
    """Jobs and tasks that `leave` names are not given out, and cost the others nothing."""
    first, _ = await add_many(store, 2, group="a")
    await keep_order(store)
    leave = Leave(jobs=frozenset([first]))
    assert await store.claim([Share("default")], 9, "w1", 60, leave=leave) == []
    assert await looks(store, leave=leave) <= 30
    assert ids(await take(store)) == [first]


async def test_order_is_kept_over_a_reopened_store(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """
    Where the order of groups is kept, a job that has started goes before all others of its group, until it is done, dead or
    cancelled.
    """
    first, second_ = await add_many(store, 2, group="a")
    await keep_order(store)
    await write(store, failed(await take_one(store), after=5))
    store = await reopen()
    assert await take(store) == []
    await store.set_limit(WORK, None, SIGN)
    assert ids(await take(store)) == [second_]
    clock.advance(6)
    assert ids(await take(store)) == [first]


async def test_random_histories_keep_the_order_of_every_group(store: Store, clock: ManualClock, second: Opener) -> None:
    """
    Where the order of groups is kept, a job that has started goes before all others of its group, until it is done, dead or
    cancelled.
    """
    stores = [store, await second()]
    dice = random.Random(11)  # noqa: S311  # a fixed history
    await keep_order(store)
    line: dict[str, list[str]] = defaultdict(list)
    running: list[Claimed] = []
    shares = [Share("default"), Share("other")]
    for n in range(260):
        each = stores[n % 2]
        if n < 160 and dice.random() < 0.5:
            group = dice.choice("abc")
            line[group].append(await add(each, group=group, queue=dice.choice(("default", "other")), max_attempts=50))
        for job in await each.claim(shares[:: dice.choice((1, -1))], dice.choice((1, 2, 9)), "w1", 10):
            assert job.id == line[str(job.group)][0]
            running.append(job)
        dice.shuffle(running)
        for job in [running.pop() for _ in range(dice.randrange(len(running) + 1))]:
            ending = dice.choice((done, done, failed, snoozed, released, dead, cancelled, lambda job: failed(job, 2), None))
            if ending is None:
                continue  # the worker is gone
            answers = await each.settle([ending(job)])
            if answers[0].state is not None and answers[0].state.finished:
                line[str(job.group)].remove(job.id)
        clock.advance(dice.choice((0.001, 0.5, 3.0)))
        gone = {each.id for each in await each.reclaim(100)}
        running = [job for job in running if job.id not in gone]
    for _ in range(200):
        for job in await store.claim(shares, 9, "w1", 10):
            assert job.id == line[str(job.group)].pop(0)
            await write(store, done(job, a_job(task="free", queue="nowhere")))
        clock.advance(2)
        await store.reclaim(100)
    assert not any(line.values())


async def test_a_first_job_that_expires_lets_the_next_go(store: Store, clock: ManualClock) -> None:
    """
    Where the order of groups is kept, a job that has started goes before all others of its group, until it is done, dead or
    cancelled.
    """
    first = await add(store, group="a", expires=5.0)
    second_, third = await add_many(store, 2, group="a", expires=60.0)
    await keep_order(store)
    await write(store, failed(await take_one(store), after=30))
    assert await take(store) == []
    clock.advance(6)
    job = await take_one(store)
    assert (job.id, (await seen(store, first)).state) == (second_, State.CANCELLED)
    await write(store, failed(job, after=3600))
    clock.advance(60)
    last = await add(store, group="a")
    assert ids(await take(store)) == [last]
    assert (await seen(store, third)).state is State.CANCELLED


async def test_a_job_that_waits_for_an_event_keeps_its_group_and_one_that_has_not_started_does_not(store: Store) -> None:
    """
    Where the order of groups is kept, a job that has started goes before all others of its group, until it is done, dead or
    cancelled.
    """
    upstream = await add(store, task="first", delay=60)
    held = a_job(group="a", waits_for=(upstream,))
    await store.enqueue([held])
    first, second_ = await add_many(store, 2, group="a")
    await keep_order(store)
    job = await take_one(store)
    assert job.id == first
    await write(store, settle(job, Held("packed", event="packed")))
    assert await take(store) == []
    await store.emit("packed", b"1", 3600.0)
    job = await take_one(store)
    assert job.id == first
    await store.cancel([upstream], SIGN)
    await write(store, done(job))
    assert ids(await take(store)) == [second_]
