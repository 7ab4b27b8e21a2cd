"""An enqueue whose answer got lost: one job, or an outcome that is said to be unknown."""

from __future__ import annotations

from typing import Any

import pytest

from hawser import Hawser, OutcomeUnknown, QueueFull, StoreUnavailable
from hawser.stores import make_store


class Flaky:
    """A store whose enqueue does what the script says: write and lose the answer, lose the call, refuse, or work."""

    def __init__(self, *script: str) -> None:
        self.inner = make_store("memory://")
        self.script = list(script)
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        if name == "inline":
            raise AttributeError(name)
        return getattr(self.inner, name)

    async def enqueue(self, jobs: Any, request: Any = None) -> Any:
        self.calls += 1
        match self.script.pop(0) if self.script else "works":
            case "answer lost":
                await self.inner.enqueue(jobs)
                raise OutcomeUnknown("cut")
            case "call lost":
                raise OutcomeUnknown("cut")
            case "refused":
                raise StoreUnavailable("away")
            case "full":
                raise QueueFull("default", 1, 1)
            case _:
                return await self.inner.enqueue(jobs)


def flaky(*script: str) -> tuple[Hawser, Flaky, Any]:
    store = Flaky(*script)
    app = Hawser(store, enqueue_retry_after=0.001)

    @app.task
    def work(n: int) -> None: ...

    return app, store, work


@pytest.mark.parametrize(
    "script",
    [["answer lost"], ["call lost"], ["answer lost", "refused"], ["call lost", "answer lost"], ["call lost", "refused"]],
)
def test_a_lost_answer_makes_one_job_and_it_counts_as_created(script):
    app, store, work = flaky(*script)
    with app:
        handle = work.enqueue(1)
        assert handle.created
        assert store.calls == len(script) + 1
        assert app.stats().ready == 1
        assert app.get(handle.id).payload == {"n": 1}


def test_a_job_that_a_key_kept_out_is_not_created_after_a_lost_answer_either():
    app, _, work = flaky("works", "answer lost")
    with app:
        first = work.using(key="k").enqueue(1)
        second = work.using(key="k").enqueue(2)
    assert (second.id, second.created) == (first.id, False)


@pytest.mark.parametrize("script", [["answer lost"] * 3, ["answer lost", "refused", "refused"], ["call lost"] * 3])
def test_an_outcome_that_stays_unknown_is_neither_success_nor_failure(script):
    app, store, work = flaky(*script)
    with app:
        jobs = [work.job(1), work.job(2)]
        with pytest.raises(OutcomeUnknown, match="no answer to enqueue after 3 tries") as caught:
            app.enqueue_many(jobs)
        assert all(job.id in str(caught.value) for job in jobs)
        assert store.calls == 3
        app.enqueue_many(jobs)
        assert app.stats().ready == 2


def test_a_refusal_at_first_is_a_refusal():
    app, store, work = flaky("refused")
    with app:
        with pytest.raises(StoreUnavailable, match="away"):
            work.enqueue(1)
        assert store.calls == 1


def test_a_full_queue_after_a_lost_call_is_a_verdict():
    app, _, work = flaky("call lost", "full")
    with app, pytest.raises(QueueFull):
        work.enqueue(1)
