"""A worker of the release whose schema was version 1 goes on with a file at every step of its migrations, and beside this one.

Its statements are as that release sends them (`version_1/sqlite.sql`): enqueue, claim, extend, settle, reclaim. Keys are not
among them: version 2 gave each to a task, and whoever gives one without is refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawser.clock import to_us
from hawser.job import NewJob
from hawser.outcome import Done
from hawser.store import Settled, Settlement, Share
from hawser.stores.order import Lane
from hawser.stores.sqlite import SqliteStore
from hawser.stores.sqlite import migrate as sqlite_migrate
from hawser.stores.statements import load
from hawser.testing import ManualClock
from hawser.testing.contract.making import said
from hawser.value.ids import new_id

OLD = load("tests.stores.version_1", "sqlite.sql")
LEASE = to_us(60.0)
PLACES = ("fresh", "timed", "retrying", "running", "done", "dead", "cancelled")
COUNTED = """
select task, sum(state = 'ready' and lane = 0), sum(state = 'ready' and lane = 1), sum(state = 'ready' and lane = 2),
    sum(state = 'running'), sum(state = 'done'), sum(state = 'dead'), sum(state = 'cancelled')
from hawser_job group by task order by task"""
KEPT = "select task, fresh, timed, retrying, running, done, dead, cancelled from hawser_depth order by task"


class OldWorker:
    """Speaks to the file as that release did: each piece of work is one transaction that is begun to write."""

    def __init__(self, con: sqlite3.Connection, clock: ManualClock) -> None:
        self._con = con
        self._clock = clock

    @contextmanager
    def _begun(self) -> Iterator[int]:
        self._con.execute("begin immediate")
        yield self._clock.now()
        self._con.execute("commit")

    def _move(self, task: str, **places: int) -> None:
        self._con.execute(OLD["move"], ("default", task, 5, *(places.get(place, 0) for place in PLACES)))

    def enqueue(self, task: str, jobs: int = 1) -> list[str]:
        ids = [new_id() for _ in range(jobs)]
        with self._begun() as now:
            for id in ids:
                row = (id, task, "default", b"{}", 5, Lane.FRESH, now, now, 2, 300.0, None, 0.0, None, None, False, None, None)
                self._con.execute(OLD["add"], row)
            self._move(task, fresh=jobs)
        return ids

    def claim(self, task: str, limit: int = 100) -> list[tuple[str, int]]:
        """Id and lease of what it starts."""
        taken = []
        with self._begun() as now:
            for found, priority, *depths in self._con.execute(OLD["lanes"], {"queue": "default"}).fetchall():
                for lane, depth in enumerate(depths):
                    if found == task and depth:
                        rows = self._con.execute(OLD["due"], ("default", task, priority, lane, now, limit)).fetchall()
                        for row in rows:
                            self._con.execute(OLD["start"], (now + LEASE, LEASE, now, "old", row[1]))
                            taken.append((row[2], row[10] + 1))
                        self._move(task, **{PLACES[lane]: -len(rows), "running": len(rows)})
        return taken

    def _held(self, now: int, leases: list[tuple[str, int]]) -> list[Any]:
        pairs = msgspec.json.encode(leases).decode()
        return self._con.execute(OLD["held"], {"leases": pairs, "now": now}).fetchall()

    def extend(self, leases: list[tuple[str, int]]) -> int:
        """How many stood."""
        with self._begun() as now:
            held = self._held(now, leases)
            self._con.executemany(OLD["lengthen"], [(now + LEASE, LEASE, row[0]) for row in held])
        return len(held)

    def finish(self, leases: list[tuple[str, int]]) -> int:
        with self._begun() as now:
            held = self._held(now, leases)
            for seq, id, lease, task, *_ in held:
                assert self._con.execute(OLD["finish"], (now, b"1", seq, id, lease, now)).rowcount == 1
                self._move(task, running=-1, done=1)
        return len(held)

    def fail(self, leases: list[tuple[str, int]]) -> int:
        """Runs that raised: they are retried, or dead after their second attempt."""
        with self._begun() as now:
            held = self._held(now, leases)
            for row in held:
                self._leave(row, now, "failed", row[2], row[2])
        return len(held)

    def reclaim(self) -> int:
        with self._begun() as now:
            runs = self._con.execute(OLD["expired"], {"now": now, "limit": 100}).fetchall()
            for row in runs:
                self._leave(row, now, "lost", row[2] + 1, None)
        return len(runs)

    def _leave(self, row: Any, now: int, word: str, lease: int, settled: int | None) -> None:
        seq, _, held, task, _, _, attempt, most, _, _, started_at, worker, *_ = row
        dead = attempt == most
        state, place = ("dead", Lane.TIMED) if dead else ("ready", Lane.RETRYING)
        when = (None, now) if dead else (now, None)
        leaving = (state, place, *when, attempt, 0, lease, settled, 0, False, word, word == "lost", seq)
        self._con.execute(OLD["leave"], leaving)
        self._con.execute(OLD["record"], (seq, held, attempt, worker, started_at, now, word, "E: no", None))
        self._move(task, running=-1, **({"dead": 1} if dead else {"retrying": 1}))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def con(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A session with a file of version 1, as that release opens it."""
    with closing(sqlite3.connect(tmp_path / "old.db", isolation_level=None)) as con:
        con.execute("pragma journal_mode = wal")
        con.execute("pragma synchronous = off")
        con.execute(sqlite_migrate.CREATE_META)
        con.executescript(sqlite_migrate.migrations()[0].script)
        con.execute("insert into hawser_meta (name, value) values ('schema', '1')")
        yield con


def migrate_to(path: Path, version: int) -> None:
    """As another process does it, in one transaction."""
    step = sqlite_migrate.migrations()[version - 1]
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        for statement in step.script.split(";\n"):
            other.execute(statement)
        other.execute("insert or replace into hawser_meta (name, value) values ('schema', ?)", (str(version),))
        other.execute("commit")


def counts_agree(con: sqlite3.Connection) -> bool:
    return con.execute(COUNTED).fetchall() == con.execute(KEPT).fetchall()


def test_it_enqueues_claims_extends_settles_and_reclaims_at_every_step(
    tmp_path: Path, con: sqlite3.Connection, clock: ManualClock
):
    worker = OldWorker(con, clock)
    held: list[tuple[str, int]] = []
    for version in range(1, len(sqlite_migrate.migrations()) + 1):
        if version > 1:
            migrate_to(tmp_path / "old.db", version)
            # What it had claimed before the step, it settles after it.
            assert worker.extend(held) == worker.finish(held) == 1, f"schema {version}"
        worker.enqueue("lost")
        for _ in range(2):
            lost = worker.claim("lost")
            clock.advance(61)
            assert (worker.reclaim(), worker.finish(lost)) == (1, 0), f"schema {version}"
        worker.enqueue("raises")
        for _ in range(2):
            assert worker.fail(worker.claim("raises")) == 1, f"schema {version}"
        worker.enqueue("works", 2)
        held = worker.claim("works", 1)
        assert worker.finish(worker.claim("works")) == 1, f"schema {version}"
        assert con.execute(COUNTED).fetchall() == con.execute(KEPT).fetchall(), f"schema {version}"


def test_a_key_without_a_task_is_refused_after_the_second_step(tmp_path: Path, con: sqlite3.Connection):
    hold = {"queue": "default", "key": "k", "job_id": new_id(), "until": None}
    con.execute(OLD["hold_key"], hold)
    migrate_to(tmp_path / "old.db", 2)
    with pytest.raises(sqlite3.Error, match=r"ON CONFLICT|NOT NULL"):
        con.execute(OLD["hold_key"], hold)


async def test_it_and_a_worker_of_this_release_share_a_file(tmp_path: Path, con: sqlite3.Connection, clock: ManualClock):
    worker, store = OldWorker(con, clock), SqliteStore(tmp_path / "old.db", clock=clock)
    await store.open()
    try:
        # Each runs what the other enqueued, and only one of them runs it.
        worker.enqueue("works")
        await store.enqueue([NewJob(task="works", body=b"{}")])
        [old] = worker.claim("works", 1)
        [new] = await store.claim([Share("default")], 10, "new", 60.0)
        assert (worker.claim("works"), old[0] == new.id) == ([], False)
        assert worker.finish([old, (new.id, new.lease + 1)]) == 1
        assert said(await store.settle([Settlement(new.id, new.lease, Done())])) == [Settled.SETTLED]
        # A run of either that has gone is refused, whoever took it back.
        worker.enqueue("works", 2)
        [old] = worker.claim("works", 1)
        [new] = await store.claim([Share("default")], 10, "new", 60.0)
        clock.advance(61)
        assert len(await store.reclaim(1)) == worker.reclaim() == 1
        assert worker.finish([old, (new.id, new.lease)]) == 0
        assert (
            said(await store.settle([Settlement(id, lease, Done()) for id, lease in (old, (new.id, new.lease))]))
            == [Settled.LOST] * 2
        )
        # It leaves alone what it does not know: jobs with a group, and those that wait for others.
        first = NewJob(task="later", body=b"{}", delay=1_000.0)
        await store.enqueue(
            [first, NewJob(task="works", body=b"{}", group="acme"), NewJob(task="works", body=b"{}", waits_for=(first.id,))]
        )
        assert {id for id, _ in worker.claim("works")} == {old[0], new.id}
        stats = await store.stats("default")
        assert (stats.done, stats.running, stats.dead) == (2, 2, 0)
    finally:
        await store.close()
