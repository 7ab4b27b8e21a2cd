"""The changes of single jobs: another place among those that wait, the end as dead, the leases of a dead worker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from hawser.job import Job, State
from hawser.limit import Limit
from hawser.store import Acted, Actor, Change, Filter, LeaseStatus, Settled, Share, Store, Target
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
    in_state,
    now,
    ref,
    released,
    running,
    said,
    seen,
    take,
    take_one,
    write,
)
from hawser.value.fingerprint import fingerprint


async def _waiting(store: Store, queue: str) -> tuple[int, int, int]:
    stats = await store.stats(queue)
    return stats.ready, stats.scheduled, stats.retrying


async def _retrying(store: Store, after: float = 0.0, **fields: Any) -> str:
    claimed = await running(store, **fields)
    await write(store, failed(claimed, after))
    return claimed.id


async def _changed(store: Store, id: str, **change: Any) -> Job:
    assert await store.change([id], Change(**change), SIGN) == [Acted.DONE]
    return await seen(store, id)


async def test_a_changed_priority_holds_for_the_next_claim(store: Store) -> None:
    """
    Change the queue, the priority or the due time of waiting jobs, at once; what the change does not name stays.
    """
    first, second = await add_many(store, 2, priority=3)
    before = await seen(store, second)
    after = await _changed(store, second, priority=9)
    assert after.priority == 9
    assert (after.run_at, after.queue, after.attempt, after.body) == (before.run_at, before.queue, before.attempt, before.body)
    claimed = await take(store)
    assert [(job.id, job.priority) for job in claimed] == [(second, 9), (first, 3)]
    await write(store, *(done(job) for job in claimed))
    assert (await seen(store, second)).priority == 9


async def test_a_change_moves_the_counts(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """
    Change the queue, the priority or the due time of waiting jobs, at once; what the change does not name stays.
    """
    fresh, timed = await add(store, queue="a"), await add(store, queue="a", delay=60)
    retrying = await _retrying(store, 30, queue="b")
    assert await _waiting(store, "a") == (1, 1, 0)
    await store.change([fresh, timed], Change(queue="c", priority=1), SIGN)
    assert (await _waiting(store, "a"), await _waiting(store, "c")) == ((0, 0, 0), (1, 1, 0))
    await store.change([retrying], Change(queue="c"), SIGN)
    assert (await _waiting(store, "b"), await _waiting(store, "c")) == ((0, 0, 0), (1, 1, 1))
    await store.change([fresh], Change(delay=10), SIGN)
    await store.change([timed], Change(delay=0), SIGN)
    assert await _waiting(store, "c") == (1, 1, 1)
    store = await reopen()
    assert sorted(ids((await store.find(Filter(queue="c"))).jobs)) == sorted([fresh, timed, retrying])
    assert (await store.find(Filter(queue="a"))).jobs == []
    assert {(lane.queue, lane.priority): lane.waiting for lane in await store.lanes()} == {("c", 1): 2, ("c", 5): 1}
    clock.advance(30)
    claimed = await take(store, queue="c")
    assert sorted(ids(claimed)) == sorted([fresh, timed, retrying])
    await write(store, *(done(job) for job in claimed))
    assert ((await store.stats("c")).done, await _waiting(store, "c")) == (3, (0, 0, 0))


async def test_a_job_is_due_at_the_time_that_it_is_changed_to(store: Store, clock: ManualClock) -> None:
    """
    Change the queue, the priority or the due time of waiting jobs, at once; what the change does not name stays.
    """
    soon, later, past = await add(store, delay=60), await add(store), await add(store, delay=60)
    assert (await _changed(store, soon, delay=0)).run_at == now(clock)
    assert (await _changed(store, later, run_at=now(clock, 60))).run_at == now(clock, 60)
    assert (await _changed(store, past, run_at=now(clock, -60))).run_at == now(clock, -60)
    assert ids(await take(store)) == [past, soon]
    clock.advance(60)
    assert ids(await take(store)) == [later]


async def test_what_is_due_from_now_on_is_found_by_claims_that_are_far_on(
    store: Store, second: Opener, clock: ManualClock
) -> None:
    """
    Change the queue, the priority or the due time of waiting jobs, at once; what the change does not name stays.
    """
    other = await second()
    waiting = [await add(store, delay=1), await _retrying(store, 1), await add(store)]
    for _ in range(5):
        for each in (store, other):
            await add(store, queue="to")
            await write(store, *(done(job) for job in await take(each, queue="to")))
            clock.advance(30)
    for id in waiting:
        await _changed(store, id, queue="to")
        assert ids(await take(other, queue="to")) == [id]


@pytest.mark.parametrize("state", [state for state in State if state is not State.READY])
async def test_only_a_waiting_job_is_changed(store: Store, state: State) -> None:
    """Running and finished jobs are in the wrong state, and so are those that wait for other jobs."""
    id = await in_state(store, state)
    before = await seen(store, id)
    unknown = a_job().id
    assert await store.change([id, unknown], Change(priority=9), SIGN) == [Acted.WRONG_STATE, Acted.NOT_FOUND]
    assert await seen(store, id) == before
    assert [record.action for record in await store.audit()] == []


async def test_a_due_job_keeps_its_place_by_its_due_time(store: Store, clock: ManualClock) -> None:
    """
    A job that was due keeps its place by its due time, but one that waits for another attempt counts as due from now on.
    """
    old = await add(store, queue="other")
    retrying = await _retrying(store, queue="third")
    clock.advance(1)
    between = await add(store)
    clock.advance(0.2)
    for id in (retrying, old):
        await _changed(store, id, queue="default")
    assert (await seen(store, retrying)).run_at == now(clock)
    assert ids(await take(store)) == [old, between, retrying]


async def test_a_key_goes_along_into_another_queue(store: Store, clock: ManualClock) -> None:
    """
    Its key goes along into another queue; when another job holds it there, nothing changes.
    """
    for ttl in (0.0, 60.0):
        id = await add(store, key=f"k{ttl}", key_ttl=ttl)
        await _changed(store, id, queue="other", priority=1)
        assert ((await store.stats("default")).keys, (await store.stats("other")).keys) == (0, 1)
        free, held = a_job(key=f"k{ttl}"), a_job(key=f"k{ttl}", queue="other")
        answers = await store.enqueue([free, held])
        assert [(answer.id, answer.created) for answer in answers] == [(free.id, True), (id, False)]
        await store.cancel([free.id], SIGN)
        assert (await store.enqueue([held]))[0].id == id
        claimed = await take_one(store, "other")
        await write(store, done(claimed))
        assert (await store.enqueue([held]))[0].created is (ttl == 0)
        clock.advance(61)
        [last] = await store.enqueue([a_job(key=f"k{ttl}", queue="other")])
        await store.cancel([held.id, last.id], SIGN)
        clock.advance(61)


async def test_a_key_that_is_taken_there_keeps_a_job_where_it_is(store: Store) -> None:
    """
    Its key goes along into another queue; when another job holds it there, nothing changes.
    """
    mine, other = await add(store, key="k"), await add(store, key="k", queue="other")
    before = await seen(store, mine)
    assert await store.change([mine], Change(queue="other", priority=9, delay=5), SIGN) == [Acted.KEY_TAKEN]
    assert await seen(store, mine) == before
    await store.cancel([other], SIGN)
    assert (await _changed(store, mine, queue="other")).queue == "other"


async def test_a_depth_limit_keeps_no_job_out_that_is_moved(store: Store) -> None:
    """A depth limit does not keep a job out of its new queue."""
    await store.set_limit(Target("queue", "full"), Limit(max_depth=0), SIGN)
    id = await add(store)
    assert (await _changed(store, id, queue="full")).queue == "full"


async def test_a_change_leaves_one_record(store: Store) -> None:
    one, two = await add_many(store, 2)
    await store.change([one], Change(priority=1), Actor("ann", "why"))
    await store.change([one, two], Change(priority=2), Actor("bob"))
    several, single = await store.audit()
    assert (single.action, single.target, single.count, single.by, single.reason) == ("change", one, 1, "ann", "why")
    assert (several.action, several.target, several.count, several.ids) == ("change", "jobs", 2, (one, two))


async def test_a_job_that_is_changed_and_claimed_at_once_is_one_of_the_two(store: Store, second: Opener) -> None:
    """Running and finished jobs are in the wrong state, and so are those that wait for other jobs."""
    other = await second()
    for _ in range(10):
        jobs = await add_many(store, 20)
        answers, claimed = await asyncio.gather(
            store.change(jobs, Change(queue="other"), SIGN), other.claim([Share("default")], 20, "w1", 60)
        )
        moved = {id for id, answer in zip(jobs, answers, strict=True) if answer is Acted.DONE}
        rest = await take(store)
        assert sorted([*ids(claimed), *ids(rest), *moved]) == sorted(jobs)
        late = await take(store, queue="other")
        assert {job.id for job in late} == moved
        await write(store, *(done(job) for job in (*claimed, *rest, *late)))


@pytest.mark.parametrize("tried", [False, True], ids=["never_tried", "retrying"])
async def test_a_waiting_job_is_dead_lettered(store: Store, clock: ManualClock, tried: bool) -> None:
    """
    End waiting jobs as dead, at once, with the reason kept and their attempts as they are.
    """
    id = await _retrying(store, 30, key="k") if tried else await add(store, key="k")
    assert await store.dead_letter([id], SIGN) == [Acted.DONE]
    job = await seen(store, id)
    assert (job.state, job.reason, job.attempt, job.finished_at) == (State.DEAD, SIGN.reason, int(tried), now(clock))
    assert [attempt.error for attempt in job.attempts] == (["ValueError: no"] if tried else [])
    stats = await store.stats()
    assert (stats.dead, stats.ready, stats.retrying, stats.keys) == (1, 0, 0, 0)
    [letter] = (await store.dead_letters()).letters
    assert (letter.id, letter.error) == (id, "ValueError: no" if tried else SIGN.reason)
    found = await store.dead_groups()
    assert [(group.fingerprint, group.count) for group in found.groups] == [(fingerprint(letter.error), 1)]
    assert found.ungrouped == 0
    assert await store.requeue([id], SIGN) == [Acted.DONE]
    assert (await take_one(store)).id == id
    assert (await store.dead_groups()).groups == []


@pytest.mark.parametrize("state", [state for state in State if state is not State.READY])
async def test_only_a_waiting_job_is_dead_lettered(store: Store, state: State) -> None:
    """Other states are wrong."""
    id = await in_state(store, state)
    before = await seen(store, id)
    assert await store.dead_letter([id, a_job().id], SIGN) == [Acted.WRONG_STATE, Acted.NOT_FOUND]
    assert await seen(store, id) == before
    waiting = await add(store)
    await store.dead_letter([waiting], SIGN)
    [record] = await store.audit()
    assert (record.action, record.target, record.count) == ("dead_letter", waiting, 1)


def _of(reclaimed: Sequence[Any]) -> list[tuple[str, str, bool]]:
    return sorted((run.id, run.worker, run.renewed) for run in reclaimed)


async def test_the_runs_of_a_dead_worker_are_taken_back_at_once(store: Store, clock: ManualClock) -> None:
    """
    End the leases of a worker that is known to be dead, and say how many; the next `reclaim` takes its runs back.
    """
    await add_many(store, 3)
    one, two = await take(store, 2, worker="gone")
    [other] = await take(store, 1, worker="alive")
    clock.advance(1)
    await store.extend("gone", [ref(one)], 60)
    clock.advance(1)
    assert await store.reclaim(10) == []
    assert await store.end_leases("gone", SIGN) == 2
    assert _of(await store.reclaim(10)) == sorted([(one.id, "gone", True), (two.id, "gone", False)])
    assert await store.end_leases("gone", SIGN) == 0
    [record] = await store.audit()
    assert (record.action, record.target, record.count) == ("reclaim_worker", "worker:gone", 2)
    assert (await store.settle([done(one)]))[0].said is Settled.LOST
    assert sorted(ids(await take(store))) == sorted([one.id, two.id])
    await write(store, done(other))


async def test_the_leases_of_other_workers_stay(store: Store) -> None:
    """The leases of other workers stay."""
    claimed = await running(store, worker="alive")
    before = await seen(store, claimed.id)
    assert await store.end_leases("gone", SIGN) == 0
    assert await store.end_leases("aliv", SIGN) == 0
    assert await seen(store, claimed.id) == before
    assert await store.reclaim(10) == []
    assert await store.audit() == []


async def test_a_worker_that_lives_after_all_keeps_its_runs_until_they_are_reclaimed(store: Store) -> None:
    """Until its runs are reclaimed, a worker that lives may extend and settle them."""
    await add_many(store, 3)
    held, ended, lost = await take(store, 3)
    assert await store.end_leases("w1", SIGN) == 3
    assert await store.extend("w1", [ref(held)], 60) == [LeaseStatus.HELD]
    await write(store, done(ended))
    assert [run.id for run in await store.reclaim(10)] == [lost.id]
    assert said(await store.settle([dead(lost), released(held)])) == [Settled.LOST, Settled.SETTLED]
