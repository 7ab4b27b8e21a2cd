"""What becomes of a job, by how its handler ends."""

import asyncio
import re
import sys
import threading

import pytest

from hawser import Cancel, Context, Drop, Fixed, Hawser, NewJob, Retry, Snooze, State, StoreUnavailable
from hawser.limit import Limit
from hawser.store import Actor, Target
from tests.worker.conftest import ended, until, working

SOON = Fixed(every=0.01, jitter="none")


async def test_an_async_handler_runs_and_its_result_is_kept(app: Hawser):
    @app.task
    async def add(a: int, b: int) -> dict[str, int]:
        await asyncio.sleep(0)
        return {"sum": a + b}

    async with working(app):
        job = await ended(app, (await add.aenqueue(2, b=3)).id)
    assert (job.state, job.result, job.attempt) == (State.DONE, {"sum": 5}, 1)
    assert [attempt.outcome for attempt in job.attempts] == ["done"]


async def test_a_plain_function_runs_in_a_thread(app: Hawser):
    @app.task
    def where() -> str:
        return threading.current_thread().name

    async with working(app):
        job = await ended(app, (await where.aenqueue()).id)
    assert job.result.startswith("hawser-slot")


async def test_arguments_come_with_the_types_of_the_signature(app: Hawser):
    from datetime import UTC, datetime

    @app.task
    async def kinds(when: datetime, sizes: list[int], name: str = "x") -> str:
        return f"{type(when).__name__} {when.year} {sizes} {name}"

    async with working(app):
        job = await ended(app, (await kinds.aenqueue(datetime(2030, 1, 1, tzinfo=UTC), [1, 2])).id)
    assert job.result == "datetime 2030 [1, 2] x"


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_failure_is_retried_and_then_dead_after_exactly_max_attempts(app: Hawser, kind: str):
    starts = []

    async def fails_async() -> None:
        starts.append(1)
        raise ValueError("no such user")

    def fails() -> None:
        starts.append(1)
        raise ValueError("no such user")

    task = app.task(name="fails", max_attempts=3, backoff=SOON)(fails_async if kind == "async" else fails)
    async with working(app):
        job = await ended(app, (await task.aenqueue()).id)
    assert (job.state, job.attempt, len(starts)) == (State.DEAD, 3, 3)
    assert [str(error) for error in job.errors] == ["ValueError: no such user"] * 3
    assert "in fails" in (job.errors[-1].traceback or "")
    assert [error.number for error in job.errors] == [1, 2, 3]


async def test_drop_is_dead_at_once(app: Hawser):
    @app.task(max_attempts=5)
    async def drops() -> None:
        raise Drop("the account is closed")

    async with working(app):
        job = await ended(app, (await drops.aenqueue()).id)
    assert (job.state, job.attempt) == (State.DEAD, 1)
    assert "the account is closed" in str(job.errors[0])


async def test_retry_chooses_its_own_wait(app: Hawser):
    @app.task(max_attempts=3, backoff=Fixed(every=3600, jitter="none"))
    async def once(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise Retry("not yet", after=0.01)
        return ctx.attempt

    async with working(app):
        job = await ended(app, (await once.aenqueue()).id)
    assert (job.state, job.result, job.attempt) == (State.DONE, 2, 2)


async def test_snooze_burns_no_attempt(app: Hawser):
    rounds = []

    @app.task(max_attempts=1)
    async def later() -> str:
        rounds.append(1)
        if len(rounds) < 4:
            raise Snooze(0.01, "the bank is closed")
        return "open"

    async with working(app):
        job = await ended(app, (await later.aenqueue()).id)
    assert (job.state, job.result, job.attempt, job.returned) == (State.DONE, "open", 1, 3)


async def test_cancel_ends_it_as_cancelled(app: Hawser):
    @app.task
    async def unwanted() -> None:
        raise Cancel("the order was withdrawn")

    async with working(app):
        job = await ended(app, (await unwanted.aenqueue()).id)
    assert (job.state, job.reason) == (State.CANCELLED, "the order was withdrawn")


async def test_a_job_of_an_unknown_task_is_left_to_others_visibly(app: Hawser):
    store = await app.store()
    await store.enqueue([new := NewJob(task="nobody", body=b"{}")])
    async with working(app):
        job = await until(lambda job: job.returned == 1, app, new.id)
    assert (job.state, job.attempt) == (State.READY, 0)
    assert job.reason is not None
    assert job.reason.endswith("cannot run it: no task 'nobody' is registered there")


async def test_a_payload_that_fits_no_worker_any_more_is_dead_and_says_so(app: Hawser):
    @app.task
    async def renamed(new_name: str) -> None: ...

    store = await app.store()
    await store.enqueue([new := NewJob(task="renamed", body=b'{"old_name": "x"}', max_attempts=1)])
    async with working(app, unaccepted_after=0.2):
        job = await ended(app, new.id)
    assert job.state is State.DEAD
    assert str(job.errors[0]).startswith("no living worker accepted it for 0.2 s: worker ")
    assert "payload.new_name: missing" in str(job.errors[0])


@pytest.mark.parametrize("how", ["SystemExit", "KeyboardInterrupt", "unwritable result", "huge text", "hostile text"])
async def test_a_poisonous_end_is_contained(app: Hawser, how: str):
    class Hostile(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text for you")

    @app.task(max_attempts=2, backoff=SOON)
    async def poison() -> object:
        match how:
            case "SystemExit":
                sys.exit(3)
            case "KeyboardInterrupt":
                raise KeyboardInterrupt
            case "unwritable result":
                return object()
            case "huge text":
                raise ValueError("x" * 10_000_000)
            case _:
                raise Hostile

    @app.task
    async def healthy() -> str:
        return "ok"

    async with working(app):
        bad = await ended(app, (await poison.aenqueue()).id)
        good = await ended(app, (await healthy.aenqueue()).id)
    assert (bad.state, bad.attempt, len(bad.errors)) == (State.DEAD, 2, 2)
    assert len(bad.errors[0].error or "") < 10_000
    assert len(bad.errors[0].traceback or "") < 40_000
    assert good.state is State.DONE


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_chained_jobs_are_added_in_the_settling_write(app: Hawser, kind: str):
    @app.task
    async def last() -> None: ...

    async def first_async(ctx: Context) -> None:
        ctx.enqueue(last.job())

    def first(ctx: Context) -> None:
        ctx.enqueue(last.job())

    task = app.task(name="first")(first_async if kind == "async" else first)
    async with working(app):
        parent = await ended(app, (await task.aenqueue()).id)
        [child] = (await app.afind(parent_id=parent.id)).jobs
        child = await ended(app, child.id)
    assert (child.task, child.state, child.parent_id) == ("last", State.DONE, parent.id)


async def test_a_failed_attempt_adds_no_jobs(app: Hawser):
    @app.task
    async def never() -> None: ...

    @app.task(max_attempts=2, backoff=SOON)
    async def fails(ctx: Context) -> None:
        ctx.enqueue(never.job())
        raise ValueError("no")

    async with working(app):
        job = await ended(app, (await fails.aenqueue()).id)
    assert (await app.afind(parent_id=job.id)).jobs == []


async def test_progress_and_a_longer_lease_reach_the_store(app: Hawser):
    go = asyncio.Event()

    @app.task(timeout=1000)
    async def long(ctx: Context) -> None:
        ctx.progress({"percent": 40})
        ctx.extend(500)
        await go.wait()

    async with working(app, lease=30):
        job = await until(lambda job: job.progress is not None, app, (await long.aenqueue()).id)
        assert job.progress == {"percent": 40}
        assert job.lease_until is not None
        assert job.started_at is not None
        assert (job.lease_until - job.started_at).total_seconds() > 400
        go.set()
        assert (await ended(app, job.id)).progress == {"percent": 40}


async def test_progress_and_a_longer_lease_reach_the_store_although_it_was_away_first(app: Hawser, monkeypatch):
    store = await app.store()
    extend, asked = store.extend, 0

    async def away_at_first(worker, leases, lease_for):
        nonlocal asked
        asked += 1
        if asked <= 2:
            raise StoreUnavailable("away")
        return await extend(worker, leases, lease_for)

    monkeypatch.setattr(store, "extend", away_at_first)

    @app.task(timeout=1000)
    async def long(ctx: Context) -> None:
        ctx.progress({"percent": 40})
        ctx.extend(500)
        await asyncio.sleep(60)

    async with working(app, lease=30, drain_timeout=0):
        job = await until(lambda job: job.progress is not None, app, (await long.aenqueue()).id)
        assert job.progress == {"percent": 40}
        assert job.lease_until is not None
        assert job.started_at is not None
        assert (job.lease_until - job.started_at).total_seconds() > 400
    assert asked >= 3


async def test_done_jobs_of_a_task_that_keeps_none_are_removed_at_once(app: Hawser):
    from hawser import JobNotFound, Retention

    @app.task(retention=Retention(done=0))
    async def forgotten() -> None: ...

    async with working(app):
        handle = await forgotten.aenqueue()
        with pytest.raises(JobNotFound):
            await ended(app, handle.id)


async def test_a_full_queue_does_not_stop_a_chain(app: Hawser):
    @app.task(queue="small")
    async def last() -> None: ...

    @app.task
    async def first(ctx: Context) -> None:
        ctx.enqueue(last.job(), last.job())

    await (await app.store()).set_limit(Target("queue", "small"), Limit(max_depth=1), Actor())
    async with working(app):
        job = await ended(app, (await first.aenqueue()).id)
    assert job.state is State.DONE
    assert len((await app.afind(parent_id=job.id)).jobs) == 2


async def test_a_result_that_is_too_large_is_a_failure_that_says_so(app: Hawser):
    @app.task(max_attempts=1)
    async def verbose() -> str:
        return "x" * 1_000_000

    async with working(app):
        job = await ended(app, (await verbose.aenqueue()).id)
    assert job.state is State.DEAD
    assert "at most 262,144 are kept" in str(job.errors[0])


async def test_a_dependency_that_is_down_does_not_flood_the_log(app: Hawser, caplog: pytest.LogCaptureFixture):
    @app.task(max_attempts=2, backoff=Fixed(every=3600))
    async def down() -> None:
        raise ConnectionError("no route")

    handles = await app.aenqueue_many([down.job() for _ in range(500)])
    async with working(app, slots=50):
        for handle in handles:
            await until(lambda job: job.attempt == 1 and job.state is State.READY, app, handle.id)
    lines = [record for record in caplog.records if "job failed" in record.getMessage()]
    assert 20 <= len(lines) <= 100
    told = r"attempt 1 of 2, again in \d+ s: ConnectionError: no route, at (.*/)?test_outcomes\.py:\d+$"
    assert re.search(told, lines[0].getMessage())
    assert lines[0].task == "down"  # type: ignore[attr-defined]  # an extra field


async def test_with_all_that_can_be_told_the_log_has_what_was_done_and_tracebacks(app: Hawser, caplog: pytest.LogCaptureFixture):
    @app.task(max_attempts=1)
    async def divide(by: int) -> float:
        return 1 / by

    handles = [await divide.aenqueue(by) for by in (1, 0)]
    with caplog.at_level("DEBUG", "hawser.worker"):
        async with working(app):
            for handle in handles:
                await ended(app, handle.id)
    told = {record.job_id: record.getMessage() for record in caplog.records if hasattr(record, "job_id")}
    assert told[handles[0].id] == "job is done"
    assert "return 1 / by" in told[handles[1].id]


async def test_an_outcome_that_cannot_be_written_does_not_stop_the_others(app: Hawser):
    @app.task(max_attempts=2)
    async def odd() -> None:
        raise Retry("in a while", after=12_345)

    @app.task
    async def healthy() -> None: ...

    store = await app.store()
    settle = store.settle

    async def fussy(settlements):
        if any(getattr(settlement.outcome, "after", 0) == 12_345 for settlement in settlements):
            raise OverflowError("too far away")
        return await settle(settlements)

    store.settle = fussy  # type: ignore[method-assign]
    odd_one = await odd.aenqueue()
    handles = await app.aenqueue_many([healthy.job() for _ in range(50)])
    async with working(app, lease=1):
        for handle in handles:
            assert (await ended(app, handle.id)).state is State.DONE
        # Its lease runs out, which counts; nothing hangs.
        assert (await ended(app, odd_one.id, 15)).state is State.DEAD


async def test_a_backoff_that_breaks_does_not_cost_the_slot(app: Hawser):
    from hawser.backoff import Backoff

    class Broken(Backoff, frozen=True, kw_only=True):
        def ceiling(self, attempt: int) -> float:
            raise ZeroDivisionError

    @app.task(max_attempts=2, backoff=Broken())
    async def fails() -> None:
        raise ValueError("no")

    @app.task
    async def healthy() -> None: ...

    async with working(app, slots=1):
        handle = await fails.aenqueue()
        job = await until(lambda job: job.attempt == 1 and job.state is State.READY, app, handle.id)
        assert "ZeroDivisionError" in str(job.errors[0])
        assert (await ended(app, (await healthy.aenqueue()).id)).state is State.DONE


async def test_arguments_that_cannot_be_built_are_a_failure_and_the_others_go_on(app: Hawser):
    from dataclasses import dataclass

    @dataclass
    class Picky:
        name: str

        def __post_init__(self) -> None:
            raise KeyError(self.name)

    async def wants(picky: Picky) -> None: ...

    wants.__annotations__["picky"] = Picky
    task = app.task(max_attempts=1)(wants)

    @app.task
    async def healthy() -> None: ...

    store = await app.store()
    await store.enqueue([bad := NewJob(task=task.name, body=b'{"picky": {"name": "x"}}', max_attempts=1)])
    handles = await app.aenqueue_many([healthy.job() for _ in range(5)])
    async with working(app, slots=2):
        for handle in handles:
            assert (await ended(app, handle.id)).state is State.DONE
        assert (await ended(app, bad.id)).state is State.DEAD


async def test_a_listener_that_fails_costs_nobody_a_job(app: Hawser):
    from hawser.telemetry.events import Events

    class Deaf(Events):
        def claimed(self, batch):
            raise RuntimeError("claimed")

        def settled(self, batch):
            raise RuntimeError("settled")

    @app.task
    async def healthy() -> None: ...

    handles = await app.aenqueue_many([healthy.job() for _ in range(20)])
    async with working(app, Deaf(), slots=3):
        for handle in handles:
            assert (await ended(app, handle.id)).state is State.DONE


async def test_a_chained_job_made_by_hand_is_checked_where_it_is_made(app: Hawser):
    @app.task(max_attempts=1)
    async def careless(ctx: Context) -> None:
        ctx.enqueue(NewJob(task="careless", body={"not": "bytes"}))  # type: ignore[arg-type]

    async with working(app):
        job = await ended(app, (await careless.aenqueue()).id)
    assert "job.body: the payload must be JSON text" in str(job.errors[0])


async def test_a_snooze_beyond_all_bounds_is_a_failure_that_says_so(app: Hawser):
    @app.task(max_attempts=1)
    async def far() -> None:
        raise Snooze(1e12)

    async with working(app):
        job = await ended(app, (await far.aenqueue()).id)
    assert "Snooze: 1000000000000.0 is not a time in seconds; use a number from 0 to 10 years" in str(job.errors[0])
