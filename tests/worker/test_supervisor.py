"""The supervisor's own turns."""

import time

import pytest

from hawser.worker.options import checked
from hawser.worker.orders import Status
from hawser.worker.process import Child
from hawser.worker.scaler import Load, Scaler
from hawser.worker.supervisor import Supervisor


async def test_a_task_runs_apart_only_until_its_time_is_over():
    supervisor = Supervisor("nobody:app", checked())
    supervisor._aftermath._dangerous = {"over": time.monotonic() - 1, "fresh": time.monotonic() + 60}
    await supervisor.guard()
    assert supervisor._aftermath._notice.news() == frozenset({"fresh"})


def load(processes: int, running: int, due: int = 0, oldest: float = 0.0, *, starting: bool = False) -> Load:
    return Load(due, oldest, running, processes, starting)


def test_a_process_is_added_only_when_jobs_wait_and_all_slots_are_busy():
    scaler = Scaler(checked(processes=1, most_processes=3, slots=10), 0.0)
    assert scaler.decide(load(1, running=10, due=5, oldest=0.5), 1.0) == 1
    assert scaler.decide(load(1, running=7, due=5, oldest=5), 1.0) == 1
    assert scaler.decide(load(1, running=8, due=5, oldest=5), 1.0) == 2
    assert scaler.decide(load(2, running=20, due=5, oldest=5, starting=True), 1.0) == 2
    assert scaler.decide(load(3, running=30, due=5, oldest=5), 1.0) == 3


def test_a_process_is_taken_away_after_a_while_of_little_to_do():
    scaler = Scaler(checked(processes=1, most_processes=3, slots=10, scale_down_after=30), 0.0)
    assert scaler.decide(load(3, running=10), 29.0) == 3
    assert scaler.decide(load(3, running=11), 30.0) == 3, "the two others would be more than half full"
    assert scaler.decide(load(3, running=10), 59.0) == 3
    assert scaler.decide(load(3, running=10), 60.0) == 2
    assert scaler.decide(load(2, running=0), 61.0) == 2, "one at a time"
    assert scaler.decide(load(2, running=0, due=1), 80.0) == 2
    assert scaler.decide(load(2, running=0), 110.0) == 1
    assert scaler.decide(load(1, running=0), 500.0) == 1


async def test_a_process_that_dies_while_another_is_drained_is_replaced(monkeypatch: pytest.MonkeyPatch):
    supervisor = Supervisor("nobody:app", checked(processes=1, most_processes=2))
    dying, draining = Child(checked()), Child(checked())
    dying.ready = draining.ready = draining.draining = True
    supervisor._children = {child.name: child for child in (dying, draining)}
    spawned = []

    async def spawn() -> None:
        spawned.append(1)

    monkeypatch.setattr(supervisor, "_spawn", spawn)
    await supervisor._bury(dying, -9, Status())
    assert spawned == [1]
    draining.close()
