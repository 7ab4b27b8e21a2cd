"""The extender: whose lease it extends, and whose job it hands back."""

import time

from hawser import Hawser, State
from hawser.outcome import Done
from hawser.store import Settled, Settlement, Share
from hawser.supervisor.extender import Extender
from hawser.testing.contract.making import said
from hawser.worker.board import How
from tests.worker.conftest import board_and_reader


async def test_a_job_that_has_not_begun_while_another_blocks_its_process_is_handed_back_and_others_are_extended(app: Hawser):
    @app.task(max_attempts=1)
    async def work() -> None: ...

    handles = await app.aenqueue_many([work.job() for _ in range(2)])
    store, now = await app.store(), time.monotonic()
    board, reader = board_and_reader(2)
    claimed = await store.claim([Share("default")], 2, "w", 30)
    cells = {job.id: board.take(job.id, job.lease, now, now + 300) for job in claimed}
    begun, waits = (handle.id for handle in handles)
    board.start(cells[begun], How.LOOP)
    later = now
    extender = Extender(store, {"w": reader}, 30, clock=lambda: later)
    await extender.turn()
    assert extender.extensions == 0, "a third of the lease is not over"
    later = now + 11
    await extender.turn()
    job = await app.aget(waits)
    assert (job.state, job.attempt, job.returned) == (State.READY, 0, 1)
    assert board.until(cells[waits], now + 29) == 0.0, "its process is told not to begin it"
    assert board.until(cells[begun], now + 29) > now + 29
    assert (extender.extensions, (await app.aget(begun)).state) == (1, State.RUNNING)
    late = {job.id: job for job in claimed}[waits]
    [again] = await store.claim([Share("default")], 2, "other", 30)
    assert said(await store.settle([Settlement(late.id, late.lease, Done())])) == [Settled.LOST]
    assert again.attempt == 1
