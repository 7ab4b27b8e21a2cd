"""Signs of life: often enough to be believed, and at once when there is something new."""

import time

from hawser.store import Retention
from hawser.stores.memory import MemoryStore
from hawser.telemetry.events import Events
from hawser.worker import minder
from hawser.worker.board import Board
from hawser.worker.minder import Minder
from hawser.worker.options import checked


def board() -> Board:
    return Board(bytearray(Board.size(4)), 4)


async def test_a_worker_that_is_new_or_begins_to_drain_is_told_of_at_once(monkeypatch):
    store, boards, told = MemoryStore(), {"one": board()}, []
    beat = store.beat

    async def counted(beats, gone=()):
        told.append({each.worker: each.draining for each in beats})
        await beat(beats, gone)

    store.beat = counted  # type: ignore[method-assign]
    minding = Minder(store, boards, {}, checked(slots=2), retention=Retention(), by_task={}, schedules=[], events=Events())
    for _ in range(3):
        assert await minding.beat() <= 1
    boards["two"] = board()
    await minding.beat()
    boards["one"].beat(time.monotonic(), 1, 0, draining=True)
    await minding.beat()
    await minding.beat()
    assert told == [{"one": False}, {"one": False, "two": False}, {"one": True, "two": False}]
    monkeypatch.setattr(minder, "BEAT_EVERY", 0.5)
    await minding.beat()
    assert len(told) == 4, "its time has come"
    assert await store.workers()
