"""Runs that have to end before they are done: past their timeout, or cancelled."""

import asyncio
import logging
import threading
import time
from typing import Any

import pytest

from hawser import Cancel, Context, Fixed, Hawser, State
from hawser.supervisor.board_reader import BoardReader
from hawser.telemetry.meter import Meter
from hawser.worker.board import How
from hawser.worker.executor import Executor
from hawser.worker.run import Stop
from tests.worker.conftest import ended, until, working


async def test_an_async_handler_is_cancelled_at_its_timeout(app: Hawser):
    cancelled = asyncio.Event()

    @app.task(timeout=0.2, max_attempts=1)
    async def hangs() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with working(app):
        job = await ended(app, (await hangs.aenqueue()).id)
    assert cancelled.is_set()
    assert (job.state, str(job.errors[0])) == (State.DEAD, "timeout: the attempt took longer than 0.2 s")


async def test_a_thread_that_cannot_be_stopped_loses_its_right_to_settle_and_keeps_its_slot(app: Hawser):
    release = threading.Event()

    @app.task(timeout=0.2, max_attempts=1)
    def hangs() -> str:
        release.wait(20)
        return "too late"

    async with working(app, slots=1):
        job = await ended(app, (await hangs.aenqueue()).id)
        assert (job.state, str(job.errors[0])) == (State.DEAD, "timeout: the attempt took longer than 0.2 s")
        async with asyncio.timeout(10):
            while (await (await app.store()).workers())[0].beat.stuck != 1:
                await asyncio.sleep(0.05)
        second = await hangs.aenqueue()
        await asyncio.sleep(0.1)  # in which it could start
        assert (await app.aget(second.id)).state is State.READY, "its slot is still taken"
        release.set()
        assert (await ended(app, second.id)).state is State.DONE
    assert (await app.aget(job.id)).state is State.DEAD


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_running_job_can_be_cancelled(app: Hawser, kind: str):
    started = threading.Event()

    async def runs_async() -> None:
        started.set()
        await asyncio.sleep(60)

    def runs(ctx: Context) -> None:
        started.set()
        while not ctx.cancelled:
            time.sleep(0.01)
        raise Cancel("as asked")

    task = app.task(name="runs")(runs_async if kind == "async" else runs)
    async with working(app, lease=60):
        handle = await task.aenqueue()
        await asyncio.to_thread(started.wait, 10)
        assert await app.acancel(handle.id, reason="changed our mind") == "asked"
        job = await ended(app, handle.id, 15)  # long before the first extension of its lease
    assert job.state is State.CANCELLED


async def test_a_cancelled_job_whose_handler_raises_is_told_and_counted_as_cancelled(
    app: Hawser, caplog: pytest.LogCaptureFixture
):
    started = asyncio.Event()

    async def runs() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            raise RuntimeError("half of it was sent") from error

    caplog.set_level(logging.INFO, "hawser.worker")
    task, meter = app.task(name="runs", max_attempts=1)(runs), Meter()
    async with working(app, meter, lease=60):
        handle = await task.aenqueue()
        await asyncio.wait_for(started.wait(), 10)
        assert await app.acancel(handle.id, reason="changed our mind") == "asked"
        job = await ended(app, handle.id, 15)
    assert job.state is State.CANCELLED
    assert meter.readings.counts["hawser_settled_total"] == {("default", "runs", "cancelled"): 1}
    told = [record.getMessage() for record in caplog.records if getattr(record, "job_id", None) == handle.id]
    assert len(told) == 1
    assert told[0].startswith("job is cancelled; its run ended with: RuntimeError: half of it was sent")


async def test_a_coroutine_that_will_not_be_cancelled_loses_its_right_to_settle(app: Hawser):
    release = asyncio.Event()

    @app.task(timeout=0.2, max_attempts=1)
    async def stubborn() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "too late"

    async with working(app):
        job = await ended(app, (await stubborn.aenqueue()).id)
        assert (job.state, str(job.errors[0])) == (State.DEAD, "timeout: the attempt took longer than 0.2 s")
        release.set()
    assert (await app.aget(job.id)).state is State.DEAD


async def test_a_cancelled_thread_that_goes_on_is_still_held_to_its_timeout(app: Hawser):
    release, started = threading.Event(), threading.Event()

    @app.task(timeout=1.5, max_attempts=1)
    def deaf() -> None:
        started.set()
        release.wait(20)

    async with working(app, lease=1):
        handle = await deaf.aenqueue()
        await asyncio.to_thread(started.wait, 10)
        await app.acancel(handle.id)
        job = await ended(app, handle.id)
        release.set()
    assert (job.state, str(job.errors[0])) == (State.CANCELLED, "timeout: the attempt took longer than 1.5 s")


class Broken(Fixed, frozen=True):
    """A backoff of the user's own."""

    def ceiling(self, attempt: int) -> float:
        raise ValueError("mine")


async def test_a_backoff_that_breaks_at_a_timeout_costs_nobody_else_anything(app: Hawser):
    @app.task(timeout=0.3, backoff=Broken(every=1))
    async def late() -> None:
        await asyncio.sleep(60)

    @app.task(timeout=0.6)
    async def later() -> None:
        await asyncio.sleep(60)

    handles = [await late.aenqueue(), await later.aenqueue()]
    async with working(app, slots=2):
        jobs = [await until(lambda job: bool(job.errors), app, handle.id) for handle in handles]
    assert [str(job.errors[0]) for job in jobs] == [f"timeout: the attempt took longer than {t} s" for t in (0.3, 0.6)]


async def test_a_run_that_is_stopped_before_its_first_step_keeps_no_slot(app: Hawser, monkeypatch: pytest.MonkeyPatch):
    """Its job is cancelled, and it is looked at, in the very turn of the loop in which it was claimed."""

    @app.task
    async def work() -> None: ...

    accept = Executor.accept
    cancelled: list[str] = []

    def and_stop(self: Executor, jobs: Any, sent: float) -> None:
        accept(self, jobs, sent)
        if not cancelled:
            for run in self._slots.runs:
                cancelled.append(run.job.id)
                self.stop(run, Stop.CANCEL)

    monkeypatch.setattr(Executor, "accept", and_stop)
    first, second = [await work.aenqueue() for _ in range(2)]
    async with working(app, slots=1):
        await ended(app, second.id)
        await ended(app, first.id)
    assert cancelled[0] in (first.id, second.id)


async def test_a_run_whose_outcome_waits_to_be_written_is_not_one_that_blocks(app: Hawser, monkeypatch: pytest.MonkeyPatch):
    boards: list[BoardReader] = []

    class Seen(BoardReader):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            boards.append(self)

    @app.task
    def quick() -> None: ...

    monkeypatch.setattr("hawser.supervisor.embedded.BoardReader", Seen)
    store = await app.store()
    settle, back = store.settle, asyncio.Event()

    async def away(settlements: Any) -> Any:
        await back.wait()
        return await settle(settlements)

    store.settle = away  # type: ignore[method-assign]
    handle = await quick.aenqueue()
    async with working(app), asyncio.timeout(10):
        while not boards or [held.how for held in boards[0].held()] != [How.ENDED]:
            await asyncio.sleep(0.01)
        back.set()
        await ended(app, handle.id)
