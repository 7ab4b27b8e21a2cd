"""What settle answers: where each job went, or why nothing changed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hawser.job import State
from hawser.outcome import Done, Outcome, follow
from hawser.store import SettleAnswer, Settled, Settlement, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    a_job,
    add_many,
    ask_to_stop,
    dead,
    done,
    every_outcome,
    failed,
    lose,
    running,
    said,
    seen,
    take,
    write,
)


async def test_a_batch_is_answered_in_its_order(store: Store, clock: ManualClock) -> None:
    """
    Write outcomes, each fenced by its lease number, each once, each together with the jobs that follow from it.
    """
    gone = await running(store, lease_for=1, max_attempts=1)
    await lose(store, clock, 1)
    await add_many(store, 3)
    one, two, three = await take(store)
    answers = await store.settle([done(two), done(gone), failed(one), done(two), dead(three)])
    assert said(answers) == [Settled.SETTLED, Settled.LOST, Settled.SETTLED, Settled.REPEATED, Settled.SETTLED]
    states = [(await seen(store, claimed.id)).state for claimed in (one, two, three, gone)]
    assert states == [State.READY, State.DONE, State.DEAD, State.DEAD]


@every_outcome
@pytest.mark.parametrize("asked", [False, True], ids=["", "cancel_asked"])
@pytest.mark.parametrize("max_attempts", [1, 5], ids=["last_attempt", "attempts_left"])
@pytest.mark.parametrize("hinted", [False, True], ids=["", "hinted"])
async def test_the_answer_says_where_the_job_went(
    store: Store, outcome: Outcome, asked: bool, max_attempts: int, hinted: bool
) -> None:
    """
    The answer says where the job went: its task, queue and state, in how many seconds it is due again, and which of its
    attempts this was.
    """
    claimed = await running(store, task="t", queue="q", max_attempts=max_attempts)
    if asked:
        await ask_to_stop(store, claimed)
    settlement = Settlement(claimed.id, claimed.lease, outcome, hint=claimed.hint if hinted else None)
    [answer] = await store.settle([settlement])
    job = await seen(store, claimed.id)
    after = follow(outcome, attempt=1, max_attempts=max_attempts, cancel_asked=asked).after
    due = after if job.state is State.READY else None
    assert answer == SettleAnswer(Settled.SETTLED, "t", "q", job.state, due, 1, max_attempts)


@pytest.mark.parametrize("hinted", [False, True], ids=["", "hinted"])
async def test_each_of_a_batch_is_answered_with_where_it_went(store: Store, hinted: bool) -> None:
    """
    The answer says where the job went: its task, queue and state, in how many seconds it is due again, and which of its
    attempts this was.
    """
    jobs = [a_job(task=f"t{n}", queue="q") for n in range(4)]
    await store.enqueue(jobs)
    runs = {run.id: run for run in await take(store, queue="q")}
    one, two, three, four = (runs[job.id] for job in jobs)
    makers = (done(one, result=b"1"), done(two, a_job(key="next")), failed(three, after=4.0), done(four, keep=False))
    hints = {run.id: run.hint if hinted else None for run in runs.values()}
    answers = await store.settle([replace(settlement, hint=hints[settlement.id]) for settlement in makers])
    assert [(answer.task, answer.state, answer.after) for answer in answers] == [
        ("t0", State.DONE, None),
        ("t1", State.DONE, None),
        ("t2", State.READY, 4.0),
        ("t3", State.DONE, None),
    ]


async def test_a_repeated_settlement_is_answered_with_where_the_job_is(store: Store, clock: ManualClock) -> None:
    """
    The answer to a repeated settlement says where the job is now.
    """
    again, over = await running(store, task="t", queue="q"), await running(store, task="u", queue="r")
    settlements = [failed(again, after=10.0), dead(over)]
    await write(store, *settlements)
    clock.advance(4)
    assert await store.settle(settlements) == [
        SettleAnswer(Settled.REPEATED, "t", "q", State.READY, 6.0, 1, again.max_attempts),
        SettleAnswer(Settled.REPEATED, "u", "r", State.DEAD, None, 1, over.max_attempts),
    ]


async def test_a_stale_settlement_is_answered_without_a_state(store: Store, clock: ManualClock) -> None:
    """
    The answer to a stale one has no state.
    """
    claimed = await running(store, task="t", queue="q", lease_for=1)
    await lose(store, clock, 1)
    unknown = Settlement(a_job().id, 1, Done())
    assert await store.settle([done(claimed), unknown]) == [
        SettleAnswer(Settled.LOST, "t", "q"),
        SettleAnswer(Settled.LOST),
    ]


async def test_no_settlements_are_no_work(store: Store) -> None:
    """
    Write outcomes, each fenced by its lease number, each once, each together with the jobs that follow from it.
    """
    assert await store.settle([]) == []
