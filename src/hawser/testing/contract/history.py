"""Get: the whole job and the record of its attempts."""

from __future__ import annotations

import pytest

from hawser.job import State
from hawser.store import HISTORY, Acted, Store
from hawser.testing.clock import ManualClock
from hawser.testing.contract.making import (
    SIGN,
    Ending,
    Opener,
    add,
    ask_to_stop,
    cancelled,
    dead,
    done,
    failed,
    lose,
    now,
    released,
    running,
    seen,
    snoozed,
    take_one,
    write,
)
from hawser.value.ids import new_id


async def test_an_unknown_id_is_no_job(store: Store) -> None:
    """The whole job with all its attempts, or None."""
    await add(store)
    assert await store.get(new_id()) is None
    assert await store.get("no id at all") is None
    assert await store.get("") is None


async def test_a_run_in_progress_is_the_last_attempt(store: Store, clock: ManualClock) -> None:
    """The whole job with all its attempts, or None."""
    first = await running(store, worker="w1")
    await write(store, failed(first))
    clock.advance(3)
    second = await take_one(store, worker="w2")
    clock.advance(3)
    job = await seen(store, first.id)
    assert [attempt.outcome for attempt in job.attempts] == ["failed", "running"]
    last = job.attempts[-1]
    assert (last.number, last.lease, last.worker) == (2, second.lease, "w2")
    assert (last.started_at, last.ended_at, last.error) == (now(clock, -3), None, None)


async def test_a_done_job_shows_its_last_attempt(store: Store, clock: ManualClock) -> None:
    """The whole job with all its attempts, or None."""
    first = await running(store)
    await write(store, failed(first))
    second = await take_one(store, worker="w2")
    clock.advance(4)
    await write(store, done(second))
    job = await seen(store, first.id)
    assert [attempt.outcome for attempt in job.attempts] == ["failed", "done"]
    last = job.attempts[-1]
    assert (last.number, last.lease, last.worker) == (2, second.lease, "w2")
    assert (last.started_at, last.ended_at, last.error) == (now(clock, -4), now(clock), None)


@pytest.mark.parametrize(("end", "word"), [(failed, "failed"), (dead, "dead")], ids=["failed", "dead"])
@pytest.mark.parametrize("max_attempts", [1, 5])
async def test_a_failed_attempt_keeps_everything(
    store: Store, clock: ManualClock, end: Ending, word: str, max_attempts: int
) -> None:
    """
    Every attempt that failed keeps its error, traceback, worker and times; of more than `HISTORY` the oldest go.
    """
    error, traceback = "ValueError: \u00e9 \U0001f6a2 'quoted'\nline 2", 'Traceback:\n  File "x.py"\n' * 500
    claimed = await running(store, worker="host-1:42", max_attempts=max_attempts)
    clock.advance(2.5)
    await write(store, end(claimed, error=error, traceback=traceback))
    clock.advance(100)
    [attempt] = (await seen(store, claimed.id)).attempts
    assert (attempt.number, attempt.lease, attempt.worker) == (1, claimed.lease, "host-1:42")
    assert (attempt.started_at, attempt.ended_at) == (now(clock, -102.5), now(clock, -100))
    assert (attempt.outcome, attempt.error, attempt.traceback) == (word, error, traceback)


async def test_every_attempt_is_kept_in_its_order(store: Store, clock: ManualClock, reopen: Opener) -> None:
    """
    Every attempt that failed keeps its error, traceback, worker and times; of more than `HISTORY` the oldest go.
    """
    id = await add(store, max_attempts=30)
    for number in range(1, 21):
        clock.advance(1)
        claimed = await take_one(store, worker=f"w{number}")
        await write(store, failed(claimed, error=f"E: {number}", traceback=f"tb {number}"))
    store = await reopen()
    attempts = (await seen(store, id)).attempts
    assert [attempt.number for attempt in attempts] == list(range(1, 21))
    assert [attempt.worker for attempt in attempts] == [f"w{n}" for n in range(1, 21)]
    assert [attempt.error for attempt in attempts] == [f"E: {n}" for n in range(1, 21)]
    assert [attempt.traceback for attempt in attempts] == [f"tb {n}" for n in range(1, 21)]
    assert [attempt.started_at for attempt in attempts] == [now(clock, n - 20) for n in range(1, 21)]


async def test_the_oldest_attempts_of_a_long_life_go(store: Store) -> None:
    """
    Every attempt that failed keeps its error, traceback, worker and times; of more than `HISTORY` the oldest go.
    """
    id = await add(store, max_attempts=HISTORY + 30)
    await add(store, queue="other", max_attempts=HISTORY + 30)
    for number in range(1, HISTORY + 21):
        await write(store, failed(await take_one(store), error=f"E: {number}"))
        if number == HISTORY:
            assert [attempt.number for attempt in (await seen(store, id)).attempts] == list(range(1, HISTORY + 1))
    job = await seen(store, id)
    assert [attempt.number for attempt in job.attempts] == list(range(21, HISTORY + 21))
    assert [attempt.error for attempt in job.attempts] == [f"E: {number}" for number in range(21, HISTORY + 21)]
    assert job.attempt == HISTORY + 20
    await take_one(store)
    assert (await seen(store, id)).attempts[-1].number == HISTORY + 21


async def test_a_mixed_life_is_told_in_full(store: Store, clock: ManualClock) -> None:
    """The whole job with all its attempts, or None."""
    id = await add(store, max_attempts=4)
    await write(store, snoozed(await take_one(store), reason="early"))
    await write(store, failed(await take_one(store), error="E: 1"))
    await write(store, released(await take_one(store)))
    await take_one(store)
    await lose(store, clock)
    await write(store, dead(await take_one(store), error="E: 3"))
    job = await seen(store, id)
    assert [(attempt.number, attempt.outcome) for attempt in job.attempts] == [(1, "failed"), (2, "lost"), (3, "dead")]
    assert [attempt.lease for attempt in job.attempts] == [2, 4, 6]
    assert (job.state, job.attempt, job.returned) == (State.DEAD, 3, 2)


async def test_a_cancelled_run_is_recorded(store: Store, clock: ManualClock) -> None:
    """The whole job with all its attempts, or None."""
    claimed = await running(store, worker="w7")
    clock.advance(2)
    await write(store, cancelled(claimed, "not wanted"))
    [attempt] = (await seen(store, claimed.id)).attempts
    assert (attempt.number, attempt.lease, attempt.worker, attempt.outcome) == (1, claimed.lease, "w7", "cancelled")
    assert (attempt.started_at, attempt.ended_at) == (now(clock, -2), now(clock))


async def test_a_failure_after_a_cancel_was_asked_keeps_its_error(store: Store) -> None:
    """
    Every attempt that failed keeps its error, traceback, worker and times; of more than `HISTORY` the oldest go.
    """
    claimed = await running(store)
    await ask_to_stop(store, claimed)
    await write(store, failed(claimed, error="E: stopped", traceback="where"))
    [attempt] = (await seen(store, claimed.id)).attempts
    assert (attempt.outcome, attempt.error, attempt.traceback) == ("cancelled", "E: stopped", "where")


async def test_a_job_cancelled_in_waiting_has_no_attempt(store: Store) -> None:
    """The whole job with all its attempts, or None."""
    id = await add(store)
    assert await store.cancel([id], SIGN) == [Acted.DONE]
    job = await seen(store, id)
    assert (job.state, job.attempts, job.reason) == (State.CANCELLED, (), "asked for")


async def test_a_retry_cancelled_in_waiting_keeps_its_attempts(store: Store) -> None:
    """The whole job with all its attempts, or None."""
    claimed = await running(store)
    await write(store, failed(claimed, after=60, error="E: 1"))
    await store.cancel([claimed.id], SIGN)
    job = await seen(store, claimed.id)
    assert [(attempt.outcome, attempt.error) for attempt in job.attempts] == [("failed", "E: 1")]
