"""Jobs that wait in the middle of their handlers, for events and for jobs of their own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hawser.job import Claimed, State
from hawser.outcome import Done, Held
from hawser.store import Acted, Arrival, RecordedStep, Retention, Settled, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    Opener,
    a_job,
    ask_to_stop,
    done,
    failed,
    ids,
    lose,
    now,
    released,
    running,
    said,
    seen,
    settle,
    take,
    take_one,
    write,
)

WEEK = 7 * 86_400.0


async def held(store: Store, event: str = "packed", timeout: float | None = None, **fields: Any) -> Claimed:
    """A run that has come to a wait for an event, and is held there."""
    run = await running(store, **fields)
    await write(store, settle(run, Held(event, event=event, timeout=timeout)))
    return run


async def arrive(store: Store, run: Claimed, name: str = "packed", value: bytes | None = None) -> RecordedStep:
    event = None if value is not None else name
    step = await store.arrive(Arrival(id=run.id, lease=run.lease, name=name, event=event, value=value))
    assert step is not None
    return step


async def test_a_held_job_is_not_given_out(store: Store, clock: ManualClock) -> None:
    """A held job has no lease and burns no attempt: its attempts are counted anew."""
    run = await running(store, max_attempts=3)
    await write(store, failed(run))
    second_run = await take_one(store)
    assert second_run.attempt == 2
    [answer] = await store.settle([settle(second_run, Held("packed", event="packed"))])
    assert (answer.said, answer.state, answer.after) == (Settled.SETTLED, State.READY, None)
    job = await seen(store, run.id)
    assert (job.state, job.held, job.attempt, job.lease_until, job.worker) == (State.READY, True, 0, None, None)
    assert job.reason == "waits for the event 'packed'"
    stats = await store.stats()
    assert (stats.held, stats.running, stats.ready) == (1, 0, 0)
    clock.advance(1000 * 86_400)
    assert await store.reclaim(10) == []
    assert await take(store) == []
    [answer] = await store.settle([settle(second_run, Held("packed", event="packed"))])
    assert (answer.said, answer.state, answer.after) == (Settled.REPEATED, State.READY, None)


@pytest.mark.parametrize("group", [None, "acme"])
async def test_an_event_wakes_all_that_wait_for_it(store: Store, second: Opener, group: str | None) -> None:
    """
    It is given out again when its event has come, or all its jobs are done, or its time is over.
    Every job that is held for it is ready when emit answers.
    """
    runs = [await held(store, group=group) for _ in range(3)]
    other = await held(store, "paid", group=group)
    emitted = await (await second()).emit("packed", b'{"parcels":2}', WEEK)
    assert emitted.created
    woken = await take(store)
    assert sorted(ids(woken)) == sorted(ids(runs))
    assert all(run.attempt == 1 for run in woken)
    for run in woken:
        step = await arrive(store, run)
        assert (step.kind, step.value, step.event) == ("event", {"parcels": 2}, "packed")
    assert (await seen(store, other.id)).held
    assert (await store.stats()).held == 1


async def test_a_job_in_a_group_is_woken_beside_others_of_it(store: Store) -> None:
    """It is given out again when its event has come, or all its jobs are done, or its time is over."""
    run = await held(store, group="acme")
    other = await running(store, group="acme")
    await store.emit("packed", b"1", WEEK)
    assert ids(await take(store)) == [run.id]
    await write(store, done(other))
    assert await take(store) == []


async def test_an_event_that_came_before_is_not_waited_for(store: Store) -> None:
    """
    An event that came before counts.
    A wait for an event comes to what the event says, if that came before the time was over.
    """
    await store.emit("packed", b"1", WEEK)
    run = await running(store)
    step = await arrive(store, run)
    assert (step.kind, step.value, step.open) == ("event", 1, False)
    await write(store, done(run))
    late = await held(store)
    assert not (await seen(store, late.id)).held
    assert ids(await take(store)) == [late.id]
    assert (await store.stats()).held == 0


async def test_emit_between_the_look_and_the_wait_is_not_lost(store: Store, second: Opener) -> None:
    """An event that came before counts."""
    run = await running(store)
    assert (await arrive(store, run)).open
    await (await second()).emit("packed", b"1", WEEK)
    await write(store, settle(run, Held("packed", event="packed")))
    woken = await take(store)
    assert ids(woken) == [run.id]
    assert (await arrive(store, woken[0])).value == 1


async def test_no_wake_up_is_lost_when_all_comes_at_once(store: Store, second: Opener) -> None:
    """
    It is given out again when its event has come, or all its jobs are done, or its time is over.
    """
    other = await second()
    for n in range(10):
        runs = [await running(store) for _ in range(4)]
        waits = [(store, other)[k % 2].settle([settle(run, Held("e", event=f"e{n}"))]) for k, run in enumerate(runs)]
        await asyncio.gather(*waits[:2], other.emit(f"e{n}", b"1", WEEK), *waits[2:])
        again = await take(store)
        assert sorted(ids(again)) == sorted(ids(runs))
        await write(store, *map(done, again))


async def test_a_wait_comes_to_its_end(store: Store, clock: ManualClock) -> None:
    """
    It is given out again when its event has come, or all its jobs are done, or its time is over.
    Jobs that are not running are never touched, but for held ones whose time is over: those are ready then, however many
    they are.
    When the time is over it comes to a time-out.
    """
    run = await held(store, timeout=100)
    clock.advance(99)
    await store.reclaim(10)
    assert (await seen(store, run.id)).held
    clock.advance(1)
    await store.reclaim(10)
    assert (await store.stats()).held == 0
    again = await take_one(store)
    step = await arrive(store, again)
    assert (step.kind, step.value, step.until) == ("timeout", None, now(clock))


async def test_waits_whose_time_is_over_do_not_wait_for_a_reclaim(store: Store, clock: ManualClock, second: Opener) -> None:
    """Go on with jobs and batches that wait for what has ended or come, and with waits whose time is over, where the process
    died that was to do so."""
    run = await held(store, timeout=100)
    other = await second()
    await other.reclaim(10)  # as every process does: it learns that jobs wait here
    assert await other.go_on(), "a wait ends by and by: it is to be called again"
    clock.advance(99)
    await other.go_on()
    assert (await seen(store, run.id)).held
    clock.advance(1)
    await other.go_on()
    again = await take_one(store)
    assert (again.id, (await arrive(store, again)).kind) == (run.id, "timeout")


async def test_a_time_out_is_the_same_in_every_run(store: Store, clock: ManualClock) -> None:
    """What a wait came to stays: every later run gets the same."""
    run = await held(store, timeout=100)
    clock.advance(100)
    await store.reclaim(10)
    again = await take_one(store)
    first = await arrive(store, again)
    assert first.kind == "timeout"
    await store.emit("packed", b"1", WEEK)
    assert await arrive(store, again) == first
    await write(store, failed(again))
    clock.advance(5)
    third = await take_one(store)
    assert await arrive(store, third) == first
    assert await store.steps(run.id) == [first]


async def test_an_event_that_comes_behind_the_time_is_late(store: Store, clock: ManualClock) -> None:
    """A wait for an event comes to what the event says, if that came before the time was over."""
    await held(store, timeout=100)
    clock.advance(101)
    await store.emit("packed", b"1", WEEK)
    again = await take_one(store)
    assert (await arrive(store, again)).kind == "timeout"


async def test_an_event_in_time_counts_however_late_the_run_is(store: Store, clock: ManualClock) -> None:
    """A wait for an event comes to what the event says, if that came before the time was over."""
    await held(store, timeout=100)
    clock.advance(99)
    await store.emit("packed", b"1", WEEK)
    clock.advance(1000)
    await store.reclaim(10)
    again = await take_one(store)
    assert (await arrive(store, again)).kind == "event"


async def test_the_time_of_a_wait_begins_once(store: Store, clock: ManualClock) -> None:
    """
    The time begins when the job is first held under that name, and a later run makes it neither longer nor shorter.
    """
    run = await held(store, timeout=100)
    began, ends = now(clock), now(clock, 100)
    clock.advance(60)
    assert await store.cancel([run.id], SIGN) == [Acted.DONE]
    await store.requeue([run.id], SIGN)
    again = await take_one(store)
    step = await arrive(store, again)
    assert (step.open, step.at, step.until, step.left) == (True, began, ends, 40.0)
    await write(store, settle(again, Held("packed", event="packed", timeout=1000)))
    [step] = await store.steps(run.id)
    assert (step.kind, step.at, step.until) == ("wait", began, ends)
    clock.advance(40)
    await store.reclaim(10)
    assert (await arrive(store, await take_one(store))).kind == "timeout"


async def test_a_wait_that_is_not_over_goes_on(store: Store, clock: ManualClock) -> None:
    """
    What a wait of a run came to, recorded under the fence; an answer that is open says that the run has to be held.
    Those at which it waits are among them.
    """
    run = await running(store)
    step = await arrive(store, run)
    assert (step.name, step.event, step.open) == ("packed", "packed", True)
    assert await store.steps(run.id) == []
    clock.advance(5)
    await write(store, settle(run, Held("packed", event="packed", timeout=10)))
    [step] = await store.steps(run.id)
    assert (step.kind, step.event, step.at, step.until, step.left) == ("wait", "packed", now(clock), now(clock, 10), 10.0)
    await store.emit("packed", b"1", WEEK)
    [step] = await store.steps(run.id)
    assert (step.kind, step.open) == ("woken", True)


async def test_a_stale_run_decides_nothing(store: Store, clock: ManualClock) -> None:
    """When the lease is not the current one nothing is recorded, and the answer is None."""
    old = await running(store)
    await lose(store, clock)
    await store.emit("packed", b"1", WEEK)
    asked = Arrival(id=old.id, lease=old.lease, name="packed", event="packed")
    assert await store.arrive(asked) is None
    assert await store.arrive(Arrival(id="none", lease=1, name="x", event="x")) is None
    assert said(await store.settle([settle(old, Held("other", event="other"))])) == [Settled.LOST]
    new = await take_one(store)
    assert await store.arrive(asked) is None
    assert await store.steps(old.id) == []
    assert (await arrive(store, new)).value == 1


async def test_attempts_are_counted_from_what_a_wait_came_to(store: Store) -> None:
    """Attempts are counted from that on, as from any new record."""
    await held(store, max_attempts=2)
    await store.emit("packed", b"1", WEEK)
    again = await take_one(store)
    await write(store, failed(again))
    third = await take_one(store)
    assert third.attempt == 2
    await arrive(store, third)
    await write(store, failed(third))
    assert (await seen(store, third.id)).state is State.READY


async def test_a_held_job_can_be_cancelled(store: Store) -> None:
    run = await held(store)
    assert await store.cancel([run.id], SIGN) == [Acted.DONE]
    job = await seen(store, run.id)
    assert (job.state, job.held) == (State.CANCELLED, False)
    await store.emit("packed", b"1", WEEK)
    assert await take(store) == []
    assert (await store.stats()).held == 0
    await store.requeue([run.id], SIGN)
    assert (await arrive(store, await take_one(store))).value == 1


async def test_a_cancel_that_was_asked_goes_before_a_wait(store: Store) -> None:
    """Done stands when a cancel was asked; every way back to ready becomes cancelled then."""
    run, child = await running(store), a_job(queue="parts")
    await ask_to_stop(store, run)
    await write(store, settle(run, Held("parts", jobs=(child.id,)), child))
    assert (await seen(store, run.id)).state is State.CANCELLED
    assert await store.get(child.id) is None
    assert await store.steps(run.id) == []


async def test_many_waits_are_settled_in_one_call(store: Store) -> None:
    runs = [await running(store) for _ in range(4)]
    child = a_job(queue="parts")
    await write(
        store,
        settle(runs[0], Held("a", event="a")),
        done(runs[1]),
        settle(runs[2], Held("parts", jobs=(child.id,)), child),
        released(runs[3]),
    )
    assert [(await seen(store, run.id)).held for run in runs] == [True, False, True, False]
    assert ids(await take(store)) == [runs[3].id]


async def test_waits_go_with_their_job(store: Store, clock: ManualClock) -> None:
    """They go when it is removed: a new job with the same id has none."""
    run = await held(store, timeout=50)
    await store.cancel([run.id], SIGN)
    clock.advance(10)
    assert await store.prune(Retention(done=5, dead=5, cancelled=5), {}, 100) == 1
    assert await store.steps(run.id) == []
    await store.enqueue([a_job(id=run.id)])
    await store.emit("packed", b"1", 5.0)
    clock.advance(100)
    await store.reclaim(10)
    again = await take_one(store)
    await write(store, settle(again, Done(), keep=False))
    await store.prune(Retention(done=5, dead=5, cancelled=5), {}, 100)
    assert await store.event("packed") is None, "no job waits for it"
