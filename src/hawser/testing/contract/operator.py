"""Cancel, requeue, discard and replace."""

from __future__ import annotations

import asyncio

import pytest

from hawser.job import FOREVER, State
from hawser.outcome import Cancelled, Failed, Failure, Outcome, Released, Snoozed
from hawser.store import Acted, Actor, Enqueued, LeaseStatus, Settled, Settlement, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    Ending,
    Opener,
    a_job,
    add,
    ask_to_stop,
    cancelled,
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
    snoozed,
    take,
    take_one,
    write,
)
from hawser.value.ids import new_id

FINISHED = [state for state in State if state.finished]


async def unchanged(store: Store, id: str, acted: Acted, action: str) -> None:
    """The action is refused in that way, and the job stays as it is."""
    before = await store.get(id)
    assert await getattr(store, action)([id], SIGN) == [acted]
    assert await store.get(id) == before


async def test_a_waiting_job_is_cancelled_at_once(store: Store, clock: ManualClock) -> None:
    """End waiting jobs at once; ask the workers of running ones to stop."""
    ready, scheduled = await add(store), await add(store, delay=60)
    retried = await running(store, queue="other")
    await write(store, failed(retried, after=60))
    snooze = await running(store, queue="other")
    await write(store, snoozed(snooze, after=60))
    jobs = [ready, scheduled, retried.id, snooze.id]
    clock.advance(1)
    assert await store.cancel(jobs, SIGN) == [Acted.DONE] * 4
    for id in jobs:
        job = await seen(store, id)
        assert (job.state, job.finished_at, job.reason) == (State.CANCELLED, now(clock), "asked for")
    clock.advance(1_000)
    assert await take(store) == await take(store, queue="other") == []


async def test_a_running_job_is_asked_to_stop(store: Store) -> None:
    """End waiting jobs at once; ask the workers of running ones to stop."""
    claimed = await running(store)
    before = await seen(store, claimed.id)
    assert not before.cancel_asked
    assert await store.cancel([claimed.id], SIGN) == [Acted.ASKED]
    job = await seen(store, claimed.id)
    assert job.cancel_asked
    assert (job.state, job.lease, job.attempt) == (State.RUNNING, before.lease, before.attempt)
    assert (job.lease_until, job.worker, job.started_at) == (before.lease_until, before.worker, before.started_at)
    assert await store.extend("w1", [ref(claimed)], 60) == [LeaseStatus.CANCEL_ASKED]


async def test_many_jobs_are_answered_in_their_order(store: Store) -> None:
    """End waiting jobs at once; ask the workers of running ones to stop. Finished jobs are in the wrong state."""
    runs = await running(store)
    over = await in_state(store, State.DONE, queue="other")
    waits = await add(store)
    answers = await store.cancel([over, waits, new_id(), runs.id], SIGN)
    assert answers == [Acted.WRONG_STATE, Acted.DONE, Acted.NOT_FOUND, Acted.ASKED]
    assert await store.cancel([], SIGN) == []


@pytest.mark.parametrize("state", FINISHED)
async def test_a_finished_job_cannot_be_cancelled(store: Store, state: State) -> None:
    """Finished jobs are in the wrong state."""
    await unchanged(store, await in_state(store, state), Acted.WRONG_STATE, "cancel")


@pytest.mark.parametrize("outcome", [Failed(Failure("no")), Snoozed(5, "later"), Released(), Cancelled()])
async def test_the_reason_of_a_cancel_stays_when_the_run_ends(store: Store, outcome: Outcome) -> None:
    """The reason stays with the job when it ends as cancelled."""
    claimed = await running(store)
    await store.cancel([claimed.id], Actor("an operator", "changed our mind"))
    await store.settle([Settlement(claimed.id, claimed.lease, outcome)])
    job = await seen(store, claimed.id)
    assert (job.state, job.reason) == (State.CANCELLED, "changed our mind")


async def test_a_run_may_know_better_why_it_was_cancelled(store: Store) -> None:
    """The reason stays with the job when it ends as cancelled."""
    claimed = await running(store)
    await store.cancel([claimed.id], SIGN)
    await store.settle([Settlement(claimed.id, claimed.lease, Cancelled("half of it was sent"))])
    assert (await seen(store, claimed.id)).reason == "half of it was sent"


async def test_a_cancel_and_a_claim_at_once_agree(store: Store, second: Opener) -> None:
    """End waiting jobs at once; ask the workers of running ones to stop."""
    other = await second()
    for _ in range(10):
        id = await add(store)
        [acted], claims = await asyncio.gather(store.cancel([id], SIGN), take(other, 1))
        assert (acted, ids(claims)) in [(Acted.DONE, []), (Acted.ASKED, [id])]
        if claims:
            await write(store, released(claims[0]))
        assert (await seen(store, id)).state is State.CANCELLED


@pytest.mark.parametrize("end", [dead, cancelled])
async def test_a_requeued_job_starts_anew_with_its_history(store: Store, clock: ManualClock, end: Ending) -> None:
    """Make dead and cancelled jobs ready, due at once, with attempts from zero and their history kept."""
    id = await add(store, max_attempts=3, priority=7)
    await write(store, failed(await take_one(store), error="E: 1"))
    last = await take_one(store)
    await write(store, end(last))
    history = (await seen(store, id)).attempts
    clock.advance(100)
    assert await store.requeue([id], SIGN) == [Acted.DONE]
    job = await seen(store, id)
    assert (job.state, job.attempt, job.priority, job.finished_at) == (State.READY, 0, 7, None)
    assert job.attempts == history
    again = await take_one(store)
    assert (again.id, again.attempt) == (id, 1)


async def test_a_requeued_job_has_all_its_attempts_again(store: Store) -> None:
    """Make dead and cancelled jobs ready, due at once, with attempts from zero and their history kept."""
    id = await add(store, max_attempts=2)
    for _ in range(2):
        await write(store, failed(await take_one(store)))
        await write(store, failed(await take_one(store)))
        assert (await seen(store, id)).state is State.DEAD
        assert await store.requeue([id], SIGN) == [Acted.DONE]
    job = await seen(store, id)
    assert [attempt.number for attempt in job.attempts] == [1, 2, 1, 2]
    assert [attempt.lease for attempt in job.attempts] == [1, 2, 3, 4]


async def test_a_job_cancelled_before_its_time_is_due_when_requeued(store: Store) -> None:
    """Make dead and cancelled jobs ready, due at once, with attempts from zero and their history kept."""
    id = await add(store, delay=1_000)
    await store.cancel([id], SIGN)
    assert await store.requeue([id], SIGN) == [Acted.DONE]
    assert ids(await take(store)) == [id]


async def test_a_requeued_job_is_not_asked_to_stop_again(store: Store) -> None:
    """Make dead and cancelled jobs ready, due at once, with attempts from zero and their history kept."""
    claimed = await running(store)
    await ask_to_stop(store, claimed)
    await write(store, released(claimed))
    await store.requeue([claimed.id], SIGN)
    assert not (await seen(store, claimed.id)).cancel_asked
    again = await take_one(store)
    assert await store.extend("w1", [ref(again)], 60) == [LeaseStatus.HELD]
    await write(store, failed(again))
    assert (await seen(store, claimed.id)).state is State.READY


async def test_a_requeue_does_not_lower_the_lease_number(store: Store) -> None:
    """The lease number does not go back."""
    claimed = await running(store)
    await write(store, dead(claimed))
    await store.requeue([claimed.id], SIGN)
    assert (await seen(store, claimed.id)).lease >= claimed.lease
    assert (await take_one(store)).lease > claimed.lease
    assert said(await store.settle([done(claimed)])) != [Settled.SETTLED]


@pytest.mark.parametrize("ttl", [0, 60, FOREVER])
async def test_a_requeued_job_takes_its_key_again(store: Store, ttl: float) -> None:
    """A job that held a key takes it again; when another job holds it now, nothing changes."""
    id = await in_state(store, State.DEAD, key="k", key_ttl=ttl)
    assert await store.requeue([id], SIGN) == [Acted.DONE]
    [answer] = await store.enqueue([a_job(key="k")])
    assert (answer.id, answer.created) == (id, False)


async def test_a_requeued_job_takes_its_key_again_when_its_window_is_over(store: Store, clock: ManualClock) -> None:
    """A job that held a key takes it again; when another job holds it now, nothing changes."""
    id = await in_state(store, State.DEAD, key="k", key_ttl=60)
    clock.advance(61)
    assert await store.requeue([id], SIGN) == [Acted.DONE]
    assert await store.enqueue([a_job(key="k")]) == [Enqueued(id, False)]
    await write(store, dead(await take_one(store)))
    new = await add(store, key="k", delay=60)
    await unchanged(store, id, Acted.KEY_TAKEN, "requeue")
    assert await store.enqueue([a_job(key="k")]) == [Enqueued(new, False)]


@pytest.mark.parametrize("state", [State.DEAD, State.CANCELLED])
async def test_a_job_whose_key_is_taken_is_not_requeued(store: Store, state: State) -> None:
    """A job that held a key takes it again; when another job holds it now, nothing changes."""
    id = await in_state(store, state, key="k")
    new = await add(store, key="k", delay=60)
    await unchanged(store, id, Acted.KEY_TAKEN, "requeue")
    await store.cancel([new], SIGN)
    assert await store.requeue([id], SIGN) == [Acted.DONE]


async def test_of_two_jobs_with_one_key_one_is_requeued(store: Store) -> None:
    """A job that held a key takes it again; when another job holds it now, nothing changes."""
    first, second = await in_state(store, State.DEAD, key="k"), await in_state(store, State.DEAD, key="k")
    assert await store.requeue([first, second], SIGN) == [Acted.DONE, Acted.KEY_TAKEN]
    assert (await seen(store, second)).state is State.DEAD


async def test_a_job_whose_key_is_held_by_a_finished_one_is_not_requeued(store: Store) -> None:
    """A job that held a key takes it again; when another job holds it now, nothing changes."""
    old = await in_state(store, State.DEAD, key="k")
    await in_state(store, State.DONE, key="k", key_ttl=FOREVER)
    await unchanged(store, old, Acted.KEY_TAKEN, "requeue")


@pytest.mark.parametrize("state", [State.READY, State.RUNNING, State.DONE])
async def test_other_jobs_are_not_requeued(store: Store, state: State) -> None:
    """Other states are wrong."""
    await unchanged(store, await in_state(store, state), Acted.WRONG_STATE, "requeue")
    await unchanged(store, new_id(), Acted.NOT_FOUND, "requeue")


async def test_a_job_is_requeued_once_by_two_at_once(store: Store, second: Opener) -> None:
    """Make dead and cancelled jobs ready, due at once, with attempts from zero and their history kept."""
    other = await second()
    id = await in_state(store, State.DEAD)
    answers = await asyncio.gather(store.requeue([id], SIGN), other.requeue([id], SIGN))
    assert sorted(answer for [answer] in answers) == [Acted.DONE, Acted.WRONG_STATE]


async def test_a_discarded_job_is_cancelled_for_that_reason(store: Store) -> None:
    """Turn dead jobs into cancelled ones, with the reason kept."""
    first, second = await in_state(store, State.DEAD), await in_state(store, State.DEAD)
    history = (await seen(store, first)).attempts
    actor = Actor("bob", "the customer left")
    assert await store.discard([first, second, new_id()], actor) == [Acted.DONE, Acted.DONE, Acted.NOT_FOUND]
    for id in (first, second):
        job = await seen(store, id)
        assert (job.state, job.reason) == (State.CANCELLED, "the customer left")
    assert (await seen(store, first)).attempts == history
    assert await take(store) == []


async def test_a_discarded_job_may_be_requeued(store: Store) -> None:
    """Turn dead jobs into cancelled ones, with the reason kept."""
    id = await in_state(store, State.DEAD)
    await store.discard([id], SIGN)
    assert await store.requeue([id], SIGN) == [Acted.DONE]
    assert ids(await take(store)) == [id]


@pytest.mark.parametrize("state", [state for state in State if state is not State.DEAD])
async def test_other_jobs_are_not_discarded(store: Store, state: State) -> None:
    """Other states are wrong."""
    await unchanged(store, await in_state(store, state), Acted.WRONG_STATE, "discard")


async def test_a_replaced_job_is_discarded_and_becomes_the_parent(store: Store, clock: ManualClock) -> None:
    """Discard a dead job and enqueue another in its place, whose parent it becomes, in one write."""
    old = await in_state(store, State.DEAD, body=b'{"to": "wrong"}')
    new = a_job(body=b'{"to": "right"}', delay=5, parent_id=new_id())
    clock.advance(1)
    assert await store.replace(old, new, Actor("bob", "fixed")) is Acted.DONE
    before, after = await seen(store, old), await seen(store, new.id)
    assert (before.state, before.reason) == (State.CANCELLED, "fixed")
    assert (after.state, after.parent_id, after.attempt, after.lease) == (State.READY, old, 0, 0)
    assert (after.body, after.enqueued_at, after.run_at) == (b'{"to": "right"}', now(clock), now(clock, 5))


async def test_a_repeated_replacement_adds_nothing(store: Store, second: Opener) -> None:
    """Discard a dead job and enqueue another in its place, whose parent it becomes, in one write."""
    other = await second()
    old = await in_state(store, State.DEAD)
    new = [a_job(), a_job()]
    answers = await asyncio.gather(store.replace(old, new[0], SIGN), other.replace(old, new[1], SIGN))
    assert sorted(answers) == [Acted.DONE, Acted.WRONG_STATE]
    assert await store.replace(old, a_job(), SIGN) is Acted.WRONG_STATE
    assert len(await take(store)) == 1


@pytest.mark.parametrize("state", [state for state in State if state is not State.DEAD])
async def test_other_jobs_are_not_replaced(store: Store, state: State) -> None:
    """Discard a dead job and enqueue another in its place, whose parent it becomes, in one write."""
    id, new = await in_state(store, state), a_job()
    before = await seen(store, id)
    assert await store.replace(id, new, SIGN) is Acted.WRONG_STATE
    assert await store.replace(new_id(), new, SIGN) is Acted.NOT_FOUND
    assert await seen(store, id) == before
    assert await store.get(new.id) is None


@pytest.mark.parametrize("ttl", [0, 60, FOREVER])
async def test_a_job_is_not_replaced_when_the_new_key_is_taken(store: Store, ttl: float) -> None:
    """When the key of the new job is taken, nothing changes."""
    old = await in_state(store, State.DEAD)
    holder = await add(store, key="k", key_ttl=ttl, delay=60)
    before = await seen(store, old)
    new = a_job(key="k")
    assert await store.replace(old, new, SIGN) is Acted.KEY_TAKEN
    assert await seen(store, old) == before
    assert await store.get(new.id) is None
    [answer] = await store.enqueue([a_job(key="k")])
    assert answer.id == holder


async def test_a_replacement_may_have_the_key_of_the_dead_job(store: Store) -> None:
    """When the key of the new job is taken, nothing changes."""
    old = await in_state(store, State.DEAD, key="k")
    new = a_job(key="k")
    assert await store.replace(old, new, SIGN) is Acted.DONE
    [answer] = await store.enqueue([a_job(key="k")])
    assert (answer.id, answer.created) == (new.id, False)
