"""The sync door."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hawser import door as module
from hawser.door import Door
from hawser.errors import HawserError, OutcomeUnknown, QueueFull

GUARD = 30.0


@pytest.fixture
def door():
    door = Door()
    yield door
    door.close()


async def add(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


async def where() -> int:
    return threading.get_ident()


def waited(child: int) -> tuple[int, int]:
    with ThreadPoolExecutor(1) as pool:
        try:
            return pool.submit(os.waitpid, child, 0).result(GUARD)
        except TimeoutError:
            os.kill(child, signal.SIGKILL)
            raise


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "hawser-door"}


def test_a_call_gives_the_result(door):
    assert door.call(add(1, 2)) == 3


def test_the_thread_starts_at_the_first_call_and_serves_all():
    before = threads()
    door = Door()
    assert threads() == before
    assert len({door.call(where()) for _ in range(3)}) == 1
    assert len(threads() - before) == 1
    door.close()
    assert threads() == before


def test_exceptions_keep_their_type(door):
    async def fail() -> None:
        raise QueueFull("mail", 1, 1)

    with pytest.raises(QueueFull) as caught:
        door.call(fail())
    assert caught.value.queue == "mail"


def test_many_threads_call_at_once(door):
    async def slow(n: int) -> int:
        await asyncio.sleep(0.001)
        return n

    def run(n: int) -> list[int]:
        return [door.call(slow(n * 100 + i)) for i in range(50)]

    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(run, range(32), timeout=GUARD)) == [[n * 100 + i for i in range(50)] for n in range(32)]


def test_one_wake_up_serves_all_that_came_meanwhile(door, monkeypatch):
    door.call(add(1, 1))
    served = door._served
    assert served is not None
    turns = []
    begin = served._begin

    def counted() -> None:
        turns.append(1)
        begin()

    monkeypatch.setattr(served, "_begin", counted)
    hold, held = threading.Event(), threading.Event()

    async def block() -> None:
        held.set()
        hold.wait(GUARD)

    with ThreadPoolExecutor(33) as pool:
        blocked = pool.submit(door.call, block())
        assert held.wait(GUARD)
        turns.clear()
        waiting = [pool.submit(door.call, add(n, 0)) for n in range(32)]
        deadline = time.monotonic() + GUARD
        while len(served._calls) < 32 and time.monotonic() < deadline:
            time.sleep(0.001)
        hold.set()
        assert [call.result(GUARD) for call in waiting] == list(range(32))
        blocked.result(GUARD)
    assert len(turns) == 1


async def test_a_call_inside_a_running_loop_does_not_hang(door):
    assert door.call(add(1, 2), timeout=GUARD) == 3


def test_a_call_from_its_own_loop_is_refused(door: Door):
    async def nested() -> int:
        return door.call(add(1, 2))

    with pytest.raises(HawserError, match="would wait for itself; await the twin that begins with 'a'"):
        door.call(nested(), timeout=GUARD)


def test_after_the_time_limit_the_outcome_is_unknown_and_the_call_is_cancelled(door):
    cancelled = threading.Event()

    async def hang() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(OutcomeUnknown, match=r"no answer within 0\.01 s"):
        door.call(hang(), timeout=0.01)
    assert cancelled.wait(GUARD)
    assert door.call(add(1, 2)) == 3


def test_ctrl_c_in_the_caller_leaves_the_door_whole(door):
    began, cancelled = threading.Event(), threading.Event()

    async def hang() -> None:
        began.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def interrupt() -> None:
        assert began.wait(GUARD)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        door.call(hang())
    thread.join()
    assert cancelled.wait(GUARD)
    assert door.call(add(1, 2)) == 3


def test_close_finishes_what_has_begun():
    door = Door()
    began = threading.Event()

    async def slow() -> str:
        began.set()
        await asyncio.sleep(0.05)
        return "done"

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(door.call, slow())
        assert began.wait(GUARD)
        door.close()
        assert call.result(GUARD) == "done"


def test_close_cancels_what_does_not_end(monkeypatch):
    monkeypatch.setattr(module, "GRACE", 0.01)
    door = Door()
    began = threading.Event()

    async def hang() -> None:
        began.set()
        await asyncio.sleep(3600)

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(door.call, hang())
        assert began.wait(GUARD)
        door.close()
        with pytest.raises(OutcomeUnknown, match="the app was closed during the call"):
            call.result(GUARD)


def test_a_closed_door_opens_again():
    door = Door()
    for _ in range(3):
        assert door.call(add(1, 2)) == 3
        door.close()
        door.close()


def test_no_call_is_lost_while_the_door_closes_again_and_again():
    door = Door()
    stop = threading.Event()

    def run(n: int) -> int:
        calls = 0
        while not stop.is_set():
            assert door.call(add(n, calls), timeout=GUARD) == n + calls
            calls += 1
        return calls

    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(run, n) for n in range(8)]
        for _ in range(100):
            door.close()
        stop.set()
        assert sum(call.result(GUARD) for call in running) > 0
    door.close()


def test_a_door_that_is_dropped_takes_its_thread_along():
    before = threads()
    door = Door()
    door.call(add(1, 2))
    [thread] = threads() - before
    del door
    gc.collect()
    thread.join(GUARD)
    assert not thread.is_alive()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 on; it is what is tested
def test_a_forked_child_gets_a_thread_of_its_own(door):
    door.call(add(1, 2))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            gc.collect()
            code = 0 if door.call(add(1, 2), timeout=10) == 3 else 1
            door.close()
        finally:
            os._exit(code)
    _, status = waited(child)
    assert status == 0
    assert door.call(add(2, 2), timeout=GUARD) == 4


def test_an_inline_store_is_driven_in_the_callers_thread():
    class Inline:
        inline = True

    before = threads()
    door = Door(Inline())
    assert door.call(where()) == threading.get_ident()
    assert threads() == before
    door.close()

    async def fail() -> None:
        raise QueueFull("mail", 1, 1)

    with pytest.raises(QueueFull):
        door.call(fail())


async def test_an_inline_store_is_driven_inside_a_running_loop_too():
    class Inline:
        inline = True

    assert Door(Inline()).call(where()) == threading.get_ident()


def test_an_inline_store_that_waits_is_told_so():
    class Inline:
        inline = True

    with pytest.raises(HawserError, match="the store calls itself inline, but its coroutine wanted to wait"):
        Door(Inline()).call(add(1, 2))


def test_a_script_that_never_closes_ends_by_itself():
    script = (
        "import asyncio\n"
        "from hawser.door import Door\n"
        "async def one():\n    await asyncio.sleep(0)\n    return 1\n"
        "door = Door()\nprint(door.call(one()))\n"
    )
    done: subprocess.CompletedProcess[Any] = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, timeout=GUARD, check=False, env=dict(os.environ)
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"1\n", b"")
