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
        behind(shut=[LimitUse(target=Target("task", "send_email"), limit=Limit(rate="100/m"), started=100, opens_at=NOON)]),
        "task send_email has started 100 in the last minute; the next may at 2026-01-01 12:00:00 UTC",
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
    "retries": (
        behind(serving=BUSY, failed_s=8.0, tasks=[TaskFacts(task="send_email", waiting=900, failed_s=8.0)]),
        "44% of all attempts fail and come again, most of them of send_email",
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


@pytest.mark.parametrize("reason", ["paused", "workers", "lost", "limited", "run_time", "inflow", "retries", "order", "slots"])
def test_the_first_problem_is_the_one_that_was_made(reason: str):
    problems = [check.check for check in diagnose(REASONS[reason][0]).checks if check.verdict == "problem"]
    assert problems[0] == reason


def test_each_check_is_there_once_whatever_is_wrong():
    names = [[check.check for check in diagnose(facts).checks] for facts, _ in REASONS.values()]
    assert all(each == names[0] and len(set(each)) == len(each) == 10 for each in names)


def test_behind_without_a_reason_it_tells_the_figures():
    assert diagnose(behind()).headline == "mail is 4 min behind: 10.0/s come in, 10.0/s go out, 4 of 12 slots busy"


def test_a_queue_that_keeps_up_has_no_problem_though_its_slots_are_busy():
    found = diagnose(behind(stats=QueueStats(due=3, oldest_age_s=0.4), serving=BUSY, failed_s=8.0))
    assert (found.level, found.headline) == ("good", "mail keeps up: 10.0/s come in, 10.0/s go out")
    assert {check.verdict for check in found.checks} == {"fine"}


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
    few = behind(serving=BUSY, counted=5, run_p95=2.0, failed_s=8.0)
    assert "slots are busy" in diagnose(few).headline


@pytest.mark.parametrize(("seconds", "words"), [(9.6, "10 s"), (240, "4 min"), (7200, "2 h"), (3 * 86_400, "3 days")])
def test_times_are_told_as_people_say_them(seconds: float, words: str):
    assert seconds_in_words(seconds) == words
