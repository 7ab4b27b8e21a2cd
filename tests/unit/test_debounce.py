"""Debounced jobs, as the app makes them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from hawser import Context, Hawser, InvalidJob
from hawser.job import UNTIL_START, NewJob, new_job
from hawser.testing.app import AppUnderTest


def test_calls_with_one_key_become_one_job_with_the_newest_arguments(hawser_app: AppUnderTest):
    seen = []

    @hawser_app.task
    def reindex(document: int, revision: int) -> None:
        seen.append((document, revision))

    debounced = reindex.using(key="reindex:42", debounce=timedelta(seconds=5), at_most=60)
    first = debounced.enqueue(42, 1)
    assert (first.created, first.replaced) == (True, False)
    hawser_app.advance(4)
    second = debounced.enqueue(42, 2)
    assert (second.id, second.created, second.replaced) == (first.id, False, True)
    hawser_app.drain()
    assert seen == []
    hawser_app.advance(5)
    hawser_app.drain()
    assert seen == [(42, 2)]
    assert debounced.enqueue(42, 3).created


def test_what_is_debounced_is_delayed_and_holds_its_key_until_its_start():
    job = new_job(task="t", body=b"{}", key="k", debounce=5, at_most=timedelta(minutes=1))
    assert (job.delay, job.key_ttl, job.at_most) == (5, UNTIL_START, 60)


AFTER = "01900000-0000-7000-8000-000000000001"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"debounce": 5}, "debounce"),
        ({"key": "k", "debounce": 0}, "debounce"),
        ({"key": "k", "debounce": 1e-7}, "debounce"),
        ({"key": "k", "debounce": -1}, "debounce"),
        ({"key": "k", "debounce": "soon"}, "debounce"),
        ({"key": "k", "debounce": float("nan")}, "debounce"),
        ({"key": "k", "at_most": 5}, "at_most"),
        ({"key": "k", "debounce": 5, "at_most": 4}, "at_most"),
        ({"key": "k", "debounce": 5, "at_most": "later"}, "at_most"),
        ({"key": "k", "debounce": 5, "delay": 1}, "delay"),
        ({"key": "k", "debounce": 5, "run_at": datetime(2026, 1, 1, tzinfo=UTC)}, "run_at"),
        ({"key": "k", "debounce": 5, "key_ttl": "forever"}, "key_ttl"),
        ({"key": "k", "debounce": 5, "key_ttl": 60}, "key_ttl"),
        ({"key": "k", "debounce": 5, "expires": 5}, "expires"),
        ({"key": "k", "debounce": 5, "waits_for": (AFTER,)}, "after"),
        ({"key": "k", "debounce": 5, "batch": AFTER}, "batch"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, object], field: str):
    with pytest.raises(InvalidJob) as refused:
        new_job(task="t", body=b"{}", **given)
    assert [error.field for error in refused.value.errors] == [field]


def test_a_debounced_job_waits_for_no_other_and_is_of_no_batch():
    job = new_job(task="t", body=b"{}", key="k", debounce=5)
    with pytest.raises(InvalidJob, match="after"):
        job.after(AFTER)
    with pytest.raises(InvalidJob, match="batch"):
        job.of_batch(AFTER)


def test_a_paced_call_and_a_job_that_follows_are_not_debounced(hawser_app: AppUnderTest):
    @hawser_app.task
    def reindex(document: int) -> None: ...

    refused = []

    @hawser_app.task
    def edit(ctx: Context) -> None:
        try:
            ctx.enqueue(reindex.using(key="k", debounce=5).job(1))
        except InvalidJob as error:
            refused.append(error.errors[0].field)

    with pytest.raises(InvalidJob, match="rate"):
        hawser_app.enqueue_many([reindex.using(key="k", debounce=5).job(1)], rate="5/s")
    edit.enqueue()
    hawser_app.drain()
    assert refused == ["debounce"]


def test_inside_a_transaction_on_sqlite(tmp_path):
    path = tmp_path / "shop.db"
    app = Hawser(f"sqlite:///{path}")

    @app.task
    def reindex(revision: int) -> None: ...

    debounced = reindex.using(key="k", debounce=60)
    first = debounced.enqueue(1)
    with closing(sqlite3.connect(path)) as con:
        again = debounced.inside(con).enqueue(2)
        assert (again.id, again.replaced) == (first.id, True)
        con.rollback()
        assert app.get(first.id).payload == {"revision": 1}
        debounced.inside(con).enqueue(3)
        con.commit()
    assert app.get(first.id).payload == {"revision": 3}
    app.close()


def test_a_plain_job_has_no_debounce():
    assert NewJob(task="t", body=b"{}").debounce is None
