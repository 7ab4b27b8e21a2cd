"""A handler that turns on the event loop or forks: it is named and pays, and its neighbours lose nothing."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hawser import Hawser, Job, State
from hawser.supervisor.embedded import embedded
from hawser.worker.loop import FORKED, run_guarded
from hawser.worker.options import checked

NEIGHBOURS = 9


async def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)


async def stop_the_loop_later() -> None:
    asyncio.get_running_loop().call_soon(asyncio.get_running_loop().stop)
    await asyncio.sleep(0.05)  # the loop is stopped under it


async def cancel_all_tasks() -> None:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(0)


async def cancel_all_others_and_return() -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def cancel_all_others_and_wait() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def played(act: Callable[[], Awaitable[None]], neighbour: Callable[[], Awaitable[None]]) -> list[Job]:
    """The culprit's job and those of its neighbours, after they ran in one worker on a loop of its own."""
    found: list[Job] = []

    async def main() -> None:
        app, stop = Hawser("memory://"), asyncio.Event()
        begun = 0

        @app.task(max_attempts=1)
        async def innocent() -> None:
            nonlocal begun
            begun += 1
            await neighbour()

        @app.task(max_attempts=1, timeout=2)
        async def culprit() -> None:
            while begun < NEIGHBOURS:
                await asyncio.sleep(0.001)
            await act()

        worker = asyncio.create_task(embedded(app, checked(slots=20, drain_timeout=2), stop, spec=None))
        handles = [await culprit.aenqueue(), *await app.aenqueue_many([innocent.job() for _ in range(NEIGHBOURS)])]
        async with asyncio.timeout(15):
            while not all([(await app.aget(handle.id)).state.finished for handle in handles]):
                await asyncio.sleep(0.01)
        stop.set()
        await worker
        found.extend([await app.aget(handle.id) for handle in handles])

    thread = threading.Thread(target=lambda: run_guarded(main()))
    thread.start()
    thread.join(30)
    assert found, "the worker did not go on"
    return found


async def sleeps() -> None:
    await asyncio.sleep(0.3)  # under way when the loop is turned on


async def sleeps_in_a_task_of_its_own() -> None:
    await asyncio.create_task(asyncio.sleep(0.3))  # as above


@pytest.mark.parametrize("neighbour", [sleeps, sleeps_in_a_task_of_its_own])
@pytest.mark.parametrize(
    "act",
    [stop_the_loop, stop_the_loop_later, cancel_all_tasks, cancel_all_others_and_return, cancel_all_others_and_wait],
)
def test_whoever_turns_on_the_loop_is_named_and_its_neighbours_lose_nothing(act, neighbour):
    guilty, *innocents = played(act, neighbour)
    assert guilty.state is State.DEAD
    assert "the handler is to blame" in str(guilty.errors[0])
    assert ("stopped the event loop" if "stop" in act.__name__ else "cancelled tasks") in str(guilty.errors[0])
    assert [(job.state, job.attempt, job.errors) for job in innocents] == [(State.DONE, 1, ())] * NEIGHBOURS


async def exit_in_a_task() -> None:
    async def leave() -> None:
        sys.exit(3)

    await asyncio.create_task(leave())


def test_a_task_of_a_handler_that_exits_fails_its_handler_alone():
    guilty, *innocents = played(exit_in_a_task, sleeps)
    assert (guilty.state, "SystemExit" in str(guilty.errors[0])) == (State.DEAD, True)
    assert {job.state for job in innocents} == {State.DONE}


def test_a_handler_may_cancel_what_it_has_started_itself():
    async def act() -> None:
        mine = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        assert mine.cancel()
        async with asyncio.timeout(5):
            await asyncio.gather(mine, return_exceptions=True)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)

    assert {job.state for job in played(act, sleeps)} == {State.DONE}


FORKS = """
import asyncio, os, sys, threading
from hawser import Hawser, State
from hawser.worker.loop import run_guarded
from hawser.worker.options import checked
from hawser.supervisor.embedded import embedded

how, ended = sys.argv[1:]
app = Hawser("memory://")

def fork():
    child = os.fork()
    if child:
        with open(ended, "a") as file:
            file.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\\n")

@app.task(max_attempts=1)
async def on_the_loop():
    fork()

@app.task(max_attempts=1)
async def on_the_loop_and_waits():
    fork()
    await asyncio.sleep(0.01)

@app.task(max_attempts=1)
async def on_the_loop_and_raises():
    fork()
    raise ValueError("mine")

@app.task(max_attempts=1)
async def in_a_task():
    async def forks():
        fork()
    await asyncio.create_task(forks())

@app.task(max_attempts=1)
def in_a_thread():
    fork()

@app.task
async def beside():
    await asyncio.sleep(0.2)

async def main():
    stop = asyncio.Event()
    worker = asyncio.create_task(embedded(app, checked(slots=9, drain_timeout=2), stop, spec=None))
    handles = [await beside.aenqueue(), await app.tasks[how].aenqueue(), await beside.aenqueue()]
    while not all([(await app.aget(handle.id)).state.finished for handle in handles]):
        await asyncio.sleep(0.01)
    stop.set()
    await worker
    print(os.getpid(), *[(await app.aget(handle.id)).state.value for handle in handles], flush=True)

run_guarded(main())
"""


@pytest.mark.parametrize(
    ("how", "state"),
    [
        ("on_the_loop", "done"),
        ("on_the_loop_and_waits", "done"),
        ("on_the_loop_and_raises", "dead"),
        ("in_a_task", "done"),
        ("in_a_thread", "done"),
    ],
)
def test_a_forked_child_that_comes_back_from_its_handler_ends_and_is_told_of(tmp_path: Path, how: str, state: str):
    ended = tmp_path / "ended"
    script = [sys.executable, "-c", FORKS, how, str(ended)]
    out = subprocess.run(script, capture_output=True, text=True, timeout=30, check=False, env={**os.environ})
    assert out.returncode == 0, out.stderr
    assert [line.split()[1:] for line in out.stdout.splitlines()] == [["done", state, "done"]], "only one process goes on"
    assert ended.read_text() == f"{FORKED}\n"
    assert "its handler forked, and the child process" in out.stderr
    assert how == "in_a_task" or f"of task {how}" in out.stderr
