"""What a claimer leaves to others: tasks that it does not know, jobs that it cannot read."""

from __future__ import annotations

import asyncio

from hawser.job import State
from hawser.store import Declined, Leave, Retention, Share, Store, Unaccepted
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import SIGN, Opener, add, add_many, dead, failed, ids, now, running, seen, write

QUEUES = [Share("default"), Share("other")]
CALL_WITHIN_S = 20.0


def jobs(*ids: str) -> Leave:
    return Leave(jobs=frozenset(ids))


def tasks(*names: str) -> Leave:
    return Leave(tasks=frozenset(names))


async def claim(store: Store, limit: int, leave: Leave) -> list[str]:
    return ids(await store.claim(QUEUES, limit, "old", 60, {}, leave))


async def test_a_task_that_is_left_is_not_given_out(store: Store) -> None:
    """Jobs and tasks that `leave` names are not given out, and cost the others nothing."""
    known, new = await add(store, task="known"), await add(store, task="new")
    assert await claim(store, 10, tasks("new", "newer")) == [known]
    assert await claim(store, 10, tasks("new")) == []
    assert (await seen(store, new)).attempt == 0
    assert await claim(store, 10, Leave()) == [new]


async def test_a_job_that_is_left_is_not_given_out(store: Store) -> None:
    """Jobs and tasks that `leave` names are not given out, and cost the others nothing."""
    first, second, third = await add_many(store, 3)
    assert await claim(store, 10, jobs(first, third, "00000000-0000-7000-8000-000000000000")) == [second]
    assert await claim(store, 10, jobs(first, third)) == []
    assert await claim(store, 10, jobs(third)) == [first]
    assert await claim(store, 10, Leave()) == [third]


async def test_a_crowd_that_is_left_costs_the_others_nothing(store: Store, clock: ManualClock) -> None:
    """Jobs and tasks that `leave` names are not given out, and cost the others nothing."""
    crowd = await add_many(store, 50, task="new", priority=9)
    odd = await add_many(store, 50)
    clock.advance(1)
    good = await add_many(store, 3)
    assert await claim(store, 2, Leave(frozenset({"new"}), frozenset(odd))) == good[:2]
    assert await claim(store, 2, Leave(frozenset({"new"}), frozenset(odd))) == good[2:]
    assert await claim(store, 100, Leave()) == [*crowd, *odd]


async def test_what_one_leaves_another_gets_at_once(store: Store, clock: ManualClock) -> None:
    """Jobs and tasks that `leave` names are not given out, and cost the others nothing."""
    lost, under_way = await running(store), await running(store)
    await write(store, failed(lost, after=2))
    later = await add(store, delay=5)
    clock.advance(5)
    assert await claim(store, 10, jobs(lost.id, later, under_way.id)) == []
    assert (await seen(store, under_way.id)).state is State.RUNNING
    assert ids(await store.claim(QUEUES, 10, "new", 60)) == [lost.id, later]
    assert (await seen(store, later)).lease_until == now(clock, 60)


async def test_what_was_left_is_found_also_when_a_queue_is_new(store: Store, clock: ManualClock, second: Opener) -> None:
    """Jobs and tasks that `leave` names are not given out, and cost the others nothing."""
    left, taken = await add_many(store, 2)
    assert await claim(store, 10, jobs(left)) == [taken]
    clock.advance(10)
    new = await add(await second(), queue="other", task="new")
    assert await claim(store, 10, Leave()) == [left, new]


async def test_what_was_left_is_found_also_by_a_later_claim(store: Store, clock: ManualClock) -> None:
    """Jobs and tasks that `leave` names are not given out, and cost the others nothing."""
    left, taken = await add_many(store, 2)
    assert await claim(store, 10, jobs(left)) == [taken]
    for _ in range(3):
        clock.advance(10)
        assert await store.claim(QUEUES, 10, "full", 60, {"work": 0}) == []
    assert await claim(store, 10, Leave()) == [left]


async def test_what_is_left_is_no_reason_to_wake(store: Store) -> None:
    """Due jobs that `leave` names do not end the wait."""
    gone, new, odd = await add(store), await add(store, task="new"), await add(store)
    await store.cancel([gone], SIGN)
    await store.prune(Retention(cancelled=0), {}, 10)
    # A hint may be early: that the jobs came a moment ago is a reason.
    for _ in range(20):
        waiter = asyncio.create_task(store.wait(["default"], CALL_WITHIN_S, Leave(frozenset({"new"}), frozenset({odd}))))
        done, _ = await asyncio.wait((waiter,), timeout=0.2)
        waiter.cancel()
        await asyncio.wait((waiter,))
        if not done:
            break
    else:
        raise AssertionError("wait returned 20 times for jobs that are left to others")
    for leave in (tasks("new"), jobs(odd), jobs(new)):
        await asyncio.wait_for(store.wait(["default"], CALL_WITHIN_S, leave), CALL_WITHIN_S / 2)


async def declined(store: Store, id: str, lease: int, mark: str = "", *, acceptable: bool = False) -> Unaccepted:
    [answer] = await store.decline([Declined(id, lease, mark, acceptable)])
    assert answer is not None
    return answer


async def test_the_time_of_a_declined_job_begins_with_its_first_note(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """The time of a job begins with its first note."""
    job = await running(store)
    clock.advance(100)
    assert (await declined(store, job.id, 1)).seconds == 0
    clock.advance(40)
    store = await reopen()
    assert (await declined(store, job.id, 1)).seconds == 40


async def test_all_who_decline_a_job_count_together(store: Store, clock: ManualClock, second: Opener) -> None:
    """Note that a worker cannot run these jobs, and answer for how long no worker has accepted each, and with which marks it
    was declined."""
    first, other = await running(store), await running(store)
    one, two = await second(), await second()
    assert await declined(one, first.id, 1, "a") == Unaccepted(0.0, frozenset({"a"}))
    clock.advance(30)
    answers = await two.decline([Declined(other.id, 1), Declined(first.id, 2, "b")])
    assert answers == [Unaccepted(0.0, frozenset({""})), Unaccepted(30.0, frozenset({"a", "b"}))]
    clock.advance(30)
    assert await declined(one, first.id, 1, "a") == Unaccepted(60.0, frozenset({"a", "b"}))
    assert await store.decline([]) == []


async def test_a_job_that_ran_between_two_notes_begins_anew(store: Store, clock: ManualClock) -> None:
    """It begins anew when another claim lies between two notes, because a worker ran the job then, and when a note says that a
    living worker may accept it."""
    job = await running(store)
    await declined(store, job.id, 1)
    clock.advance(10)
    assert (await declined(store, job.id, 2)).seconds == 10
    assert (await declined(store, job.id, 4)).seconds == 0
    clock.advance(10)
    assert (await declined(store, job.id, 5)).seconds == 10


async def test_a_job_that_a_living_worker_may_accept_begins_anew(store: Store, clock: ManualClock) -> None:
    """It begins anew when another claim lies between two notes, because a worker ran the job then, and when a note says that a
    living worker may accept it."""
    job = await running(store)
    await declined(store, job.id, 1)
    clock.advance(10)
    assert (await declined(store, job.id, 1, acceptable=True)).seconds == 0
    clock.advance(5)
    assert (await declined(store, job.id, 1)).seconds == 5


async def test_a_note_that_comes_late_or_twice_changes_nothing(store: Store, clock: ManualClock) -> None:
    """A note that is repeated, or comes late, changes nothing."""
    job = await running(store)
    await declined(store, job.id, 7, "a")
    clock.advance(10)
    assert await declined(store, job.id, 7, "a") == await declined(store, job.id, 3, "a")
    assert (await declined(store, job.id, 8, "a")).seconds == 10, "the last lease is still 7"


async def test_of_a_job_that_has_ended_nothing_is_noted(store: Store, clock: ManualClock) -> None:
    """None stands for a job that is not live."""
    job = await running(store)
    await declined(store, job.id, 1)
    await write(store, dead(job))
    unknown = ("00000000-0000-7000-8000-000000000000", "none")
    assert await store.decline([Declined(id, 1) for id in (job.id, *unknown)]) == [None, None, None]
    clock.advance(60)
    await store.prune(Retention(), {}, 100)
    await store.requeue([job.id], SIGN)
    assert (await declined(store, job.id, 1)).seconds == 0
