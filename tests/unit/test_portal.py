"""The sync door."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hawser import Hawser
from hawser.client import portal as module
from hawser.client.portal import Portal
from hawser.errors import HawserError, OutcomeUnknown, QueueFull, StoreUnavailable
from hawser.job import NewJob
from hawser.store import Enqueued
from hawser.stores.sqlite import SqliteStore

GUARD = 30.0


@pytest.fixture
def portal():
    portal = Portal()
    yield portal
    portal.close()


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
    return {thread for thread in threading.enumerate() if thread.name == "hawser-portal"}


def test_a_call_gives_the_result(portal):
    assert portal.call(add(1, 2)) == 3


def test_the_thread_starts_at_the_first_call_and_serves_all():
    before = threads()
    portal = Portal()
    assert threads() == before
    assert len({portal.call(where()) for _ in range(3)}) == 1
    assert len(threads() - before) == 1
    portal.close()
    assert threads() == before


def test_exceptions_keep_their_type(portal):
    async def fail() -> None:
        raise QueueFull("mail", 1, 1)

    with pytest.raises(QueueFull) as caught:
        portal.call(fail())
    assert caught.value.queue == "mail"


def test_many_threads_call_at_once(portal):
    async def slow(n: int) -> int:
        await asyncio.sleep(0.001)  # so that many are under way at once
        return n

    def run(n: int) -> list[int]:
        return [portal.call(slow(n * 100 + i)) for i in range(50)]

    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(run, range(32), timeout=GUARD)) == [[n * 100 + i for i in range(50)] for n in range(32)]


def test_one_wake_up_serves_all_that_came_meanwhile(portal, monkeypatch):
    portal.call(add(1, 1))
    served = portal._served
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
        blocked = pool.submit(portal.call, block())
        assert held.wait(GUARD)
        turns.clear()
        waiting = [pool.submit(portal.call, add(n, 0)) for n in range(32)]
        deadline = time.monotonic() + GUARD
        while len(served._calls) < 32 and time.monotonic() < deadline:
            time.sleep(0.001)
        hold.set()
        assert [call.result(GUARD) for call in waiting] == list(range(32))
        blocked.result(GUARD)
    assert len(turns) == 1


async def test_a_call_inside_a_running_loop_does_not_hang(portal):
    assert portal.call(add(1, 2), timeout=GUARD) == 3


def test_a_call_from_its_own_loop_is_refused(portal: Portal):
    async def nested() -> int:
        return portal.call(add(1, 2))

    with pytest.raises(HawserError, match="would wait for itself; await the twin that begins with 'a'"):
        portal.call(nested(), timeout=GUARD)


def test_after_the_time_limit_the_outcome_is_unknown_and_the_call_is_cancelled(portal):
    cancelled = threading.Event()

    async def hang() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(OutcomeUnknown, match=r"no answer within 0\.01 s"):
        portal.call(hang(), timeout=0.01)
    assert cancelled.wait(GUARD)
    assert portal.call(add(1, 2)) == 3


def test_ctrl_c_in_the_caller_leaves_the_door_whole(portal):
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
        portal.call(hang())
    thread.join(30)
    assert cancelled.wait(GUARD)
    assert portal.call(add(1, 2)) == 3


def test_close_finishes_what_has_begun():
    portal = Portal()
    began = threading.Event()

    async def slow() -> str:
        served = portal._served
        assert served is not None
        began.set()
        while not served._closed:
            await asyncio.sleep(0.001)
        return "done"

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(portal.call, slow())
        assert began.wait(GUARD)
        portal.close()
        assert call.result(GUARD) == "done"


def test_close_waits_for_a_generator_that_is_collected_meanwhile():
    portal, held, ended = Portal(), list[AsyncGenerator[None, None]](), list[bool]()

    async def open_until_closed() -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            for _ in range(10):  # some turns of the loop
                await asyncio.sleep(0)
            ended.append(True)

    async def begin() -> None:
        loop = asyncio.get_running_loop()
        held.append(open_until_closed())
        await anext(held[0])
        close_all = loop.shutdown_asyncgens

        async def collected_first() -> None:
            held.clear()  # nothing holds it any more: the loop makes a task that closes it
            await close_all()

        vars(loop)["shutdown_asyncgens"] = collected_first

    portal.call(begin())
    portal.close()
    assert ended == [True]


def test_close_cancels_what_does_not_end(monkeypatch):
    monkeypatch.setattr(module, "CLOSE_GRACE_S", 0.01)
    portal = Portal()
    began = threading.Event()

    async def hang() -> None:
        began.set()
        await asyncio.sleep(3600)

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(portal.call, hang())
        assert began.wait(GUARD)
        portal.close()
        with pytest.raises(OutcomeUnknown, match="the app was closed during the call"):
            call.result(GUARD)


def test_a_closed_door_opens_again():
    portal = Portal()
    for _ in range(3):
        assert portal.call(add(1, 2)) == 3
        portal.close()
        portal.close()


def test_no_call_is_lost_while_the_door_closes_again_and_again():
    portal = Portal()
    stop = threading.Event()

    def run(n: int) -> int:
        calls = 0
        while not stop.is_set():
            assert portal.call(add(n, calls), timeout=GUARD) == n + calls
            calls += 1
        return calls

    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(run, n) for n in range(8)]
        for _ in range(100):
            portal.close()
        stop.set()
        assert sum(call.result(GUARD) for call in running) > 0
    portal.close()


def test_a_door_that_is_dropped_takes_its_thread_along():
    before = threads()
    portal = Portal()
    portal.call(add(1, 2))
    [thread] = threads() - before
    del portal
    gc.collect()
    thread.join(GUARD)
    assert not thread.is_alive()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Python 3.12 on; it is what is tested
def test_a_forked_child_gets_a_thread_of_its_own(portal):
    portal.call(add(1, 2))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            gc.collect()
            code = 0 if portal.call(add(1, 2), timeout=10) == 3 else 1
            portal.close()
        finally:
            os._exit(code)
    _, status = waited(child)
    assert status == 0
    assert portal.call(add(2, 2), timeout=GUARD) == 4


def test_an_inline_store_is_driven_in_the_callers_thread():
    class Inline:
        inline = True

    before = threads()
    portal = Portal(Inline())
    assert portal.call(where()) == threading.get_ident()
    assert threads() == before
    portal.close()

    async def fail() -> None:
        raise QueueFull("mail", 1, 1)

    with pytest.raises(QueueFull):
        portal.call(fail())


async def test_an_inline_store_is_driven_inside_a_running_loop_too():
    class Inline:
        inline = True

    assert Portal(Inline()).call(where()) == threading.get_ident()


def test_an_inline_store_that_waits_is_told_so():
    class Inline:
        inline = True

    with pytest.raises(HawserError, match="the store calls itself inline, but its coroutine wanted to wait"):
        Portal(Inline()).call(add(1, 2))


def test_a_script_that_never_closes_ends_by_itself():
    script = (
        "import asyncio\n"
        "from hawser.client.portal import Portal\n"
        "async def one():\n    await asyncio.sleep(0)\n    return 1\n"
        "portal = Portal()\nprint(portal.call(one()))\n"
    )
    done: subprocess.CompletedProcess[Any] = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, timeout=GUARD, check=False, env=dict(os.environ)
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"1\n", b"")


def test_a_first_enqueue_at_the_end_of_the_program_says_what_to_do(tmp_path: Path):
    text = f"""
import atexit
from hawser import Hawser
app = Hawser("sqlite:///{tmp_path}/late.db")
@app.task
def note(text: str) -> None: ...
@atexit.register
def bye() -> None:
    try:
        note.enqueue("late")
    except Exception as error:
        print(type(error).__name__, error)
"""
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.startswith("StoreUnavailable the interpreter is shutting down"), ended
    assert "call app.open() early" in ended.stdout


def nothing() -> None:
    """A task."""


def test_a_synchronous_enqueue_on_sqlite_goes_to_the_writer_without_the_loop_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    app = Hawser(f"sqlite:///{tmp_path}/jobs.db")
    app.task(name="t")(nothing)
    with app:
        app.enqueue("t", {})
        monkeypatch.setattr(Portal, "call", None)
        first = app.enqueue("t", {}, key="k")
        again = app.enqueue("t", {}, key="k")
        monkeypatch.undo()
        assert (first.created, again.created, again.id) == (True, False, first.id)
        assert app.stats().ready == 2


def test_a_synchronous_enqueue_into_a_file_that_is_held_says_so_and_writes_nothing(tmp_path: Path):
    app = Hawser(f"sqlite:///{tmp_path}/jobs.db?enqueue_timeout=0.3")
    app.task(name="t")(nothing)
    with app, closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as other:
        app.enqueue("t", {})
        other.execute("begin immediate")
        with pytest.raises(StoreUnavailable, match="was held by another connection"):
            app.enqueue("t", {})
        other.execute("rollback")
        assert app.stats().ready == 1


def test_a_synchronous_enqueue_whose_answer_was_lost_is_repeated_with_the_same_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    app = Hawser(f"sqlite:///{tmp_path}/jobs.db")
    app.task(name="t")(nothing)
    enqueue = SqliteStore.enqueue_waiting

    def answer_lost(self: SqliteStore, jobs: Sequence[NewJob]) -> list[Enqueued]:
        enqueue(self, jobs)
        raise OutcomeUnknown("lost")

    with app:
        app.enqueue("t", {})
        monkeypatch.setattr(SqliteStore, "enqueue_waiting", answer_lost)
        assert app.enqueue("t", {}).created
        assert app.stats().ready == 2
