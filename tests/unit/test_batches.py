"""Batches as an app makes them, and as a handler adds to its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hawser import BatchNotFound, BatchState, ConfigError, Context, Hawser, InvalidJob, OutcomeUnknown, State, WrongState
from hawser.batch import ADDED_AT_ONCE
from hawser.handle import Handle
from hawser.job import NewJob
from hawser.value.ids import new_id


@pytest.fixture
def app() -> Hawser:
    app = Hawser("memory://")

    @app.task
    def load(row: int, more: int = 0) -> int:
        return row

    @app.task
    def grow(ctx: Context, depth: int) -> None:
        if depth:
            ctx.batch.add(app.tasks["grow"].job(depth=depth - 1), app.tasks["grow"].job(depth=depth - 1))

    @app.task
    def report(id: int) -> None:
        pass

    @app.task(max_attempts=1)
    def fail() -> None:
        raise ValueError("no such row")

    return app


def run_all(app: Hawser) -> None:
    """Run what can be run."""

    async def run() -> None:
        async with app.worker(), asyncio.timeout(30):
            while (stats := await app.astats()).due + stats.running:
                await asyncio.sleep(0.01)

    asyncio.run(run())


def jobs(app: Hawser, count: int) -> list[NewJob]:
    return [app.tasks["load"].job(row=n) for n in range(count)]


def test_a_batch_is_opened_filled_and_closed(app):
    report = app.tasks["report"].job(id=42)
    with app.batch("import-42", then=report) as batch:
        handles = batch.add(*jobs(app, 3))
        assert app.get_batch(batch.id).state is BatchState.OPEN
    assert [handle.created for handle in handles] == [True] * 3
    found = app.get_batch(batch.id)
    assert (found.name, found.total, found.waiting, found.closed, found.then) == ("import-42", 3, 3, True, report.id)
    assert app.get(report.id).held
    assert [app.get(handle.id).batch for handle in handles] == [batch.id] * 3
    run_all(app)
    assert (app.get_batch(batch.id).state, app.get(report.id).state) == (BatchState.DONE, State.DONE)
    assert [job.id for job in app.find(batch=batch.id).jobs] == [handle.id for handle in reversed(handles)]


async def test_a_batch_in_a_coroutine(app):
    async with app.batch("import", on_success=app.tasks["report"].job(id=1)) as batch:
        await batch.aadd(*jobs(app, 2))
    assert (await app.aget_batch(batch.id)).closed
    assert [each.id for each in (await app.afind_batches(state="running")).batches] == [batch.id]
    await app.acancel_batch(batch.id, reason="wrong file")
    found = await app.aget_batch(batch.id)
    assert (found.state, found.cancelled, found.reason) == (BatchState.CANCELLED, 2, "wrong file")


def test_many_jobs_are_written_some_at_a_time(app, monkeypatch):
    sizes: list[int] = []
    put = app._connection.put

    def noting(some: Sequence[NewJob]) -> list[Handle[Any]]:
        sizes.append(len(some))
        handles: list[Handle[Any]] = put(some)
        return handles

    monkeypatch.setattr(app._connection, "put", noting)
    with app.batch("large") as batch:
        assert len(batch.add(*jobs(app, 2 * ADDED_AT_ONCE + 1))) == 2 * ADDED_AT_ONCE + 1
    assert sizes == [ADDED_AT_ONCE, ADDED_AT_ONCE, 1]
    assert app.get_batch(batch.id).total == 2 * ADDED_AT_ONCE + 1


def test_an_error_inside_leaves_the_batch_open(app):
    batch = app.batch("half", then=app.tasks["report"].job(id=1))

    def produce() -> None:
        with batch:
            batch.add(*jobs(app, 1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        produce()
    run_all(app)
    assert app.get_batch(batch.id).state is BatchState.OPEN
    assert [each.name for each in app.find_batches(state=BatchState.OPEN).batches] == ["half"]
    app.close_batch(batch.id, reason="the producer died")
    assert app.get_batch(batch.id).state is BatchState.DONE
    with pytest.raises(WrongState, match="closed already"):
        app.close_batch(batch.id)
    with pytest.raises(WrongState, match="it has ended, and is done"):
        app.cancel_batch(batch.id)


def test_a_member_adds_to_its_own_batch(app):
    with app.batch("tree", then=app.tasks["report"].job(id=1)) as batch:
        batch.add(app.tasks["grow"].job(depth=3))
    run_all(app)
    found = app.get_batch(batch.id)
    assert (found.total, found.done, found.state) == (15, 15, BatchState.DONE)


def test_batches_inside_batches(app):
    with app.batch("outer", on_dead=app.tasks["report"].job(id=1)) as outer:
        with app.batch("inner", parent=outer) as inner:
            inner.add(app.tasks["fail"].job())
        outer.add(*jobs(app, 1))
    run_all(app)
    assert (app.get_batch(inner.id).parent, app.get_batch(inner.id).state) == (outer.id, BatchState.DEAD)
    found = app.get_batch(outer.id)
    assert (found.total, found.done, found.dead) == (2, 1, 1)
    assert app.get(found.on_dead).state is State.DONE


def test_a_job_may_name_its_batch_and_wait_for_another(app):
    with app.batch("first") as first:
        handle = app.tasks["load"].using(batch=first).enqueue(row=1)
    with app.batch("second") as second:
        second.add(app.tasks["load"].job(row=2).after(first))
    assert app.get(handle.id).batch == first.id
    run_all(app)
    assert app.get_batch(second.id).done == 1


def test_what_cannot_be_a_batch_is_refused(app):
    report, other = app.tasks["report"], new_id()
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: app.batch(""), "name: a text of 0 characters"),
        (lambda: app.batch("x", then="report"), "then: str is not a new job"),
        (lambda: app.batch("x", then=report.using(key="k").job(id=1)), "then: it has a key"),
        (lambda: app.batch("x", on_dead=report.job(id=1).after(new_id())), "on_dead: it waits for other jobs"),
        (lambda: app.batch("x", parent="nonsense"), "parent: 'nonsense' is not a batch"),
        (lambda: report.using(batch="nonsense"), "batch: 'nonsense' is not a batch"),
        (lambda: report.using(batch=other, after=[other]).job(id=1), "batch: the job would wait for the batch that it counts in"),
    ]
    for make, said in wrong:
        with pytest.raises(InvalidJob, match=said):
            make()
    with pytest.raises(InvalidJob, match=r"batch: .*does not have batch"):
        report.using(batch=other).enqueue(id=1)
    with app.batch("x") as batch:
        with pytest.raises(InvalidJob, match=f"the job is of batch {other} already"):
            batch.add(report.using(batch=other).job(id=1))
        with pytest.raises(InvalidJob, match="is not a new job"):
            batch.add("report")
    with pytest.raises(InvalidJob, match="has ended"):
        batch.add(report.job(id=1))
    for call in (app.get_batch, app.close_batch, app.cancel_batch):
        with pytest.raises(BatchNotFound, match="was never opened here"):
            call(other)
    with pytest.raises(ConfigError, match="state: 'odd' is not one of them"):
        app.find_batches(state="odd")


def test_a_handler_of_no_batch_is_told(app):
    with pytest.raises(ConfigError, match="this job is of no batch"):
        app.tasks["grow"](depth=1)


async def test_a_lost_answer_is_asked_for_again(app, monkeypatch):
    store = await app.store()
    lost = {"open_batch": 1, "close_batch": 2}

    def losing(name: str) -> Any:
        call = getattr(store, name)

        async def again(*given: Any) -> Any:
            answer = await call(*given)
            if lost[name]:
                lost[name] -= 1
                raise OutcomeUnknown("the answer was lost")
            return answer

        return again

    for name in lost:
        monkeypatch.setattr(store, name, losing(name))
    async with app.batch("again") as batch:
        await batch.aadd(*jobs(app, 1))
    assert lost == {"open_batch": 0, "close_batch": 0}
    found = await app.aget_batch(batch.id)
    assert (found.total, found.closed) == (1, True)
    lost["open_batch"] = 100
    with pytest.raises(OutcomeUnknown, match="look at it with"):
        await asyncio.wait_for(app.batch("never").__aenter__(), 30)


def test_a_member_that_waits_for_what_its_batch_releases_is_refused(app):
    then = app.tasks["report"].job(id=42)
    with pytest.raises(InvalidJob, match="neither would ever start"), app.batch("import-42", then=then) as batch:
        batch.add(app.tasks["load"].job(row=1).after(then.id))
    assert app.get_batch(batch.id).total == 0
