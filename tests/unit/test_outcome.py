"""What an attempt decided, and what follows: every combination."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import get_args

import pytest

from hawser import Cancel, Drop, Fixed, Retry, Snooze, State
from hawser.outcome import (
    MAX_ERROR,
    MAX_TRACEBACK,
    Cancelled,
    Dead,
    Done,
    Failed,
    Failure,
    Held,
    Outcome,
    Released,
    Snoozed,
    abandoned,
    cut,
    decide,
    failure_of,
    follow,
)

WAIT = Fixed(every=7, jitter="none")
BOOM = Failure("boom")


def raised(error: BaseException, attempt: int = 1):
    return decide(error, attempt=attempt, backoff=WAIT, failed=True)


def returned(value: object):
    return decide(value, attempt=1, backoff=WAIT, failed=False)


def test_a_return_is_done_with_its_result():
    assert returned(None) == Done()
    assert returned({"a": [1]}) == Done(b'{"a":[1]}')
    assert returned(0) == Done(b"0")


def test_an_exception_that_is_returned_is_no_failure_of_the_run():
    outcome = returned(ValueError("x"))
    assert isinstance(outcome, Failed)  # it cannot be written as JSON
    assert outcome.failure.error.startswith("the result cannot be written as JSON")


def test_a_result_that_json_cannot_carry_fails_the_attempt():
    for value in (object(), "\ud800", {(1,): 2}):
        outcome = returned(value)
        assert isinstance(outcome, Failed)
        assert outcome.after == 7


def test_an_exception_fails_the_attempt_with_the_tasks_backoff():
    outcome = raised(ValueError("no such user"))
    assert isinstance(outcome, Failed)
    assert (outcome.failure.error, outcome.after) == ("ValueError: no such user", 7)


def test_drop_is_dead_at_once():
    outcome = raised(Drop("bad address"))
    assert isinstance(outcome, Dead)
    assert outcome.failure.error == "Drop: bad address"


def test_cancel_is_cancelled_with_its_reason():
    assert raised(Cancel("not wanted")) == Cancelled("not wanted")
    assert raised(Cancel()) == Cancelled(None)


def test_retry_chooses_its_own_wait_or_takes_the_tasks():
    for after, wait in ((None, 7), (0, 0), (3, 3), (timedelta(minutes=1), 60)):
        outcome = raised(Retry("later", after=after))
        assert isinstance(outcome, Failed)
        assert outcome.after == wait


def test_snooze_burns_nothing():
    assert raised(Snooze(5, "closed")) == Snoozed(5, "closed")
    assert raised(Snooze(timedelta(hours=1))) == Snoozed(3600, None)


@pytest.mark.parametrize("wrong", [-1, float("inf"), float("nan"), timedelta(seconds=-1), "60", None, [1]])
def test_a_wrong_wait_is_refused_where_it_is_written(wrong):
    if wrong is not None:
        with pytest.raises(ValueError, match=r"^Retry: after: .* is not a time in seconds"):
            Retry(after=wrong)
    with pytest.raises(ValueError, match=r"^Snooze: .* is not a time in seconds"):
        Snooze(wrong)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ExceptionGroup("g", [ValueError("x")])])
def test_whatever_is_raised_becomes_a_failure(error):
    assert isinstance(raised(error), Failed)


def test_a_hostile_exception_still_leaves_a_record():
    class Hostile(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert failure_of(Hostile()).error.endswith("(its text could not be read)")


def test_a_huge_error_is_cut_and_made_storable():
    failure = failure_of(ValueError("a\0\ud800" + "x" * 10_000_000))
    assert len(failure.error) < MAX_ERROR + 100
    assert len(failure.traceback or "") < MAX_TRACEBACK + 100
    assert "\0" not in failure.error
    failure.error.encode()
    assert cut("short", 10) == "short"


def test_a_deep_recursion_leaves_a_short_traceback():
    def down(n: int) -> None:
        down(n + 1)

    try:
        down(0)
    except RecursionError as error:
        failure = failure_of(error)
    assert failure.error.startswith("RecursionError")
    assert len(failure.traceback or "") <= MAX_TRACEBACK + 100


OUTCOMES = [Done(b"1"), Failed(BOOM, 9), Dead(BOOM), Snoozed(9, "r"), Released(), Cancelled("r"), Held("approval", event="ok")]


def test_every_outcome_is_among_them():
    assert {type(outcome) for outcome in OUTCOMES} == set(get_args(Outcome))


@pytest.mark.parametrize(("outcome", "last", "asked"), list(product(OUTCOMES, (False, True), (False, True))))
def test_every_outcome_leads_to_the_state_that_the_rules_say(outcome, last, asked):
    step = follow(outcome, attempt=5 if last else 1, max_attempts=5, cancel_asked=asked)
    back = isinstance(outcome, (Failed, Snoozed, Released, Held))
    if isinstance(outcome, Done):
        assert (step.state, step.result) == (State.DONE, b"1")
    elif isinstance(outcome, Dead):
        assert (step.state, step.failure) == (State.DEAD, BOOM)
    elif isinstance(outcome, Cancelled) or asked:
        assert step.state is State.CANCELLED
    elif isinstance(outcome, Failed) and last:
        assert (step.state, step.failure) == (State.DEAD, BOOM)
    else:
        assert back
        assert step.state is State.READY
        assert step.after == (9 if isinstance(outcome, (Failed, Snoozed)) else 0)
        assert step.hold is (outcome if isinstance(outcome, Held) else None)
        assert step.burns is isinstance(outcome, Failed)


@pytest.mark.parametrize(
    ("attempt", "asked", "state"), [(1, False, State.READY), (3, False, State.DEAD), (1, True, State.CANCELLED)]
)
def test_a_lost_run_counts_as_an_attempt(attempt, asked, state):
    step = abandoned("w1", renewed=True, attempt=attempt, max_attempts=3, cancel_asked=asked)
    assert (step.state, step.word, step.burns, step.after) == (state, "lost", True, 0)
    assert step.failure is not None
    assert "worker w1" in step.failure.error
