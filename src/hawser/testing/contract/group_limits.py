"""Limits per group: how many jobs of a group run at once, how many start in a period."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import msgspec
import pytest

from hawser.job import Claimed
from hawser.limit import Limit
from hawser.store import Change, Leave, Settled, Settlement, Share, Store
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
    released,
    said,
    snoozed,
    take,
    write,
)
from hawser.testing.contract.turns import fill, turns


async def per_group(store: Store, **fields: object) -> None:
    await limit(store, WORK, per_group=True, **fields)


async def groups(store: Store, limit: int = 100, queue: str = "default") -> dict[str, int]:
    """How many jobs of each group one claim takes."""
    return dict(Counter(claimed.group or "-" for claimed in await take(store, limit, queue)))


async def test_no_more_of_a_group_run_at_once_than_the_limit_says(store: Store, second: Opener) -> None:
    """
    Where a task has a limit per group, so holds for the jobs of each group, in all queues together; jobs without a group are not
    counted.
    """
    other = await second()
    await fill(store, a=9, b=1)
    await add_many(store, 3)
    await per_group(store, running=2)
    claims = await take(store)
    assert Counter(claimed.group for claimed in claims) == {"a": 2, "b": 1, None: 3}
    assert await take(other) == []
    await fill(other, a=1, b=2)
    assert await groups(store) == {"b": 1}
    of_a = [claimed for claimed in claims if claimed.group == "a"]
    await write(other, done(of_a[0]))
    assert await groups(other) == {"a": 1}
    await write(store, done(of_a[1]))
    assert await groups(other) == {"a": 1}
    assert await groups(store) == await groups(other) == {}


async def test_a_group_is_counted_over_queues_and_priorities(store: Store, second: Opener) -> None:
    """
    Where a task has a limit per group, so holds for the jobs of each group, in all queues together; jobs without a group are not
    counted.
    """
    other = await second()
    for queue in ("default", "other"):
        for priority in (1, 9):
            await add_many(store, 3, group="a", queue=queue, priority=priority)
    await add_many(store, 4, group="a", task="free")
    await per_group(store, running=3)
    [first, *_] = claims = await store.claim([Share("other"), Share("default")], 9, "w1", 60)
    assert Counter(claimed.task for claimed in claims) == {"work": 3, "free": 4}
    assert first.queue == "other"
    assert await take(store) == await take(other, queue="other") == []
    await write(store, done(first))
    # The place that became free in one queue is there for the other.
    [claimed] = await take(other, queue="default")
    assert await take(store, queue="other") == []
    await write(store, done(claimed))
    assert len(await take(other, queue="other")) == 1


async def test_claims_at_once_do_not_pass_a_limit_per_group(store: Store, second: Opener) -> None:
    """
    Where a task has a limit per group, so holds for the jobs of each group, in all queues together; jobs without a group are not
    counted.
    """
    stores = [store, *[await second() for _ in range(3)]]
    names = "abcdefg"
    for queue in ("default", "other"):
        for name in names:
            await add_many(store, 10, group=name, queue=queue)
    await per_group(store, running=2)
    running: dict[str, Claimed] = {}
    dice, seen = random.Random(5), Counter[str]()  # noqa: S311  # a fixed history
    for _ in range(400):
        queues = [[Share("default"), Share("other")][:: dice.choice((1, -1))] for _ in stores]
        calls = (each.claim(shares, dice.choice((1, 3, 30)), "w1", 60) for each, shares in zip(stores, queues, strict=True))
        for claimed in await asyncio.gather(*calls):
            running |= {job.id: job for job in claimed}
            seen.update(job.group or "" for job in claimed)
        counts = Counter(job.group for job in running.values())
        assert max(counts.values(), default=0) <= 2
        if sum(seen.values()) == 140 and not running:
            break
        leaving = [job for job in running.values() if dice.random() < 0.5]
        settling = [(each, leaving[n::4]) for n, each in enumerate(stores) if leaving[n::4]]
        await asyncio.gather(*(each.settle([done(job) for job in some]) for each, some in settling))
        running = {id: job for id, job in running.items() if job not in leaving}
    assert seen == dict.fromkeys(names, 20)


async def test_an_expired_run_counts_in_its_group_until_it_is_reclaimed(store: Store, clock: ManualClock) -> None:
    """
    Where a task has a limit per group, so holds for the jobs of each group, in all queues together; jobs without a group are not
    counted.
    """
    await fill(store, a=4)
    await per_group(store, running=2)
    first = await take(store, 9, lease_for=60)
    clock.advance(61)
    assert await take(store) == []
    assert len(await store.reclaim(1)) == 1
    assert await groups(store) == {"a": 1}
    assert len(await store.reclaim(9)) == 1
    assert said(await store.settle([done(job) for job in first])) == [Settled.LOST, Settled.LOST]
    assert await groups(store) == {"a": 1}
    assert await groups(store) == {}


@pytest.mark.parametrize("ending", [done, failed, dead, snoozed, released, cancelled])
@pytest.mark.parametrize("keep", [True, False], ids=["kept", "not kept"])
@pytest.mark.parametrize("hinted", [True, False], ids=["hinted", "not hinted"])
async def test_every_end_of_a_run_makes_room_in_its_group(store: Store, ending: object, keep: bool, hinted: bool) -> None:
    """
    Where a task has a limit per group, so holds for the jobs of each group, in all queues together; jobs without a group are not
    counted.
    """
    await fill(store, a=6)
    await per_group(store, running=2)
    for _ in range(3):
        first = await take(store)
        assert len(first) == 2
        assert await take(store) == []
        settlements = [ending(job) for job in first]  # type: ignore[operator]
        if not keep:
            settlements = [replaced(each, keep=False) for each in settlements]
        if hinted:
            settlements = [replaced(each, hint=job.hint) for each, job in zip(settlements, first, strict=True)]
        await write(store, *settlements)


def replaced(settlement: Settlement, **fields: object) -> Settlement:
    return msgspec.structs.replace(settlement, **fields)


async def test_a_run_of_a_group_that_is_asked_to_stop_counts_until_it_ends(store: Store, clock: ManualClock) -> None:
    """
    Where a task has a limit per group, so holds for the jobs of each group, in all queues together; jobs without a group are not
    counted.
    """
    await fill(store, a=3)
    await per_group(store, running=1)
    [job] = await take(store)
    await ask_to_stop(store, job)
    assert await take(store) == []
    await write(store, failed(job))
    [job] = await take(store)
    await lose(store, clock)
    assert await groups(store) == {"a": 1}


async def test_jobs_that_follow_join_their_group(store: Store) -> None:
    """
    Where a task has a limit per group, so holds for the jobs of each group, in all queues together; jobs without a group are not
    counted.
    """
    await fill(store, a=1)
    await per_group(store, running=1)
    [job] = await take(store)
    await write(store, done(job, a_job(group="a"), a_job(group="a"), a_job(group="b"), keep=False))
    assert await groups(store) == {"a": 1, "b": 1}
    assert await take(store) == []


async def test_a_crowd_of_shut_groups_costs_the_others_nothing(store: Store) -> None:
    """Groups that a limit keeps back cost the others nothing."""
    crowd = [f"g{n}" for n in range(60)]
    for name in crowd:
        await add_many(store, 3, group=name)
    await per_group(store, running=1)
    assert await groups(store, 200) == dict.fromkeys(crowd, 1)
    await add_many(store, 12, task="other", group="z")
    await add_many(store, 12, task="other")
    await add_many(store, 2, group="new")
    for name in crowd:
        await add_many(store, 1, group=name)
    assert await groups(store, 5) == {"z": 2, "-": 2, "new": 1}
    assert await groups(store, 40) == {"z": 10, "-": 10}
    [use] = await store.limits()
    assert (use.running, use.shut_groups) == (61, 61)


async def test_a_shut_group_does_not_wake_those_who_wait(store: Store) -> None:
    """Nor does a group that a limit keeps back, before a run of it ends or its rate lets the next one start."""
    await fill(store, a=4, b=3)
    await per_group(store, running=1)
    first = await take(store)
    await fill(store, a=1)
    assert await take(store) == []
    assert await looks(store, 1.0) <= 40
    waiting = asyncio.ensure_future(store.wait(["default"], 60))
    await asyncio.sleep(0)
    await write(store, done(first[0]))
    await asyncio.wait_for(waiting, 5)
    assert await groups(store) == {first[0].group: 1}


async def test_a_wait_ends_when_a_run_of_the_group_ended_elsewhere(store: Store, second: Opener) -> None:
    """Nor does a group that a limit keeps back, before a run of it ends or its rate lets the next one start."""
    other = await second()
    await fill(store, a=2)
    await per_group(store, running=1)
    [job] = await take(store)
    assert await take(other) == []
    await write(store, done(job))
    await asyncio.wait_for(other.wait(["default"], 60), 5)
    assert await groups(other) == {"a": 1}


async def test_a_limit_per_group_counts_what_ran_before_it(store: Store) -> None:
    """It applies from the next enqueue and claim on; what runs already goes on, and counts."""
    await fill(store, a=8, b=8)
    before = await take(store, 6)
    await per_group(store, running=4)
    assert await groups(store) == {"a": 1, "b": 1}
    assert await groups(store) == {}
    await write(store, *(done(job) for job in before if job.group == "a"))
    assert await groups(store) == {"a": 3}


async def test_a_limit_per_group_may_be_raised_lowered_and_taken_away(store: Store) -> None:
    """A lower limit is reached as runs end."""
    await fill(store, a=20, b=2)
    await per_group(store, running=3)
    first = [job for job in await take(store) if job.group == "a"]
    await per_group(store, running=5)
    assert await groups(store) == {"a": 2}
    await per_group(store, running=2)
    for job in first:
        assert await groups(store) == {}
        await write(store, done(job))
    assert await groups(store) == {}
    await limit(store, WORK, running=6)
    assert await groups(store) == {"a": 2}
    await per_group(store, running=5)
    assert await groups(store) == {"a": 1}
    assert await store.set_limit(WORK, None, SIGN)
    assert await groups(store, 5) == {"a": 5}


async def test_a_limit_per_group_that_code_declares_holds(store: Store, reopen: Opener) -> None:
    """Note the limits that a worker's code declares of its tasks, in place of what was declared of them before; None
    declares none."""
    await fill(store, a=9)
    await store.declare_limits({"work": Limit(running=2, per_group=True)})
    first = await take(store)
    assert len(first) == 2
    store = await reopen()
    assert await take(store) == []
    await store.declare_limits({"work": Limit(running=3, per_group=True)})
    assert await groups(store) == {"a": 1}
    await write(store, done(first[0]))
    assert await groups(store) == {"a": 1}
    await store.declare_limits({"work": None})
    assert await groups(store) == {"a": 5}


async def test_jobs_that_are_left_to_others_leave_a_limited_group_as_it_is(store: Store) -> None:
    """Jobs and tasks that `leave` names are not given out, and cost the others nothing."""
    left = await add(store, group="a")
    await fill(store, a=2, b=2)
    await per_group(store, running=1)
    assert sorted(await turns(store, 9, jobs=frozenset([left]))) == ["a", "b"]
    leave = Leave(jobs=frozenset([left]))
    assert await looks(store, leave=leave) <= 30


async def test_a_changed_job_joins_the_group_of_its_new_queue(store: Store) -> None:
    """
    Where a task has a limit per group, so holds for the jobs of each group, in all queues together; jobs without a group are not
    counted.
    """
    [_, second_, *_] = await add_many(store, 3, group="a")
    await per_group(store, running=1)
    [job] = await take(store)
    await store.change([second_], Change(queue="other"), SIGN)
    assert await groups(store, queue="other") == {}
    await write(store, done(job))
    assert ids(await take(store, queue="other")) == [second_]
    assert await groups(store) == {}
