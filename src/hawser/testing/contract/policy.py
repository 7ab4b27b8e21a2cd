"""Policies: what a queue says of how its jobs are run."""

from __future__ import annotations

import pytest

from hawser.backoff import BackoffRule, Exponential, Fixed, Linear
from hawser.job import DEFAULT_ATTEMPTS, State
from hawser.limit import Limit
from hawser.policy import QueuePolicy
from hawser.store import Retention, Store, Target
from hawser.testing.contract.making import SIGN, Opener, a_job, add, done, failed, running, seen, take_one, write

THREE = QueuePolicy(max_attempts=3)


async def test_a_job_that_says_nothing_has_the_attempts_of_its_queue(store: Store, second: Opener) -> None:
    """
    A job that says nothing of its attempts has as many as its queue's policy says now, else `DEFAULT_ATTEMPTS`.
    Set how a queue's jobs are run, in place of the policy before.
    """
    other = await second()
    before = await add(store)
    await store.set_policy("default", THREE, SIGN)
    after, elsewhere = await add(other), await add(other, queue="other")
    await other.set_policy("default", QueuePolicy(max_attempts=7), SIGN)
    last = await add(store)
    said = [(await seen(store, id)).max_attempts for id in (before, after, elsewhere, last)]
    assert said == [DEFAULT_ATTEMPTS, 3, DEFAULT_ATTEMPTS, 7]


async def test_what_a_job_says_goes_before_its_queue(store: Store) -> None:
    """
    A job that says nothing of its attempts has as many as its queue's policy says now, else `DEFAULT_ATTEMPTS`.
    """
    await store.set_policy("default", THREE, SIGN)
    assert (await seen(store, await add(store, max_attempts=2))).max_attempts == 2


async def test_the_jobs_that_follow_have_the_attempts_of_their_queue(store: Store) -> None:
    """
    A job that says nothing of its attempts has as many as its queue's policy says now, else `DEFAULT_ATTEMPTS`.
    """
    parent = await running(store)
    await store.set_policy("default", THREE, SIGN)
    child = a_job()
    await write(store, done(parent, child))
    assert (await seen(store, child.id)).max_attempts == 3


async def test_a_job_is_dead_after_the_attempts_of_its_queue(store: Store) -> None:
    """
    A job that says nothing of its attempts has as many as its queue's policy says now, else `DEFAULT_ATTEMPTS`.
    """
    await store.set_policy("default", QueuePolicy(max_attempts=2), SIGN)
    id = await add(store)
    for _ in range(2):
        claimed = await take_one(store)
        assert claimed.max_attempts == 2
        await write(store, failed(claimed))
    assert (await seen(store, id)).state is State.DEAD


@pytest.mark.parametrize(
    "backoff",
    [None, Exponential(base=0.5, cap=9.25), Linear(step=2, cap=60, jitter="equal"), Fixed(every=0, jitter="added")],
    ids=repr,
)
async def test_the_policies_that_are_set_are_told(store: Store, reopen: Opener, backoff: BackoffRule | None) -> None:
    """The policies that are set, by queue."""
    policy = QueuePolicy(max_attempts=4, backoff=backoff, concurrency=2)
    await store.set_policy("a", policy, SIGN)
    await store.set_policy("b", QueuePolicy(concurrency=1), SIGN)
    await store.prune(Retention(), {}, 100)
    store = await reopen()
    assert await store.policies() == {"a": policy, "b": QueuePolicy(concurrency=1)}


async def test_a_policy_takes_the_place_of_the_one_before(store: Store) -> None:
    """Set how a queue's jobs are run, in place of the policy before."""
    await store.set_policy("default", QueuePolicy(max_attempts=3, concurrency=2), SIGN)
    await store.set_policy("default", QueuePolicy(backoff=Fixed(every=1)), SIGN)
    assert await store.policies() == {"default": QueuePolicy(backoff=Fixed(every=1))}
    assert (await seen(store, await add(store))).max_attempts == DEFAULT_ATTEMPTS


async def test_a_policy_may_be_taken_away(store: Store) -> None:
    """
    Set how a queue's jobs are run, in place of the policy before.
    The policies that are set, by queue.
    """
    await store.set_policy("default", THREE, SIGN)
    await store.set_policy("default", QueuePolicy(), SIGN)
    assert await store.policies() == {}
    assert await store.queues() == {}
    assert (await seen(store, await add(store))).max_attempts == DEFAULT_ATTEMPTS


async def test_a_policy_and_a_limit_do_not_touch_each_other(store: Store) -> None:
    """Set how a queue's jobs are run, in place of the policy before."""
    await store.set_limit(Target("queue", "default"), Limit(max_depth=9), SIGN)
    await store.set_policy("default", THREE, SIGN)
    assert [(use.target.name, use.limit) for use in await store.limits()] == [("default", Limit(max_depth=9))]
    await store.set_limit(Target("queue", "default"), Limit(), SIGN)
    assert await store.policies() == {"default": THREE}


async def test_a_queue_that_has_only_a_policy_is_listed(store: Store) -> None:
    """The figures of every queue that holds jobs, is paused, or has a limit or a policy."""
    await store.set_policy("empty", THREE, SIGN)
    assert set(await store.queues()) == {"empty"}
