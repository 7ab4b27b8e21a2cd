"""Chains: the jobs that follow from an outcome."""

from __future__ import annotations

import pytest

from hawser.job import FOREVER, State
from hawser.limit import Limit
from hawser.outcome import Outcome
from hawser.store import Filter, Settled, Store, Target
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    Opener,
    a_job,
    add,
    ask_to_stop,
    done,
    every_outcome,
    ids,
    lose,
    now,
    running,
    said,
    seen,
    settle,
    take,
    take_one,
    write,
)
from hawser.value.ids import new_id


@every_outcome
async def test_what_follows_is_written_with_the_outcome(store: Store, clock: ManualClock, outcome: Outcome) -> None:
    """
    Write outcomes, each fenced by its lease number, each once, each together with the jobs that follow from it.
    The jobs that follow are added as by enqueue, with the settled job as their parent, also beyond the depth limit.
    """
    claimed = await running(store)
    clock.advance(1)
    first, second = a_job(queue="next", body=b"1"), a_job(queue="next", body=b"2", delay=5, tags=["x"])
    await write(store, settle(claimed, outcome, first, second))
    one, two = await seen(store, first.id), await seen(store, second.id)
    assert [one.parent_id, two.parent_id] == [claimed.id, claimed.id]
    assert (one.state, one.attempt, one.lease, one.body) == (State.READY, 0, 0, b"1")
    assert (one.enqueued_at, one.run_at) == (now(clock), now(clock))
    assert (two.run_at, two.tags) == (now(clock, 5), ("x",))
    assert ids(await take(store, queue="next")) == [first.id]


async def test_the_settled_job_is_the_parent_whatever_the_new_job_said(store: Store) -> None:
    """
    The jobs that follow are added as by enqueue, with the settled job as their parent, also beyond the depth limit.
    """
    claimed = await running(store)
    child = a_job(parent_id=new_id())
    await write(store, done(claimed, child))
    assert (await seen(store, child.id)).parent_id == claimed.id
    assert (await take_one(store)).parent_id == claimed.id


async def test_a_chain_may_be_long(store: Store) -> None:
    """
    The jobs that follow are added as by enqueue, with the settled job as their parent, also beyond the depth limit.
    """
    claimed = await running(store)
    for _ in range(5):
        child = a_job()
        await write(store, done(claimed, child))
        previous, claimed = claimed, await take_one(store)
        assert (claimed.id, claimed.parent_id) == (child.id, previous.id)


async def test_a_stale_settlement_adds_nothing(store: Store, clock: ManualClock) -> None:
    """A settlement whose lease is not the current one changes nothing."""
    claimed = await running(store)
    await lose(store, clock)
    child = a_job(key="k")
    assert said(await store.settle([done(claimed, child)])) == [Settled.LOST]
    assert await store.get(child.id) is None
    await add(store, key="k")


async def test_a_settlement_that_is_late_adds_its_jobs(store: Store, clock: ManualClock) -> None:
    """One whose lease has run out is written all the same, unless the run was reclaimed: the number is the fence."""
    claimed = await running(store, lease_for=10)
    clock.advance(11)
    child = a_job(key="k")
    assert said(await store.settle([done(claimed, child)])) == [Settled.SETTLED]
    assert (await seen(store, child.id)).parent_id == claimed.id


@every_outcome
async def test_a_repeated_settlement_adds_nothing(store: Store, outcome: Outcome) -> None:
    """One that this lease has made before changes nothing and says so."""
    claimed = await running(store)
    child, other = a_job(queue="next"), a_job(queue="next")
    await write(store, settle(claimed, outcome, child))
    assert said(await store.settle([settle(claimed, outcome, child)])) == [Settled.REPEATED]
    assert said(await store.settle([settle(claimed, outcome, child, other)])) == [Settled.REPEATED]
    assert await store.get(other.id) is None
    assert ids((await store.find(Filter(parent_id=claimed.id))).jobs) == [child.id]


async def test_only_the_settlements_that_hold_add_their_jobs(store: Store, clock: ManualClock) -> None:
    """
    Write outcomes, each fenced by its lease number, each once, each together with the jobs that follow from it.
    """
    old = await running(store)
    await lose(store, clock)
    new = await take_one(store)
    stale, right = a_job(), a_job()
    assert said(await store.settle([done(old, stale), done(new, right)])) == [Settled.LOST, Settled.SETTLED]
    assert [await store.get(stale.id), (await seen(store, right.id)).parent_id] == [None, new.id]


@pytest.mark.parametrize("ttl", [0, 60, FOREVER])
async def test_a_held_key_keeps_a_follower_out(store: Store, ttl: float) -> None:
    """
    The jobs that follow are added as by enqueue, with the settled job as their parent, also beyond the depth limit.
    """
    await add(store, key="k", key_ttl=ttl, delay=60)
    claimed = await running(store)
    child, free = a_job(key="k"), a_job(key="l")
    await write(store, done(claimed, child, free, a_job(key="l")))
    assert await store.get(child.id) is None
    assert ids(await take(store)) == [free.id]


async def test_a_follower_takes_its_key(store: Store) -> None:
    """
    The jobs that follow are added as by enqueue, with the settled job as their parent, also beyond the depth limit.
    """
    claimed = await running(store)
    child = a_job(key="k")
    await write(store, done(claimed, child))
    [answer] = await store.enqueue([a_job(key="k")])
    assert (answer.id, answer.created) == (child.id, False)


async def test_a_job_may_hand_its_key_to_its_follower(store: Store) -> None:
    """
    The jobs that follow are added as by enqueue, with the settled job as their parent, also beyond the depth limit.
    """
    claimed = await running(store, key="k")
    child = a_job(key="k")
    await write(store, done(claimed, child))
    assert (await seen(store, child.id)).parent_id == claimed.id


async def test_a_follower_whose_id_is_known_is_not_added_again(store: Store) -> None:
    """
    The jobs that follow are added as by enqueue, with the settled job as their parent, also beyond the depth limit.
    """
    known = a_job(delay=60, body=b"1")
    await store.enqueue([known])
    before = await seen(store, known.id)
    claimed = await running(store)
    await write(store, done(claimed, a_job(id=known.id, body=b"2")))
    assert await seen(store, known.id) == before


async def test_followers_pass_the_depth_limit(store: Store) -> None:
    """
    The jobs that follow are added as by enqueue, with the settled job as their parent, also beyond the depth limit.
    """
    claimed = await running(store)
    await store.set_limit(Target("queue", "full"), Limit(max_depth=1), SIGN)
    await add(store, queue="full")
    await write(store, done(claimed, a_job(queue="full"), a_job(queue="full")))
    assert (await store.stats("full")).ready == 3


async def test_followers_stay_when_their_parent_is_not_kept(store: Store) -> None:
    """
    The jobs that follow are added as by enqueue, with the settled job as their parent, also beyond the depth limit.
    """
    claimed = await running(store)
    child = a_job()
    await write(store, done(claimed, child, keep=False))
    assert (await seen(store, child.id)).parent_id == claimed.id


async def test_followers_outlive_the_store_that_wrote_them(store: Store, reopen: Opener) -> None:
    """
    Write outcomes, each fenced by its lease number, each once, each together with the jobs that follow from it.
    """
    claimed = await running(store)
    child = a_job()
    await write(store, done(claimed, child))
    store = await reopen()
    assert (await take_one(store)).id == child.id


async def test_what_follows_is_added_though_a_cancel_was_asked(store: Store) -> None:
    """
    The jobs that follow are added as by enqueue, with the settled job as their parent, also beyond the depth limit.
    """
    claimed = await running(store)
    await ask_to_stop(store, claimed)
    child = a_job()
    await write(store, done(claimed, child))
    assert (await take_one(store)).id == child.id
