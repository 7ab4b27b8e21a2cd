"""How long a lease lasts, and the instant it ends."""

from __future__ import annotations

from hawser.store import SETTLE_GRACE, LeaseStatus, Settled, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import add, add_many, done, failed, now, ref, running, said, seen, take, take_one, write


async def test_a_lease_ends_shortly_after_the_timeout(store: Store, clock: ManualClock) -> None:
    """A lease does not outlive the attempt's timeout by more than `SETTLE_GRACE`."""
    claimed = await running(store, timeout=10, lease_for=1000)
    assert (await seen(store, claimed.id)).lease_until == now(clock, 10 + SETTLE_GRACE)


async def test_a_lease_within_the_timeout_is_as_long_as_asked(store: Store, clock: ManualClock) -> None:
    """A lease does not outlive the attempt's timeout by more than `SETTLE_GRACE`."""
    short = await running(store, timeout=10, lease_for=3)
    grace = await running(store, timeout=10, lease_for=12)
    assert (await seen(store, short.id)).lease_until == now(clock, 3)
    assert (await seen(store, grace.id)).lease_until == now(clock, 12)


async def test_each_job_of_a_claim_has_the_lease_of_its_own_timeout(store: Store, clock: ManualClock) -> None:
    """A lease does not outlive the attempt's timeout by more than `SETTLE_GRACE`."""
    quick, slow = await add(store, timeout=1), await add(store, timeout=1000)
    await take(store, lease_for=60)
    assert (await seen(store, quick)).lease_until == now(clock, 1 + SETTLE_GRACE)
    assert (await seen(store, slow)).lease_until == now(clock, 60)


async def test_the_next_attempt_has_its_whole_timeout(store: Store, clock: ManualClock) -> None:
    """A lease does not outlive the attempt's timeout by more than `SETTLE_GRACE`."""
    claimed = await running(store, timeout=10, lease_for=1000)
    clock.advance(8)
    await write(store, failed(claimed))
    await take_one(store, lease_for=1000)
    assert (await seen(store, claimed.id)).lease_until == now(clock, 10 + SETTLE_GRACE)


async def test_a_run_whose_timeout_is_over_is_taken_back(store: Store, clock: ManualClock) -> None:
    """A lease does not outlive the attempt's timeout by more than `SETTLE_GRACE`."""
    claimed = await running(store, timeout=10, lease_for=1000)
    clock.advance(10 + SETTLE_GRACE - 0.1)
    assert await store.reclaim(10) == []
    clock.advance(0.2)
    assert [lost.id for lost in await store.reclaim(10)] == [claimed.id]


async def test_from_the_instant_it_ends_a_lease_belongs_to_whoever_comes_first(store: Store, clock: ManualClock) -> None:
    """
    One whose lease has run out is written all the same, unless the run was reclaimed: the number is the fence.
    A lease that has run out is held again, unless the run was reclaimed.
    """
    jobs = await add_many(store, 4)
    one, two, *rest = await take(store, lease_for=10)
    clock.advance(10)
    assert said(await store.settle([done(one)])) == [Settled.SETTLED]
    assert await store.extend("w1", [ref(two)], 10) == [LeaseStatus.HELD]
    assert {lost.id for lost in await store.reclaim(10)} == set(jobs) - {one.id, two.id}
    assert said(await store.settle([done(run) for run in rest])) == [Settled.LOST] * 2
    await write(store, done(two))
