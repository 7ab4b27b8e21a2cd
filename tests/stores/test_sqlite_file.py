"""What is SQLite's own: the file, its faults, its commits, its plans."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import pytest

from hawser.clock import SystemClock
from hawser.errors import ConfigError, NotAStore, QueueFull, SchemaTooNew, StoreFull, StoreUnavailable
from hawser.job import NewJob
from hawser.limit import Limit
from hawser.outcome import Done
from hawser.store import Actor, Filter, Settlement, Share, Target
from hawser.stores import make_store
from hawser.stores.sqlite import SqliteStore, enqueue
from hawser.stores.sqlite.fork import Guarded
from hawser.stores.sqlite.tx import SQL, Tx
from hawser.stores.tally import MINUTE_US
from tests.worker.processes import held, turn_held


def a_job(**fields) -> NewJob:
    return NewJob(**{"task": "work", "body": b"{}", **fields})


def bare(guarded: Guarded) -> sqlite3.Connection:
    assert guarded._con is not None
    return guarded._con


def writing(store: object) -> sqlite3.Connection:
    """The connection of the store's writer."""
    assert isinstance(store, SqliteStore)
    assert store._open is not None
    return bare(store._open.writer._con)


def reading(store: SqliteStore) -> sqlite3.Connection:
    assert store._open is not None
    return bare(store._open.reader._con)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    yield store
    await store.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_a_url_without_a_file_is_refused(url: str):
    with pytest.raises(ConfigError, match="names no file"):
        make_store(url)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("sqlite://jobs.db", "use sqlite:///jobs.db with three"),
        ("sqlite:///jobs.db?speed=9", "unknown setting 'speed'"),
        ("sqlite:///jobs.db?durability=maybe", "durability='maybe' is not known"),
        ("sqlite:///jobs.db?timeout=soon", "timeout='soon' is not a time"),
        ("sqlite:///jobs.db?enqueue_timeout=0", "enqueue_timeout='0' is not a time"),
    ],
)
def test_a_wrong_url_says_what_is_wrong(url: str, text: str):
    with pytest.raises(ConfigError) as raised:
        make_store(url)
    assert text in str(raised.value)


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path):
    path = tmp_path / "letter.txt"
    path.write_text("Dear store,\n" * 1000)
    with pytest.raises(NotAStore, match="not a database"):
        await SqliteStore(path).open()
    assert path.read_text() == "Dear store,\n" * 1000


async def test_a_folder_is_refused(tmp_path: Path):
    with pytest.raises(NotAStore, match="is a folder"):
        await SqliteStore(tmp_path).open()


async def test_a_missing_folder_is_named(tmp_path: Path):
    with pytest.raises(StoreUnavailable, match="does not exist; create it first"):
        await SqliteStore(tmp_path / "nowhere" / "jobs.db").open()


READ_ONLY = """
import asyncio, os, sys
from hawser.stores.sqlite import SqliteStore
from hawser.errors import StoreReadOnly
if os.getuid() == 0:
    os.setuid(65534)  # root may write anywhere
try:
    asyncio.run(SqliteStore(sys.argv[1]).open())
except StoreReadOnly as error:
    print(error)
"""


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_place_that_may_not_be_written_is_named(tmp_path: Path, what: str):
    folder = tmp_path / "kept"
    folder.mkdir()
    path = folder / "jobs.db"
    if what == "file":
        asyncio.run(made(path))
        path.chmod(0o444)
    folder.chmod(0o555)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.getuid() and not parent.stat().st_mode & 0o005:
            parent.chmod(parent.stat().st_mode | 0o055)
    shown = subprocess.run([sys.executable, "-c", READ_ONLY, str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert f"{str(path)!r} may not be written; check the owner and mode" in shown.stdout, shown.stderr


async def made(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()


async def test_a_full_disk_is_told_and_nothing_is_half_written(store: SqliteStore):
    await store.enqueue([a_job()])
    con = writing(store)
    pages = con.execute("pragma page_count").fetchone()[0]
    con.execute(f"pragma max_page_count = {pages + 3}")  # SQLite then says the same as on a full disk
    with pytest.raises(StoreFull, match="is full; nothing was written: make room"):
        await store.enqueue([a_job(body=b'"%s"' % (b"x" * 60_000)) for _ in range(10)])
    assert len((await store.find(Filter())).jobs) == 1
    con.execute("pragma max_page_count = 1000000")
    await store.enqueue([a_job()])
    assert (await store.stats()).ready == 2


async def test_one_that_does_not_fit_does_not_take_the_others_of_its_commit_along(store: SqliteStore):
    con = writing(store)
    con.execute(f"pragma max_page_count = {con.execute('pragma page_count').fetchone()[0] + 8}")
    small = [store.enqueue([a_job()]) for _ in range(5)]
    large = store.enqueue([a_job(body=b'"%s"' % (b"x" * 60_000)) for _ in range(10)])
    *done, failed = await asyncio.gather(*small, large, return_exceptions=True)
    assert isinstance(failed, StoreFull)
    assert not [answer for answer in done if isinstance(answer, BaseException) or not answer[0].created]
    assert (await store.stats()).ready == 5


async def test_work_that_breaks_after_it_has_written_leaves_nothing_behind_and_the_writer_goes_on(store: SqliteStore):
    def breaks(tx: Tx) -> None:
        enqueue.enqueue(tx, [a_job()])
        raise ZeroDivisionError("a fault of ours")

    good, bad, after = await asyncio.gather(
        store.enqueue([a_job()]), store._write(breaks), store.enqueue([a_job()]), return_exceptions=True
    )
    assert isinstance(bad, ZeroDivisionError)
    assert not [answer for answer in (good, after) if isinstance(answer, BaseException)]
    with pytest.raises(ZeroDivisionError):
        await store._write(breaks)
    await store.enqueue([a_job()])
    assert len((await store.find(Filter())).jobs) == 3
    assert (await store.stats()).ready == 3


async def test_a_newer_schema_is_refused(tmp_path: Path):
    path = tmp_path / "jobs.db"
    await made(path)
    con = sqlite3.connect(path)
    con.execute("update hawser_meta set value = '999' where name = 'schema'")
    con.commit()
    con.close()
    with pytest.raises(SchemaTooNew, match=r"version 999, this Hawser knows \d+; upgrade Hawser"):
        await SqliteStore(path).open()


async def test_the_schema_may_live_beside_the_tables_of_an_application(tmp_path: Path):
    path = tmp_path / "app.db"
    con = sqlite3.connect(path)
    con.execute("create table orders (id integer primary key)")
    con.execute("pragma user_version = 7")
    con.commit()
    await made(path)
    assert con.execute("pragma user_version").fetchone() == (7,)
    assert con.execute("select count(*) from orders").fetchone() == (0,)
    con.close()


async def test_the_file_is_for_its_owner_alone(store: SqliteStore, tmp_path: Path):
    await store.enqueue([a_job()])
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()} == {
        "jobs.db": "0o600",
        "jobs.db-wal": "0o600",
        "jobs.db-shm": "0o600",
        "jobs.db-lock": "0o600",
    }


async def test_it_is_durable_unless_told_otherwise(tmp_path: Path, store: SqliteStore):
    relaxed = make_store(f"sqlite:///{tmp_path}/other.db?durability=relaxed")
    await relaxed.open()
    for each, tier, synchronous in ((store, "durable", 2), (relaxed, "relaxed", 1)):
        assert each.durability == tier
        assert writing(each).execute("pragma synchronous").fetchone() == (synchronous,)
        assert writing(each).execute("pragma journal_mode").fetchone() == ("wal",)
    await relaxed.close()


async def test_what_arrives_together_is_committed_together(store: SqliteStore):
    commits = 0

    def count(statement: str) -> None:
        nonlocal commits
        commits += statement.lower() == "commit"

    writing(store).set_trace_callback(count)
    await asyncio.gather(*(store.enqueue([a_job()]) for _ in range(500)))
    assert (await store.stats()).ready == 500
    assert commits <= 50, f"{commits} commits for 500 concurrent enqueues"


async def test_a_refused_enqueue_does_not_take_the_others_of_its_commit_along(store: SqliteStore):
    await store.set_limit(Target("queue", "small"), Limit(max_depth=1), Actor())
    answers = await asyncio.gather(
        *(store.enqueue([a_job(queue="small"), a_job(queue="large")]) for _ in range(20)), return_exceptions=True
    )
    assert sum(isinstance(answer, QueueFull) for answer in answers) == 19
    assert (await store.stats("large")).ready == 1


async def test_a_file_held_by_another_program_is_told_in_time_and_nothing_is_written_later(tmp_path: Path):
    store = make_store(f"sqlite:///{tmp_path}/jobs.db?timeout=1")
    await store.open()
    refused = pytest.raises(StoreUnavailable, match=r"held by another connection for 1 s; nothing was written")
    with turn_held(tmp_path / "jobs.db"), refused:
        await store.enqueue([a_job()])
    await store.enqueue([a_job(queue="later")])
    assert (await store.stats()).ready == 1
    await store.close()


@pytest.mark.parametrize("holder", ["hawser", "another program"])
async def test_an_enqueue_fails_fast_and_writes_nothing_later_while_a_worker_may_wait(tmp_path: Path, holder: str):
    store = make_store(f"sqlite:///{tmp_path}/jobs.db?timeout=20&enqueue_timeout=0.3")
    await store.open()
    with (turn_held if holder == "hawser" else held)(tmp_path / "jobs.db"):
        patient = asyncio.ensure_future(store.beat([]))
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"held by another connection for 0.3 s; nothing was written"):
            await store.enqueue([a_job()])
        assert time.monotonic() - began < 5
        assert not patient.done()
    await patient
    assert (await store.stats()).ready == 0
    await store.close()


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [("", 5), ("?timeout=60", 5), ("?timeout=2", 2), ("?enqueue_timeout=9", 9), ("?timeout=2&enqueue_timeout=9", 9)],
)
def test_an_enqueue_waits_a_few_seconds_unless_told_otherwise(settings: str, seconds: float):
    store = make_store(f"sqlite:///jobs.db{settings}")
    assert isinstance(store, SqliteStore)
    assert store._enqueue_timeout == seconds


async def test_a_schema_that_a_frozen_process_is_making_is_not_waited_for_without_end(tmp_path: Path):
    with turn_held(tmp_path / "jobs.db"):
        store = make_store(f"sqlite:///{tmp_path}/jobs.db?timeout=0.2")
        with pytest.raises(StoreUnavailable, match=r"making the schema for 0.2 s"):
            await store.enqueue([a_job()])
    await store.enqueue([a_job()])
    await store.close()


async def test_closing_does_not_wait_for_a_file_that_another_program_holds(tmp_path: Path):
    store = make_store(f"sqlite:///{tmp_path}/jobs.db?timeout=0.1")
    await store.open()
    with turn_held(tmp_path / "jobs.db"):
        with pytest.raises(StoreUnavailable):
            await store.enqueue([a_job()])
        async with asyncio.timeout(5):
            await store.close()
    assert (await store.stats()).ready == 0
    await store.close()


async def test_a_connection_that_is_not_ours_may_hold_the_file_for_a_while(store: SqliteStore, tmp_path: Path):
    other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    other.execute("begin immediate")
    waiting = asyncio.ensure_future(store.enqueue([a_job()]))
    await asyncio.sleep(0.05)  # it may not go on, and nothing tells that it waits
    assert not waiting.done()
    other.execute("commit")
    other.close()
    assert (await waiting)[0].created


async def test_a_forked_child_has_a_connection_of_its_own(store: SqliteStore):
    await store.enqueue([a_job()])
    read, write = os.pipe()
    # The event loop does not live on in the child: it uses a new one, in the only thread that it has.
    child = os.fork()
    if child == 0:
        try:
            asyncio.set_event_loop_policy(None)
            asyncio._set_running_loop(None)
            answer = asyncio.run(store.enqueue([a_job()]))
            os.write(write, str(answer[0].created).encode())
        finally:
            os._exit(0)
    os.close(write)
    said = await asyncio.to_thread(os.read, read, 100)
    os.waitpid(child, 0)
    os.close(read)
    assert said == b"True"
    assert (await store.stats()).ready == 2


async def test_the_log_starts_over_while_writers_go_on(store: SqliteStore, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("hawser.stores.sqlite.checkpointer.NUDGE", 200)
    monkeypatch.setattr("hawser.stores.sqlite.checkpointer.RESTART", 500)
    for _ in range(150):
        await store.enqueue([a_job(body=b'"%s"' % (b"x" * 500)) for _ in range(50)])
    assert (tmp_path / "jobs.db-wal").stat().st_size < 12_000_000, "the log was never started over"
    assert (await store.stats()).ready == 7_500


async def test_a_long_reader_does_not_stall_the_writers(store: SqliteStore, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("hawser.stores.sqlite.checkpointer.NUDGE", 20)
    monkeypatch.setattr("hawser.stores.sqlite.checkpointer.RESTART", 50)
    reader = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    reader.execute("begin")
    reader.execute("select count(*) from hawser_job").fetchone()
    async with asyncio.timeout(10):  # it waited 15 s, again and again, for the reader to go
        for _ in range(60):
            await store.enqueue([a_job(body=b'"%s"' % (b"x" * 3_000)) for _ in range(10)])
    reader.close()


async def test_a_claim_that_gave_up_on_a_foreign_program_has_claimed_nothing(tmp_path: Path):
    store = make_store(f"sqlite:///{tmp_path}/jobs.db?timeout=0.6")
    await store.enqueue([a_job()])
    other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    other.execute("begin immediate")
    calls = [store.claim([Share("default")], 1, "w", 30) for _ in range(5)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreUnavailable}
    other.execute("rollback")
    other.close()
    assert len(await store.claim([Share("default")], 1, "w", 30)) == 1
    await store.close()


class Steps:
    """Counts the steps of SQLite's machine: what a statement costs, without a clock."""

    def __init__(self, con: sqlite3.Connection) -> None:
        self.con = con
        self.taken: int = 0

    def __enter__(self) -> Self:
        self.con.set_progress_handler(self.step, 10)
        return self

    def __exit__(self, *_: object) -> None:
        self.con.set_progress_handler(None, 0)

    def step(self) -> int:
        self.taken += 1
        return 0


async def test_a_paused_crowd_at_the_head_costs_a_claim_nothing(store: SqliteStore):
    async def claim_costs() -> int:
        await store.enqueue([a_job(task="free") for _ in range(10)])
        with Steps(writing(store)) as steps:
            claimed = await store.claim([Share("default")], 10, "w", 30)
        assert [job.task for job in claimed] == ["free"] * 10
        await store.settle([Settlement(job.id, job.lease, Done()) for job in claimed])
        return steps.taken

    await store.pause(Target("task", "stuck"), Actor())
    before = await claim_costs()
    for _ in range(20):
        await store.enqueue([a_job(task="stuck", priority=9) for _ in range(1_000)])
    assert await claim_costs() <= before + 50


async def test_stats_cost_the_same_whatever_the_depth(store: SqliteStore):
    async def stats_cost() -> int:
        with Steps(reading(store)) as steps:
            await store.stats("default")
            await store.stats()
        return steps.taken

    await store.enqueue([a_job(), a_job(delay=1000)])
    before = await stats_cost()
    for _ in range(20):
        await store.enqueue([a_job(delay=1000 * (i % 2)) for i in range(1_000)])
    assert (await store.stats()).ready == 10_001
    assert await stats_cost() <= before + 50


async def test_the_figures_of_a_queue_cost_the_same_whatever_happened_to_the_others(store: SqliteStore):
    """Asked for one queue, the tally was read through; asked for all, it was read through once for each of them."""

    async def cost(queues: int) -> tuple[int, int]:
        await store.enqueue([a_job(queue=f"q{n}") for n in range(queues)])
        minute = SystemClock().now() // MINUTE_US
        events = [
            (minute - ago, f"q{n}", "work", event, 1) for ago in range(30) for n in range(queues) for event in ("done", "ended:1")
        ]
        writing(store).executemany(SQL["tally"], events)
        with Steps(reading(store)) as one:
            await store.stats("q0")
        with Steps(reading(store)) as all_:
            assert len(await store.queues()) == queues
        return one.taken, all_.taken

    one, every = await cost(20)
    more_one, more_every = await cost(80)
    assert more_one <= one + 20
    assert more_every <= 5 * every, "it grows with the queues, and not with their square"


@pytest.mark.parametrize(
    "statement",
    [
        "due",
        "expired",
        "held",
        "finish",
        "finish_all",
        "start",
        "prunable",
        "next_due",
        "holder",
        "windows_over",
        "outlive_window",
        "free_key",
        "asked_to_stop",
        "dead_letters",
    ],
)
async def test_no_hot_statement_reads_a_whole_table(store: SqliteStore, statement: str):
    con = reading(store)
    text = store._sql[statement]
    names = dict.fromkeys(
        ("leases", "now", "limit", "task", "state", "before", "queue", "key", "job_id", "after", "told", "blank"), "1"
    )
    values: Any = names if ":" in text else ("1",) * text.count("?")
    names |= {"leases": "[]", "workers": "[]", "jobs": "[]", "runs": "[]", "leased_for": "1", "worker": "w"}
    plan = [row[3] for row in con.execute("explain query plan " + text, values)]
    assert not [step for step in plan if step.startswith("SCAN") and "json_each" not in step and "want" not in step], plan
    assert not [step for step in plan if "TEMP B-TREE" in step], plan


@pytest.mark.parametrize("commits", [False, True])
async def test_a_key_race_ends_in_exactly_one_job_whether_the_first_commits_or_not(tmp_path: Path, commits: bool):
    stores = [SqliteStore(tmp_path / "jobs.db") for _ in range(5)]
    for store in stores:
        await store.open()
    first = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    first.execute("begin immediate")
    tx = Tx(first, SystemClock().now(), SQL)
    [winner] = enqueue.enqueue(tx, [a_job(key="welcome:42")])
    tx.flush()
    racing = [asyncio.ensure_future(store.enqueue([a_job(key="welcome:42")])) for store in stores for _ in range(10)]
    await asyncio.sleep(0.05)  # none may go on, and nothing tells that they wait
    assert not any(race.done() for race in racing), "they wait for the first one's outcome"
    first.execute("commit" if commits else "rollback")
    first.close()
    answers = [answer for race in racing for answer in await race]
    assert len({answer.id for answer in answers}) == 1
    assert sum(answer.created for answer in answers) == (0 if commits else 1)
    assert (answers[0].id == winner.id) == commits
    assert (await stores[0].stats()).ready == 1
    for store in stores:
        await store.close()


async def test_a_quiet_file_is_not_looked_at_again_and_again(store: SqliteStore, monkeypatch: pytest.MonkeyPatch):
    looks = 0
    assert store._open is not None
    watch = store._open.watch
    version = watch._version

    def counted() -> object:
        nonlocal looks
        looks += 1
        return version()

    monkeypatch.setattr(watch, "_version", counted)
    await store.wait(["default"], 0.02)
    assert looks > 1, "what was written just before may become visible without a further write"
    bell = watch._bells[asyncio.get_running_loop()]
    if bell.fd is not None:
        looks, bell.written_at = 0, bell.written_at - 60
        await store.wait(["default"], 0.02)
        assert looks == 0
        other = make_store(f"sqlite:///{store._path}")
        await other.enqueue([a_job(delay=60)])
        await other.close()
        await store.wait(["default"], 0.02)
        assert looks > 1
