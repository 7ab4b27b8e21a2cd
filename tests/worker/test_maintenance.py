"""Signs of life: often enough to be believed, and at once when there is something new."""

import time

from hawser.stores.memory import MemoryStore
from hawser.supervisor import maintenance
from hawser.supervisor.maintenance import Maintenance
from hawser.telemetry.events import Events
from hawser.worker.handshake import AppFacts
from hawser.worker.options import checked
from tests.worker.conftest import board_and_reader


async def test_a_worker_that_is_new_or_begins_to_drain_is_told_of_at_once(monkeypatch):
    store, told = MemoryStore(), []
    (one, reader), (_, other) = board_and_reader(4), board_and_reader(4)
    boards = {"one": reader}
    beat = store.beat

    async def counted(beats, gone=()):
        told.append({each.worker: each.draining for each in beats})
        await beat(beats, gone)

    store.beat = counted  # type: ignore[method-assign]
    minding = Maintenance(store, boards, {}, checked(slots=2), AppFacts(), Events())
    for _ in range(3):
        assert await minding.beat() <= 1
    boards["two"] = other
    await minding.beat()
    one.beat(time.monotonic(), 1, 0, draining=True)
    await minding.beat()
    await minding.beat()
    assert told == [{"one": False}, {"one": False, "two": False}, {"one": True, "two": False}]
    monkeypatch.setattr(maintenance, "BEAT_EVERY", 0.5)
    await minding.beat()
    assert len(told) == 4, "its time has come"
    assert await store.workers()
