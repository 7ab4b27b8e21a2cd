"""Reclaim after the clock was set back: leases are cut to their own length; and runs that finished after all."""

from __future__ import annotations

import pytest

from hawser.job import State
from hawser.store import DONE_LATE, LeaseRef, LeaseStatus, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    Ending,
    Opener,
    add_many,
    done,
    failed,
    ids,
    lose,
    now,
    ref,
    running,
    seen,
    snoozed,
    take,
    take_one,
    write,
)

HOUR = 3600.0


@pytest.mark.parametrize("back", [HOUR, 5, 86_400])
async def test_a_clock_set_back_does_not_keep_a_run_for_ever(store: Store, clock: ManualClock, back: float) -> None:
    """
    After the store's clock was set back, a lease that seems to have more time left than it was given is cut to that.
    """
    claimed = await running(store, lease_for=10)
    clock.advance(-back)
    assert await store.reclaim(10) == []
    assert (await seen(store, claimed.id)).lease_until == now(clock, 10)
    clock.advance(9.9)
    assert await store.reclaim(10) == []
    clock.advance(0.2)
    assert [lost.id for lost in await store.reclaim(10)] == [claimed.id]


async def test_a_clock_that_jumped_ahead_and_back_does_not_keep_a_run(store: Store, clock: ManualClock) -> None:
    """
    After the store's clock was set back, a lease that seems to have more time left than it was given is cut to that.
    """
    await store.reclaim(10)
    clock.advance(HOUR)
    claimed = await running(store, lease_for=10)
    clock.advance(1 - HOUR)
    assert await store.reclaim(10) == []
    assert (await seen(store, claimed.id)).lease_until == now(clock, 10)


async def test_a_clock_set_back_under_many_handles_keeps_no_run(store: Store, clock: ManualClock, second: Opener) -> None:
    """
    After the store's clock was set back, a lease that seems to have more time left than it was given is cut to that.
    """
    other = await second()
    await other.reclaim(10)
    claimed = await running(store, lease_for=10)
    clock.advance(-HOUR)
    await other.reclaim(10)
    assert (await seen(store, claimed.id)).lease_until == now(clock, 10)
    clock.advance(11)
    assert [lost.id for lost in await store.reclaim(10)] == [claimed.id]


async def test_every_lease_is_cut_to_its_own_length(store: Store, clock: ManualClock) -> None:
    """
    After the store's clock was set back, a lease that seems to have more time left than it was given is cut to that.
    """
    short = await running(store, lease_for=10)
    long = await running(store, lease_for=100)
    grown = await running(store, lease_for=10)
    capped = await running(store, lease_for=1000, timeout=15)
    await store.extend("w1", [ref(grown)], 50)
    clock.advance(-HOUR)
    await store.reclaim(10)
    untils = [(await seen(store, claimed.id)).lease_until for claimed in (short, long, grown, capped)]
    assert untils == [now(clock, 10), now(clock, 100), now(clock, 50), now(clock, 20)]


async def test_many_leases_are_all_cut_in_the_end(store: Store, clock: ManualClock) -> None:
    """
    After the store's clock was set back, a lease that seems to have more time left than it was given is cut to that.
    """
    jobs = await add_many(store, 50)
    assert ids(await take(store, lease_for=10)) == jobs
    clock.advance(-HOUR)
    taken: list[str] = []
    for _ in range(60):
        taken += [lost.id for lost in await store.reclaim(5)]
        clock.advance(1)
    assert sorted(taken) == sorted(jobs)


async def test_a_run_that_was_cut_may_go_on(store: Store, clock: ManualClock) -> None:
    """
    After the store's clock was set back, a lease that seems to have more time left than it was given is cut to that.
    """
    claimed = await running(store, lease_for=10)
    clock.advance(-HOUR)
    await store.reclaim(10)
    clock.advance(8)
    assert await store.extend("w1", [ref(claimed)], 10) == [LeaseStatus.HELD]
    clock.advance(8)
    assert await store.reclaim(10) == []
    await write(store, done(claimed))


async def test_a_clock_that_runs_forward_cuts_nothing(store: Store, clock: ManualClock) -> None:
    """
    After the store's clock was set back, a lease that seems to have more time left than it was given is cut to that.
    """
    claimed = await running(store, lease_for=10)
    await store.extend("w1", [ref(claimed)], 60)
    until = now(clock, 60)
    for _ in range(5):
        await store.reclaim(10)
        assert (await seen(store, claimed.id)).lease_until == until
        clock.advance(7)


async def test_a_run_that_did_its_work_after_all_ends_its_job(store: Store, clock: ManualClock) -> None:
    """Cancel a waiting job whose run was reclaimed, because that run finished its work after all; False, and nothing changes,
    when the job is not waiting, or was claimed since."""
    lost = await running(store, key="k")
    assert not await store.end_returned(LeaseRef(lost.id, lost.lease)), "it runs"
    await lose(store, clock)
    assert not await store.end_returned(LeaseRef(lost.id, lost.lease + 1))
    assert not await store.end_returned(LeaseRef("none", 1))
    assert await store.end_returned(LeaseRef(lost.id, lost.lease))
    job = await seen(store, lost.id)
    assert (job.state, job.reason) == (State.CANCELLED, DONE_LATE)
    assert not await store.end_returned(LeaseRef(lost.id, lost.lease)), "once"
    assert ((await store.stats()).ready, (await store.stats()).cancelled, (await store.stats()).keys) == (0, 1, 0)


@pytest.mark.parametrize("ending", [failed, snoozed], ids=["failed", "snoozed"])
async def test_a_run_whose_job_was_claimed_since_does_not_end_it(store: Store, clock: ManualClock, ending: Ending) -> None:
    """Cancel a waiting job whose run was reclaimed, because that run finished its work after all; False, and nothing changes,
    when the job is not waiting, or was claimed since."""
    lost = await running(store)
    await lose(store, clock)
    again = await take_one(store)
    for lease in (lost.lease, lost.lease + 1, again.lease):
        assert not await store.end_returned(LeaseRef(lost.id, lease)), "it runs"
    await write(store, ending(again))
    for lease in (lost.lease, lost.lease + 1, again.lease):
        assert not await store.end_returned(LeaseRef(lost.id, lease)), "that run gave it back itself"
    assert (await seen(store, lost.id)).state is State.READY
