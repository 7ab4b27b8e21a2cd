"""Extend: longer leases, progress, and the word that a run should end."""

from __future__ import annotations

import asyncio

import pytest

from hawser.job import Claimed, State
from hawser.outcome import Outcome
from hawser.store import SETTLE_GRACE, Filter, LeaseRef, LeaseStatus, Settled, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    Ending,
    Opener,
    add,
    add_many,
    ask_to_stop,
    dead,
    done,
    every_outcome,
    failed,
    lose,
    now,
    ref,
    released,
    running,
    said,
    seen,
    settle,
    snoozed,
    take,
    take_one,
    write,
)
from hawser.value.ids import new_id

HELD, LOST, CANCEL_ASKED = LeaseStatus.HELD, LeaseStatus.LOST, LeaseStatus.CANCEL_ASKED


async def refuse(store: Store, *claims: Claimed) -> None:
    """Each is lost, changes nothing and notes no progress."""
    for claimed in claims:
        before = await store.get(claimed.id)
        assert await store.extend("w1", [ref(claimed, b'"stale"')], 1000) == [LOST]
        assert await store.get(claimed.id) == before


async def test_an_extension_counts_from_now(store: Store, clock: ManualClock) -> None:
    """Lengthen leases to `lease_for` seconds from now, and note the progress they carry."""
    claimed = await running(store, lease_for=10)
    clock.advance(8)
    assert await store.extend("w1", [ref(claimed)], 12.5) == [HELD]
    assert (await seen(store, claimed.id)).lease_until == now(clock, 12.5)


async def test_an_extended_lease_is_held_past_its_first_end(store: Store, clock: ManualClock) -> None:
    """Lengthen leases to `lease_for` seconds from now, and note the progress they carry."""
    claimed = await running(store, lease_for=10)
    for _ in range(5):
        clock.advance(9)
        assert await store.extend("w1", [ref(claimed)], 10) == [HELD]
        assert await store.reclaim(10) == []
    clock.advance(9)
    await write(store, done(claimed))


async def test_an_extension_changes_neither_the_lease_number_nor_the_attempt(store: Store, clock: ManualClock) -> None:
    """Lengthen leases to `lease_for` seconds from now, and note the progress they carry."""
    claimed = await running(store)
    clock.advance(1)
    await store.extend("w1", [ref(claimed)], 60)
    job = await seen(store, claimed.id)
    assert (job.state, job.lease, job.attempt) == (State.RUNNING, claimed.lease, 1)
    assert job.started_at == now(clock, -1)


async def test_many_leases_are_answered_in_their_order(store: Store, clock: ManualClock) -> None:
    """Lengthen leases to `lease_for` seconds from now, and note the progress they carry."""
    lost = await running(store, lease_for=1, max_attempts=1)
    await lose(store, clock, 1)
    await add_many(store, 3)
    one, two, three = await take(store, lease_for=10)
    await ask_to_stop(store, two)
    answers = await store.extend("w1", [ref(three), ref(lost), ref(two), ref(one)], 20)
    assert answers == [HELD, LOST, CANCEL_ASKED, HELD]
    assert await store.extend("w1", [], 20) == []


async def test_progress_is_noted(store: Store, reopen: Opener) -> None:
    """Lengthen leases to `lease_for` seconds from now, and note the progress they carry."""
    claimed = await running(store)
    assert (await seen(store, claimed.id)).progress is None
    for text in (b'{ "done": 1 }', b"0.5"):
        assert await store.extend("w1", [ref(claimed, text)], 60) == [HELD]
        assert (await seen(store, claimed.id)).progress_body == text
    assert await store.extend("w1", [ref(claimed)], 60) == [HELD]
    store = await reopen()
    assert (await seen(store, claimed.id)).progress == 0.5


async def test_progress_is_noted_when_the_lease_cannot_grow(store: Store) -> None:
    """Lengthen leases to `lease_for` seconds from now, and note the progress they carry."""
    claimed = await running(store, timeout=10, lease_for=1000)
    assert await store.extend("w1", [ref(claimed, b"1")], 5) == [HELD]
    assert (await seen(store, claimed.id)).progress == 1


async def test_leases_of_every_age_are_not_extended(store: Store, clock: ManualClock) -> None:
    """A stale lease changes nothing and is counted."""
    await add(store, max_attempts=9)
    stale = []
    for _ in range(4):
        stale.append(await take_one(store))
        await lose(store, clock)
        await refuse(store, *stale)
    current = await take_one(store)
    await refuse(store, *stale)
    await write(store, done(current))
    await refuse(store, *stale, current)


@every_outcome
async def test_a_settled_lease_is_not_extended(store: Store, outcome: Outcome) -> None:
    """A stale lease changes nothing and is counted."""
    claimed = await running(store)
    await write(store, settle(claimed, outcome))
    await refuse(store, claimed)


@pytest.mark.parametrize("back", [failed, snoozed, released])
async def test_an_old_lease_does_not_extend_the_next_run(store: Store, back: Ending) -> None:
    """A stale lease changes nothing and is counted."""
    old = await running(store)
    await write(store, back(old))
    new = await take_one(store, lease_for=10)
    await refuse(store, old)
    assert await store.extend("w1", [ref(new)], 20) == [HELD]


async def test_a_lease_from_before_a_requeue_is_not_extended(store: Store) -> None:
    """A stale lease changes nothing and is counted."""
    old = await running(store)
    await write(store, dead(old))
    await store.requeue([old.id], SIGN)
    await refuse(store, old)
    await take_one(store)
    await refuse(store, old)


async def test_a_lease_that_was_never_given_is_not_extended(store: Store) -> None:
    """A stale lease changes nothing and is counted."""
    waiting = await add(store, delay=60)
    claimed = await running(store)
    wrong = [LeaseRef(claimed.id, lease, b"1") for lease in (0, -1, claimed.lease + 1)]
    wrong += [LeaseRef(waiting, 0, b"1"), LeaseRef(waiting, 1, b"1"), LeaseRef(new_id(), 1, b"1")]
    before = [await seen(store, claimed.id), await seen(store, waiting)]
    assert await store.extend("w1", wrong, 1000) == [LOST] * 6
    assert [await seen(store, claimed.id), await seen(store, waiting)] == before


async def test_a_lease_that_ran_out_is_held_again(store: Store, clock: ManualClock) -> None:
    """A lease that has run out is held again, unless the run was reclaimed."""
    claimed = await running(store, lease_for=10)
    clock.advance(60)
    assert await store.extend("w1", [ref(claimed, b'"late"')], 10) == [HELD]
    job = await seen(store, claimed.id)
    assert (job.lease, job.lease_until, job.progress) == (claimed.lease, now(clock, 10), "late")
    clock.advance(9)
    assert await store.reclaim(10) == []
    clock.advance(2)
    assert [lost.id for lost in await store.reclaim(10)] == [claimed.id]


async def test_a_lease_that_ran_out_is_lost_after_it_was_taken_back(store: Store, clock: ManualClock) -> None:
    """A lease that has run out is held again, unless the run was reclaimed."""
    claimed = await running(store, lease_for=10)
    await lose(store, clock, 10)
    await refuse(store, claimed)
    assert said(await store.settle([done(claimed)])) == [Settled.LOST]
    await refuse(store, claimed)


async def test_extensions_and_reclaims_at_once_leave_each_run_to_one_of_them(
    store: Store, clock: ManualClock, second: Opener
) -> None:
    """A lease that has run out is held again, unless the run was reclaimed."""
    other = await second()
    await add_many(store, 60)
    runs = await take(store, lease_for=10)
    clock.advance(11)
    extending = asyncio.gather(*(store.extend("w1", [ref(run) for run in runs[n::6]], 10) for n in range(6)))
    reclaiming = asyncio.gather(*(other.reclaim(7) for _ in range(6)))
    answers, reclaimed = await extending, await reclaiming
    held = {run.id for n in range(6) for run, said in zip(runs[n::6], answers[n], strict=True) if said is HELD}
    lost = {each.id for some in reclaimed for each in some}
    assert held | lost == {run.id for run in runs}
    assert held & lost == set()
    assert {job.id for job in (await store.find(Filter(state=State.RUNNING), limit=100)).jobs} == held


async def test_a_lease_that_ran_out_past_the_timeout_is_lost(store: Store, clock: ManualClock) -> None:
    """A lease that has run out and cannot be lengthened for that reason is lost."""
    claimed = await running(store, timeout=20, lease_for=10)
    clock.advance(20 + SETTLE_GRACE - 1)
    assert await store.extend("w1", [ref(claimed)], 10) == [HELD]
    assert (await seen(store, claimed.id)).lease_until == now(clock, 1)
    clock.advance(1)
    await refuse(store, claimed)
    await write(store, done(claimed))


async def test_a_short_extension_leaves_a_long_lease(store: Store, clock: ManualClock) -> None:
    """Extension never shortens a lease."""
    claimed = await running(store, lease_for=60)
    until = now(clock, 60)
    clock.advance(5)
    for lease_for in (1, 54, 0):
        assert await store.extend("w1", [ref(claimed)], lease_for) == [HELD]
        assert (await seen(store, claimed.id)).lease_until == until


async def test_an_extension_stops_shortly_after_the_timeout(store: Store, clock: ManualClock) -> None:
    """It never reaches further past the attempt's timeout than `SETTLE_GRACE`."""
    claimed = await running(store, timeout=20, lease_for=10)
    last = now(clock, 20 + SETTLE_GRACE)
    for _ in range(3):
        clock.advance(8)
        assert await store.extend("w1", [ref(claimed)], 1000) == [HELD]
        assert (await seen(store, claimed.id)).lease_until == last
    clock.advance(1 + SETTLE_GRACE)
    await refuse(store, claimed)
    assert [lost.id for lost in await store.reclaim(10)] == [claimed.id]


async def test_the_timeout_counts_from_the_attempts_own_start(store: Store, clock: ManualClock) -> None:
    """It never reaches further past the attempt's timeout than `SETTLE_GRACE`."""
    first = await running(store, timeout=20, lease_for=10)
    clock.advance(9)
    await write(store, failed(first))
    second = await take_one(store, lease_for=10)
    clock.advance(9)
    await store.extend("w1", [ref(second)], 1000)
    assert (await seen(store, first.id)).lease_until == now(clock, 11 + SETTLE_GRACE)


async def test_a_run_that_should_end_is_told_and_still_extended(store: Store, clock: ManualClock) -> None:
    """A run that was asked to end is told so."""
    claimed = await running(store, lease_for=10)
    await ask_to_stop(store, claimed)
    for _ in range(3):
        clock.advance(8)
        assert await store.extend("w1", [ref(claimed, b"1")], 10) == [CANCEL_ASKED]
        assert (await seen(store, claimed.id)).lease_until == now(clock, 10)
    assert (await seen(store, claimed.id)).progress == 1
    await write(store, done(claimed))


async def test_a_stale_run_is_lost_whatever_was_asked(store: Store, clock: ManualClock) -> None:
    """A run that was asked to end is told so. A stale lease changes nothing and is counted."""
    claimed = await running(store, lease_for=10)
    await ask_to_stop(store, claimed)
    clock.advance(11)
    assert await store.extend("w1", [ref(claimed)], 10) == [CANCEL_ASKED]
    await lose(store, clock, 10)
    await refuse(store, claimed)


async def test_stale_extensions_are_counted(store: Store, clock: ManualClock) -> None:
    """A stale lease changes nothing and is counted."""
    claimed = await running(store, queue="q", lease_for=10)
    await lose(store, clock, 10)
    assert (await store.stats("q")).rates["stale_extension"] == 0
    await store.extend("w1", [LeaseRef(claimed.id, claimed.lease)] * 12, 10)
    rates = (await store.stats("q")).rates
    assert rates["stale_extension"] > 0
    assert rates["stale"] == 0, "no settlement was refused"
    assert (await store.stats("other")).rates["stale_extension"] == 0


async def test_the_runs_that_are_to_end_are_told_by_worker(store: Store, second: Opener) -> None:
    """The runs of these workers that were asked to end, in any order."""
    other = await second()
    mine, yours = await running(store, worker="w1"), await running(store, worker="w2")
    free = await running(store, worker="w1")
    assert await store.asked_to_stop(["w1", "w2"]) == []
    for claimed in (mine, yours):
        await ask_to_stop(other, claimed)
    assert await store.asked_to_stop(["w1"]) == [ref(mine)]
    assert {asked.id for asked in await store.asked_to_stop(["w1", "w2", "w3"])} == {mine.id, yours.id}
    assert await store.asked_to_stop(["w3"]) == await store.asked_to_stop([]) == []
    await write(store, done(mine), done(free))
    assert await store.asked_to_stop(["w1", "w2"]) == [ref(yours)]


async def test_a_run_that_is_over_is_not_to_end(store: Store, clock: ManualClock) -> None:
    """The runs of these workers that were asked to end, in any order."""
    lost, waiting = await running(store, lease_for=5), await add(store, delay=60)
    await ask_to_stop(store, lost)
    await store.cancel([waiting], SIGN)
    await lose(store, clock, 5)
    assert await store.asked_to_stop(["w1"]) == []
    await store.requeue([lost.id], SIGN)
    assert (await take_one(store)).id == lost.id
    assert await store.asked_to_stop(["w1"]) == []
