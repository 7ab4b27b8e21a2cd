"""Shares: how the places of a claim go to several queues."""

from __future__ import annotations

from collections import Counter

import pytest

from hawser.store import Share, Store, Target
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import SIGN, add_many, ids, take


async def fill(store: Store, **depths: int) -> dict[str, list[str]]:
    return {queue: await add_many(store, depth, queue=queue) for queue, depth in depths.items()}


async def places(store: Store, shares: list[Share], limit: int) -> dict[str, int]:
    return dict(Counter(claimed.queue for claimed in await store.claim(shares, limit, "w1", 60)))


async def test_each_queue_gets_its_share(store: Store) -> None:
    """
    Each queue is offered its share of places in the given order; what is left goes to the queues in that order.
    """
    await fill(store, a=20, b=20, c=20)
    shares = [Share("a", 6), Share("b", 3), Share("c", 1)]
    assert await places(store, shares, 10) == {"a": 6, "b": 3, "c": 1}
    assert await places(store, shares, 10) == {"a": 6, "b": 3, "c": 1}


async def test_an_earlier_queue_is_served_when_places_are_few(store: Store) -> None:
    """
    Each queue is offered its share of places in the given order; what is left goes to the queues in that order.
    """
    await fill(store, a=20, b=20, c=20)
    assert await places(store, [Share("b", 3), Share("a", 4), Share("c", 2)], 5) == {"b": 3, "a": 2}


async def test_what_is_left_goes_to_the_first_queue_that_wants_it(store: Store) -> None:
    """
    Each queue is offered its share of places in the given order; what is left goes to the queues in that order.
    """
    await fill(store, a=1, b=20, c=20)
    assert await places(store, [Share("a", 6), Share("b", 3), Share("c", 1)], 10) == {"a": 1, "b": 8, "c": 1}


async def test_places_over_the_shares_go_round_again(store: Store) -> None:
    """
    Each queue is offered its share of places in the given order; what is left goes to the queues in that order.
    """
    await fill(store, a=5, b=20)
    assert await places(store, [Share("a", 2), Share("b", 2)], 10) == {"a": 5, "b": 5}


async def test_no_share_takes_all_so_the_order_is_strict(store: Store) -> None:
    """
    Each queue is offered its share of places in the given order; what is left goes to the queues in that order.
    """
    await fill(store, high=7, low=20)
    strict = [Share("high"), Share("low")]
    assert await places(store, strict, 5) == {"high": 5}
    assert await places(store, strict, 5) == {"high": 2, "low": 3}
    assert await places(store, strict, 5) == {"low": 5}


async def test_a_share_of_nothing_gets_what_is_left(store: Store) -> None:
    """
    Each queue is offered its share of places in the given order; what is left goes to the queues in that order.
    """
    await fill(store, a=20, spare=20, b=3)
    assert await places(store, [Share("spare", 0), Share("a", 4)], 4) == {"a": 4}
    assert await places(store, [Share("spare", 0), Share("b", 4)], 4) == {"b": 3, "spare": 1}


async def test_shares_take_the_oldest_of_each_queue(store: Store) -> None:
    """
    Each queue is offered its share of places in the given order; what is left goes to the queues in that order.
    """
    jobs = await fill(store, a=9, b=9)
    claims = await store.claim([Share("b", 2), Share("a", 3)], 5, "w1", 60)
    assert ids(claims) == jobs["b"][:2] + jobs["a"][:3]


@pytest.mark.parametrize("empty", ["paused", "unknown"])
async def test_an_idle_queue_gives_its_places_away(store: Store, empty: str) -> None:
    """
    Each queue is offered its share of places in the given order; what is left goes to the queues in that order.
    Jobs of a paused queue or task are not given out, and cost the others nothing.
    """
    await fill(store, paused=20, a=20)
    await store.pause(Target("queue", "paused"), SIGN)
    assert await places(store, [Share(empty, 6), Share("a", 1)], 10) == {"a": 10}


async def test_priority_orders_within_a_queue_not_across_queues(store: Store) -> None:
    """
    Each queue is offered its share of places in the given order; what is left goes to the queues in that order.
    """
    low = await add_many(store, 3, queue="first", priority=0)
    await add_many(store, 3, queue="second", priority=9)
    assert ids(await store.claim([Share("first"), Share("second")], 3, "w1", 60)) == low


async def test_queues_that_are_not_asked_for_are_left_alone(store: Store) -> None:
    """
    Each queue is offered its share of places in the given order; what is left goes to the queues in that order.
    """
    jobs = await fill(store, a=2, b=2)
    assert ids(await take(store, queue="a")) == jobs["a"]
    assert (await store.stats("b")).ready == 2


async def test_a_queue_gets_no_more_than_its_most(store: Store) -> None:
    """Of a queue whose share says `most`, at most so many are given out."""
    await fill(store, a=20, b=4)
    assert await places(store, [Share("a", None, 3), Share("b")], 10) == {"a": 3, "b": 4}
    assert await places(store, [Share("a", 6, 3), Share("b", 1)], 10) == {"a": 3}
    assert await places(store, [Share("a", 1, 3)], 10) == {"a": 3}
    assert await places(store, [Share("a", None, 0)], 10) == {}
    assert await places(store, [Share("a", None, 50)], 10) == {"a": 10}


async def test_the_most_of_one_queue_is_over_all_tasks_priorities_and_kinds(store: Store, clock: ManualClock) -> None:
    """Of a queue whose share says `most`, at most so many are given out."""
    for task in ("x", "y"):
        for priority in (1, 9):
            await add_many(store, 2, queue="a", task=task, priority=priority)
            await add_many(store, 2, queue="a", task=task, priority=priority, delay=1)
    clock.advance(60)
    claims = await store.claim([Share("a", None, 5)], 100, "w1", 60, {"x": 3})
    assert len(claims) == 5
    assert sum(claimed.task == "x" for claimed in claims) <= 3
    assert {claimed.priority for claimed in claims} == {9}
