"""Breakers: what opens and closes them, and what claims give out meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from hawser.breaker import Breaker
from hawser.job import State
from hawser.limit import Limit
from hawser.policy import DEFAULT_AGEING
from hawser.store import Actor, LeaseRef, Retention, Share, Store, Target
from hawser.store.breakers import AttemptCount, BreakerStatus, BreakerVerdict
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    WOKEN_WITHIN,
    Opener,
    add,
    add_many,
    cancelled,
    dead,
    done,
    failed,
    looks,
    now,
    seen,
    take,
    write,
)

RULE = Breaker(share=0.5, window=60, least=2, probe_every=30)


async def declared(store: Store) -> BreakerStatus:
    await store.declare_breakers({"work": RULE})
    return await the_breaker(store)


async def the_breaker(store: Store) -> BreakerStatus:
    [status] = await store.breakers()
    return status


async def opened(store: Store) -> BreakerStatus:
    status = await declared(store)
    assert await store.judge([BreakerVerdict(task="work", revision=status.revision, open=True, failed=3, attempts=4)]) == [True]
    return await the_breaker(store)


async def test_jobs_of_an_open_breaker_are_not_given_out(store: Store, second: Opener, clock: ManualClock) -> None:
    """
    Jobs of a task whose breaker is open are not given out and lose no attempt, but for one at a time, every `probe_every`
    seconds.
    """
    other = await second()
    ids = await add_many(store, 3)
    await add(store, task="healthy", priority=1)
    await opened(store)
    assert [job.task for job in await take(other)] == ["healthy"]
    clock.advance(29.9)
    assert await take(store) == await take(other) == []
    clock.advance(0.2)
    [probe] = await take(other)
    assert await take(store) == []
    status = await the_breaker(store)
    assert status.probe == LeaseRef(probe.id, probe.lease)
    assert status.probe_at == now(clock, 30)
    clock.advance(31)
    assert len(await take(store)) == 1
    assert (await seen(store, ids[2])).attempt == 0


@pytest.mark.parametrize("group", [None, "acme"])
async def test_a_crowd_behind_an_open_breaker_costs_the_others_nothing(
    store: Store, clock: ManualClock, group: str | None
) -> None:
    """Jobs that an open breaker keeps back cost the others nothing."""
    for priority, delay in ((9, 0), (5, 0), (5, 1), (0, 0)):
        await add_many(store, 40, priority=priority, delay=delay, group=group)
    await opened(store)
    clock.advance(2)
    await add_many(store, 16, task="other", priority=5)
    assert await started(store, 6) == {"other": 6}
    for _ in range(2):
        clock.advance(DEFAULT_AGEING)
        assert await started(store, 6) == {"work": 1, "other": 5}, "what has aged takes none of their places"
    stats = await store.stats("default")
    assert (stats.ready + stats.scheduled, stats.running) == (158, 18)


async def started(store: Store, limit: int) -> dict[str, int]:
    """Of so many places. A claim that takes the probe may end with it, and the next one goes on."""
    found: Counter[str] = Counter()
    for _ in range(2):
        found.update(job.task for job in await store.claim([Share("default")], limit - found.total(), "w1", 3_600))
    return dict(found)


async def test_a_new_rule_leaves_the_probe_that_is_under_way(store: Store, second: Opener, clock: ManualClock) -> None:
    """The last probe is named until its job is removed without having been done: one that is named and gone was done."""
    await add_many(store, 2)
    await opened(store)
    clock.advance(31)
    [probe] = await take(store)
    rule = Breaker(least=7, probe_every=60)
    await (await second()).declare_breakers({"work": rule})
    status = await the_breaker(store)
    assert (status.open, status.rule) == (True, rule)
    assert (status.probe, status.probe_at) == (LeaseRef(probe.id, probe.lease), now(clock, 30))
    clock.advance(31)
    assert len(await take(store)) == 1
    assert (await the_breaker(store)).probe_at == now(clock, 60)


async def test_of_many_claimers_one_gets_the_probe(store: Store, second: Opener, clock: ManualClock) -> None:
    """
    Jobs of a task whose breaker is open are not given out and lose no attempt, but for one at a time, every `probe_every`
    seconds.
    """
    stores = [store, *[await second() for _ in range(3)]]
    await add_many(store, 9)
    await opened(store)
    for _ in range(3):
        clock.advance(31)
        got = await asyncio.gather(*(take(each) for each in stores))
        assert sum(map(len, got)) == 1


async def test_a_prober_that_dies_does_not_keep_the_next_probe_back(store: Store, clock: ManualClock) -> None:
    """
    Jobs of a task whose breaker is open are not given out and lose no attempt, but for one at a time, every `probe_every`
    seconds.
    """
    await add_many(store, 2)
    await opened(store)
    clock.advance(31)
    [dead] = await take(store, lease_for=5)
    clock.advance(31)
    assert len(await store.reclaim(9)) == 1
    [next_] = await take(store)
    assert (await the_breaker(store)).probe == LeaseRef(next_.id, next_.lease)
    assert (next_.id, next_.lease) != (dead.id, dead.lease)


async def test_a_probe_obeys_limits_and_a_wait_ends_with_it(store: Store, clock: ManualClock) -> None:
    """
    Jobs of a task whose breaker is open are not given out and lose no attempt, but for one at a time, every `probe_every`
    seconds.
    """
    await add_many(store, 3)
    await store.set_limit(Target("task", "work"), Limit(running=1), SIGN)
    [before] = await take(store)
    await opened(store)
    clock.advance(31)
    assert await take(store) == []
    await write(store, done(before))
    async with asyncio.timeout(WOKEN_WITHIN):
        await store.wait(["default"], 10 * WOKEN_WITHIN)
    assert len(await take(store)) == 1
    assert [use.running for use in await store.limits()] == [1]


async def test_an_open_breaker_does_not_wake_those_who_wait(store: Store, clock: ManualClock) -> None:
    """
    Jobs of a task whose breaker is open are not given out and lose no attempt, but for one at a time, every `probe_every`
    seconds.
    """
    await add_many(store, 4)
    await opened(store)
    assert await take(store) == []
    assert await looks(store, 1.0) <= 40
    assert await store.open_breaker("work", SIGN)
    clock.advance(60)
    assert await take(store) == []
    assert await looks(store, 1.0) <= 40


async def test_a_wait_ends_when_a_probe_is_due(store: Store, clock: ManualClock) -> None:
    """
    Jobs of a task whose breaker is open are not given out and lose no attempt, but for one at a time, every `probe_every`
    seconds.
    """
    await add_many(store, 4)
    await opened(store)
    clock.advance(29.9)
    assert await take(store) == []
    async with asyncio.timeout(WOKEN_WITHIN):
        await store.wait(["default"], 10 * WOKEN_WITHIN)
    clock.advance(0.1)
    assert len(await take(store)) == 1
    assert await take(store) == []
    assert await looks(store, 0.5) <= 20


async def test_a_breaker_that_closes_lets_all_run(store: Store, clock: ManualClock) -> None:
    """Open or close breakers, each only if it is as it was when it was looked at; of many who judge at once one does."""
    await add_many(store, 3)
    status = await opened(store)
    assert (status.open, status.by, status.by_hand, status.failed, status.attempts) == (True, "breaker", False, 3, 4)
    assert (status.since, status.probe_at) == (now(clock), now(clock, 30))
    verdict = BreakerVerdict(task="work", revision=status.revision, open=False, counted=AttemptCount(5, 4, 3))
    assert await store.judge([verdict]) == [True]
    assert await store.judge([verdict]) == [False]
    closed = await the_breaker(store)
    assert (closed.open, closed.counted, closed.probe_at, closed.probe) == (False, AttemptCount(5, 4, 3), None, None)
    assert len(await take(store)) == 3
    assert await store.audit() == []


async def test_of_many_who_judge_at_once_one_opens_it(store: Store, second: Opener) -> None:
    """Open or close breakers, each only if it is as it was when it was looked at; of many who judge at once one does."""
    stores = [store, *[await second() for _ in range(3)]]
    status = await declared(store)
    verdict = BreakerVerdict(task="work", revision=status.revision, open=True, failed=3, attempts=3)
    answers = await asyncio.gather(*(each.judge([verdict]) for each in stores))
    assert sorted(answers) == [[False], [False], [False], [True]]
    assert await store.judge([BreakerVerdict(task="unknown", revision=0, open=True)]) == [False]


async def test_what_a_person_opened_a_person_closes(store: Store, clock: ManualClock) -> None:
    """A breaker that a person opened is closed by a person only."""
    await add_many(store, 2)
    await declared(store)
    assert await store.open_breaker("work", SIGN)
    status = await the_breaker(store)
    assert (status.open, status.by, status.by_hand, status.probe_at) == (True, "ann", True, None)
    assert await store.judge([BreakerVerdict(task="work", revision=status.revision, open=False)]) == [False]
    await store.declare_breakers({"work": None})
    clock.advance(3600)
    assert await take(store) == []
    assert await store.close_breaker("work", SIGN)
    assert len(await take(store)) == 2


async def test_a_breaker_is_opened_by_hand(store: Store, reopen: Opener) -> None:
    """
    Open the breaker of a task by hand: none of its jobs is given out until a person closes it; False when a person had opened it
    already.
    """
    await add(store)
    assert await store.open_breaker("work", SIGN)
    assert not await store.open_breaker("work", Actor("bob"))
    store = await reopen()
    assert await take(store) == []
    [record] = await store.audit()
    assert (record.action, record.target, record.by, record.reason) == ("open_breaker", "task:work", "ann", "asked for")


async def test_a_breaker_is_closed_by_hand(store: Store) -> None:
    """Close the breaker of a task by hand, and keep what was counted in this minute so far; False when it was closed."""
    await opened(store)
    assert await store.close_breaker("work", SIGN, AttemptCount(7, 5, 5))
    assert not await store.close_breaker("work", SIGN)
    status = await the_breaker(store)
    assert (status.open, status.by, status.counted) == (False, "ann", AttemptCount(7, 5, 5))
    assert [record.action for record in await store.audit()] == ["close_breaker"]


async def test_what_code_declares_of_breakers_is_kept(store: Store, reopen: Opener, clock: ManualClock) -> None:
    """
    Note the breakers that a worker's code declares of its tasks, in place of what was declared of them before; None declares
    none, and closes one that no person opened.
    """
    await store.declare_breakers({"work": RULE, "other": None})
    store = await reopen()
    status = await the_breaker(store)
    assert (status.task, status.rule, status.open, status.since) == ("work", RULE, False, now(clock))
    status = await opened(store)
    await store.declare_breakers({"work": None})
    assert await store.breakers() == []
    await add(store)
    assert len(await take(store)) == 1


async def test_breakers_are_listed_by_task(store: Store) -> None:
    """The breakers that are declared or open, by task."""
    assert await store.breakers() == []
    await store.declare_breakers({"b": RULE, "a": Breaker()})
    await store.open_breaker("c", SIGN)
    assert [(status.task, status.rule, status.open) for status in await store.breakers()] == [
        ("a", Breaker(), False),
        ("b", RULE, False),
        ("c", None, True),
    ]


async def test_a_failed_probe_leaves_the_breaker_open(store: Store, clock: ManualClock) -> None:
    """
    Jobs of a task whose breaker is open are not given out and lose no attempt, but for one at a time, every `probe_every`
    seconds.
    """
    await add_many(store, 2)
    await opened(store)
    clock.advance(31)
    [probe] = await take(store)
    await write(store, failed(probe))
    assert await take(store) == []
    assert (await seen(store, probe.id)).state is State.READY
    assert (await the_breaker(store)).open


async def test_a_probe_that_was_not_done_is_no_longer_named_when_its_job_is_gone(store: Store, clock: ManualClock) -> None:
    """The last probe is named until its job is removed without having been done: one that is named and gone was done."""
    await add_many(store, 9)
    await opened(store)
    for ended in (dead, cancelled):
        clock.advance(31)
        [probe] = await take(store)
        await write(store, ended(probe))
        await store.prune(Retention(done=0, dead=1, cancelled=1), {}, 100)
        assert (await the_breaker(store)).probe == LeaseRef(probe.id, probe.lease)
        clock.advance(2)
        assert await store.prune(Retention(done=0, dead=1, cancelled=1), {}, 100) == 1
        status = await the_breaker(store)
        assert (status.open, status.probe, status.probe_at) == (True, None, now(clock, 28))
    for kept in (True, False):
        clock.advance(31)
        [probe] = await take(store)
        await write(store, done(probe, keep=kept))
        clock.advance(2)
        await store.prune(Retention(done=1, dead=1, cancelled=1), {}, 100)
        assert await store.get(probe.id) is None
        assert (await the_breaker(store)).probe == LeaseRef(probe.id, probe.lease)
