"""Forged journals: a checker that does not notice a violation which was put there proves nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from hawser import Job, State
from hawser.job import Attempt
from hawser.lab.checker import Expected, Verdict, check
from hawser.lab.experiments.loss import unstarted
from hawser.lab.journal import JournalRun, Record, What

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DRAINED = NOON + timedelta(hours=1)
EXPECTED = Expected(dead=frozenset({"poison"}), effects=frozenset({"fast"}), drained_at=DRAINED)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def attempt(lease: int, start: float, end: float | None, outcome: str = "done", number: int | None = None) -> Attempt:
    return Attempt(
        number=number or lease,
        lease=lease,
        worker="w",
        started_at=at(start),
        ended_at=None if end is None else at(end),
        outcome=outcome,
    )


def job(id: str, *attempts: Attempt, state: State = State.DONE, task: str = "fast", **fields) -> Job:
    given = attempts or (attempt(1, 0, 1),)
    whole = {
        "queue": "default",
        "body": b"{}",
        "priority": 5,
        "attempt": len(given),
        "max_attempts": 3,
        "timeout": 300.0,
        "lease": given[-1].lease,
        "run_at": NOON,
        "enqueued_at": NOON,
        "attempts": given,
    }
    return Job(id=id, task=task, state=state, **{**whole, **fields})


def journal(*lines: tuple[What, JournalRun] | tuple[What, JournalRun, str]) -> list[Record]:
    clock = count(1)
    return [Record(next(clock), line[0], "1", (line[1],), line[2] if len(line) > 2 else "") for line in lines]


def a_good_run(id: str, lease: int = 1) -> tuple[tuple[What, JournalRun] | tuple[What, JournalRun, str], ...]:
    run = JournalRun(id, lease, lease)
    return (
        (What.CLAIMED, run),
        (What.START, run),
        (What.EFFECT, run),
        (What.SETTLE, run),
        (What.SETTLED, run, "done"),
    )


A = JournalRun("a")
GOOD = ((What.ENQUEUE, A), (What.ACCEPTED, A), *a_good_run("a"))


def judged(records, *jobs: Job, expected: Expected = EXPECTED, effects=("a",)) -> Verdict:
    return check(records, {each.id: each for each in jobs}, expected, dict.fromkeys(effects, 1))


def violations(*args, **options) -> set[str]:
    return set(judged(*args, **options).violations)


def test_a_run_in_which_all_is_well_is_held_and_counted():
    verdict = judged(journal(*GOOD), job("a"))
    assert verdict.held
    assert verdict.counts["accepted"] == verdict.counts["done"] == verdict.counts["starts"] == 1


def test_an_accepted_job_that_is_not_there_is_lost():
    assert violations(journal(*GOOD)) == {"lost"}


def test_a_job_that_nobody_enqueued_is_unexpected():
    records = journal(*GOOD, *a_good_run("b"))
    assert violations(records, job("a"), job("b"), effects=("a", "b")) == {"unexpected"}


def test_a_job_of_a_schedule_is_expected():
    assert judged(journal(*GOOD), job("a"), job("t", task="tick", schedule="second", tick=NOON)).held


def test_a_refused_job_must_not_be_there_but_may_come_when_it_is_sent_again():
    refused = journal((What.ENQUEUE, A), (What.REFUSED, A), *a_good_run("a"))
    assert violations(refused, job("a")) == {"refused but there"}
    assert judged(journal((What.ENQUEUE, A), (What.REFUSED, A), *GOOD), job("a")).held


def test_a_job_that_was_not_made_because_of_its_key_must_not_be_there():
    b = JournalRun("b")
    records = journal(*GOOD, (What.ENQUEUE, b), (What.DUPLICATE, b))
    assert judged(records, job("a")).held
    assert violations(records, job("a"), job("b"), effects=("a", "b")) == {"refused but there"}


@pytest.mark.parametrize("told", [((What.UNKNOWN, A),), ()], ids=["said so", "cut off"])
def test_an_unknown_enqueue_may_be_there_or_not(told):
    invoked = ((What.ENQUEUE, A), *told)
    assert judged(journal(*invoked)).held
    verdict = judged(journal(*invoked, *a_good_run("a")), job("a"))
    assert verdict.held
    assert verdict.counts["recovered"] == 1


def test_an_outcome_taken_twice_from_one_lease_is_settled_twice():
    records = journal(*GOOD, (What.SETTLED, JournalRun("a", 1), "ready"))
    assert violations(records, job("a")) == {"settled twice"}


def test_a_repeated_answer_is_no_second_settlement():
    assert judged(journal(*GOOD, (What.REPEATED, JournalRun("a", 1), "done")), job("a")).held


def test_a_job_that_ends_twice_is_settled_twice():
    two = job("a", attempt(1, 0, 1), attempt(2, 2, 3))
    assert "settled twice" in violations(journal(*GOOD, *a_good_run("a", 2)), two)


def test_an_outcome_written_after_a_later_lease_was_given_is_a_stale_one_accepted():
    first, second = JournalRun("a", 1, 1), JournalRun("a", 2, 2)
    records = journal(
        (What.ENQUEUE, A),
        (What.ACCEPTED, A),
        (What.CLAIMED, first),
        (What.START, first),
        (What.CLAIMED, second),
        (What.START, second),
        (What.EFFECT, first),
        (What.SETTLE, first),
        (What.SETTLED, first, "done"),
    )
    two = job("a", attempt(1, 0, 1), attempt(2, 2, 3))
    assert violations(records, two) == {"stale accepted"}


def test_an_outcome_under_way_when_a_later_lease_was_given_is_not_stale():
    """The write was begun before: the store may have taken it first."""
    first, second = JournalRun("a", 1, 1), JournalRun("a", 2, 2)
    records = journal(
        (What.ENQUEUE, A),
        (What.ACCEPTED, A),
        (What.CLAIMED, first),
        (What.START, first),
        (What.SETTLE, first),
        (What.CLAIMED, second),
        (What.SETTLED, first, "ready"),
        *a_good_run("a", 2)[1:],
    )
    assert judged(records, job("a", attempt(1, 0, 1), attempt(2, 1, 3))).held


def test_an_end_that_was_under_way_when_a_later_lease_was_given_is_stale():
    """Had the store taken it first, nobody would have got another lease."""
    first, second = JournalRun("a", 1, 1), JournalRun("a", 2, 2)
    records = journal(
        (What.ENQUEUE, A),
        (What.ACCEPTED, A),
        (What.CLAIMED, first),
        (What.START, first),
        (What.EFFECT, first),
        (What.SETTLE, first),
        (What.CLAIMED, second),
        (What.SETTLED, first, "done"),
    )
    assert violations(records, job("a", attempt(1, 0, 1), attempt(2, 1, 3))) == {"stale accepted"}


def test_stale_outcomes_and_effects_that_were_refused_are_counted_and_held():
    verdict = judged(journal(*GOOD, (What.STALE, JournalRun("a", 1), "done"), (What.STALE_EFFECT, JournalRun("a", 1))), job("a"))
    assert verdict.held
    assert verdict.counts["stale_refused"] == verdict.counts["stale_effects_refused"] == 1


@pytest.mark.parametrize("end", [None, 5.0], ids=["never ended", "ended later"])
def test_a_lease_given_before_the_one_before_has_ended_overlaps(end):
    overlapping = job("a", attempt(1, 0, end, "lost"), attempt(2, 2, 3))
    assert violations(journal(*GOOD), overlapping) == {"overlap"}


def test_more_starts_than_allowed_are_miscounted():
    often = job("a", *(attempt(n, n, n + 0.5) for n in range(1, 5)))
    assert violations(journal(*GOOD), often) == {"attempts"}


def test_more_starts_than_the_store_knows_of_are_miscounted():
    records = journal(*GOOD, (What.START, JournalRun("a", 2, 2)))
    assert violations(records, job("a")) == {"attempts"}
    assert judged(records, job("a", returned=1)).held


def test_poison_must_be_dead_after_all_its_attempts_and_no_others():
    def dead(*numbers: int) -> Job:
        attempts = [attempt(n, n, n + 0.5, "failed", number=n) for n in numbers]
        return job("a", *attempts, state=State.DEAD, task="poison")

    accepted = journal((What.ENQUEUE, A), (What.ACCEPTED, A), (What.START, JournalRun("a", 1, 1)))
    assert judged(accepted, dead(1, 2, 3)).held
    assert violations(accepted, dead(1, 2)) == {"attempts"}
    assert violations(accepted, dead(1, 3, 4)) == {"attempts"}


NOT_KNOWN = "the lease ran out: worker w never renewed it; it is not known whether the run began"


def one_attempt(error: str) -> Job:
    lost = Attempt(number=1, lease=1, worker="w", started_at=at(0), ended_at=at(1), outcome="lost", error=error)
    return job("a", lost, state=State.DEAD, task="once", max_attempts=1)


def test_a_job_with_one_attempt_may_be_dead_once_it_was_started():
    once = Expected(either=frozenset({"once"}), drained_at=DRAINED)
    started = journal(
        (What.ENQUEUE, A), (What.ACCEPTED, A), (What.CLAIMED, JournalRun("a", 1, 1)), (What.START, JournalRun("a", 1, 1))
    )
    verdict = judged(started, one_attempt(NOT_KNOWN), expected=once)
    assert verdict.held
    assert (verdict.counts["dead_never_started"], verdict.counts["not_known_whether_begun"]) == (0, 0)
    assert judged(started, job("a", task="once"), expected=once).held
    assert violations(started, one_attempt(NOT_KNOWN), expected=EXPECTED) == {"wrong end"}


def test_a_dead_job_that_was_never_started_is_a_violation_unless_its_record_says_that_it_is_not_known():
    once = Expected(either=frozenset({"once"}), drained_at=DRAINED)
    claimed = journal((What.ENQUEUE, A), (What.ACCEPTED, A), (What.CLAIMED, JournalRun("a", 1, 1)))
    ahead = judged(claimed, one_attempt("the lease ran out: worker w stopped renewing it"), expected=once)
    assert set(ahead.violations) == {"dead, never started"}
    assert ahead.counts["dead_never_started"] == 1
    unknown = judged(claimed, one_attempt(NOT_KNOWN), expected=once)
    assert unknown.held
    counts = unknown.counts
    assert (counts["dead_never_started"], counts["dead_not_known"], counts["not_known_whether_begun"]) == (0, 1, 1)


@pytest.mark.parametrize(("told", "ahead"), [(0.5, 1), (1.5, 0), (None, 0)])
def test_a_run_that_reached_its_worker_in_time_and_never_began_was_claimed_ahead(told: float | None, ahead: int):
    """Its lease ran out after a second. A worker that was frozen meanwhile is told too late."""
    once = Expected(either=frozenset({"once"}), drained_at=DRAINED, zero=NOON)
    records = journal((What.ENQUEUE, A), (What.ACCEPTED, A))
    if told is not None:
        records.append(Record(int(told * 1e9), What.CLAIMED, "1", (JournalRun("a", 1, 1),)))
    assert judged(records, one_attempt(NOT_KNOWN), expected=once).counts["claimed_ahead"] == ahead


def test_dead_jobs_that_may_not_have_been_started_are_counted_by_the_nearest_fault():
    once = Expected(either=frozenset({"once"}), drained_at=DRAINED, zero=NOON - timedelta(seconds=10))
    records = [
        *journal((What.ENQUEUE, A), (What.ACCEPTED, A)),
        *(Record(int(at * 1e9), What.FAULT, "1", (), note) for at, note in ((3, "kill"), (9.5, "freeze"), (12, "stall"))),
    ]
    assert judged(records, one_attempt(NOT_KNOWN), expected=once).dead_not_known_by == {"freeze": 1}


def test_loss_is_broken_when_more_is_claimed_than_can_start():
    counts = {"faults": 40, "claimed_ahead": 10, "dead_not_known": 9}
    assert unstarted(counts) == []
    [ahead] = unstarted({**counts, "claimed_ahead": 64})
    assert ahead.startswith("claimed ahead: 64 runs")
    [dead] = unstarted({**counts, "dead_not_known": 41})
    assert dead.startswith("dead, not known: 41 dead jobs")


def test_a_healthy_job_that_is_dead_and_poison_that_is_done_end_wrong():
    failed = [attempt(n, n, n + 0.5, "failed") for n in (1, 2, 3)]
    assert violations(journal(*GOOD), job("a", *failed, state=State.DEAD)) == {"wrong end"}
    assert violations(journal(*GOOD), job("a", task="poison")) == {"wrong end"}


@pytest.mark.parametrize("state", [State.READY, State.RUNNING])
def test_a_job_left_over_after_the_drain_is_stuck(state):
    left = job("a", attempt(1, 0, 1, "lost"), state=state)
    assert violations(journal(*GOOD), left) == {"stuck"}
    assert judged(journal(*GOOD), job("a", attempt(1, 0, 1, "lost"), state=state, enqueued_at=DRAINED)).held


def test_without_a_drain_whatever_is_left_is_stuck():
    left = job("a", attempt(1, 0, 1, "lost"), state=State.READY, enqueued_at=DRAINED)
    assert violations(journal(*GOOD), left, expected=Expected()) == {"stuck"}


def test_a_done_job_without_its_effect_is_noticed():
    assert violations(journal(*GOOD), job("a"), effects=()) == {"done without effect"}


def ticks(*seconds: float) -> list[Job]:
    return [job(f"t{n}", task="tick", schedule="second", tick=at(each)) for n, each in enumerate(seconds)]


TICKING = Expected(ticks={"second": timedelta(seconds=1)}, since=NOON, drained_at=at(20), dead=frozenset({"poison"}))


def test_each_tick_has_its_job():
    assert judged(journal(*GOOD), job("a"), *ticks(*range(20)), expected=TICKING).held


@pytest.mark.parametrize(
    "seconds",
    [
        [*range(10), 9, *range(10, 20)],
        [*range(10), *range(11, 20)],
        [*range(0, 20, 2)],
        [*range(4)],
        [*range(16, 20)],
        [],
    ],
    ids=["twice", "left out", "every other", "stopped", "late", "never"],
)
def test_a_tick_that_fired_twice_or_not_at_all_is_noticed(seconds):
    assert violations(journal(*GOOD), job("a"), *ticks(*seconds), expected=TICKING) == {"tick"}


def test_a_key_that_stood_for_two_jobs_is_noticed():
    b = JournalRun("b")
    records = journal(
        (What.ENQUEUE, A),
        (What.ENQUEUE, b),
        (What.ACCEPTED, A, "order:1"),
        (What.ACCEPTED, b, "order:1"),
        *a_good_run("a"),
        *a_good_run("b"),
    )
    assert violations(records, job("a"), job("b"), effects=("a", "b")) == {"duplicate key"}
