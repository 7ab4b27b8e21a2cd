"""What a process still begins when it and its siblings are told to end: nothing."""

import asyncio

from hawser import Hawser, State
from hawser.telemetry.events import Events
from hawser.worker.board import Board
from hawser.worker.notice import SIZE, Notice
from hawser.worker.options import checked
from hawser.worker.worker import Worker


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
    options, notice = checked(drain_timeout=5), Notice(bytearray(SIZE))
    board = Board(bytearray(Board.size(options.cells)), options.cells)
    stop = asyncio.Event()
    worker = Worker(app, options, board, "one-of-two", spec=None, notice=notice, events=Events())
    running = asyncio.ensure_future(worker.run(store, stop))
    async with asyncio.timeout(10):
        await asked.wait()
        handle = await handed_back_by_a_sibling.aenqueue()
        notice.close()
        answer.set()
        while (await app.aget(handle.id)).state is not State.RUNNING:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.1)  # long enough for it to run, and for another claim
        stop.set()
        await running
    job = await app.aget(handle.id)
    assert (ran, claims) == ([], 1)
    assert (job.state, job.attempt, job.returned) == (State.READY, 0, 1)
