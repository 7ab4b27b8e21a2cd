"""The bars of experiments on limits and breakers, with forged runs: what falls short of one is said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hawser.breaker import Breaker
from hawser.job import Attempt, Job, State
from hawser.lab.experiments.breaker import OTHERS_BAR, all_ended, kept_up, share_passed
from hawser.lab.experiments.limits import CAP, TimedRun, handled, kept, used
from hawser.lab.experiments.tenants import rounds_waited, waited_too_long
from hawser.lab.journal import JournalRun, Record, What
from hawser.store import QueueStats

RATE = 100
AT = datetime(2026, 1, 1, tzinfo=UTC)


def runs(at_once: float, seconds: float = 20.0) -> list[TimedRun]:
    """So many at once on average: each of the places of the limit is in use for that part of every tenth of a second."""
    share = 0.1 * at_once / CAP
    return [TimedRun(n / 10, n / 10 + share) for n in range(int(10 * seconds)) for _ in range(CAP)]


def starts(per_second: int, seconds: int = 20) -> list[float]:
    return [second + n / per_second for second in range(seconds) for n in range(per_second)]


def test_a_limit_that_is_kept_and_used_has_no_fault():
    found = runs(9.8), runs(9.6), starts(95), RATE
    assert kept(*found) == used(*found) == []


def test_a_limit_that_is_not_used_is_said_also_of_the_part_under_kills():
    [calm] = used(runs(9.3), runs(9.6), starts(95), RATE)
    assert calm == "on average 9.30 of 10 ran; the bar is 9.5"
    [killed] = used(runs(9.8), runs(9.3), starts(95), RATE)
    assert killed == "on average 9.30 of 10 ran while processes were killed; the bar is 9.5"
    [rate] = used(runs(9.8), runs(9.8), starts(92), RATE)
    assert rate == "92 started a second under a rate of 100/s; the bar is 93"


def test_a_limit_that_is_not_kept_is_said():
    eleventh = TimedRun(5.01, 5.05)
    assert kept([*runs(9.8), eleventh], runs(9.8), starts(95), RATE) == ["11 ran at once under a limit of 10"]
    [rate] = kept(runs(9.8), runs(9.8), starts(128), RATE)
    assert rate == "128 started within a second under a rate of 100/s"


def noted(at: float, what: What, id: str, lease: int = 1, by: str = "1") -> Record:
    return Record(round(at * 1e9), what, by, (JournalRun(id, lease),))


def test_handlers_are_judged_by_what_they_noted_and_not_by_the_books_of_the_store():
    records = [
        noted(1.0, What.START, "a"),
        noted(1.0, What.START, "of another task"),
        noted(2.0, What.START, "b", by="2"),
        noted(3.0, What.END, "a"),
        Record(4_000_000_000, What.FAULT, "0", note="2"),
        noted(5.0, What.START, "b", lease=3),
        noted(6.0, What.START, "c"),
        noted(7.0, What.END, "b", lease=3),
    ]
    assert list(handled(records, {"a", "b", "c"})) == [
        TimedRun(1.0, 3.0),
        TimedRun(2.0, 4.0),  # killed
        TimedRun(5.0, 7.0),
        TimedRun(6.0, 7.0),  # not known to have ended: it may have run until the end
    ]
    lost = noted(8.0, What.STALE, "a")
    assert TimedRun(1.0, 3.0) not in list(handled([*records, lost], {"a"})), "a limit counts no run whose lease was lost"


def test_an_experiment_whose_handlers_noted_nothing_proves_nothing():
    assert kept([], runs(9.8), starts(95), RATE) == ["no handler noted that it ran"]


def other(came: float, done: float | None, **fields: Any) -> Job:
    common: dict[str, Any] = {"priority": 4, "max_attempts": 5, "timeout": 30.0, "lease": 1, "attempt": 1, "body": b"{}"}
    at, ended = AT + timedelta(seconds=came), None if done is None else AT + timedelta(seconds=done)
    state = State.READY if done is None else State.DONE
    return Job(
        id=f"{came}", task="fast", queue="default", state=state, run_at=at, enqueued_at=at, finished_at=ended, **common, **fields
    )


def test_others_that_are_held_up_while_the_dependency_is_down_are_counted():
    begin = AT.timestamp()
    on_time = [other(n, n + 0.1) for n in range(97)]
    assert kept_up(on_time, begin, begin + 97) == 1.0
    late = [other(5, 99), other(6, 120), other(7, None)]
    assert kept_up([*on_time, *late], begin, begin + 97) == 0.97 < OTHERS_BAR
    assert kept_up([*on_time, other(-5, 200), other(98, 300)], begin, begin + 97) == 1.0, "they came before it, or after it"


def test_jobs_that_wait_for_another_attempt_are_waited_for():
    """With 13 of them between two attempts a run was said to have left them undone."""
    assert all_ended(QueueStats(done=9, dead=1))
    assert not all_ended(QueueStats(done=9, retrying=1))
    assert not all_ended(QueueStats(done=9, ready=1))
    assert not all_ended(QueueStats(done=9, running=1))


def tried(*ends: tuple[float, str]) -> Job:
    """A job whose attempts ended so, in seconds after the beginning."""
    attempts = [
        Attempt(number=n, lease=n, worker="w", started_at=AT, ended_at=AT + timedelta(seconds=at), outcome=outcome)
        for n, (at, outcome) in enumerate(ends, 1)
    ]
    return other(0, None, attempts=attempts)


def test_the_instant_at_which_the_share_is_passed_is_that_of_an_attempt():
    rule, begin = Breaker(share=0.8, window=60, least=5, probe_every=10), AT.timestamp()
    before = tried((1, "done"), (130, "failed"))
    failing = [tried((131 + n, "failed"), (141 + n, "lost")) for n in range(8)]
    assert share_passed([before, *failing], rule, begin + 125) == begin + 134, (
        "the fifth; what ended two minutes before counts not"
    )
    some_done = [tried((131 + n, "done")) for n in range(3)]
    assert share_passed([*failing, *some_done], rule, begin + 125) == begin + 144, "12 of 15"
    assert share_passed([*some_done, *failing[:2]], rule, begin + 125) is None


def of_tenant(group: str, came: float, started: float | None, ended: float | None) -> Job:
    starts = [] if started is None else [AT + timedelta(seconds=started)]
    attempts = [Attempt(number=1, lease=1, worker="w", started_at=at) for at in starts]
    return other(came, ended, group=group, attempts=attempts)


def test_the_wait_of_a_tenant_is_told_in_rounds():
    begin = AT.timestamp()
    ends = [begin + n + 1 for n in range(10)]
    early, late = of_tenant("early", 0, 4.5, 4.9), of_tenant("late", 5.5, 8.5, 8.9)
    assert rounds_waited([early, late], ends, begin + 2, 2) == [1.5, 1.5], "2, 3, 4 and 6, 7, 8 ended meanwhile"
    lost, unseen = of_tenant("lost", 5.5, 8.5, None), of_tenant("unseen", 5.5, None, None)
    assert rounds_waited([lost, unseen], ends, begin + 2, 2) == [1.5, 2.5], "the one has had its start, the other none"


def test_newcomers_that_wait_are_not_hidden_by_those_who_were_there():
    there, few_late = [0.5] * 9_999, [0.5] * 190 + [9.0] * 10
    assert waited_too_long(there, [0.5] * 198 + [2.0] * 2, 200) == []
    [late] = waited_too_long(there, few_late, 200)
    assert late == "99 of 100 newcomers waited 9.00 rounds for their first job; the bar is 2"
    [before] = waited_too_long([0.5] * 9_800 + [3.0] * 199, [0.5] * 200, 200)
    assert before.startswith("99 of 100 tenants waited 3.00 rounds")
    [missing] = waited_too_long(there, [0.5] * 150, 200)
    assert missing.startswith("150 of 200 newcomers came")
