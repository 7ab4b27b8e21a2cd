"""Groups: within a queue and priority they take turns."""

from __future__ import annotations

from collections import Counter

import pytest

from hawser.store import Leave, Share, Store, Target, Weight
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    Opener,
    add,
    add_many,
    cancelled,
    done,
    failed,
    ids,
    lose,
    released,
    seen,
    snoozed,
    take,
    take_one,
    write,
)


async def fill(store: Store, **depths: int) -> None:
    for group, depth in depths.items():
        await add_many(store, depth, group=group)


async def turns(store: Store, limit: int, **leave: frozenset[str]) -> str:
    """The groups of one claim, in the order of the answer; `-` stands for none."""
    claims = await store.claim([Share("default")], limit, "w1", 60, leave=Leave(**leave))
    return "".join(claimed.group or "-" for claimed in claims)


async def test_groups_take_turns(store: Store) -> None:
    """
    Within a queue and priority, groups take turns: a group with weight w is offered w places a turn, however many the others have
    waiting.
    """
    await fill(store, a=50, b=3, c=2)
    assert await turns(store, 4) == "abca"
    assert await turns(store, 1) == "b"
    assert Counter(await turns(store, 6)) == {"c": 1, "a": 4, "b": 1}


async def test_a_flood_does_not_hold_up_a_newcomer(store: Store) -> None:
    """
    Within a queue and priority, groups take turns: a group with weight w is offered w places a turn, however many the others have
    waiting.
    """
    await fill(store, a=100, b=100)
    assert Counter(await turns(store, 6)) == {"a": 3, "b": 3}
    await fill(store, c=2)
    assert sorted(await turns(store, 3)) == ["a", "b", "c"]


async def test_turns_go_on_from_claim_to_claim(store: Store, second: Opener) -> None:
    """
    Within a queue and priority, groups take turns: a group with weight w is offered w places a turn, however many the others have
    waiting.
    """
    await fill(store, a=40, b=40, c=40)
    other = await second()
    had: Counter[str] = Counter()
    for claimer in (store, other) * 6:
        had.update(await turns(claimer, 2))
        assert max(had.values()) - min(had[group] for group in "abc") <= 1
    assert had == {"a": 8, "b": 8, "c": 8}


@pytest.mark.parametrize("places", [1, 2, 5, 40])
async def test_a_group_with_more_weight_is_offered_more_places(store: Store, places: int) -> None:
    """
    Within a queue and priority, groups take turns: a group with weight w is offered w places a turn, however many the others have
    waiting.
    """
    await store.set_weight(Weight("default", "b", 3), SIGN)
    await fill(store, a=30, b=30)
    had = ""
    while len(had) < 40:
        had += await turns(store, places)
    assert Counter(had) == {"a": 10, "b": 30}
    assert places > 5 or had == "abbb" * 10


async def test_a_weight_applies_from_the_next_claim_on(store: Store) -> None:
    """Say how many places a turn a group of a queue is offered; it applies from the next claim on."""
    await fill(store, a=30, b=30)
    assert Counter(await turns(store, 4)) == {"a": 2, "b": 2}
    await store.set_weight(Weight("default", "a", 2), SIGN)
    assert Counter(await turns(store, 9)) == {"a": 6, "b": 3}
    await store.set_weight(Weight("default", "a", 1), SIGN)
    assert Counter(await turns(store, 8)) == {"a": 4, "b": 4}


async def test_weights_are_listed(store: Store) -> None:
    """The weights that are not 1, of one queue or of all, by queue and group."""
    for weight in (Weight("q", "b", 2), Weight("q", "a", 7), Weight("p", "ü x", 1000)):
        await store.set_weight(weight, SIGN)
    assert await store.weights() == [Weight("p", "ü x", 1000), Weight("q", "a", 7), Weight("q", "b", 2)]
    assert await store.weights("q") == [Weight("q", "a", 7), Weight("q", "b", 2)]
    await store.set_weight(Weight("q", "a", 1), SIGN)
    assert await store.weights("q") == [Weight("q", "b", 2)]
    assert [record.action for record in await store.audit()] == ["set_weight"] * 4
    assert (await store.audit())[0].target == "queue:q"


async def test_jobs_without_a_group_are_one_group(store: Store) -> None:
    """Jobs without a group are one group."""
    await add_many(store, 30)
    await fill(store, a=30, b=1)
    assert Counter(await turns(store, 9)) == {"-": 4, "a": 4, "b": 1}
    had = "".join([await turns(store, 1) for _ in range(8)])
    assert Counter(had) == {"-": 4, "a": 4}


async def test_a_group_is_one_whatever_its_tasks(store: Store) -> None:
    """
    Within a queue and priority, groups take turns: a group with weight w is offered w places a turn, however many the others have
    waiting.
    """
    for task in ("x", "y", "z"):
        await add_many(store, 10, task=task, group="a")
    await add_many(store, 10, task="x", group="b")
    assert Counter(await turns(store, 12)) == {"a": 6, "b": 6}


async def test_priority_goes_before_turns(store: Store) -> None:
    """Higher priority goes first."""
    await add_many(store, 3, group="a", priority=9)
    await add_many(store, 3, group="b", priority=1)
    await add_many(store, 1, priority=5)
    assert await turns(store, 7) == "aaa-bbb"


async def test_queues_have_turns_of_their_own(store: Store) -> None:
    """
    Each queue is offered its share of places in the given order; what is left goes to the queues in that order.
    """
    for queue in ("p", "q"):
        for group in ("a", "b"):
            await add_many(store, 9, queue=queue, group=group)
    claims = await store.claim([Share("p", 3), Share("q", 1)], 8, "w1", 60)
    assert Counter(claimed.queue for claimed in claims[:4]) == {"p": 3, "q": 1}
    assert Counter((claimed.queue, claimed.group) for claimed in claims) == {("p", "a"): 4, ("p", "b"): 3, ("q", "a"): 1}


async def test_within_a_group_the_oldest_goes_first(store: Store, clock: ManualClock) -> None:
    """Within a priority and group the job that has been due for longest goes first."""
    later = await add(store, group="a", delay=5)
    first = await add(store, group="a", task="x")
    clock.advance(2)
    second = await add(store, group="a", task="y")
    clock.advance(3.2)
    assert ids(await take(store, limit=3)) == [first, second, later]


async def test_half_of_a_groups_places_go_to_those_that_waited(store: Store, clock: ManualClock) -> None:
    """Where groups take turns, so is half of the places of each group."""
    await add_many(store, 20, group="a")
    waited = await add_many(store, 2, group="a", delay=1)
    await add_many(store, 20, group="b")
    clock.advance(60)
    claims = await take(store, limit=8)
    assert Counter(claimed.group for claimed in claims) == {"a": 4, "b": 4}
    assert set(waited) <= set(ids(claims))


async def test_a_group_waits_for_its_time(store: Store, clock: ManualClock) -> None:
    """A job that is not due is not given out."""
    await add(store, group="a", delay=10)
    await add(store, group="b", delay=5)
    assert await turns(store, 9) == ""
    clock.advance(5)
    assert await turns(store, 9) == "b"
    clock.advance(5)
    assert await turns(store, 9) == "a"


async def test_a_group_that_was_due_stays_due(store: Store, clock: ManualClock) -> None:
    """A job that was due stays due when the store's clock is set back; one that was not waits for its time."""
    await add(store, group="a", delay=10)
    await add(store, group="b", delay=20)
    await add(store, group="c")
    clock.advance(15)
    await add(store, group="d")
    assert await take(store, queue="other") == []  # the store sees the time
    clock.advance(-3600)
    assert sorted(await turns(store, 9)) == ["a", "c", "d"]
    clock.advance(3605)
    assert await turns(store, 9) == "b"


async def test_every_way_back_opens_the_group(store: Store, clock: ManualClock) -> None:
    """
    Within a queue and priority, groups take turns: a group with weight w is offered w places a turn, however many the others have
    waiting.
    """
    id = await add(store, group="a")
    for ending in (failed, released, lambda claimed: snoozed(claimed, 5)):
        claims = await take(store)
        assert [(claimed.id, claimed.group) for claimed in claims] == [(id, "a")]
        assert await take(store) == []
        await write(store, ending(claims[0]))
        clock.advance(6)
    assert ids(await take(store)) == [id]
    await lose(store, clock)
    claims = await take(store)
    assert ids(claims) == [id]
    await write(store, done(claims[0]))
    assert await take(store) == []


async def test_a_requeued_job_opens_its_group(store: Store) -> None:
    """Make dead and cancelled jobs ready, due at once, with attempts from zero and their history kept."""
    id = await add(store, group="a")
    await write(store, cancelled(await take_one(store)))
    await store.requeue([id], SIGN)
    assert [(claimed.id, claimed.group) for claimed in await take(store)] == [(id, "a")]


async def test_a_rewound_job_opens_its_group(store: Store) -> None:
    """
    Run a dead or cancelled job again, as requeue does, and forget what was recorded after one of its steps, in one write with its
    audit record.
    """
    id = await add(store, group="a")
    await write(store, cancelled(await take_one(store)))
    await store.rewind(id, None, SIGN)
    assert [(claimed.id, claimed.group) for claimed in await take(store)] == [(id, "a")]


@pytest.mark.parametrize("kind", ["queue", "task"])
async def test_a_pause_keeps_groups_back_and_its_end_lets_them_go(store: Store, clock: ManualClock, kind: str) -> None:
    """Jobs of a paused queue or task are not given out, and cost the others nothing."""
    target = Target("queue", "default") if kind == "queue" else Target("task", "work")
    await fill(store, a=2, b=1)
    await store.pause(target, SIGN)
    assert await turns(store, 9) == ""
    await add(store, task="other", queue="other", group="a")
    assert len(await store.claim([Share("default"), Share("other")], 9, "w1", 60)) == 1
    await store.resume(target, SIGN)
    assert await turns(store, 1) == "a"
    await store.pause(target, SIGN, until=(await seen(store, await add(store, group="z"))).enqueued_at)
    clock.advance(1)
    assert sorted(await turns(store, 9)) == ["a", "b", "z"]


async def test_what_is_left_to_others_stays_in_its_group(store: Store) -> None:
    """Jobs and tasks that `leave` names are not given out, and cost the others nothing."""
    left = await add(store, group="a")
    await add(store, group="a", task="other")
    await fill(store, b=1)
    assert sorted(await turns(store, 9, jobs=frozenset([left]))) == ["a", "b"]
    assert await turns(store, 9, jobs=frozenset([left])) == ""
    assert await turns(store, 9, tasks=frozenset(["work"])) == ""
    assert await turns(store, 9) == "a"


async def test_room_holds_for_groups(store: Store) -> None:
    """Of a task that `room` names, at most so many are given out."""
    await fill(store, a=5, b=5)
    await add_many(store, 2, task="other", group="b")
    claims = await store.claim([Share("default")], 9, "w1", 60, {"work": 3})
    assert Counter(claimed.task for claimed in claims) == {"work": 3, "other": 2}
    assert await store.claim([Share("default")], 9, "w1", 60, {"work": 0}) == []
    assert len(await turns(store, 9)) == 7


async def test_a_cancelled_job_leaves_its_group(store: Store) -> None:
    """End waiting jobs at once; ask the workers of running ones to stop."""
    gone = await add(store, group="a")
    await fill(store, b=1)
    await store.cancel([gone], SIGN)
    assert await turns(store, 9) == "b"
    await fill(store, a=1)
    assert await turns(store, 9) == "a"


async def test_a_wait_ends_for_a_group(store: Store, clock: ManualClock) -> None:
    """Return when a job may have become due in these queues, or after `timeout` seconds; only a hint, may be early."""
    await add(store, group="a")
    await store.wait(["default"], 60)
    [claimed] = await take(store)
    await write(store, snoozed(claimed, 0.01))
    await store.wait(["default"], 60)
    clock.advance(1)
    assert len(await take(store)) == 1
