"""Bad input: a specific error that names the field and what to do, nothing written, the same words on every store."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from hawser import ConfigError, Hawser, InvalidJob, MissingExtra, UnknownStore, UnknownTask
from hawser.job import MAX_ATTEMPTS
from hawser.stores import SCHEMES, Scheme, make_store

NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001  # what must be refused
AWARE = datetime(2030, 1, 1, tzinfo=UTC)


class Case(NamedTuple):
    payload: dict[str, Any]
    options: dict[str, Any]
    field: str
    text: str
    task: str = "send"
    kind: type[InvalidJob] = InvalidJob


NO_EXPIRY = "is not a time from 1 µs to 10 years, counted from the enqueue"

GOOD = {"to": "a@example.com"}

CASES = {
    "unknown task": Case(GOOD, {}, "task", "no task is called 'sent'; did you mean 'send'?", task="sent", kind=UnknownTask),
    "missing argument": Case({}, {}, "payload.to", "missing; task 'send' needs it: add to=…"),
    "wrong type": Case({"to": 5}, {}, "payload.to", "Expected `str`, got `int`; pass what the task declares: to: str"),
    "unexpected argument": Case({**GOOD, "cc": "x"}, {}, "payload.cc", "task 'send' has no such argument; it takes to, data"),
    "payload over 64 KiB": Case(
        {"to": "x" * 65_536},
        {},
        "payload",
        "65,545 bytes of JSON; at most 65,536: keep the data elsewhere and pass its id, or raise max_payload",
    ),
    "NaN": Case(
        {**GOOD, "data": {"rate": [1.0, math.nan]}},
        {},
        "payload.data.rate[1]",
        "nan is not a JSON number; pass None or a text instead",
    ),
    "Infinity": Case({**GOOD, "data": math.inf}, {}, "payload.data", "inf is not a JSON number; pass None or a text instead"),
    "NUL": Case({"to": "a\0b"}, {}, "payload.to", "the text has a NUL character; remove it"),
    "lone surrogate": Case(
        {"to": "\ud83d"},
        {},
        "payload.to",
        "the text has a lone surrogate; it is not valid Unicode: clean it, or pass it as bytes",
    ),
    "naive datetime": Case(
        GOOD, {"run_at": NAIVE}, "run_at", "the datetime has no time zone; give it one, e.g. datetime.now(UTC)"
    ),
    "run_at that is none": Case(GOOD, {"run_at": 60}, "run_at", "60 is not a datetime; for seconds from now use delay"),
    "priority 10": Case(GOOD, {"priority": 10}, "priority", "10 is not a whole number from 0 to 9 (9 goes first)"),
    "expiry in the past": Case(GOOD, {"expires": -1}, "expires", f"-1 {NO_EXPIRY}"),
    "expiry at once": Case(GOOD, {"expires": 0}, "expires", f"0 {NO_EXPIRY}"),
    "expiry below a microsecond": Case(GOOD, {"expires": 1e-7}, "expires", f"1e-07 {NO_EXPIRY}"),
    "expiry that is no time": Case(GOOD, {"expires": "soon"}, "expires", f"'soon' {NO_EXPIRY}"),
    "expiry NaN": Case(GOOD, {"expires": math.nan}, "expires", f"nan {NO_EXPIRY}"),
    "expiry as an instant": Case(GOOD, {"expires": AWARE}, "expires", f"{AWARE!r} {NO_EXPIRY}"),
    "expiry before the due time": Case(
        GOOD,
        {"expires": 5, "delay": 60},
        "expires",
        "it would expire after 5 s and be due after 60 s; give it a longer time, or None: it never expires",
    ),
    "negative delay": Case(GOOD, {"delay": -1}, "delay", "-1 is not a time from 0 s to 10 years"),
    "endless delay": Case(GOOD, {"delay": math.inf}, "delay", "inf is not a time from 0 s to 10 years"),
    "max_attempts 0": Case(GOOD, {"max_attempts": 0}, "max_attempts", f"0 is not a whole number from 1 to {MAX_ATTEMPTS}"),
    "empty queue name": Case(GOOD, {"queue": ""}, "queue", "the name is empty; use letters, digits, '_', '.' and '-'"),
    "run_at and delay": Case(GOOD, {"run_at": AWARE, "delay": 5}, "run_at", "given together with delay; leave one of them out"),
    "key_ttl without key": Case(GOOD, {"key_ttl": 60}, "key_ttl", "given without a key; add key=… or leave it out"),
    "NUL in a key": Case(GOOD, {"key": "a\0"}, "key", "the text has a NUL character; remove it"),
    "lone surrogate in a tag": Case(GOOD, {"tags": ["\ud83d"]}, "tags", "the text has a lone surrogate; it is not valid Unicode"),
    "zero timeout": Case(GOOD, {"timeout": 0}, "timeout", "0 is not a time above 0 s and up to 30 days"),
    "parent that is no id": Case(GOOD, {"parent_id": "me"}, "parent_id", "'me' is not the id of a job"),
    "unknown option": Case(
        GOOD,
        {"eta": 5},
        "eta",
        "no such option; did you mean 'run_at'?",
    ),
}


@pytest.fixture(params=["memory", "sqlite"])
def app(request, tmp_path):
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    with Hawser(url) as app:

        @app.task
        def send(to: str, data: Any = None) -> None: ...

        yield app


def assert_nothing_written(app: Hawser) -> None:
    stats = app.stats()
    assert not any((stats.ready, stats.scheduled, stats.retrying, stats.running, stats.done, stats.dead, stats.cancelled))
    assert not any(stats.rates.values())
    assert app.find().jobs == []


@pytest.mark.parametrize("name", CASES)
def test_a_job_by_name_is_refused(app, name):
    case = CASES[name]
    with pytest.raises(case.kind) as caught:
        app.enqueue(case.task, case.payload, **case.options)
    assert type(caught.value) is case.kind
    assert caught.value.errors == ((case.field, case.text),)
    assert str(caught.value) == f"{case.field}: {case.text}"
    assert_nothing_written(app)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.task == "send"])
async def test_a_job_of_a_task_is_refused_in_the_same_words(app, name):
    case = CASES[name]
    send = app.tasks["send"]
    with pytest.raises(InvalidJob) as plain:
        send.using(**case.options).enqueue(**case.payload)
    with pytest.raises(InvalidJob) as awaited:
        await send.using(**case.options).aenqueue(**case.payload)
    with pytest.raises(InvalidJob) as made:
        send.using(**case.options).job(**case.payload)
    assert plain.value.errors == awaited.value.errors == made.value.errors == ((case.field, case.text),)
    assert_nothing_written(app)


def test_arguments_beside_the_payload_are_shown_where_they_go(app):
    with pytest.raises(InvalidJob) as caught:
        app.enqueue("send", to="x")
    assert str(caught.value) == ("to: no option, but an argument of the task; arguments go in a dict: enqueue('send', {'to': …})")


def test_one_bad_job_among_many_stops_all(app):
    send = app.tasks["send"]
    good = [send.job(str(n)) for n in range(5)]
    with pytest.raises(InvalidJob):
        app.enqueue_many([*good, send.using(priority=10).job("x")])
    assert_nothing_written(app)


def test_all_faults_of_a_job_are_named_at_once(app):
    with pytest.raises(InvalidJob) as caught:
        app.enqueue("send", GOOD, queue="", priority=10, max_attempts=0, delay=-1)
    assert [error.field for error in caught.value.errors] == ["queue", "priority", "max_attempts", "delay"]
    assert_nothing_written(app)


def test_a_message_carries_no_raw_control_characters(app):
    for payload, options in (
        ({"to": "x", "a\nb\0\x1b": 1}, {}),
        (GOOD, {"queue": "a\nb"}),
        ({"to": "x", "data": {"\n": math.nan}}, {}),
    ):
        with pytest.raises(InvalidJob) as caught:
            app.enqueue("send", payload, **options)
        assert str(caught.value).isprintable()


def test_an_unknown_store_is_named():
    with pytest.raises(UnknownStore, match=r"store: no store is called 'mysql'; this version has memory://, sqlite://"):
        Hawser("mysql://localhost/jobs")


@pytest.mark.parametrize("url", ["", "jobs.db", "sqlite", 5])
def test_what_is_no_url_is_named(url):
    with pytest.raises(ConfigError, match="store: "):
        make_store(url)
    if url:
        with pytest.raises(ConfigError, match="store: "):
            Hawser(url)


def test_a_missing_extra_is_named_with_the_command_that_brings_it():
    schemes = {**SCHEMES, "other": Scheme("hawser_has_no_such_module", "other")}
    with pytest.raises(MissingExtra) as caught:
        make_store("other://localhost", schemes=schemes)
    assert str(caught.value) == (
        "store: other:// needs the package 'hawser_has_no_such_module'; install it with: pip install 'hawser-jobs[other]'"
    )
