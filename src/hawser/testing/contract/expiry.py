"""Jobs that are too late: not given out, and cancelled wherever they wait."""

from __future__ import annotations

import asyncio

import pytest

from hawser.errors import InvalidJob
from hawser.job import State
from hawser.limit import Limit
from hawser.outcome import Held
from hawser.store import EXPIRED, Acted, Share, Store, Target
from hawser.testing.clock import ManualClock
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
    now,
    released,
    running,
    seen,
    settle,
    take,
    take_one,
    write,
)


async def _ended(store: Store, id: str) -> tuple[State, str | None, int]:
    job = await seen(store, id)
    return job.state, job.reason, job.attempt


async def test_a_job_past_its_expiry_is_cancelled_and_not_given_out(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """
    A job that is past its expiry is not given out at any attempt: it is cancelled, with the reason `EXPIRED`.
    """
    late, live = await add(store, expires=10), await add(store, expires=10.000_001)
    assert (await seen(store, late)).expires_at == now(clock, 10)
    clock.advance(10)
    assert ids(await take(store)) == [live]
    assert await _ended(store, late) == (State.CANCELLED, EXPIRED, 0)
    job = await seen(store, late)
    assert (job.finished_at, job.attempts, job.expires_at) == (now(clock), (), now(clock))
    stats = await store.stats("default")
    assert (stats.ready, stats.running, stats.cancelled) == (0, 1, 1)
    store = await reopen()
    assert await _ended(store, late) == (State.CANCELLED, EXPIRED, 0)


async def test_a_job_in_time_is_given_out(store: Store, clock: ManualClock) -> None:
    """
    A job that is past its expiry is not given out at any attempt: it is cancelled, with the reason `EXPIRED`.
    """
    job, never = await add(store, expires=10), await add(store)
    clock.advance(9.999_999)
    claimed = await take(store)
    assert ids(claimed) == [job, never]
    clock.advance(60)
    await write(store, *(done(each) for each in claimed))
    assert [(await seen(store, id)).state for id in (job, never)] == [State.DONE] * 2
    assert (await seen(store, never)).expires_at is None


async def test_every_start_is_checked(store: Store, clock: ManualClock) -> None:
    """
    A job that is past its expiry is not given out at any attempt: it is cancelled, with the reason `EXPIRED`.
    """
    claimed = await running(store, expires=10, lease_for=600)
    handed_back = await running(store, expires=10, lease_for=600)
    clock.advance(60)
    assert await store.expire(10) == 0
    await write(store, failed(claimed, 5), released(handed_back))
    assert await take(store) == []
    clock.advance(5)
    assert await take(store) == []
    assert await _ended(store, claimed.id) == (State.CANCELLED, EXPIRED, 1)
    assert await _ended(store, handed_back.id) == (State.CANCELLED, EXPIRED, 0)
    assert [str(each) for each in (await seen(store, claimed.id)).errors] == ["ValueError: no"]


async def test_a_crowd_that_is_too_late_does_not_hold_up_others(store: Store, clock: ManualClock) -> None:
    """
    A crowd of such jobs in front of others does not make a claim come back empty.
    """
    crowd = [a_job(expires=5, priority=9) for _ in range(6_000)]
    await store.enqueue(crowd)
    await store.enqueue([a_job(expires=5, group="acme", priority=9) for _ in range(1_200)])
    live = await add_many(store, 3)
    clock.advance(5)
    assert [ids(await take(store, 1)) for _ in range(3)] == [[id] for id in live]
    for _ in range(9):
        clock.advance(1)
        assert await take(store, 1) == []
    stats = await store.stats("default")
    assert (stats.ready, stats.running, stats.cancelled) == (0, 3, 7_200)


@pytest.mark.parametrize("group", [None, "acme"])
@pytest.mark.parametrize("timeout", [None, 600.0])
async def test_a_job_that_is_held_for_an_event_expires(
    store: Store, clock: ManualClock, group: str | None, timeout: float | None
) -> None:
    """
    Cancel up to `limit` waiting jobs that are past their expiry, no matter why they wait, and say how many.
    """
    run, other = await running(store, expires=60, group=group), await running(store)
    await write(store, *(settle(each, Held("packed", event="packed", timeout=timeout)) for each in (run, other)))
    clock.advance(59)
    assert await store.expire(10) == 0
    assert (await seen(store, run.id)).held
    clock.advance(1)
    assert await store.expire(10) == 1
    assert await _ended(store, run.id) == (State.CANCELLED, EXPIRED, 0)
    assert not (await seen(store, run.id)).held
    stats = await store.stats()
    assert (stats.ready, stats.held, stats.running, stats.cancelled) == (0, 1, 0, 1)
    await store.emit("packed", b"1", 3600.0)
    assert ids(await take(store)) == [other.id], "the event wakes nobody who has ended"


async def test_an_expiry_counts_from_the_enqueue(store: Store, clock: ManualClock) -> None:
    """
    An expiry counts from when the store accepts the job, however long it has to wait for its time.
    """
    delayed = await add(store, delay=8, expires=10)
    grouped = await add(store, delay=8, expires=10, group="acme")
    dated = await add(store, run_at=now(clock, 20), expires=10)
    clock.advance(8)
    claimed = await take(store)
    assert sorted(ids(claimed)) == sorted([delayed, grouped])
    clock.advance(2)
    assert await take(store) == []
    assert await _ended(store, dated) == (State.CANCELLED, EXPIRED, 0)
    [parent] = [job for job in claimed if job.id == delayed]
    child = a_job(expires=10)
    await write(store, done(parent, child))
    assert (await seen(store, child.id)).expires_at == now(clock, 10)


async def test_the_shortest_expiry(store: Store, clock: ManualClock) -> None:
    """
    An expiry counts from when the store accepts the job, however long it has to wait for its time.
    """
    with pytest.raises(InvalidJob, match="expires: 4e-07 is not a time from 1 µs"):
        a_job(expires=4e-7)
    late, live = await add(store, expires=0.000_001, key="k"), await add(store)
    clock.advance(0.000_001)
    assert ids(await take(store)) == [live]
    assert await _ended(store, late) == (State.CANCELLED, EXPIRED, 0)


async def test_expiries_of_very_many_jobs_of_one_call(store: Store, clock: ManualClock) -> None:
    """
    An expiry counts from when the store accepts the job, however long it has to wait for its time.
    """
    jobs = [a_job(expires=n + 1) for n in range(2_500)]
    await store.enqueue(jobs)
    assert [(await seen(store, jobs[n].id)).expires_at for n in (0, 2_499)] == [now(clock, 1), now(clock, 2_500)]
    clock.advance(2_490)
    assert len(await take(store)) == 10


async def test_what_is_kept_back_expires_too(store: Store, clock: ManualClock) -> None:
    """
    Cancel up to `limit` waiting jobs that are past their expiry, no matter why they wait, and say how many.
    """
    paused, limited = await add(store, queue="paused", expires=5), await add(store, task="limited", expires=5)
    grouped = await add(store, queue="paused", group="acme", expires=5)
    later = await add(store, queue="paused", delay=4, expires=5)
    upstream = await add(store, queue="paused")
    held = a_job(expires=5).after(upstream)
    await store.enqueue([held])
    await store.pause(Target("queue", "paused"), SIGN)
    await store.set_limit(Target("task", "limited"), Limit(running=1), SIGN)
    clock.advance(4.9)
    assert await store.expire(10) == 0
    clock.advance(0.1)
    assert [await store.expire(3), await store.expire(10), await store.expire(10)] == [3, 2, 0]
    for id in (paused, limited, grouped, later, held.id):
        assert await _ended(store, id) == (State.CANCELLED, EXPIRED, 0)
    stats = await store.stats()
    assert (stats.ready, stats.scheduled, stats.held, stats.cancelled) == (1, 0, 0, 5)
    await store.resume(Target("queue", "paused"), SIGN)
    assert ids(await take(store, queue="paused")) == [upstream]


async def test_a_group_goes_on_behind_what_is_too_late(store: Store, clock: ManualClock) -> None:
    """
    A job that is past its expiry is not given out at any attempt: it is cancelled, with the reason `EXPIRED`.
    """
    late = await add(store, group="acme", expires=5)
    live, other = await add(store, group="acme"), await add(store, group="zeta")
    await store.set_limit(Target("queue", "default"), Limit(running=1, rate="10/s"), SIGN)
    clock.advance(5)
    first = await take_one(store)
    assert first.id == live
    await write(store, done(first))
    assert ids(await take(store)) == [other]
    assert await _ended(store, late) == (State.CANCELLED, EXPIRED, 0)


async def test_what_is_too_late_uses_up_nothing_of_a_limit(store: Store, clock: ManualClock) -> None:
    """
    A job that is past its expiry is not given out at any attempt: it is cancelled, with the reason `EXPIRED`.
    """
    await store.set_limit(Target("task", "work"), Limit(rate="2/m"), SIGN)
    await add_many(store, 5, expires=5)
    live = await add_many(store, 3)
    clock.advance(5)
    assert ids(await take(store)) == live[:2]


async def test_runs_go_on_past_their_expiry(store: Store, clock: ManualClock) -> None:
    """
    Running jobs go on.
    """
    claimed = await running(store, expires=5)
    clock.advance(6)
    assert await store.expire(10) == 0
    assert await take(store) == []
    await write(store, done(claimed))
    assert (await seen(store, claimed.id)).state is State.DONE


async def test_what_waits_for_a_job_that_is_too_late_is_cancelled(store: Store, clock: ManualClock) -> None:
    """
    What waits for one of them goes on as when a person cancels it.
    """
    late, later = a_job(expires=5, queue="paused"), a_job(expires=6)
    strict, any_end = a_job().after(late), a_job().after(late, on="ended")
    below = a_job().after(strict)
    behind = a_job().after(later)
    await store.pause(Target("queue", "paused"), SIGN)
    await store.enqueue([late, later, strict, any_end, below, behind])
    clock.advance(5)
    assert await store.expire(10) == 1
    assert (await seen(store, strict.id)).reason == f"it waited for job {late.id}, which is cancelled"
    assert (await seen(store, below.id)).state is State.CANCELLED
    clock.advance(1)
    assert ids(await take(store)) == [any_end.id]
    assert (await seen(store, behind.id)).state is State.CANCELLED


async def test_a_key_is_free_when_its_job_is_too_late(store: Store, clock: ManualClock) -> None:
    """
    A job that is past its expiry is not given out at any attempt: it is cancelled, with the reason `EXPIRED`.
    """
    await add(store, key="k", expires=5)
    clock.advance(5)
    assert await take(store) == []
    second = await add(store, key="k")
    assert ids(await take(store)) == [second]


async def test_of_many_who_look_each_job_is_cancelled_once(store: Store, second: Opener, clock: ManualClock) -> None:
    """
    Cancel up to `limit` waiting jobs that are past their expiry, no matter why they wait, and say how many.
    """
    other = await second()
    await add_many(store, 100, expires=5)
    clock.advance(5)
    counts = await asyncio.gather(*(handle.expire(30) for handle in (store, other) * 4))
    claims = await asyncio.gather(*(handle.claim([Share("default")], 10, "w", 60) for handle in (store, other)))
    assert sum(counts) <= 100
    assert claims == [[], []]
    clock.advance(1)
    await store.expire(100)
    stats = await store.stats("default")
    assert (stats.ready, stats.cancelled) == (0, 100)


async def test_a_requeued_job_does_not_expire(store: Store, clock: ManualClock) -> None:
    """
    A requeued job does not expire.
    """
    late, grouped = await add(store, expires=5, tags=("a",)), await add(store, expires=5, group="acme", key="k")
    claimed = await running(store, queue="q", expires=60)
    await write(store, dead(claimed))
    clock.advance(100)
    assert await store.expire(10) == 2
    assert await store.requeue([late, grouped, claimed.id], SIGN) == [Acted.DONE] * 3
    again = [*await take(store), *await take(store, queue="q")]
    assert sorted(ids(again)) == sorted([late, grouped, claimed.id])
    jobs = [await seen(store, id) for id in (late, grouped)]
    assert [(job.expires_at, job.tags, job.group, job.key) for job in jobs] == [
        (None, ("a",), None, None),
        (None, (), "acme", "k"),
    ]
    await write(store, *(failed(job) for job in again))
    assert len(await take(store)) == 2
