"""Why a queue is behind: for each reason a queue that is behind for it, and a headline that names it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from hawser.api.diagnosis import Facts, TaskFacts, diagnose, seconds_in_words
from hawser.limit import Limit
from hawser.store import Beat, BreakerStatus, LimitUse, Pause, QueueStats, Target

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def beat(**said: Any) -> Beat:
    fields: dict[str, Any] = {
        "worker": "w1",
        "host": "vm1",
        "pid": 1,
        "version": "1",
        "queues": ("mail",),
        "slots": 12,
        "running": 4,
    }
    return Beat(**(fields | said))


def behind(**facts: Any) -> Facts:
    """Four minutes behind, for no reason but those that are given."""
    given: dict[str, Any] = {
        "queue": "mail",
        "stats": QueueStats(due=900, ready=900, oldest_age_s=240.0),
        "serving": [beat()],
        "in_s": 10.0,
        "in_before_s": 10.0,
        "out_s": 10.0,
        "counted": 3000,
        "run_p95": 0.1,
        "run_p95_before": 0.1,
        "tasks": [TaskFacts(task="send_email", waiting=900, in_s=10.0, in_before_s=10.0, run_p95=0.1, run_p95_before=0.1)],
    }
    return Facts(**(given | facts))


BUSY = [beat(running=12)]
PAUSE = Pause(target=Target("queue", "mail"), since=NOON, reason="the mail server is down", by="ann")

REASONS = {
    "paused": (behind(pause=PAUSE), "the queue is paused by ann: the mail server is down"),
    "paused task": (
        behind(task_pauses=[Pause(target=Target("task", "send_email"), since=NOON, by="bob")]),
        "task send_email is paused by bob",
    ),
    "workers": (behind(serving=[]), "no living worker serves queue mail"),
    "draining": (behind(serving=[beat(draining=True)]), "all 1 workers that serve it are draining"),
    "unknown task": (behind(serving=[beat(tasks={"other": ""})]), "no living worker that serves it knows task send_email"),
    "lost": (behind(lost=[beat(host="vm2")]), "1 worker with 12 slots lost on vm2"),
    "limited": (
        behind(shut=[LimitUse(target=Target("queue", "mail"), limit=Limit(running=4), running=4)]),
        "queue mail runs 4 of 4 at once (limit of queue mail)",
    ),
    "rate": (
        behind(shut=[LimitUse(target=Target("queue", "mail"), limit=Limit(rate="2/s"), opens_at=NOON, set=True, by="ann")]),
        "mail is 4 min behind: its limit of 2/s (set by ann) keeps 900 jobs back; 10.0/s come in",
    ),
    "rate of a task": (
        behind(shut=[LimitUse(target=Target("task", "send_email"), limit=Limit(rate="100/m"), started=100, opens_at=NOON)]),
        "the limit of task send_email of 100/m (declared in the code) keeps 900 jobs back; 10.0/s come in",
    ),
    "running and rate": (
        behind(shut=[LimitUse(target=Target("queue", "mail"), limit=Limit(rate="2/s", running=4), running=4, opens_at=NOON)]),
        "queue mail runs 4 of 4 at once (limit of queue mail)",
    ),
    "breaker": (
        behind(open=[BreakerStatus(task="send_email", open=True, since=NOON, failed=18, attempts=20)]),
        "the breaker of task send_email is open since 2026-01-01 12:00:00 UTC (90 % of 20 attempts failed)",
    ),
    "run_time": (
        behind(
            serving=BUSY,
            run_p95=2.0,
            tasks=[TaskFacts(task="send_email", waiting=900, run_p95=2.0, run_p95_before=0.1)],
        ),
        "jobs (send_email) take 2.0 s (p95); the hour before they took 100 ms",
    ),
    "inflow": (
        behind(serving=BUSY, in_s=30.0, tasks=[TaskFacts(task="send_email", waiting=9, in_s=30.0, in_before_s=10.0)]),
        "30.0/s come in; the hour before it was 10.0/s, most of them send_email",
    ),
    "failures": (
        behind(
            serving=BUSY,
            failure_share=0.5,
            died=80,
            tasks=[TaskFacts(task="send_email", waiting=900, failed_s=8.0), TaskFacts(task="send_sms", failed_s=1.0)],
        ),
        "50 % of its attempts fail, most of them of send_email; 80 died within the hour",
    ),
    "retries": (
        behind(serving=BUSY, failure_share=0.4, retry_share=0.6),
        "40 % of its attempts fail, and of those of jobs that ended 60 % were retries",
    ),
    "order": (behind(serving=BUSY, first=[("queue payments", 500)]), "the same workers take queue payments first"),
    "slots": (behind(serving=BUSY), "all 12 slots are busy"),
}


@pytest.mark.parametrize("reason", REASONS)
def test_the_headline_names_the_reason(reason: str):
    facts, text = REASONS[reason]
    found = diagnose(facts)
    assert found.level == "bad"
    assert found.headline.startswith("mail is 4 min behind: ")
    assert text in found.headline
    problems = [check for check in found.checks if check.verdict == "problem"]
    assert problems[0].advice is not None


@pytest.mark.parametrize("reason", ["paused", "workers", "lost", "limited", "run_time", "inflow", "failures", "order", "slots"])
def test_the_first_problem_is_the_one_that_was_made(reason: str):
    problems = [check.check for check in diagnose(REASONS[reason][0]).checks if check.verdict == "problem"]
    assert problems[0] == reason


def test_each_check_is_there_once_whatever_is_wrong():
    names = [[check.check for check in diagnose(facts).checks] for facts, _ in REASONS.values()]
    assert all(each == names[0] and len(set(each)) == len(each) == 10 for each in names)


def test_behind_without_a_reason_it_tells_the_figures():
    assert diagnose(behind()).headline == "mail is 4 min behind: 10.0/s come in, 10.0/s go out, 4 of 12 slots busy"


def test_a_queue_that_keeps_up_has_no_problem_though_its_slots_are_busy():
    found = diagnose(behind(stats=QueueStats(due=3, oldest_age_s=0.4), serving=BUSY, failure_share=0.19))
    assert (found.level, found.headline) == ("good", "mail keeps up: 10.0/s come in, 10.0/s go out")
    assert {check.verdict for check in found.checks} == {"fine"}


@pytest.mark.parametrize(("share", "level"), [(0.5, "warning"), (0.89, "warning"), (0.9, "bad"), (1.0, "bad")])
def test_a_queue_whose_jobs_fail_does_not_keep_up_though_nothing_waits(share: float, level: str):
    found = diagnose(behind(stats=QueueStats(), failure_share=share, died=80))
    assert (found.level, found.headline) == (level, f"mail: {100 * share:.0f} % of its attempts fail; 80 died within the hour")
    [problem] = [check for check in found.checks if check.verdict == "problem"]
    assert problem.check == "failures"
    assert problem.advice is not None


@pytest.mark.parametrize(
    ("share", "verdict"), [(None, "fine"), (0.19, "fine"), (0.2, "notice"), (0.49, "notice"), (0.5, "problem")]
)
@pytest.mark.parametrize("due", [0, 900])
def test_the_share_of_attempts_that_fail_is_judged(share: float | None, verdict: str, due: int):
    found = diagnose(behind(stats=QueueStats(due=due, oldest_age_s=240.0), failure_share=share))
    assert [check.verdict for check in found.checks if check.check == "failures"] == [verdict]


def test_failures_of_a_queue_that_is_paused_are_behind_its_pause():
    found = diagnose(behind(stats=QueueStats(), failure_share=1.0, pause=PAUSE))
    assert (found.level, "is paused by ann" in found.headline) == ("warning", True)


def test_without_a_history_nothing_is_said_to_have_grown():
    checks = {check.check: check for check in diagnose(behind(in_s=30.0, in_before_s=None)).checks}
    assert (checks["inflow"].verdict, checks["inflow"].text) == ("fine", "30.0/s come in; no history yet to compare with")


@pytest.mark.parametrize(("serving", "slots"), [(BUSY, True), ([beat()], False)])
def test_more_slots_are_advised_only_where_all_are_busy(serving: list[Beat], slots: bool):
    checks = {check.check: check for check in diagnose(behind(in_s=30.0, serving=serving)).checks}
    assert checks["inflow"].verdict == "problem"
    assert ("add slots" in (checks["inflow"].advice or "")) == slots


def test_a_pause_is_told_before_anything_is_late():
    found = diagnose(behind(stats=QueueStats(), pause=PAUSE))
    assert found.level == "warning"
    assert "is not behind, but the queue is paused by ann" in found.headline


def test_jobs_that_wait_for_their_time_are_no_alarm():
    found = diagnose(behind(stats=QueueStats(scheduled=500)))
    assert found.level == "good"
    [later] = [check for check in found.checks if check.check == "later"]
    assert later.text == "500 jobs wait for their time, and none is due"


def test_an_empty_queue_without_workers_is_idle():
    found = diagnose(Facts(queue="mail", stats=QueueStats()))
    assert (found.level, found.headline) == ("idle", "mail is empty and idle")


def test_few_events_say_nothing():
    few = behind(serving=BUSY, counted=5, run_p95=2.0)
    assert "slots are busy" in diagnose(few).headline


@pytest.mark.parametrize(("seconds", "words"), [(9.6, "10 s"), (240, "4 min"), (7200, "2 h"), (3 * 86_400, "3 days")])
def test_times_are_told_as_people_say_them(seconds: float, words: str):
    assert seconds_in_words(seconds) == words


@pytest.mark.parametrize(
    ("share", "serving", "verdict"),
    [(0.1, BUSY, "fine"), (0.2, BUSY, "notice"), (0.5, BUSY, "problem"), (0.9, [beat()], "notice")],
)
def test_retries_are_a_problem_where_they_take_slots(share: float, serving: list[Beat], verdict: str):
    facts = behind(serving=serving, failure_share=0.1, retry_share=share)
    [check] = [check for check in diagnose(facts).checks if check.check == "failures"]
    assert check.verdict == verdict
    assert (f"{100 * share:.0f} % were retries" in check.text) == (verdict != "fine")


def test_where_attempts_fail_and_slots_are_free_retries_are_not_told():
    facts = behind(serving=[beat()], failure_share=0.9, retry_share=0.6)
    [check] = [check for check in diagnose(facts).checks if check.check == "failures"]
    assert check.text == "90 % of its attempts fail"
