"""Ageing: a tenth of the places of a queue goes to lower priorities that have waited for very long."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from hawser.clock import to_us
from hawser.job import MAX_PRIORITY
from hawser.policy import DEFAULT_AGEING, QueuePolicy
from hawser.store import OVERDUE, Leave, Share, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import SIGN, Opener, a_job, add, add_many, done, failed, ids, take, take_one, write
from hawser.testing.contract.order import WaitingOrder, chosen

PAST_AGEING_S = DEFAULT_AGEING + 1


async def test_one_of_ten_places_goes_to_a_lower_priority_that_has_aged(store: Store, clock: ManualClock) -> None:
    """
    A tenth of the places of a queue, of fewer than ten every so many-th time, is first offered to a lower priority whose oldest
    job has been due for longer than the `ageing` of the queue's policy, so no priority waits for ever.
    """
    low = await add_many(store, 30, priority=0)
    clock.advance(PAST_AGEING_S)
    urgent = await add_many(store, 60, priority=9)
    assert Counter(ids(await take(store, 10))) == Counter([low[0], *urgent[:9]])
    assert Counter(ids(await take(store, 20))) == Counter([*low[1:3], *urgent[9:27]])


async def test_of_claims_of_one_job_every_tenth_goes_there(store: Store, clock: ManualClock) -> None:
    """
    A tenth of the places of a queue, of fewer than ten every so many-th time, is first offered to a lower priority whose oldest
    job has been due for longer than the `ageing` of the queue's policy, so no priority waits for ever.
    """
    await add_many(store, 10, priority=0)
    clock.advance(PAST_AGEING_S)
    await add_many(store, 60, priority=9)
    taken = [(await take_one(store)).priority for _ in range(40)]
    assert Counter(taken) == {9: 36, 0: 4}
    assert [sum(priority == 0 for priority in taken[n : n + 10]) for n in range(0, 40, 10)] == [1, 1, 1, 1]


async def test_a_job_that_has_not_aged_waits_for_higher_priorities(store: Store, clock: ManualClock) -> None:
    """Higher priority goes first."""
    await add_many(store, 5, priority=0)
    clock.advance(DEFAULT_AGEING - 1)
    await add_many(store, 50, priority=9)
    assert {claimed.priority for claimed in await take(store, 40)} == {9}


async def test_of_lower_priorities_the_one_that_has_waited_longest_has_the_tenth(store: Store, clock: ManualClock) -> None:
    """
    A tenth of the places of a queue, of fewer than ten every so many-th time, is first offered to a lower priority whose oldest
    job has been due for longer than the `ageing` of the queue's policy, so no priority waits for ever.
    """
    lowest = await add(store, priority=0)
    clock.advance(1)
    middle = await add_many(store, 2, priority=5)
    clock.advance(PAST_AGEING_S)
    urgent = await add_many(store, 60, priority=9)
    taken = [ids(await take(store, 10)) for _ in range(3)]
    assert [set(each) - set(urgent) for each in taken] == [{lowest}, {middle[0]}, {middle[1]}]


async def test_a_backlog_that_has_aged_itself_does_not_hold_up_lower_ones(store: Store, clock: ManualClock) -> None:
    """
    A tenth of the places of a queue, of fewer than ten every so many-th time, is first offered to a lower priority whose oldest
    job has been due for longer than the `ageing` of the queue's policy, so no priority waits for ever.
    """
    urgent = await add_many(store, 60, priority=9)
    clock.advance(PAST_AGEING_S)
    low = await add(store, priority=0)
    clock.advance(PAST_AGEING_S)
    assert Counter(ids(await take(store, 10))) == Counter([low, *urgent[:9]])


async def test_jobs_that_had_to_wait_age_too(store: Store, clock: ManualClock) -> None:
    """
    A tenth of the places of a queue, of fewer than ten every so many-th time, is first offered to a lower priority whose oldest
    job has been due for longer than the `ageing` of the queue's policy, so no priority waits for ever.
    """
    low = await add(store, priority=0, delay=100)
    await add_many(store, 60, priority=9)
    clock.advance(100 + DEFAULT_AGEING - 1)
    assert low not in ids(await take(store, 10))
    clock.advance(2)
    assert low in ids(await take(store, 10))


async def test_a_queue_says_how_long_its_jobs_take_to_age(store: Store, second: Opener, clock: ManualClock) -> None:
    """
    A tenth of the places of a queue, of fewer than ten every so many-th time, is first offered to a lower priority whose oldest
    job has been due for longer than the `ageing` of the queue's policy, so no priority waits for ever.
    """
    other = await second()
    low = {queue: await add_many(store, 5, queue=queue, priority=0) for queue in ("default", "other")}
    for queue in low:
        await add_many(store, 60, queue=queue, priority=9)
    clock.advance(61)
    assert {claimed.priority for claimed in await take(other, 10)} == {9}
    await store.set_policy("default", QueuePolicy(ageing=60), SIGN)
    assert {claimed.priority for claimed in await take(other, 10, "other")} == {9}
    taken = await take(other, 10)
    assert Counter(claimed.priority for claimed in taken) == {9: 9, 0: 1}
    assert low["default"][0] in ids(taken)
    await other.set_policy("default", QueuePolicy(max_attempts=3), SIGN)
    assert {claimed.priority for claimed in await take(store, 10)} == {9}


@pytest.mark.parametrize("group", [None, "a"])
async def test_under_strict_priority_nothing_ages(store: Store, clock: ManualClock, group: str | None) -> None:
    """Of a queue whose `ageing` is None higher priority always goes first."""
    low = await add_many(store, 5, priority=0, group=group)
    await store.set_policy("default", QueuePolicy(ageing=None), SIGN)
    clock.advance(100 * PAST_AGEING_S)
    await add_many(store, 60, priority=9, group=group)
    assert {claimed.priority for claimed in await take(store, 40)} == {9}
    assert [(await take_one(store)).priority for _ in range(20)] == [9] * 20
    assert ids(await take(store)) == low


async def test_groups_age_as_their_queue_says(store: Store, clock: ManualClock) -> None:
    """
    A tenth of the places of a queue, of fewer than ten every so many-th time, is first offered to a lower priority whose oldest
    job has been due for longer than the `ageing` of the queue's policy, so no priority waits for ever.
    """
    await store.set_policy("default", QueuePolicy(ageing=30), SIGN)
    await add_many(store, 5, priority=0, group="a")
    clock.advance(29)
    await add_many(store, 60, priority=9, group="b")
    assert {claimed.group for claimed in await take(store, 20)} == {"b"}
    clock.advance(2)
    assert Counter(claimed.group for claimed in await take(store, 20)) == {"b": 18, "a": 2}


async def test_what_may_not_run_has_no_part_in_the_tenth(store: Store, clock: ManualClock) -> None:
    """
    Of a task that `room` names, at most so many are given out. Jobs and tasks that `leave` names are not given out, and cost
    the others nothing.
    """
    await add_many(store, 5, priority=0)
    left = await add(store, priority=1, task="other")
    clock.advance(PAST_AGEING_S)
    await add_many(store, 60, priority=9, task="urgent")
    given = await store.claim([Share("default")], 20, "w1", 60, {"work": 1}, Leave(jobs=frozenset([left])))
    assert Counter(claimed.task for claimed in given) == {"urgent": 19, "work": 1}
    given = await store.claim([Share("default")], 20, "w1", 60, {"work": 0}, Leave(tasks=frozenset(["other"])))
    assert Counter(claimed.task for claimed in given) == {"urgent": 20}


async def test_the_groups_of_a_lower_priority_take_turns_at_the_tenth(store: Store, clock: ManualClock) -> None:
    """
    A tenth of the places of a queue, of fewer than ten every so many-th time, is first offered to a lower priority whose oldest
    job has been due for longer than the `ageing` of the queue's policy, so no priority waits for ever.
    """
    await add_many(store, 5, priority=0, group="a")
    await add_many(store, 5, priority=0, group="b")
    await add_many(store, 5, priority=0)
    clock.advance(PAST_AGEING_S)
    await add_many(store, 100, priority=9, group="c")
    given = await take(store, 30)
    assert Counter((claimed.priority, claimed.group) for claimed in given) == {
        (9, "c"): 27,
        (0, "a"): 1,
        (0, "b"): 1,
        (0, None): 1,
    }
    ones = [await take_one(store) for _ in range(20)]
    assert Counter(claimed.priority for claimed in ones) == {9: 18, 0: 2}


async def test_a_group_that_is_looked_at_keeps_its_turn(store: Store, clock: ManualClock) -> None:
    """
    Within a queue and priority, groups take turns: a group with weight w is offered w places a turn, however many the others have
    waiting.
    """
    for group in "abc":
        await add_many(store, 2, priority=0, group=group)
    clock.advance(1)
    await add_many(store, 30, priority=9, group="u")
    assert {claimed.group for claimed in await take(store, 15)} == {"u"}
    assert {claimed.group for claimed in await take(store, 15)} == {"u"}
    assert {claimed.group for claimed in await take(store, 3)} == {"a", "b", "c"}


def aged_first(waiting: list[WaitingOrder], limit: int, turn: int, now: int) -> list[str]:
    """What the turn-th claim of a handle takes: the tenth, then the rest by the rule for one that has none."""
    due = [job for job in waiting if job.run_at <= now]
    top = max((job.priority for job in due), default=MAX_PRIORITY)
    held_up = [job for job in due if job.priority < top and job.run_at <= now - to_us(DEFAULT_AGEING)]
    first: list[WaitingOrder] = []
    if held_up:
        level = min(held_up, key=lambda job: (job.run_at, -job.priority)).priority
        same = sorted((job for job in held_up if job.priority == level), key=lambda job: (job.run_at, job.order))
        first = same[: (limit + turn % 10) // 10]
    rest = chosen([job for job in waiting if job not in first], limit - len(first), turn, now)
    return [*ids_of(first), *rest]


def ids_of(jobs: list[WaitingOrder]) -> list[str]:
    return [job.id for job in jobs]


@pytest.mark.parametrize("seed", range(4))
async def test_a_long_random_history_is_claimed_in_the_order_of_the_rule(store: Store, clock: ManualClock, seed: int) -> None:
    """
    A tenth of the places of a queue, of fewer than ten every so many-th time, is first offered to a lower priority whose oldest
    job has been due for longer than the `ageing` of the queue's policy, so no priority waits for ever.
    """
    dice = random.Random(seed)  # noqa: S311  # no secret: a history that can be repeated
    waiting: dict[str, WaitingOrder] = {}
    order = 0
    for turn in range(40):
        jobs = [
            a_job(
                priority=dice.choice([0, 3, 5, 9, 9, 9]),
                delay=dice.choice([0, 0, 0, round(dice.uniform(0, 400), 6)]),
                max_attempts=100,
            )
            for _ in range(dice.randint(0, 14))
        ]
        await store.enqueue(jobs)
        for job in jobs:
            order += 1
            waiting[job.id] = WaitingOrder(job.id, job.priority, clock.now() + to_us(job.delay), order, fresh=not job.delay)
        clock.advance(round(dice.uniform(OVERDUE, 200), 6))
        limit = dice.randint(1, 12)
        expected = aged_first(list(waiting.values()), limit, turn, clock.now())
        claims = await take(store, limit)
        assert ids(claims) == expected
        for claimed in claims:
            old = waiting.pop(claimed.id)
            if dice.random() < 0.7:
                await write(store, done(claimed))
            else:
                after = round(dice.uniform(0.01, 300), 6)
                await write(store, failed(claimed, after))
                waiting[old.id] = old._replace(run_at=clock.now() + to_us(after), fresh=False)
