"""Room: how many jobs of a task a claim may give out."""

from __future__ import annotations

from collections import Counter

import pytest

from hawser.store import NO_ROOM_SET, Share, Store, Target
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import SIGN, add_many, done, ids, write

QUEUES = [Share("default"), Share("other")]


async def tasks(store: Store, limit: int, **room: int) -> dict[str, int]:
    return dict(Counter(claimed.task for claimed in await store.claim(QUEUES, limit, "w1", 60, room)))


async def test_a_task_is_given_out_up_to_its_room(store: Store) -> None:
    """Of a task that `room` names, at most so many are given out."""
    await add_many(store, 5, task="a")
    await add_many(store, 5, task="b")
    assert await tasks(store, 10, a=2) == {"a": 2, "b": 5}
    assert await tasks(store, 10, a=1, b=1) == {"a": 1}
    assert await tasks(store, 10, a=9) == {"a": 2}


async def test_a_task_without_room_waits(store: Store) -> None:
    """Of a task that `room` names, at most so many are given out."""
    await add_many(store, 3, task="a")
    assert await tasks(store, 10, a=0) == {}
    assert (await store.stats()).ready == 3
    assert await tasks(store, 10) == {"a": 3}


async def test_a_crowd_without_room_costs_the_others_nothing(store: Store, clock: ManualClock) -> None:
    """Of a task that `room` names, at most so many are given out."""
    await add_many(store, 40, task="crowd", priority=9)
    await add_many(store, 40, task="crowd", priority=5)
    await add_many(store, 40, task="crowd", priority=5, delay=1)
    await add_many(store, 8, task="other", priority=5)
    clock.advance(60)
    assert await tasks(store, 6, crowd=1) == {"crowd": 1, "other": 5}
    assert await tasks(store, 6, crowd=0) == {"other": 3}


async def test_room_is_shared_by_queues_priorities_and_kinds(store: Store, clock: ManualClock) -> None:
    """Of a task that `room` names, at most so many are given out."""
    for queue in ("default", "other"):
        for priority in (5, 9):
            await add_many(store, 2, queue=queue, priority=priority)
            await add_many(store, 2, queue=queue, priority=priority, delay=1)
    clock.advance(60)
    assert await tasks(store, 100, work=3) == {"work": 3}
    claims = await store.claim([Share("default", 1), Share("other", 1)], 100, "w1", 60, {"work": 7})
    assert len(claims) == 7
    assert {claimed.queue for claimed in claims} == {"default", "other"}


async def test_the_best_are_given_out_when_room_is_scarce(store: Store) -> None:
    """Of a task that `room` names, at most so many are given out."""
    low = await add_many(store, 3, priority=1)
    high = await add_many(store, 3, priority=9)
    assert ids(await store.claim(QUEUES, 10, "w1", 60, {"work": 4})) == high + low[:1]


async def test_what_runs_already_is_not_counted(store: Store) -> None:
    """Of a task that `room` names, at most so many are given out."""
    await add_many(store, 6)
    assert [await tasks(store, 10, work=2) for _ in range(4)] == [{"work": 2}, {"work": 2}, {"work": 2}, {}]


@pytest.mark.parametrize("room", [NO_ROOM_SET, {}, {"unknown": 0}])
async def test_a_task_that_is_not_named_has_no_bound(store: Store, room: dict[str, int]) -> None:
    """Of a task that `room` names, at most so many are given out."""
    jobs = await add_many(store, 6)
    claims = await store.claim(QUEUES, 10, "w1", 60, room)
    assert ids(claims) == jobs
    await write(store, *(done(claimed) for claimed in claims))


async def test_room_does_not_open_a_pause(store: Store) -> None:
    """Of a task that `room` names, at most so many are given out."""
    await add_many(store, 2)
    await store.pause(Target("task", "work"), SIGN)
    assert await tasks(store, 10, work=5) == {}


async def test_the_room_that_is_given_is_left_as_it_was(store: Store) -> None:
    await add_many(store, 3)
    room = {"work": 2}
    await store.claim(QUEUES, 10, "w1", 60, room)
    assert room == {"work": 2}
