"""Forks, and the locks of a process: which it holds, which it keeps, which a child takes for itself."""

import asyncio
import errno
import fcntl
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hawser.errors import StoreUnavailable
from hawser.job import NewJob
from hawser.stores import make_store
from hawser.stores.sqlite import SqliteStore, fork
from hawser.stores.sqlite.fork import Guarded
from hawser.stores.sqlite.turn import give_back, turn_of
from hawser.value import ids
from tests.worker.processes import held


def a_job() -> NewJob:
    return NewJob(task="work", body=b"{}")


def locks_on(path: Path) -> list[tuple[str, int]]:
    """The POSIX locks that are held on a file: the kind and the process."""
    number = str(path.stat().st_ino)
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" not in line]
    return [(kind, int(pid)) for _, sort, _, kind, pid, where, *_ in lines if sort == "POSIX" and where.split(":")[-1] == number]


def in_a_child(work: Callable[[], object]) -> object:
    """Fork, and what the work returned there."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            asyncio._set_running_loop(None)
            os.write(write, json.dumps(work()).encode())
        except BaseException as error:
            os.write(write, json.dumps(repr(error)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return json.loads(said)


def test_a_child_has_locks_of_its_own_on_the_file(tmp_path: Path):
    """Without them another process that closes the file would remove the log under it."""
    path = tmp_path / "jobs.db"
    store = SqliteStore(path)
    asyncio.run(store.enqueue([a_job()]))

    def work() -> list[list[str]]:
        asyncio.run(store.enqueue([a_job()]))
        return [[kind for kind, pid in locks_on(each) if pid == os.getpid()] for each in (path, Path(f"{path}-shm"))]

    assert in_a_child(work) == [["READ"], ["READ"]]
    assert ("READ", os.getpid()) in locks_on(path), "the parent keeps its own"
    asyncio.run(store.close())


def test_a_second_store_of_a_process_does_not_drop_the_locks_of_the_first(tmp_path: Path):
    path = tmp_path / "jobs.db"
    first, second = SqliteStore(path), SqliteStore(path)
    asyncio.run(first.enqueue([a_job()]))
    assert ("READ", os.getpid()) in locks_on(path)
    asyncio.run(second.open())
    assert ("READ", os.getpid()) in locks_on(path)
    asyncio.run(second.close())
    assert ("READ", os.getpid()) in locks_on(path)
    asyncio.run(first.close())


async def test_two_stores_of_a_process_exclude_each_other_and_others(tmp_path: Path):
    path = tmp_path / "jobs.db"
    stores = [SqliteStore(path), SqliteStore(tmp_path / "." / "jobs.db")]
    for store in stores:
        await store.open()
    turn = turn_of(path)
    turn.take()
    waiting = [asyncio.ensure_future(store.enqueue([a_job()])) for store in stores]
    await asyncio.wait(waiting, timeout=0.2)
    assert not any(each.done() for each in waiting)
    other = turn_of(path)
    assert other is turn
    give_back(other)
    assert [("WRITE", os.getpid())] == locks_on(Path(f"{path}-lock")), "giving it back drops nothing"
    turn.leave()
    await asyncio.gather(*waiting)
    give_back(turn)
    await stores[0].close()
    assert (await stores[1].enqueue([a_job()]))[0].created
    await stores[1].close()
    assert (await SqliteStore(path).stats()).ready == 3


def test_the_lock_ends_with_its_holder_though_its_children_live_on(tmp_path: Path):
    script = """
import os, sys, time
from pathlib import Path
from hawser.stores.sqlite.turn import turn_of
turn_of(Path(sys.argv[1])).take()
if os.fork() == 0:
    print(os.getpid(), flush=True)
    time.sleep(60)
    os._exit(0)
time.sleep(60)
"""
    path = tmp_path / "jobs.db"
    holder = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    turn = turn_of(path)
    try:
        assert not turn.take_within(0)
        holder.kill()
        holder.wait(30)
        assert turn.take_within(5)
        turn.leave()
    finally:
        os.kill(child, 9)
        holder.stdout.close()
        give_back(turn)


def test_a_fork_waits_for_the_transaction_under_way(tmp_path: Path):
    path = tmp_path / "jobs.db"
    store = SqliteStore(path)
    asyncio.run(store.enqueue([a_job()]))
    begun, end = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        begun.set()
        end.wait(10)

    assert store._open is not None
    future = store._open.writer.submit(slow)
    begun.wait(10)
    threading.Timer(0.2, end.set).start()
    assert in_a_child(lambda: (end.is_set(), asyncio.run(store.enqueue([a_job()]))[0].created)) == [True, True]
    future.result(10)
    assert asyncio.run(store.enqueue([a_job()]))[0].created
    asyncio.run(store.close())


def test_a_child_of_a_fork_that_could_not_wait_refuses_instead_of_blocking(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(fork, "IDLE_WITHIN", 0.1)
    path = tmp_path / "jobs.db"
    store = SqliteStore(path)
    asyncio.run(store.open())
    begun, end = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        begun.set()
        end.wait(10)

    assert store._open is not None
    future = store._open.writer.submit(slow)
    begun.wait(10)
    said = in_a_child(lambda: asyncio.run(store.enqueue([a_job()])))
    end.set()
    future.result(10)
    assert "StoreUnavailable" in str(said)
    assert "forked while its parent was in the middle of a transaction" in str(said)
    assert asyncio.run(store.enqueue([a_job()]))[0].created
    asyncio.run(store.close())


async def test_whoever_waits_for_a_foreign_program_keeps_no_other_process_from_its_turn(tmp_path: Path):
    path = tmp_path / "jobs.db"
    store = SqliteStore(path, timeout=20)
    await store.open()
    with held(path):
        waiting = asyncio.ensure_future(store.beat([]))
        turn = turn_of(path)
        for _ in range(20):
            assert await asyncio.to_thread(turn.take_within, 1)
            turn.leave()
            await asyncio.sleep(0.005)  # in which the other could take its turn
        assert not waiting.done()
    await waiting
    give_back(turn)
    await store.close()


def test_closing_a_guarded_connection_in_a_child_leaves_the_parent_as_it_was(tmp_path: Path):
    guarded = Guarded(tmp_path / "other.db", lambda: sqlite3.connect(tmp_path / "other.db", check_same_thread=False))
    with guarded as con:
        con.execute("create table t (x)")

    def use() -> str:
        with guarded as con:
            con.execute("select 1")
        return "used"

    assert "closed database" in str(in_a_child(use))
    with guarded as con:
        assert con.execute("select count(*) from t").fetchone() == (0,)
    guarded.close()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
async def test_a_file_system_without_locks_is_told_with_what_to_do(tmp_path: Path, monkeypatch, number: int):
    store = make_store(f"sqlite:///{tmp_path}/jobs.db")
    await store.open()

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "lockf", refuse)
        with pytest.raises(StoreUnavailable, match=r"refuses locks \(.*\); nothing was written: put the file on a local disk"):
            await store.enqueue([a_job()])
    assert (await store.enqueue([a_job()]))[0].created
    await store.close()


async def test_a_deadlock_that_the_kernel_only_suspects_is_waited_out(tmp_path: Path, monkeypatch):
    store = make_store(f"sqlite:///{tmp_path}/jobs.db")
    await store.open()
    real, suspicions = fcntl.lockf, iter(range(3))

    def suspect(descriptor: int, how: int) -> None:
        if how == fcntl.LOCK_EX and next(suspicions, None) is not None:
            raise OSError(errno.EDEADLK, "Resource deadlock avoided")
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "lockf", suspect)
    assert (await store.enqueue([a_job()]))[0].created
    assert next(suspicions, None) is None
    await store.close()


def test_ids_are_made_in_a_child_though_a_thread_was_making_one():
    with ids._sequence._lock:
        assert len(str(in_a_child(ids.new_id))) == 36


def test_ids_of_a_child_have_random_parts_of_their_own():
    """Random numbers are drawn for many ids at once: a child must not go on with its parent's."""
    ids.new_id()
    made = [str(in_a_child(ids.new_id)), ids.new_id()]
    assert len({id[19:] for id in made}) == 2
