"""The fence: only the current lease, while it lasts, may settle, and once."""

from __future__ import annotations

import asyncio

import pytest

from hawser.ids import new_id
from hawser.job import State
from hawser.outcome import Done, Outcome
from hawser.store import Filter, Settled, Settlement, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    OUTCOMES,
    SIGN,
    Ending,
    Opener,
    a_job,
    add,
    cancelled,
    dead,
    done,
    every_outcome,
    failed,
    lose,
    released,
    running,
    seen,
    settle,
    snoozed,
    take_one,
    write,
)


async def refuse(store: Store, *settlements: Settlement) -> None:
    """Each is lost and changes nothing."""
    for settlement in settlements:
        before = await store.get(settlement.id)
        assert await store.settle([settlement]) == [Settled.LOST]
        assert await store.get(settlement.id) == before


@every_outcome
async def test_leases_of_every_age_are_refused(store: Store, clock: ManualClock, outcome: Outcome) -> None:
    """A settlement whose lease is not the current one changes nothing."""
    await add(store, max_attempts=9)
    stale = []
    for _ in range(4):
        stale.append(await take_one(store))
        await lose(store, clock)
        await refuse(store, *(settle(old, outcome) for old in stale))
    current = await take_one(store)
    await refuse(store, *(settle(old, outcome) for old in stale))
    await write(store, done(current))
    await refuse(store, *(settle(old, outcome) for old in stale))


async def test_a_late_settlement_is_refused_beside_the_new_one(store: Store, clock: ManualClock) -> None:
    """A settlement whose lease is not the current one changes nothing."""
    old = await running(store)
    await lose(store, clock)
    new = await take_one(store, worker="w2")
    answers = await store.settle([done(old, result=b"1"), done(new, result=b"2")])
    assert answers == [Settled.LOST, Settled.SETTLED]
    assert (await seen(store, old.id)).result == 2


@pytest.mark.parametrize("back", [failed, snoozed, released])
@every_outcome
async def test_a_lease_that_settled_cannot_settle_the_next_run(store: Store, back: Ending, outcome: Outcome) -> None:
    """A settlement whose lease is not the current one changes nothing."""
    old = await running(store)
    await write(store, back(old))
    new = await take_one(store, worker="w2")
    before = await seen(store, old.id)
    assert await store.settle([settle(old, outcome)]) != [Settled.SETTLED]
    assert await seen(store, old.id) == before
    await write(store, done(new))


@every_outcome
async def test_a_lease_that_was_never_given_is_refused(store: Store, outcome: Outcome) -> None:
    """A settlement whose lease is not the current one changes nothing."""
    waiting = await add(store, delay=60)
    claimed = await running(store)
    for lease in (0, -1, claimed.lease + 1, 2**40):
        await refuse(store, Settlement(claimed.id, lease, outcome))
    for lease in (0, 1):
        before = await seen(store, waiting)
        assert await store.settle([Settlement(waiting, lease, outcome)]) != [Settled.SETTLED]
        assert await seen(store, waiting) == before
    await refuse(store, Settlement(new_id(), 1, outcome))


@every_outcome
async def test_the_lease_number_after_a_loss_belongs_to_nobody(store: Store, clock: ManualClock, outcome: Outcome) -> None:
    """A settlement whose lease is not the current one changes nothing."""
    lost = await running(store)
    await lose(store, clock)
    before = await seen(store, lost.id)
    assert await store.settle([Settlement(lost.id, before.lease, outcome)]) != [Settled.SETTLED]
    assert await seen(store, lost.id) == before


@pytest.mark.parametrize("end", [dead, cancelled])
@every_outcome
async def test_a_lease_from_before_a_requeue_is_refused(store: Store, end: Ending, outcome: Outcome) -> None:
    """A settlement whose lease is not the current one changes nothing."""
    old = await running(store)
    await write(store, end(old))
    await store.requeue([old.id], SIGN)
    before = await seen(store, old.id)
    assert await store.settle([settle(old, outcome)]) != [Settled.SETTLED]
    assert await seen(store, old.id) == before
    new = await take_one(store)
    before = await seen(store, old.id)
    assert await store.settle([settle(old, outcome)]) != [Settled.SETTLED]
    assert await seen(store, old.id) == before
    await write(store, done(new))


@every_outcome
async def test_a_lease_that_ran_out_is_refused_before_anybody_took_it_back(
    store: Store, clock: ManualClock, outcome: Outcome
) -> None:
    """One whose lease has run out changes nothing, reclaimed or not."""
    claimed = await running(store, lease_for=10)
    clock.advance(10.1)
    await refuse(store, settle(claimed, outcome, a_job()))
    assert (await seen(store, claimed.id)).state is State.RUNNING
    assert (await store.find(Filter(parent_id=claimed.id))).jobs == []


@every_outcome
async def test_a_lease_that_ran_out_is_refused_after_it_was_taken_back(
    store: Store, clock: ManualClock, outcome: Outcome
) -> None:
    """One whose lease has run out changes nothing, reclaimed or not."""
    claimed = await running(store, lease_for=10, max_attempts=1)
    clock.advance(10.1)
    assert len(await store.reclaim(10)) == 1
    await refuse(store, settle(claimed, outcome))


async def test_a_lease_may_settle_until_it_runs_out(store: Store, clock: ManualClock) -> None:
    """One whose lease has run out changes nothing, reclaimed or not."""
    claimed = await running(store, lease_for=10)
    clock.advance(9.999)
    await write(store, done(claimed))


@every_outcome
async def test_a_repeated_settlement_says_so(store: Store, clock: ManualClock, outcome: Outcome) -> None:
    """One that this lease has made before changes nothing and says so."""
    claimed = await running(store)
    await write(store, settle(claimed, outcome))
    before = await seen(store, claimed.id)
    for _ in range(3):
        clock.advance(1)
        assert await store.settle([settle(claimed, outcome)]) == [Settled.REPEATED]
        assert await seen(store, claimed.id) == before


@every_outcome
async def test_a_settlement_repeated_in_one_call_says_so(store: Store, outcome: Outcome) -> None:
    """One that this lease has made before changes nothing and says so."""
    claimed = await running(store)
    answers = await store.settle([settle(claimed, outcome), settle(claimed, outcome)])
    assert answers == [Settled.SETTLED, Settled.REPEATED]
    assert len((await seen(store, claimed.id)).attempts) <= 1


@every_outcome
async def test_a_lease_cannot_change_its_mind(store: Store, outcome: Outcome) -> None:
    """One that this lease has made before changes nothing and says so."""
    claimed = await running(store)
    await write(store, settle(claimed, outcome))
    before = await seen(store, claimed.id)
    for other in OUTCOMES:
        assert await store.settle([settle(claimed, other)]) == [Settled.REPEATED]
        assert await seen(store, claimed.id) == before


@every_outcome
async def test_a_repeated_settlement_says_so_long_after_its_lease_ended(
    store: Store, clock: ManualClock, reopen: Opener, outcome: Outcome
) -> None:
    """One that this lease has made before changes nothing and says so."""
    claimed = await running(store, lease_for=10)
    await write(store, settle(claimed, outcome))
    clock.advance(3600)
    store = await reopen()
    assert await store.settle([settle(claimed, outcome)]) == [Settled.REPEATED]


async def test_a_settlement_sent_twice_at_once_is_written_once(store: Store, second: Opener) -> None:
    """One that this lease has made before changes nothing and says so."""
    other = await second()
    claimed = await running(store)
    answers = await asyncio.gather(*(handle.settle([failed(claimed)]) for handle in [store, other] * 5))
    assert sorted(answer for [answer] in answers) == [Settled.REPEATED] * 9 + [Settled.SETTLED]
    assert len((await seen(store, claimed.id)).attempts) == 1


async def test_a_settlement_and_a_reclaim_at_once_end_in_one_of_them(store: Store, clock: ManualClock, second: Opener) -> None:
    """
    Write outcomes, each fenced by its lease number, each once, each together with the jobs that follow from it.
    """
    other = await second()
    claimed = await running(store, lease_for=10)
    clock.advance(10)
    [settled], lost = await asyncio.gather(store.settle([done(claimed)]), other.reclaim(10))
    assert (settled is Settled.SETTLED) is (lost == [])


async def test_stale_settlements_are_counted(store: Store, clock: ManualClock) -> None:
    """Stale ones are counted."""
    claimed = await running(store, queue="q")
    await lose(store, clock)
    assert (await store.stats("q")).rates.get("stale", 0) == 0
    await store.settle([done(claimed)] * 12)
    one = (await store.stats("q")).rates["stale"]
    await store.settle([done(claimed)] * 12)
    assert 0 < one < (await store.stats("q")).rates["stale"]
    assert (await store.stats("other")).rates.get("stale", 0) == 0


async def test_a_settlement_that_ran_out_is_counted_as_stale(store: Store, clock: ManualClock) -> None:
    """Stale ones are counted."""
    claimed = await running(store, lease_for=10)
    clock.advance(11)
    await store.settle([settle(claimed, Done())] * 12)
    assert (await store.stats("default")).rates["stale"] > 0
