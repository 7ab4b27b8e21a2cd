"""Signs of life: often enough to be believed, and at once when there is something new."""

import asyncio
import time

import pytest

from hawser import Hawser
from hawser.store import GO_ON_WITHIN
from hawser.stores.memory import MemoryStore
from hawser.supervisor import maintenance
from hawser.supervisor.maintenance import Maintenance
from hawser.telemetry.events import Events
from hawser.worker.handshake import AppFacts, facts_of
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


async def test_jobs_that_wait_are_gone_on_with_within_a_second_at_any_lease():
    """A process may die between the end of a job and the release of what waits for it."""

    class Waited(MemoryStore):
        async def go_on(self) -> bool:
            return True

    for lease in (2.0, 30.0, 600.0):
        minding = Maintenance(Waited(), {}, {}, checked(slots=2, lease=lease), AppFacts(), Events())
        [recovery] = [cycle for cycle in minding._cycles if cycle.name == "recovery"]
        assert 0 < await recovery._one() < GO_ON_WITHIN


async def test_the_version_of_the_app_is_told_and_its_first_worker_leaves_a_record():
    store, (_, reader) = MemoryStore(), board_and_reader(4)
    minding = Maintenance(store, {"one": reader}, {}, checked(slots=2), AppFacts(version="1.4"), Events())
    minding.start()
    async with asyncio.timeout(10):
        while not (await store.workers() and await store.audit()):
            await asyncio.sleep(0)
    await minding.stop()
    assert [seen.beat.app_version for seen in await store.workers()] == ["1.4"]
    assert [(record.action, record.target) for record in await store.audit()] == [("deploy", "version:1.4")]


@pytest.mark.parametrize(
    ("variable", "argument", "option", "told"),
    [(None, None, None, None), ("1", None, None, "1"), ("1", "2", None, "2"), ("1", "2", "3", "3")],
)
def test_the_version_is_that_of_the_worker_else_of_the_app_else_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, argument: str | None, option: str | None, told: str | None
):
    if variable is not None:
        monkeypatch.setenv("HAWSER_APP_VERSION", variable)
    app = Hawser("memory://", app_version=argument)
    assert facts_of(app, checked(app_version=option)).version == told
