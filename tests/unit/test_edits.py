"""Changes of single jobs through the app: what is refused, and the plain and the awaitable call."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hawser import ConfigError, Hawser, JobNotFound, WrongState
from hawser.job import State
from hawser.store import Share
from hawser.value.ids import new_id


@pytest.fixture
def app():
    app = Hawser("memory://")

    @app.task
    def work(n: int = 0) -> None: ...

    return app


def test_a_job_is_changed_and_run_now(app):
    id = app.enqueue("work", delay=600).id
    app.change(id, priority=9, queue="other", delay=timedelta(minutes=5))
    job = app.get(id)
    assert (job.priority, job.queue) == (9, "other")
    app.change(id, delay=0, reason="now")
    assert app.stats("other").due == 1


async def test_the_awaitable_twins(app):
    id = (await app.aenqueue("work")).id
    await app.achange(id, run_at=datetime(2031, 1, 1, tzinfo=UTC))
    assert (await app.aget(id)).run_at.year == 2031
    await app.adead_letter(id, reason="poison")
    assert ((await app.aget(id)).state, (await app.aget(id)).reason) == (State.DEAD, "poison")
    with pytest.raises(WrongState, match="it is dead; only a waiting job can be dead-lettered"):
        await app.adead_letter(id)
    assert await app.areclaim_worker("gone") == 0


async def test_the_runs_of_a_dead_worker_are_ready_again(app):
    id = (await app.aenqueue("work")).id
    store = await app.store()
    await store.claim([Share("default")], 1, "gone", 60)
    assert await app.areclaim_worker("gone", reason="no power") == 1
    assert (await app.aget(id)).state is State.READY


def test_a_job_that_is_gone_or_has_ended_is_not_changed(app):
    with pytest.raises(JobNotFound):
        app.change(new_id(), priority=1)
    id = app.enqueue("work").id
    app.cancel(id)
    with pytest.raises(WrongState, match="it is cancelled; only a waiting job can be changed"):
        app.change(id, priority=1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "nothing to change; give queue, priority, run_at or delay"),
        ({"priority": 10}, "priority: 10 is not a whole number from 0 to 9"),
        ({"queue": "no name"}, "queue: 'no name' is not a name"),
        ({"delay": -1}, "delay: -1 is not a time from 0 s to 10 years"),
        ({"delay": float("nan")}, "delay: nan is not a time"),
        ({"delay": "5"}, "delay: '5' is not a time"),
        ({"delay": 5, "run_at": datetime(2031, 1, 1, tzinfo=UTC)}, "run_at: given together with delay"),
        ({"run_at": datetime(2031, 1, 1)}, "run_at: .* is not a datetime with a time zone"),  # noqa: DTZ001
        ({"run_at": datetime(1, 1, 1, tzinfo=UTC)}, "run_at: the year 1 is out of range"),
    ],
)
def test_a_wrong_change_is_named(app, change: dict[str, Any], words: str):
    id = app.enqueue("work").id
    before = app.get(id)
    with pytest.raises(ConfigError, match=words):
        app.change(id, **change)
    assert app.get(id) == before


def test_a_key_that_is_taken_in_the_other_queue_is_named(app):
    work = app.tasks["work"]
    work.using(key="k", queue="other").enqueue()
    id = work.using(key="k").enqueue().id
    with pytest.raises(WrongState, match="another job holds the key 'k' in queue 'other'"):
        app.change(id, queue="other")


def test_a_worker_without_a_name_is_refused(app):
    with pytest.raises(ConfigError, match="worker: a text of 0 characters"):
        app.reclaim_worker("")
