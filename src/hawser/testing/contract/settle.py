"""Settle: what becomes of a job."""

from __future__ import annotations

import pytest

from hawser.job import State
from hawser.outcome import Dead, Done, Failed, Failure, Outcome, follow
from hawser.store import Settled, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    Ending,
    Opener,
    a_job,
    add,
    add_many,
    ask_to_stop,
    cancelled,
    done,
    every_outcome,
    failed,
    ids,
    now,
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


@every_outcome
@pytest.mark.parametrize("asked", [False, True], ids=["", "cancel_asked"])
@pytest.mark.parametrize("max_attempts", [1, 5], ids=["last_attempt", "attempts_left"])
async def test_every_outcome_is_written(
    store: Store, clock: ManualClock, outcome: Outcome, asked: bool, max_attempts: int
) -> None:
    """
    Write outcomes, each fenced by its lease number, each once, each together with the jobs that follow from it.
    """
    claimed = await running(store, max_attempts=max_attempts)
    if asked:
        await ask_to_stop(store, claimed)
    clock.advance(2)
    assert said(await store.settle([settle(claimed, outcome)])) == [Settled.SETTLED]
    step = follow(outcome, attempt=1, max_attempts=max_attempts, cancel_asked=asked)
    job = await seen(store, claimed.id)
    assert job.state is step.state
    assert job.attempt == (1 if step.burns else 0)
    assert job.result_body == step.result
    if step.state is State.READY:
        assert job.finished_at is None
        assert job.run_at == now(clock, step.after) if step.after else job.run_at <= now(clock)
    else:
        assert job.finished_at == now(clock)
    if step.burns:
        [attempt] = job.attempts
        assert (attempt.outcome, attempt.ended_at) == (step.word, now(clock))
        assert attempt.error == (step.failure.error if step.failure else None)
        assert attempt.traceback == (step.failure.traceback if step.failure else None)
    else:
        assert job.attempts == ()
    if step.reason:
        assert job.reason == step.reason


async def test_an_outcome_outlives_the_store_that_wrote_it(store: Store, reopen: Opener) -> None:
    """
    Write outcomes, each fenced by its lease number, each once, each together with the jobs that follow from it.
    """
    claimed = await running(store)
    await write(store, done(claimed, result=b"[1]"))
    before = await seen(store, claimed.id)
    store = await reopen()
    assert await seen(store, claimed.id) == before
    assert before.result == [1]


async def test_a_failed_job_waits_and_is_tried_again(store: Store, clock: ManualClock) -> None:
    """A failed job is ready again after its wait, or dead when its attempts are used up."""
    claimed = await running(store)
    clock.advance(1)
    await write(store, failed(claimed, after=12.345678))
    job = await seen(store, claimed.id)
    assert (job.state, job.attempt, job.run_at) == (State.READY, 1, now(clock, 12.345678))
    assert await take(store) == []
    clock.advance(12.345678)
    assert (await take_one(store)).attempt == 2


async def test_a_job_is_dead_after_exactly_its_attempts(store: Store, clock: ManualClock) -> None:
    """A failed job is ready again after its wait, or dead when its attempts are used up."""
    id = await add(store, max_attempts=3)
    for attempt in (1, 2, 3):
        claimed = await take_one(store)
        assert claimed.attempt == attempt
        await write(store, failed(claimed, after=1, error=f"E: {attempt}"))
        clock.advance(1)
    job = await seen(store, id)
    assert (job.state, job.attempt) == (State.DEAD, 3)
    assert [str(attempt) for attempt in job.errors] == ["E: 1", "E: 2", "E: 3"]
    clock.advance(1_000_000)
    assert await take(store) == []


async def test_failures_and_losses_use_up_the_same_attempts(store: Store, clock: ManualClock) -> None:
    """A failed job is ready again after its wait, or dead when its attempts are used up."""
    id = await add(store, max_attempts=3)
    await write(store, failed(await take_one(store)))
    await take_one(store, lease_for=1)
    clock.advance(2)
    await store.reclaim(10)
    await write(store, failed(await take_one(store)))
    job = await seen(store, id)
    assert (job.state, job.attempt) == (State.DEAD, 3)
    assert [attempt.outcome for attempt in job.attempts] == ["failed", "lost", "failed"]


@pytest.mark.parametrize("asked", [False, True], ids=["", "cancel_asked"])
@pytest.mark.parametrize("max_attempts", [1, 5], ids=["last_attempt", "attempts_left"])
async def test_a_failure_may_say_that_its_run_was_lost(store: Store, asked: bool, max_attempts: int) -> None:
    """A failure that says its run was lost counts as a crash of the job."""
    claimed = await running(store, max_attempts=max_attempts)
    if asked:
        await ask_to_stop(store, claimed)
    await write(store, settle(claimed, Failed(Failure("the process died"), lost=True)))
    job = await seen(store, claimed.id)
    assert (job.crashes, job.attempt, job.lease) == (1, 1, claimed.lease)
    assert [(attempt.outcome, attempt.error) for attempt in job.attempts] == [("lost", "the process died")]


async def test_a_worker_is_told_of_crashes(store: Store) -> None:
    """A failure that says its run was lost counts as a crash of the job."""
    claimed = await running(store)
    for crashes in range(4):
        assert claimed.crashes == crashes
        await write(store, settle(claimed, Failed(Failure("the process died"), lost=True)))
        claimed = await take_one(store)
    await write(store, failed(claimed))
    assert (await seen(store, claimed.id)).crashes == 4


@every_outcome
async def test_an_outcome_that_is_no_loss_is_no_crash(store: Store, outcome: Outcome) -> None:
    """A failure that says its run was lost counts as a crash of the job."""
    claimed = await running(store)
    await write(store, settle(claimed, outcome))
    lost = isinstance(outcome, Failed) and outcome.lost
    assert (await seen(store, claimed.id)).crashes == lost


async def test_a_job_that_says_it_is_dead_is_dead_at_once(store: Store, clock: ManualClock) -> None:
    """
    Write outcomes, each fenced by its lease number, each once, each together with the jobs that follow from it.
    """
    claimed = await running(store, max_attempts=5)
    await write(store, settle(claimed, Dead(Failure("Drop: no such user"))))
    job = await seen(store, claimed.id)
    assert (job.state, job.attempt, job.finished_at) == (State.DEAD, 1, now(clock))
    assert await take(store) == []


async def test_a_snoozed_job_waits_and_has_its_attempt_back(store: Store, clock: ManualClock) -> None:
    """A snoozed or released job is ready again and its attempt is given back."""
    claimed = await running(store)
    await write(store, snoozed(claimed, after=30, reason="rate limit"))
    job = await seen(store, claimed.id)
    assert (job.state, job.attempt, job.run_at) == (State.READY, 0, now(clock, 30))
    assert (job.returned, job.reason, job.attempts) == (1, "rate limit", ())
    clock.advance(29)
    assert await take(store) == []
    clock.advance(1)
    assert (await take_one(store)).attempt == 1


async def test_a_released_job_is_due_at_once_and_has_its_attempt_back(store: Store, clock: ManualClock) -> None:
    """A snoozed or released job is ready again and its attempt is given back."""
    claimed = await running(store)
    clock.advance(5)
    await write(store, released(claimed))
    job = await seen(store, claimed.id)
    assert (job.state, job.attempt, job.returned, job.attempts) == (State.READY, 0, 1, ())
    again = await take_one(store)
    assert (again.id, again.attempt) == (claimed.id, 1)


async def test_no_number_of_returns_uses_up_a_job(store: Store) -> None:
    """A snoozed or released job is ready again and its attempt is given back."""
    id = await add(store, max_attempts=1)
    for times in range(1, 21):
        back = released if times % 2 else snoozed
        await write(store, back(await take_one(store)))
        assert (await seen(store, id)).returned == times
    await write(store, failed(await take_one(store)))
    job = await seen(store, id)
    assert (job.state, job.attempt, job.returned, len(job.attempts)) == (State.DEAD, 1, 20, 1)


async def test_earlier_failures_stay_when_an_attempt_is_given_back(store: Store) -> None:
    """A snoozed or released job is ready again and its attempt is given back."""
    claimed = await running(store)
    await write(store, failed(claimed))
    await write(store, released(await take_one(store)))
    job = await seen(store, claimed.id)
    assert (job.attempt, [attempt.number for attempt in job.attempts]) == (1, [1])


@every_outcome
async def test_an_outcome_leaves_the_lease_number(store: Store, outcome: Outcome) -> None:
    """The lease number stays."""
    claimed = await running(store)
    await write(store, settle(claimed, outcome))
    assert (await seen(store, claimed.id)).lease == claimed.lease


async def test_done_stands_when_a_cancel_was_asked(store: Store) -> None:
    """Done stands when a cancel was asked; every way back to ready becomes cancelled then."""
    claimed = await running(store)
    await ask_to_stop(store, claimed)
    await write(store, done(claimed, result=b"1"))
    job = await seen(store, claimed.id)
    assert (job.state, job.result) == (State.DONE, 1)


@pytest.mark.parametrize("back", [failed, snoozed, released, cancelled])
async def test_a_run_that_was_asked_to_stop_does_not_come_back(store: Store, clock: ManualClock, back: Ending) -> None:
    """Done stands when a cancel was asked; every way back to ready becomes cancelled then."""
    claimed = await running(store, key="k")
    await ask_to_stop(store, claimed)
    clock.advance(1)
    await write(store, back(claimed))
    job = await seen(store, claimed.id)
    assert (job.state, job.finished_at) == (State.CANCELLED, now(clock))
    [attempt] = job.attempts
    assert (attempt.number, attempt.lease, attempt.outcome) == (1, claimed.lease, "cancelled")
    clock.advance(1_000_000)
    assert await take(store) == []
    await add(store, key="k")


async def test_a_cancel_that_a_run_chose_keeps_its_reason(store: Store, clock: ManualClock) -> None:
    """
    Write outcomes, each fenced by its lease number, each once, each together with the jobs that follow from it.
    """
    claimed = await running(store)
    await write(store, cancelled(claimed, "the user is gone"))
    job = await seen(store, claimed.id)
    assert (job.state, job.reason, job.finished_at) == (State.CANCELLED, "the user is gone", now(clock))
    assert [attempt.outcome for attempt in job.attempts] == ["cancelled"]


async def test_a_done_job_that_is_not_kept_is_gone(store: Store) -> None:
    """A done job that is not kept is removed."""
    claimed = await running(store)
    await write(store, done(claimed, keep=False))
    assert await store.get(claimed.id) is None
    figures = await store.stats("default")
    assert (figures.running, figures.done) == (0, 0)


async def test_a_job_that_is_gone_cannot_be_settled_again(store: Store) -> None:
    """A done job that is not kept is removed."""
    claimed = await running(store)
    child = a_job()
    await write(store, done(claimed, keep=False))
    assert said(await store.settle([done(claimed, child)])) != [Settled.SETTLED]
    assert await store.get(claimed.id) is None
    assert await store.get(child.id) is None


@pytest.mark.parametrize("outcome", [Failed(Failure("no")), Dead(Failure("no"))], ids=["failed", "dead"])
async def test_a_job_that_is_not_done_is_kept(store: Store, outcome: Outcome) -> None:
    """A done job that is not kept is removed."""
    claimed = await running(store, max_attempts=1)
    await write(store, settle(claimed, outcome, keep=False))
    assert (await seen(store, claimed.id)).state is State.DEAD


async def test_the_rest_of_a_batch_is_kept(store: Store) -> None:
    """A done job that is not kept is removed."""
    await add_many(store, 3)
    one, two, three = await take(store)
    await write(store, done(one), done(two, keep=False), done(three))
    assert [(await store.get(id)) is None for id in ids([one, two, three])] == [False, True, False]


@every_outcome
async def test_a_job_that_does_not_run_has_no_worker_and_no_lease_to_end(store: Store, outcome: Outcome) -> None:
    claimed = await running(store)
    await write(store, settle(claimed, outcome))
    job = await seen(store, claimed.id)
    assert (job.worker, job.lease_until) == (None, None)


async def test_a_result_is_optional(store: Store) -> None:
    claimed = await running(store)
    await write(store, settle(claimed, Done()))
    assert (await seen(store, claimed.id)).result_body is None
