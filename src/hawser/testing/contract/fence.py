"""The fence: only the current lease may settle, and once."""

from __future__ import annotations

import asyncio

import pytest

from hawser.job import State
from hawser.outcome import Done, Failed, Failure, Outcome
from hawser.store import Filter, LeaseRef, Settled, Settlement, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    OUTCOMES,
    SIGN,
    Ending,
    Opener,
    a_job,
    add,
    add_many,
    cancelled,
    dead,
    done,
    every_outcome,
    failed,
    lose,
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


async def refuse(store: Store, *settlements: Settlement) -> None:
    """Each is lost and changes nothing."""
    for settlement in settlements:
        before = await store.get(settlement.id)
        assert said(await store.settle([settlement])) == [Settled.LOST]
        assert await store.get(settlement.id) == before


async def test_the_holder_of_a_run_is_told_by_its_lease(store: Store, clock: ManualClock) -> None:
    """The workers that took these jobs under these leases, in order. None stands for a lease that is not the current one."""
    mine, yours = await running(store, worker="w1"), await running(store, worker="w2", max_attempts=9)
    told = [LeaseRef(mine.id, mine.lease), LeaseRef(yours.id, yours.lease), LeaseRef(yours.id, yours.lease + 1)]
    assert await store.holders([*told, LeaseRef(new_id(), 1), LeaseRef("none", 1)]) == ["w1", "w2", None, None, None]
    assert await store.holders([]) == []
    await write(store, done(mine))
    assert await store.holders(told[:1]) == ["w1"], "a settlement may be repeated"
    await lose(store, clock)
    assert await store.holders(told[:2]) == ["w1", None]
    again = await take_one(store)
    assert await store.holders([LeaseRef(again.id, again.lease), *told[1:2]]) == ["w1", None]


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
    assert said(answers) == [Settled.LOST, Settled.SETTLED]
    assert (await seen(store, old.id)).result == 2


async def test_many_settlements_in_one_call_have_each_their_own_lease_and_wish_to_keep(store: Store, clock: ManualClock) -> None:
    """A settlement whose lease is not the current one changes nothing. A done job that is not kept is removed."""
    await add_many(store, 12)
    old = {run.id: run for run in await take(store)}
    await lose(store, clock)
    new = await take(store, worker="w2")
    asked = [done(old[run.id] if n % 3 == 0 else run, keep=n % 2 == 0) for n, run in enumerate(new)]
    right = [Settled.LOST if n % 3 == 0 else Settled.SETTLED for n in range(12)]
    assert said(await store.settle(asked)) == right
    found = [await store.get(run.id) for run in new]
    states = [job and job.state for job in found]
    assert states == [State.RUNNING if n % 3 == 0 else State.DONE if n % 2 == 0 else None for n in range(12)]
    again = [settlement for settlement, answer in zip(asked, right, strict=True) if answer is Settled.LOST]
    assert said(await store.settle([*again, *(done(run) for run in new[::3])])) == [Settled.LOST] * 4 + [Settled.SETTLED] * 4


@pytest.mark.parametrize("back", [failed, snoozed, released])
@every_outcome
async def test_a_lease_that_settled_cannot_settle_the_next_run(store: Store, back: Ending, outcome: Outcome) -> None:
    """A settlement whose lease is not the current one changes nothing."""
    old = await running(store)
    await write(store, back(old))
    new = await take_one(store, worker="w2")
    before = await seen(store, old.id)
    assert said(await store.settle([settle(old, outcome)])) != [Settled.SETTLED]
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
        assert said(await store.settle([Settlement(waiting, lease, outcome)])) != [Settled.SETTLED]
        assert await seen(store, waiting) == before
    await refuse(store, Settlement(new_id(), 1, outcome))


@every_outcome
async def test_the_lease_number_after_a_loss_belongs_to_nobody(store: Store, clock: ManualClock, outcome: Outcome) -> None:
    """A settlement whose lease is not the current one changes nothing."""
    lost = await running(store)
    await lose(store, clock)
    before = await seen(store, lost.id)
    assert said(await store.settle([Settlement(lost.id, before.lease, outcome)])) != [Settled.SETTLED]
    assert await seen(store, lost.id) == before


@pytest.mark.parametrize("end", [dead, cancelled])
@every_outcome
async def test_a_lease_from_before_a_requeue_is_refused(store: Store, end: Ending, outcome: Outcome) -> None:
    """A settlement whose lease is not the current one changes nothing."""
    old = await running(store)
    await write(store, end(old))
    await store.requeue([old.id], SIGN)
    before = await seen(store, old.id)
    assert said(await store.settle([settle(old, outcome)])) != [Settled.SETTLED]
    assert await seen(store, old.id) == before
    new = await take_one(store)
    before = await seen(store, old.id)
    assert said(await store.settle([settle(old, outcome)])) != [Settled.SETTLED]
    assert await seen(store, old.id) == before
    await write(store, done(new))


@every_outcome
async def test_a_lease_that_ran_out_settles_as_long_as_nobody_took_it_back(
    store: Store, clock: ManualClock, outcome: Outcome
) -> None:
    """One whose lease has run out is written all the same, unless the run was reclaimed: the number is the fence."""
    claimed = await running(store, lease_for=10)
    clock.advance(3600)
    child = a_job(queue="next")
    await write(store, settle(claimed, outcome, child))
    assert (await seen(store, claimed.id)).state is not State.RUNNING
    assert [job.id for job in (await store.find(Filter(parent_id=claimed.id))).jobs] == [child.id]
    assert await store.reclaim(10) == []
    assert said(await store.settle([settle(claimed, outcome, child)])) == [Settled.REPEATED]


@every_outcome
async def test_a_lease_that_ran_out_is_refused_after_it_was_taken_back(
    store: Store, clock: ManualClock, outcome: Outcome
) -> None:
    """One whose lease has run out is written all the same, unless the run was reclaimed: the number is the fence."""
    claimed = await running(store, lease_for=10, max_attempts=1)
    clock.advance(10.1)
    assert len(await store.reclaim(10)) == 1
    await refuse(store, settle(claimed, outcome))


async def test_leases_that_ran_out_settle_beside_those_that_stand_and_those_that_were_taken_back(
    store: Store, clock: ManualClock
) -> None:
    """One whose lease has run out is written all the same, unless the run was reclaimed: the number is the fence."""
    lost = await running(store, lease_for=5, max_attempts=1)
    await lose(store, clock, 5)
    over = await running(store, lease_for=5)
    clock.advance(6)
    stands = await running(store, lease_for=60)
    answers = await store.settle([done(lost), done(over), done(stands)])
    assert said(answers) == [Settled.LOST, Settled.SETTLED, Settled.SETTLED]


@every_outcome
async def test_a_repeated_settlement_says_so(store: Store, clock: ManualClock, outcome: Outcome) -> None:
    """One that this lease has made before changes nothing and says so."""
    claimed = await running(store)
    await write(store, settle(claimed, outcome))
    before = await seen(store, claimed.id)
    for _ in range(3):
        clock.advance(1)
        assert said(await store.settle([settle(claimed, outcome)])) == [Settled.REPEATED]
        assert await seen(store, claimed.id) == before


@every_outcome
async def test_a_settlement_repeated_in_one_call_says_so(store: Store, outcome: Outcome) -> None:
    """One that this lease has made before changes nothing and says so."""
    claimed = await running(store)
    answers = await store.settle([settle(claimed, outcome), settle(claimed, outcome)])
    assert said(answers) == [Settled.SETTLED, Settled.REPEATED]
    assert len((await seen(store, claimed.id)).attempts) <= 1


@every_outcome
async def test_a_lease_cannot_change_its_mind(store: Store, outcome: Outcome) -> None:
    """One that this lease has made before changes nothing and says so."""
    claimed = await running(store)
    await write(store, settle(claimed, outcome))
    before = await seen(store, claimed.id)
    for other in OUTCOMES:
        assert said(await store.settle([settle(claimed, other)])) == [Settled.REPEATED]
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
    assert said(await store.settle([settle(claimed, outcome)])) == [Settled.REPEATED]


async def test_a_settlement_sent_twice_at_once_is_written_once(store: Store, second: Opener) -> None:
    """One that this lease has made before changes nothing and says so."""
    other = await second()
    claimed = await running(store)
    answers = await asyncio.gather(*(handle.settle([failed(claimed)]) for handle in [store, other] * 5))
    assert sorted(answer.said for [answer] in answers) == [Settled.REPEATED] * 9 + [Settled.SETTLED]
    assert len((await seen(store, claimed.id)).attempts) == 1


@pytest.mark.parametrize("outcome", [Done(), Failed(Failure("boom"))], ids=["done", "failed"])
async def test_settlements_and_reclaims_at_once_end_each_run_once(
    store: Store, clock: ManualClock, second: Opener, outcome: Outcome
) -> None:
    """
    Write outcomes, each fenced by its lease number, each once, each together with the jobs that follow from it.
    """
    other = await second()
    await add_many(store, 60, max_attempts=1)
    runs = await take(store, lease_for=10)
    clock.advance(10)
    settling = asyncio.gather(*(store.settle([settle(run, outcome) for run in runs[n::6]]) for n in range(6)))
    reclaiming = asyncio.gather(*(other.reclaim(7) for _ in range(6)))
    answers, reclaimed = await settling, await reclaiming
    settled = {
        run.id for n in range(6) for run, answer in zip(runs[n::6], answers[n], strict=True) if answer.said is Settled.SETTLED
    }
    lost = {each.id for some in reclaimed for each in some}
    assert settled | lost == {run.id for run in runs}
    assert settled & lost == set()
    for run in runs:
        job = await seen(store, run.id)
        assert job.crashes == (run.id in lost)
        assert (job.lease, len(job.attempts)) == (run.lease + (run.id in lost), 1)


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


async def test_a_settlement_that_is_written_late_is_not_counted_as_stale(store: Store, clock: ManualClock) -> None:
    """Stale ones are counted."""
    claimed = await running(store, lease_for=10)
    clock.advance(11)
    await write(store, done(claimed))
    assert (await store.stats("default")).rates.get("stale", 0) == 0
