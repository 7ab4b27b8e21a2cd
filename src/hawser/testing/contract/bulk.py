"""Bulk operations: kept, run by one process at a time, taken over, stopped."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from hawser.job import State
from hawser.store import (
    BULK_KEPT,
    BULK_SILENCE,
    BULKS_LISTED,
    Actor,
    BulkOperation,
    BulkPlan,
    BulkState,
    BulkStep,
    Change,
    Filter,
    Retention,
    Share,
    Store,
)
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import SIGN, Opener, a_job, dead, now
from hawser.value.fingerprint import Group
from hawser.value.ids import new_id

DEAD_JOBS: Final = Filter(state=State.DEAD)


def a_plan(**fields: Any) -> BulkPlan:
    return BulkPlan(**{"action": "requeue", "filter": DEAD_JOBS, "newest": new_id(), "rate": 10.0, "by": "key:ann", **fields})


async def dead_jobs(store: Store, count: int) -> list[str]:
    """Newest first, as an operation meets them."""
    ids = [enqueued.id for enqueued in await store.enqueue([a_job() for _ in range(count)])]
    claimed = await store.claim([Share("default")], count, "w1", 60.0)
    await store.settle([dead(each) for each in claimed])
    return sorted(ids, reverse=True)


def a_step(operation: BulkOperation, *ids: str, **fields: Any) -> BulkStep:
    about = {"id": operation.id, "turn": operation.turn, "behind": operation.cursor}
    return BulkStep(**{**about, "cursor": ids[-1] if ids else operation.cursor, "ids": ids, **fields})


async def stepped(store: Store, step: BulkStep) -> BulkOperation:
    written = await store.step_bulk(step)
    assert written is not None
    return written


async def states(store: Store, ids: list[str]) -> list[State]:
    jobs = [await store.get(id) for id in ids]
    return [job.state for job in jobs if job is not None]


async def test_an_operation_is_kept_whole(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """Keep a new operation, which this process runs; starting it again changes nothing."""
    filter = Filter(state=State.DEAD, queue="mail", tag="ü", since=now(clock), group=Group("work", "abc"))
    plan = a_plan(action="discard", filter=filter, most=7, limit=3, rate=2.5, confirm=True, reason="mended")
    id = new_id()
    started = await store.start_bulk(id, plan, "host:1")
    store = await reopen()
    kept = await store.bulk(id)
    assert kept == started
    assert (kept.id, kept.plan, kept.state, kept.owner, kept.turn) == (id, plan, BulkState.RUNNING, "host:1", 1)
    assert (kept.cursor, kept.done, kept.skipped, kept.error) == (None, 0, 0, None)
    assert (kept.started_at, kept.seen_at, kept.ended_at, kept.interrupted) == (now(clock), now(clock), None, False)
    clock.advance(1)
    assert await store.start_bulk(id, a_plan(), "host:2") == kept


async def test_every_process_sees_how_far_an_operation_is(store: Store, second: Opener) -> None:
    """The operation as any process of the store sees it, or None."""
    [one, other] = await dead_jobs(store, 2)
    started = await store.start_bulk(new_id(), a_plan(), "host:1")
    await store.step_bulk(a_step(started, one, skipped=1))
    elsewhere = await second()
    seen = await elsewhere.bulk(started.id)
    assert seen is not None
    assert (seen.done, seen.skipped, seen.cursor) == (1, 1, one)
    assert await elsewhere.bulk(new_id()) is None
    assert await elsewhere.bulk("none") is None
    assert await states(store, [other]) == [State.DEAD]


async def test_the_latest_operations_are_listed(store: Store) -> None:
    """The latest operations, newest first, at most `BULKS_LISTED`."""
    assert await store.bulks() == []
    ids = [new_id() for _ in range(BULKS_LISTED + 2)]
    for id in ids:
        await store.start_bulk(id, a_plan(), "host:1")
    assert [each.id for each in await store.bulks()] == ids[:1:-1]


@pytest.mark.parametrize(("action", "state"), [("requeue", State.READY), ("discard", State.CANCELLED)])
async def test_a_step_does_all_of_it(store: Store, clock: ManualClock, action: str, state: State) -> None:
    """Act on the jobs of a step, leave their audit record, count them and move the cursor, in one write."""
    one, two, three = await dead_jobs(store, 3)
    await store.discard([two], SIGN)
    started = await store.start_bulk(new_id(), a_plan(action=action, reason="mended"), "host:1")
    clock.advance(3)
    written = await stepped(store, a_step(started, one, two, new_id(), three, skipped=2))
    changed = 3 if action == "requeue" else 2  # a cancelled job can be requeued
    assert (written.done, written.skipped, written.cursor) == (changed, 6 - changed, three)
    assert (written.state, written.seen_at, written.ended_at) == (BulkState.RUNNING, now(clock), None)
    assert await states(store, [one, three]) == [state, state]
    [record] = await store.audit(action=action, by="key:ann")
    assert (record.count, record.reason, record.operation) == (changed, "mended", started.id)
    assert record.filter == {"state": "dead"}
    assert {one, three} <= set(record.ids)


async def test_waiting_jobs_are_cancelled_by_a_step(store: Store) -> None:
    """Act on the jobs of a step, leave their audit record, count them and move the cursor, in one write."""
    [enqueued] = await store.enqueue([a_job()])
    plan = a_plan(action="cancel", filter=Filter(state=State.READY))
    written = await stepped(store, a_step(await store.start_bulk(new_id(), plan, "host:1"), enqueued.id))
    assert (written.done, written.skipped) == (1, 0)
    assert await states(store, [enqueued.id]) == [State.CANCELLED]


async def test_waiting_jobs_are_changed_by_a_step(store: Store, clock: ManualClock) -> None:
    """Act on the jobs of a step, leave their audit record, count them and move the cursor, in one write."""
    [died] = await dead_jobs(store, 1)
    [waiting, later] = await store.enqueue([a_job(), a_job(delay=600)])
    plan = a_plan(action="change", filter=Filter(state=State.READY), change=Change(queue="other", priority=9))
    started = await store.start_bulk(new_id(), plan, "host:1")
    written = await stepped(store, a_step(started, waiting.id, later.id, died))
    assert (written.done, written.skipped, written.plan.change) == (2, 1, plan.change)
    for id in (waiting.id, later.id):
        job = await store.get(id)
        assert job is not None
        assert (job.queue, job.priority, job.run_at > now(clock)) == ("other", 9, id == later.id)
    [record] = await store.audit(action="change")
    assert (record.count, record.operation, set(record.ids)) == (2, started.id, {waiting.id, later.id})


async def test_a_sign_of_life_leaves_no_record(store: Store, clock: ManualClock) -> None:
    """Act on the jobs of a step, leave their audit record, count them and move the cursor, in one write."""
    started = await store.start_bulk(new_id(), a_plan(), "host:1")
    clock.advance(BULK_SILENCE - 1)
    written = await stepped(store, a_step(started))
    assert (written.cursor, written.done, written.seen_at) == (None, 0, now(clock))
    clock.advance(BULK_SILENCE - 1)
    assert await store.take_bulks("host:2", 10) == []
    assert await store.audit() == []


async def test_the_last_step_ends_it(store: Store, clock: ManualClock) -> None:
    """None, and nothing changes, when the operation has ended, when the turn is not the current one, or when the cursor
    is no longer the one that the step began at."""
    one, two = await dead_jobs(store, 2)
    for ends, error in ((BulkState.DONE, None), (BulkState.FAILED, "ValueError: no")):
        started = await store.start_bulk(new_id(), a_plan(), "host:1")
        ended = await stepped(store, a_step(started, one, ends=ends, error=error))
        assert (ended.state, ended.error, ended.ended_at) == (ends, error, now(clock))
        assert await store.step_bulk(a_step(ended, two)) is None
        clock.advance(BULK_SILENCE + 1)
        assert await store.take_bulks("host:2", 10) == []
    assert await states(store, [two]) == [State.DEAD]


async def test_a_step_is_written_once(store: Store) -> None:
    """None, and nothing changes, when the operation has ended, when the turn is not the current one, or when the cursor
    is no longer the one that the step began at."""
    [one] = await dead_jobs(store, 1)
    started = await store.start_bulk(new_id(), a_plan(), "host:1")
    step = a_step(started, one)
    written = await stepped(store, step)
    [again] = await store.claim([Share("default")], 1, "w1", 60.0)
    await store.settle([dead(again)])
    assert await store.step_bulk(step) is None
    assert await store.bulk(started.id) == written
    assert await states(store, [one]) == [State.DEAD]


async def test_a_frozen_process_does_not_go_on_with_what_another_has_taken(
    store: Store, clock: ManualClock, second: Opener
) -> None:
    """None, and nothing changes, when the operation has ended, when the turn is not the current one, or when the cursor
    is no longer the one that the step began at."""
    one, two = await dead_jobs(store, 2)
    started = await store.start_bulk(new_id(), a_plan(), "host:1")
    clock.advance(BULK_SILENCE)
    other = await second()
    [taken] = await other.take_bulks("host:2", 10)
    assert await store.step_bulk(a_step(started, one)) is None
    assert await states(store, [one]) == [State.DEAD]
    assert (await stepped(other, a_step(taken, two))).done == 1
    assert await states(store, [one, two]) == [State.DEAD, State.READY]
    assert await store.step_bulk(BulkStep(id=new_id(), turn=1, behind=None, cursor=one, ids=[one])) is None


async def test_an_interrupted_operation_is_taken_over(store: Store, clock: ManualClock) -> None:
    """An operation is interrupted when its last step is `BULK_SILENCE` seconds old, or was written by a clock that has been
    set back since."""
    [one] = await dead_jobs(store, 1)
    started = await store.start_bulk(new_id(), a_plan(), "host:1")
    await store.step_bulk(a_step(started, one))
    clock.advance(BULK_SILENCE - 0.001)
    assert await store.take_bulks("host:2", 10) == []
    assert [each.interrupted for each in await store.bulks()] == [False]
    clock.advance(0.001)
    seen = await store.bulk(started.id)
    assert seen is not None
    assert (seen.interrupted, seen.state) == (True, BulkState.RUNNING)
    [taken] = await store.take_bulks("host:2", 10)
    assert (taken.id, taken.owner, taken.turn, taken.seen_at) == (started.id, "host:2", 2, now(clock))
    assert (taken.cursor, taken.done, taken.interrupted) == (one, 1, False)
    assert await store.take_bulks("host:3", 10) == []


async def test_a_clock_that_was_set_back_hides_no_interrupted_operation(store: Store, clock: ManualClock) -> None:
    """An operation is interrupted when its last step is `BULK_SILENCE` seconds old, or was written by a clock that has been
    set back since."""
    await store.start_bulk(new_id(), a_plan(), "host:1")
    clock.advance(-3_600)
    assert len(await store.take_bulks("host:2", 10)) == 1


async def test_each_interrupted_operation_goes_to_one_process(store: Store, clock: ManualClock, second: Opener) -> None:
    """Take over up to `limit` interrupted operations, each for one process only, and with a new turn."""
    ids = {(await store.start_bulk(new_id(), a_plan(), "host:1")).id for _ in range(6)}
    clock.advance(BULK_SILENCE)
    assert len(await store.take_bulks("host:2", 2)) == 2
    stores = [store, *[await second() for _ in range(3)]]
    taken = await asyncio.gather(*(each.take_bulks(f"host:{n}", 10) for n, each in enumerate(stores)))
    assert len({each.id for some in taken for each in some} & ids) == sum(map(len, taken)) == 4
    assert [each.turn for each in await store.bulks()] == [2] * 6


async def test_a_released_operation_is_taken_at_once(store: Store) -> None:
    """Let another process take over a running operation at once, when the turn is the current one."""
    started = await store.start_bulk(new_id(), a_plan(), "host:1")
    await store.release_bulk(started.id, started.turn + 1)
    await store.release_bulk(new_id(), 1)
    assert await store.take_bulks("host:2", 10) == []
    await store.release_bulk(started.id, started.turn)
    [taken] = await store.take_bulks("host:2", 10)
    await store.release_bulk(taken.id, started.turn)
    assert await store.take_bulks("host:3", 10) == []


async def test_a_step_may_spread_the_jobs_that_it_requeues(store: Store, clock: ManualClock) -> None:
    """Jobs that a step requeues with a spread fall due evenly over it, from its delay on."""
    ids = await dead_jobs(store, 4)
    started = await store.start_bulk(new_id(), a_plan(spread=60.0), "host:1")
    assert started.plan.spread == 60
    written = await stepped(store, a_step(started, *ids, spread=40.0, delay=20.0))
    assert written.done == 4
    jobs = [await store.get(id) for id in ids]
    assert [job.run_at for job in jobs if job is not None] == [now(clock, 20 + 10 * n) for n in range(4)]


async def test_an_operation_is_stopped_by_any_process(store: Store, clock: ManualClock, second: Opener) -> None:
    """End a running operation and leave an audit record, in one write; the operation as it is then, or None when there is
    none."""
    started = await store.start_bulk(new_id(), a_plan(), "host:1")
    clock.advance(2)
    stopped = await (await second()).stop_bulk(started.id, Actor("key:bob", "enough"))
    assert stopped is not None
    assert (stopped.state, stopped.ended_at, stopped.interrupted) == (BulkState.STOPPED, now(clock), False)
    [record] = await store.audit()
    assert (record.action, record.target) == ("stop_operation", f"operation:{started.id}")
    assert (record.by, record.reason) == ("key:bob", "enough")
    assert await store.stop_bulk(new_id(), SIGN) is None
    assert await store.stop_bulk("none", SIGN) is None


async def test_a_stopped_operation_does_nothing_more(store: Store, clock: ManualClock) -> None:
    """No step is written after that. Stopping one that has ended changes nothing and leaves no record."""
    [one] = await dead_jobs(store, 1)
    started = await store.start_bulk(new_id(), a_plan(), "host:1")
    stopped = await store.stop_bulk(started.id, SIGN)
    assert await store.step_bulk(a_step(started, one)) is None
    assert await states(store, [one]) == [State.DEAD]
    clock.advance(BULK_SILENCE + 1)
    assert await store.take_bulks("host:2", 10) == []
    assert await store.stop_bulk(started.id, SIGN) == stopped
    assert len(await store.audit(action="stop_operation")) == 1


async def test_operations_that_ended_long_ago_are_forgotten(store: Store, clock: ManualClock) -> None:
    ended = await store.start_bulk(new_id(), a_plan(), "host:1")
    await store.step_bulk(a_step(ended, ends=BulkState.DONE))
    running = await store.start_bulk(new_id(), a_plan(), "host:1")
    clock.advance(BULK_KEPT - 1)
    await store.prune(Retention(), {}, 100)
    assert [each.id for each in await store.bulks()] == [running.id, ended.id]
    clock.advance(1)
    await store.prune(Retention(), {}, 100)
    assert [each.id for each in await store.bulks()] == [running.id]
