"""The end: nothing begins any more, and what cannot finish is handed back."""

import asyncio
import contextlib

import pytest

from hawser import Drop, Hawser, Snooze, State
from hawser.telemetry.events import Events
from hawser.worker.board import Board, board_size
from hawser.worker.broadcast import BROADCAST_BYTES, Broadcast
from hawser.worker.options import checked
from hawser.worker.worker import Worker
from tests.worker.conftest import working


async def test_a_claim_that_is_under_way_when_the_siblings_are_told_to_end_begins_nothing(app: Hawser):
    ran = []

    @app.task
    async def handed_back_by_a_sibling() -> None:
        ran.append(1)

    store = await app.store()
    claim, asked, answer = store.claim, asyncio.Event(), asyncio.Event()
    claims = 0

    async def slow(*args, **kwargs):
        nonlocal claims
        claims += 1
        asked.set()
        await answer.wait()
        return await claim(*args, **kwargs)

    store.claim = slow  # type: ignore[method-assign]
    options, broadcast = checked(drain_timeout=5), Broadcast(bytearray(BROADCAST_BYTES))
    board = Board(bytearray(board_size(options.cells)), options.cells)
    stop = asyncio.Event()
    worker = Worker(app, options, board, "one-of-two", spec=None, broadcast=broadcast, events=Events())
    running = asyncio.ensure_future(worker.run(store, stop))
    async with asyncio.timeout(10):
        await asked.wait()
        handle = await handed_back_by_a_sibling.aenqueue()
        broadcast.close()
        answer.set()
        while not (await app.aget(handle.id)).returned:
            await asyncio.sleep(0.001)
        stop.set()
        await running
    job = await app.aget(handle.id)
    assert (ran, claims) == ([], 1)
    assert (job.state, job.attempt, job.returned) == (State.READY, 0, 1)


@pytest.mark.parametrize("kind", ["its own error", "a drop", "no JSON", "a snooze"])
async def test_whatever_a_handler_makes_of_the_drains_cancel_its_job_is_handed_back(app: Hawser, kind: str):
    started = asyncio.Event()

    @app.task(max_attempts=1)
    async def broken_off() -> object:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            match kind:
                case "its own error":
                    raise ConnectionError("closed in use") from None
                case "a drop":
                    raise Drop("it was cancelled") from None
                case "a snooze":
                    raise Snooze(3600) from None
        return object()

    async with working(app, drain_timeout=0):
        handle = await broken_off.aenqueue()
        await started.wait()
    job = await app.aget(handle.id)
    assert (job.state, job.attempt, job.returned, job.errors) == (State.READY, 0, 1, ())
    assert (job.run_at - job.enqueued_at).total_seconds() < 60


async def test_what_a_handler_finishes_in_spite_of_the_drains_cancel_is_done(app: Hawser):
    started = asyncio.Event()

    @app.task(max_attempts=1)
    async def finishes() -> str:
        started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return "all the same"

    async with working(app, drain_timeout=0):
        handle = await finishes.aenqueue()
        await started.wait()
    job = await app.aget(handle.id)
    assert (job.state, job.result) == (State.DONE, "all the same")


async def test_an_embedded_worker_waits_for_the_clean_up_of_what_it_cancels(app: Hawser):
    started, clean = asyncio.Event(), asyncio.Event()

    @app.task(max_attempts=1)
    async def tidy() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.7)  # a clean-up that takes a while
            clean.set()

    async with working(app, drain_timeout=0):
        handle = await tidy.aenqueue()
        await started.wait()
    assert clean.is_set()
    job = await app.aget(handle.id)
    assert (job.state, job.attempt, job.returned) == (State.READY, 0, 1)


async def test_an_embedded_worker_hands_back_the_job_of_a_coroutine_that_will_not_end(app: Hawser):
    started, release, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.task(max_attempts=1)
    async def stubborn() -> str:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        over.set()
        return "too late"

    async with working(app, drain_timeout=0):
        handle = await stubborn.aenqueue()
        await started.wait()
    job = await app.aget(handle.id)
    release.set()
    assert (job.state, job.attempt, job.returned) == (State.READY, 0, 1)
    await over.wait()
    await asyncio.sleep(0.1)  # in which it could write
    assert (await app.aget(handle.id)).state is State.READY, "it has no right to write any more"
