"""Limits per group: how many jobs of a group start in a period, beside other limits."""

from __future__ import annotations

import random
from collections import Counter

from hawser.limit import Limit
from hawser.store import GroupWait, Retention, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.group_limits import groups, per_group
from hawser.testing.contract.limits import QUEUE, WORK, limit
from hawser.testing.contract.making import a_job, add, add_many, done, failed, now, released, snoozed, take, write
from hawser.testing.contract.turns import fill, turns
from hawser.value.ids import new_id

RETAINED = Retention(done=3600, dead=3600, cancelled=3600)


async def test_no_more_of_a_group_start_in_any_span_than_the_rate_says(store: Store, clock: ManualClock) -> None:
    """
    Where a task has a limit per group, so holds for the jobs of each group, in all queues together; jobs without a group are not
    counted.
    """
    most, period = 5, 60_000_000
    await fill(store, a=60, b=60)
    await per_group(store, rate=f"{most}/m")
    dice = random.Random(3)  # noqa: S311  # a fixed history
    starts: dict[str, list[int]] = {"a": [], "b": []}
    for _ in range(60):
        claimed = await take(store, dice.choice((1, 3, 20)))
        for job in claimed:
            starts[str(job.group)].append(clock.now())
        await write(store, *(done(job) for job in claimed))
        clock.advance(dice.choice((0.1, 1.0, 3.0, 9.0, 31.0)))
    for of_group in starts.values():
        for first in of_group:
            assert sum(first <= start < first + period for start in of_group) <= most
        assert len(of_group) >= min(60, 0.7 * most * (of_group[-1] - of_group[0]) / period)


async def test_a_groups_rate_opens_at_its_time(store: Store, clock: ManualClock) -> None:
    """
    Where a task has a limit per group, so holds for the jobs of each group, in all queues together; jobs without a group are not
    counted.
    """
    await fill(store, a=9)
    await per_group(store, rate="4/m")
    assert len(await take(store, 3)) == 3
    clock.advance(30)
    await fill(store, b=9)
    assert await groups(store, 9) == {"a": 1, "b": 4}
    assert await groups(store) == {}
    clock.advance(35)
    assert await groups(store) == {"a": 3}
    clock.advance(30)
    assert await groups(store) == {"a": 1, "b": 4}


async def test_a_groups_rate_per_second_keeps_no_others_back(store: Store, clock: ManualClock) -> None:
    """
    Where a task has a limit per group, so holds for the jobs of each group, in all queues together; jobs without a group are not
    counted.
    """
    await fill(store, a=20)
    await add_many(store, 3, task="other")
    await per_group(store, rate="10/s")
    claims = await take(store)
    assert Counter(claimed.task for claimed in claims) == {"work": 10, "other": 3}
    assert await take(store) == []
    clock.advance(1.1)
    assert await groups(store) == {"a": 10}


async def test_retries_of_a_group_take_a_start_again(store: Store, clock: ManualClock) -> None:
    """
    Where a task has a limit per group, so holds for the jobs of each group, in all queues together; jobs without a group are not
    counted.
    """
    await fill(store, a=1)
    await per_group(store, rate="3/m", running=1)
    for ending in (failed, snoozed, released):
        [job] = await take(store)
        await write(store, ending(job))
        clock.advance(1)
    assert await take(store) == []
    clock.advance(70)
    assert len(await take(store)) == 1


async def test_a_clock_that_is_set_back_lets_no_more_of_a_group_start(store: Store, clock: ManualClock) -> None:
    """
    Where a task has a limit per group, so holds for the jobs of each group, in all queues together; jobs without a group are not
    counted.
    """
    await fill(store, a=9)
    await per_group(store, rate="4/m")
    assert await groups(store) == {"a": 4}
    clock.advance(-20)
    assert await groups(store) == {}
    clock.advance(70)
    assert await groups(store) == {}
    clock.advance(-3600)
    assert await groups(store) == {"a": 4}
    assert await groups(store) == {}


async def test_limits_per_group_and_of_the_queue_take_nothing_from_each_other(store: Store) -> None:
    """A job that one limit keeps back uses up nothing of another."""
    await fill(store, a=5, b=5)
    await add_many(store, 5, task="free", group="a")
    await limit(store, QUEUE, running=5, rate="9/m")
    await per_group(store, running=1, rate="3/m")
    claims = await take(store)
    assert Counter((claimed.task, claimed.group) for claimed in claims) == {("work", "a"): 1, ("work", "b"): 1, ("free", "a"): 3}
    await write(store, *(done(job) for job in claims if job.task == "work"))
    assert len(await take(store)) == 2
    uses = {use.target: use for use in await store.limits()}
    assert (uses[QUEUE].running, uses[QUEUE].started) == (5, 7)
    assert uses[WORK].limit == Limit(running=1, rate="3/m", per_group=True)
    assert (uses[WORK].started, uses[WORK].opens_at, uses[WORK].shut) == (0, None, False)


async def test_starts_of_idle_groups_count_until_their_period_is_over(store: Store, clock: ManualClock) -> None:
    """
    Where a task has a limit per group, so holds for the jobs of each group, in all queues together; jobs without a group are not
    counted.
    """
    await per_group(store, running=1, rate="1/m")
    for n in range(20):
        await fill(store, **{f"g{n}": 2})
    claims = await take(store)
    await write(store, *(done(job) for job in claims))
    assert await store.prune(RETAINED, {}, 1000) == 0
    assert await groups(store) == {}  # the starts still count
    clock.advance(70)
    claims = await take(store)
    assert len(claims) == 20
    await write(store, *(done(job) for job in claims))
    clock.advance(70)
    await store.prune(RETAINED, {}, 1000)
    await fill(store, g0=2)
    assert await groups(store) == {"g0": 1}
    assert await groups(store) == {}


async def test_what_keeps_a_job_of_a_group_back_is_told(store: Store, clock: ManualClock) -> None:
    """
    What keeps a waiting job of a group back: how much of a limit per group is in use, which job goes first where the order is
    kept, and how many groups and jobs are before it; None for a job without a group, and for one that does not wait or waits for
    others.
    """
    await add_many(store, 1, group="a")
    first, second_, third = await add_many(store, 3, group="b")
    other = await add(store, group="b", task="other")
    lone = await add(store)
    held = a_job(group="b", waits_for=(lone,))
    await store.enqueue([held])
    for id in (lone, held.id, new_id()):
        assert await store.group_wait(id) is None
    assert sorted(await turns(store, 2)) == ["-", "a"]  # "b" is the next
    assert await store.group_wait(first) == GroupWait()
    assert await store.group_wait(third) == GroupWait(jobs_before=2)
    assert await store.group_wait(other) == GroupWait(jobs_before=3)
    last = await add(store, group="c")
    found = await store.group_wait(last)
    assert found is not None
    assert (found.groups_before, found.jobs_before) == (1, 0)
    await per_group(store, running=1, rate="2/m", ordered=True)
    wait = await store.group_wait(third)
    ordered = Limit(running=1, rate="2/m", per_group=True, ordered=True)
    assert wait is not None
    assert (wait.limit, wait.running, wait.started, wait.opens_at, wait.first, wait.first_runs) == (
        ordered,
        0,
        0,
        None,
        first,
        False,
    )
    claims = {job.id: job for job in await take(store) if job.group == "b" and job.task == "work"}
    wait = await store.group_wait(third)
    assert wait is not None
    assert (wait.running, wait.started, wait.first, wait.first_runs, wait.jobs_before) == (1, 1, first, True, 1)
    await write(store, done(claims[first]))
    [job] = await take(store)
    assert job.id == second_
    wait = await store.group_wait(third)
    assert wait is not None
    assert (wait.running, wait.started, wait.first) == (1, 2, second_)
    assert wait.opens_at is not None
    assert now(clock, 55) <= wait.opens_at <= now(clock, 65)
    assert await store.group_wait(second_) is None
