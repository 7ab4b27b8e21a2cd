"""Jobs with a group: what is kept and counted of them, and the limits that hold for them."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from hawser.job import State
from hawser.limit import Limit
from hawser.store import Acted, Change, Filter, Store, Target
from hawser.testing.clock import ManualClock
from hawser.testing.contract.group_order import keep_order
from hawser.testing.contract.making import (
    SIGN,
    Opener,
    a_job,
    add,
    add_many,
    dead,
    done,
    failed,
    ids,
    in_state,
    seen,
    take,
    take_one,
    write,
)
from hawser.testing.contract.turns import fill, turns


async def test_a_group_stays_with_its_job(store: Store) -> None:
    """The whole job with all its attempts, or None."""
    id = await add(store, group="ü: x/1")
    assert (await seen(store, id)).group == "ü: x/1"
    claimed = await take_one(store)
    assert claimed.group == "ü: x/1"
    await write(store, done(claimed))
    assert (await seen(store, id)).group == "ü: x/1"
    for state in (State.DEAD, State.CANCELLED):
        assert (await seen(store, await in_state(store, state, group="g"))).group == "g"
    assert (await seen(store, await add(store))).group is None


async def test_jobs_of_a_group_are_found(store: Store) -> None:
    """Jobs that match, newest first, from behind the cursor `after`."""
    wanted = [await in_state(store, state, group="a") for state in (State.DONE, State.DEAD, State.READY)]
    await add(store, group="b")
    await add(store)
    assert ids((await store.find(Filter(group_name="a"))).jobs) == sorted(wanted, reverse=True)
    assert ids((await store.find(Filter(group_name="a", state=State.DEAD))).jobs) == [wanted[1]]
    assert (await store.find(Filter(group_name="none"))).jobs == []


async def test_groups_count_as_others_do(store: Store, clock: ManualClock) -> None:
    """The figures of one queue, or of all. Its cost does not grow with the number of jobs."""
    await fill(store, a=3, b=2)
    await add(store, group="a", delay=10)
    await write(store, failed((await take(store, limit=1))[0], after=10))
    stats = await store.stats("default")
    assert (stats.ready, stats.scheduled, stats.retrying, stats.due, stats.running) == (4, 1, 1, 4, 0)
    clock.advance(11)
    stats = await store.stats("default")
    assert (stats.ready, stats.scheduled, stats.retrying, stats.due) == (5, 0, 1, 6)
    assert stats.oldest_age_s == 11
    assert len(await take(store, limit=9)) == 6
    assert (await store.stats()).due == 0


async def test_many_groups_come_and_go(store: Store) -> None:
    """
    Within a queue and priority, groups take turns: a group with weight w is offered w places a turn, however many the others have
    waiting.
    """
    await store.enqueue([a_job(group=f"g{n % 200}") for n in range(600)])
    for _ in range(3):
        claims = [*await take(store, limit=120), *await take(store, limit=80)]
        assert len({claimed.group for claimed in claims}) == 200
        await write(store, *map(done, claims))
    assert await take(store) == []


async def test_jobs_that_come_while_their_group_runs_dry_are_given_out(store: Store, second: Opener) -> None:
    """
    Within a queue and priority, groups take turns: a group with weight w is offered w places a turn, however many the others have
    waiting.
    """
    handles = [store, await second(), await second(), await second()]
    wanted: list[str] = []
    given: list[str] = []

    async def produce(handle: Store) -> None:
        for n in range(12):
            job = a_job(group="ab"[n % 2])
            wanted.append(job.id)
            await handle.enqueue([job])

    async def consume(handle: Store) -> None:
        for _ in range(30):
            claims = await take(handle, 9)
            given.extend(ids(claims))
            await handle.settle([done(each) for each in claims])

    await asyncio.gather(*(produce(each) for each in handles[:2]), *(consume(each) for each in handles[2:]))
    await consume(store)
    assert sorted(given) == sorted(wanted)


@pytest.mark.parametrize("target", [Target("task", "work"), Target("queue", "default")], ids=["task", "queue"])
async def test_a_limit_holds_for_groups(store: Store, target: Target) -> None:
    """
    Of a queue or task with a limit, no more jobs run at once than it says, over all claimers, where a run counts until it is
    settled or reclaimed.
    """
    await store.set_limit(target, Limit(running=3), SIGN)
    await fill(store, a=5, b=5)
    await add_many(store, 2)
    first = await take(store, limit=9)
    assert len(first) == 3
    assert await take(store, limit=9) == []
    await write(store, done(first[0]), failed(first[1]))
    second = await take(store, limit=9)
    assert len(second) == 2
    assert await take(store, limit=9) == []
    for _ in range(9):
        await write(store, *map(done, second))
        second = await take(store, limit=9)
    assert (await store.stats()).running == 1


async def test_a_rate_holds_for_groups(store: Store, clock: ManualClock) -> None:
    """No more are started in any span of its period than it says; a start counts however its run ends."""
    await store.set_limit(Target("task", "work"), Limit(rate="4/m"), SIGN)
    await fill(store, a=5, b=5)
    assert Counter(await turns(store, 9)) == {"a": 2, "b": 2}
    assert await turns(store, 9) == ""
    clock.advance(70)
    assert Counter(await turns(store, 9)) == {"a": 2, "b": 2}


async def test_a_changed_job_goes_on_in_its_group(store: Store, clock: ManualClock) -> None:
    """Change the queue, the priority or the due time of waiting jobs, at once; what the change does not name stays."""
    first, second = await add(store, group="a", delay=50), await add(store, group="a")
    await fill(store, b=1)
    assert await store.change([first], Change(delay=0.0, priority=9), SIGN) == [Acted.DONE]
    assert await store.change([second], Change(queue="other"), SIGN) == [Acted.DONE]
    claims = await take(store)
    assert [(claimed.id, claimed.group, claimed.priority) for claimed in claims[:1]] == [(first, "a", 9)]
    assert len(claims) == 2
    assert ids(await take(store, queue="other")) == [second]
    assert await store.dead_letter([await add(store, group="c")], SIGN) == [Acted.DONE]
    clock.advance(60)
    assert await take(store) == []


async def test_a_job_of_a_group_joins_it_when_it_waits_for_no_other(store: Store, clock: ManualClock) -> None:
    """A job of a group joins it when it waits for no other."""
    first = await add(store, task="first")
    held, late = a_job(group="a", waits_for=(first,)), a_job(group="b", waits_for=(first,), delay=5.0)
    await store.enqueue([held, late])
    await add_many(store, 2, group="a")
    claims = await take(store)
    assert Counter(job.group for job in claims) == {None: 1, "a": 2}
    assert (await store.stats()).held == 2
    await write(store, *(done(job) for job in claims))
    assert (await store.stats()).held == 0
    assert ids(await take(store)) == [held.id]
    clock.advance(5)
    assert ids(await take(store)) == [late.id]


async def test_a_job_of_a_group_that_waits_for_others_may_end(store: Store) -> None:
    """A job of a group joins it when it waits for no other."""
    first = await add(store, task="first", delay=60)
    held, other = a_job(group="a", waits_for=(first,)), a_job(group="a", waits_for=(first,))
    await store.enqueue([held, other])
    assert await store.cancel([other.id], SIGN) == [Acted.DONE]
    assert await store.cancel([first], SIGN) == [Acted.DONE]
    assert {(await seen(store, id)).state for id in (held.id, other.id)} == {State.CANCELLED}
    await fill(store, a=1)
    assert await turns(store, 9) == "a"
    assert (await store.stats()).held == 0


async def test_a_job_that_is_requeued_before_another_has_started_goes_first_again(store: Store, clock: ManualClock) -> None:
    """
    Where the order of groups is kept, a job that has started goes before all others of its group, until it is done, dead or
    cancelled.
    """
    first, second_ = await add_many(store, 2, group="a")
    await keep_order(store)
    await write(store, dead(await take_one(store)))
    clock.advance(5)
    await store.requeue([first], SIGN)
    job = await take_one(store)
    assert job.id == first
    await write(store, done(job))
    assert ids(await take(store)) == [second_]
