"""The supervisor's own turns."""

import asyncio
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from hawser.stores.memory import MemoryStore
from hawser.supervisor.scaler import Load, Scaler
from hawser.supervisor.supervisor import Supervisor
from hawser.supervisor.worker_process import WorkerProcess
from hawser.worker import child
from hawser.worker.handshake import NO_STORE_EXIT_CODE, Handshake, Status
from hawser.worker.options import checked


async def test_a_task_runs_apart_only_until_its_time_is_over():
    supervisor = Supervisor("nobody:app", checked())
    supervisor._recovery._dangerous = {"over": time.monotonic() - 1, "fresh": time.monotonic() + 60}
    await supervisor.guard()
    assert supervisor._recovery._broadcast.news() == frozenset({"fresh"})


def load(processes: int, running: int, due: int = 0, oldest: float = 0.0, *, starting: bool = False) -> Load:
    return Load(due, oldest, running, processes, starting)


def test_a_process_is_added_only_when_jobs_wait_and_all_slots_are_busy():
    scaler = Scaler(checked(processes=1, most_processes=3, slots=10), 0.0)
    assert scaler.decide(load(1, running=7, due=5, oldest=5), 1.0) == 1
    assert scaler.decide(load(1, running=10, due=5, oldest=0.5), 1.0) == 1
    assert scaler.decide(load(1, running=8, due=5, oldest=5), 1.0) == 2
    assert scaler.decide(load(2, running=20, due=5, oldest=5, starting=True), 1.0) == 2
    assert scaler.decide(load(3, running=30, due=5, oldest=5), 1.0) == 3


def test_slots_between_two_jobs_do_not_hide_that_all_are_busy():
    scaler = Scaler(checked(processes=1, most_processes=3, slots=4), 0.0)
    assert scaler.decide(load(1, running=4, due=5, oldest=0.5), 1.0) == 1
    assert scaler.decide(load(1, running=1, due=5, oldest=2.5), 3.0) == 2
    assert scaler.decide(load(2, running=4, due=5, oldest=2.5), 5.0) == 2, "what one process ran says nothing of two"


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
    dying, draining = WorkerProcess(checked()), WorkerProcess(checked())
    dying.ready = draining.ready = draining.draining = True
    supervisor._children = {child.name: child for child in (dying, draining)}
    spawned = []

    async def spawn() -> None:
        spawned.append(1)

    monkeypatch.setattr(supervisor, "_spawn", spawn)
    await supervisor._clean_up(dying, -9, Status())
    assert spawned == [1]
    draining.close()


async def test_a_process_that_is_being_made_when_the_others_are_told_to_end_is_told_too(monkeypatch: pytest.MonkeyPatch):
    supervisor = Supervisor("tests.worker.tasks:app", checked(drain_timeout=30))
    make = asyncio.create_subprocess_exec

    async def slow(*args, **kwargs):
        process = await make(*args, **kwargs)
        supervisor._stop.set()
        draining.append(asyncio.ensure_future(supervisor._drain()))
        await asyncio.sleep(0.1)  # the others are told meanwhile
        return process

    draining: list[asyncio.Future[None]] = []
    monkeypatch.setattr(asyncio, "create_subprocess_exec", slow)
    await supervisor._spawn()
    [child] = supervisor._children.values()
    async with asyncio.timeout(15):
        await draining[0]
    assert child.process is not None
    assert child.process.returncode is not None
    assert supervisor._children == {}


async def test_a_process_that_cannot_be_settled_for_is_replaced_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    supervisor = Supervisor("nobody:app", checked())
    supervisor._store = MemoryStore()
    dying, spawned = WorkerProcess(checked()), []
    dying.ready = True
    supervisor._children = {dying.name: dying}
    supervisor._boards[dying.name] = dying.board

    async def fail(*args, **kwargs) -> None:
        raise ValueError("the board makes no sense")

    async def spawn() -> None:
        spawned.append(1)

    monkeypatch.setattr(supervisor._recovery, "settle", fail)
    monkeypatch.setattr(supervisor, "_spawn", spawn)
    await supervisor._clean_up(dying, -11, Status())
    assert spawned == [1]
    assert supervisor._boards == {}, "nobody extends the leases of the dead"
    assert f"could not settle for worker {dying.name}" in caplog.text


async def test_a_process_that_cannot_be_served_is_killed_and_another_tried(monkeypatch: pytest.MonkeyPatch):
    supervisor = Supervisor("nobody:app", checked())
    child, buried = WorkerProcess(checked()), []
    child.process = await asyncio.create_subprocess_exec("sleep", "60")
    child._status_fd, tells = os.pipe()
    os.write(tells, b"no json\n")
    os.close(tells)

    async def clean_up(child: WorkerProcess, code: int, status: Status) -> None:
        buried.append((code, status.error))

    monkeypatch.setattr(supervisor, "_clean_up", clean_up)
    async with asyncio.timeout(10):
        await supervisor._watch(child)
    [(code, error)] = buried
    assert code == -9
    assert error is not None
    assert error.startswith("the supervisor cannot serve its processes: DecodeError")
    child.close()


async def test_a_store_that_is_away_for_long_does_not_end_a_worker_that_was_ready(monkeypatch: pytest.MonkeyPatch):
    supervisor = Supervisor("nobody:app", checked())
    spawned = []

    async def spawn() -> None:
        spawned.append(1)

    monkeypatch.setattr(supervisor, "_spawn", spawn)
    monkeypatch.setattr("hawser.supervisor.supervisor.LONGEST_RESTART", 0.0)
    supervisor._ever_ready = True
    for _ in range(20):
        dead = WorkerProcess(checked())
        supervisor._children = {dead.name: dead}
        await supervisor._clean_up(dead, NO_STORE_EXIT_CODE, Status(error="cannot connect"))
    assert len(spawned) == 20
    assert not supervisor._stop.is_set()


def test_a_status_is_said_once_whatever_has_its_number_later(tmp_path: Path):
    read, write = os.pipe()
    handshake = cast("Handshake", SimpleNamespace(status_fd=write))
    child._say(handshake, Status(store="first"))
    assert b"first" in os.read(read, 1000)
    os.close(read)
    other = os.open(tmp_path / "a handler's own file", os.O_CREAT | os.O_WRONLY)
    os.dup2(other, write)
    child._say(handshake, Status(error="again"))
    assert os.fstat(write).st_size == 0
    for fd in {other, write}:
        os.close(fd)
    child._told.clear()
