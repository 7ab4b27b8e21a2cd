"""The values of a job, and the one place that judges them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hawser import FOREVER, Attempt, InvalidJob, Job, NewJob, State
from hawser.clock import MAX_DELAY
from hawser.job import MAX_ATTEMPTS, Claimed, new_job
from hawser.value.ids import new_id
from hawser.value.name import name_fault, text_fault

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make(**fields: Any) -> NewJob:
    return new_job(**{"task": "send", "body": b"{}", **fields})


def test_the_defaults_are_those_of_the_requirements():
    job = make()
    assert (job.queue, job.priority, job.delay, job.run_at, job.max_attempts, job.timeout) == ("default", 5, 0, None, None, 300)
    assert (job.key, job.key_ttl, job.tags, job.parent_id) == (None, 0, (), None)


def test_times_may_be_given_as_people_say_them():
    job = make(delay=timedelta(minutes=1), timeout=timedelta(seconds=2), key="k", key_ttl=timedelta(hours=1))
    assert (job.delay, job.timeout, job.key_ttl) == (60, 2, 3600)
    assert make(key="k", key_ttl="forever").key_ttl == FOREVER


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": 0},
        {"priority": 9},
        {"max_attempts": 1},
        {"max_attempts": MAX_ATTEMPTS},
        {"delay": MAX_DELAY},
        {"run_at": NOW},
        {"run_at": datetime(1971, 1, 1, tzinfo=UTC)},
        {"key": "x" * 512},
        {"tags": ["a"] * 16},
        {"tags": {"a"}},
        {"queue": "a" * 128},
        {"queue": "mail.eu-1_x"},
        {"parent_id": new_id()},
    ],
)
def test_what_is_just_within_its_bounds_passes(fields):
    make(**fields)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"id": "x"}, "id"),
        ({"id": new_id().upper()}, "id"),
        ({"task": ""}, "task"),
        ({"task": "-x"}, "task"),
        ({"queue": "a" * 129}, "queue"),
        ({"queue": "a/b"}, "queue"),
        ({"queue": "a\n"}, "queue"),
        ({"queue": None}, "queue"),
        ({"priority": -1}, "priority"),
        ({"priority": 10}, "priority"),
        ({"priority": 5.0}, "priority"),
        ({"priority": True}, "priority"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": MAX_ATTEMPTS + 1}, "max_attempts"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": "30"}, "timeout"),
        ({"delay": -0.1}, "delay"),
        ({"delay": float("nan")}, "delay"),
        ({"delay": MAX_DELAY + 1}, "delay"),
        ({"delay": None}, "delay"),
        ({"run_at": datetime(2026, 1, 1)}, "run_at"),  # noqa: DTZ001  # what must be refused
        ({"run_at": "2026-01-01"}, "run_at"),
        ({"run_at": datetime.max.replace(tzinfo=UTC)}, "run_at"),
        ({"run_at": NOW, "delay": 1}, "run_at"),
        ({"key": ""}, "key"),
        ({"key": "x" * 513}, "key"),
        ({"key": 5}, "key"),
        ({"key": "a\0"}, "key"),
        ({"key": "k", "key_ttl": -1}, "key_ttl"),
        ({"key": "k", "key_ttl": "never"}, "key_ttl"),
        ({"key_ttl": 5}, "key_ttl"),
        ({"tags": "abc"}, "tags"),
        ({"tags": ["a"] * 17}, "tags"),
        ({"tags": ["x" * 65]}, "tags"),
        ({"tags": [5]}, "tags"),
        ({"parent_id": "x"}, "parent_id"),
        ({"colour": "red"}, "job"),
    ],
)
def test_a_wrong_field_is_named(fields, field):
    with pytest.raises(InvalidJob) as caught:
        make(**fields)
    assert [error.field for error in caught.value.errors] == [field]


def test_names_and_texts_say_what_is_wrong_with_them():
    assert name_fault("send_email") is None
    assert name_fault("x" * 500) is not None
    assert len(name_fault("x" * 500) or "") < 300
    assert text_fault("\ud800", 10) == "the text has a lone surrogate; it is not valid Unicode"


def test_finished_states_are_the_three_ends():
    assert {state for state in State if state.finished} == {State.DONE, State.DEAD, State.CANCELLED}
    assert [str(state) for state in State] == ["ready", "running", "done", "dead", "cancelled"]


def a_job(**fields: Any) -> Job:
    return Job(
        **{
            "id": new_id(),
            "task": "send",
            "queue": "mail",
            "body": b'{"to":"x"}',
            "priority": 5,
            "state": State.DONE,
            "attempt": 2,
            "max_attempts": 5,
            "timeout": 30.0,
            "lease": 2,
            "run_at": NOW,
            "enqueued_at": NOW,
            **fields,
        }
    )


def test_a_job_reads_its_json():
    job = a_job(result_body=b"[1]", progress_body=b'{"n":1}')
    assert (job.payload, job.result, job.progress) == ({"to": "x"}, [1], {"n": 1})
    assert (a_job().result, a_job().progress) == (None, None)


def test_the_errors_of_a_job_are_its_attempts_that_have_one():
    failed = Attempt(number=1, lease=1, worker="w", started_at=NOW, outcome="failed", error="ValueError: x")
    done = Attempt(number=2, lease=2, worker="w", started_at=NOW, outcome="done")
    job = a_job(attempts=(failed, done))
    assert job.errors == (failed,)
    assert [str(attempt) for attempt in job.attempts] == ["ValueError: x", "done"]


def test_a_claimed_job_reads_its_json_and_times():
    claimed = Claimed(
        id=new_id(),
        task="send",
        queue="mail",
        body=b'{"to":"x"}',
        priority=5,
        attempt=1,
        max_attempts=5,
        timeout=30.0,
        lease=1,
        run_at_us=1_000_000,
        enqueued_at_us=0,
    )
    assert claimed.payload == {"to": "x"}
    assert claimed.run_at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert claimed.enqueued_at == datetime(1970, 1, 1, tzinfo=UTC)
