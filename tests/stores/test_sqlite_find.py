"""A search in pages on SQLite: by which index it reads, and that this makes no difference to what it finds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hawser.job import NewJob, State
from hawser.outcome import Dead, Done, Failure
from hawser.store import Actor, Filter, Settlement, Share
from hawser.stores.schema import migrations_in
from hawser.stores.sqlite import SqliteStore, queries, search
from hawser.stores.sqlite.queries import Snapshot
from hawser.stores.sqlite.tx import SQL

SORTED = "USE TEMP B-TREE"


class Recorder:
    """A connection that keeps what it was asked."""

    def __init__(self, con: sqlite3.Connection) -> None:
        self.con = con
        self.asked: list[tuple[str, Any]] = []

    def execute(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
        self.asked.append((sql, dict(values) if isinstance(values, dict) else values))
        return self.con.execute(sql, values)

    def plans(self) -> str:
        """How all of it is read."""
        return "\n".join(row[3] for sql, values in self.asked for row in self.con.execute(f"explain query plan {sql}", values))


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A store with jobs in each state, in two queues and of three tasks."""
    path = tmp_path / "jobs.db"
    store = SqliteStore(path)
    for round in range(3):
        made = [NewJob(task=f"t{n % 3}", queue=f"q{n % 2}", body=b"{}", tags=("x",) if n % 5 == 0 else ()) for n in range(12)]
        await store.enqueue([*made, NewJob(task="t0", queue="q0", body=b"{}", key=f"k{round}")])
        claimed = await store.claim([Share("q0"), Share("q1")], 8, "w", 60)
        ends = (Done(), Dead(Failure("no")), Dead(Failure("no")))
        await store.settle([Settlement(job.id, job.lease, ends[n % 3]) for n, job in enumerate(claimed[:6])])
        await store.discard([claimed[2].id], Actor("me"))
    await store.close()
    return path


@pytest.fixture
def con(path: Path) -> Iterator[Recorder]:
    with closing(sqlite3.connect(path)) as con:
        yield Recorder(con)


def said(filter: Filter) -> str:
    """What the filter asks for, as the name of a case."""
    return ",".join(f"{name}={value}" for name, value in msgspec.structs.asdict(filter).items() if value) or "any"


FILTERS = [
    Filter(**({"state": state} if state else {}), queue=queue, task=task, tag=tag)
    for state in (None, *State)
    for queue in (None, "q0", "none")
    for task in (None, "t1", "none")
    for tag in (None, "x")
]


@pytest.mark.parametrize(
    "filter",
    [
        Filter(),
        Filter(state=State.DONE),
        Filter(state=State.DEAD),
        Filter(state=State.CANCELLED, queue="q0"),
        Filter(queue="q0"),
        Filter(task="t1", state=State.READY),
        Filter(tag="x"),
        Filter(key="k1"),
        Filter(parent_id="0"),
        Filter(schedule="s"),
        Filter(argument="user_id=1"),
    ],
    ids=said,
)
def test_a_page_is_read_in_order_and_not_sorted(con: Recorder, filter: Filter, monkeypatch: pytest.MonkeyPatch):
    """A page sorted the twenty thousand jobs that it might have looked at, with their payloads, to give one."""
    monkeypatch.setattr(search, "SORTED_UP_TO", -1, raising=False)
    Snapshot(con, 1, SQL).find(filter, None, 1)  # type: ignore[arg-type]  # all of a connection that it uses
    assert con.asked
    assert SORTED not in con.plans()


@pytest.mark.parametrize("filter", [Filter(state=State.RUNNING), Filter(task="t1")], ids=said)
def test_what_has_to_be_sorted_is_narrow(con: Recorder, filter: Filter):
    """The jobs themselves are read after that, only those of the page."""
    Snapshot(con, 1, SQL).find(filter, None, 1)  # type: ignore[arg-type]  # as above
    [plan] = [con.con.execute(f"explain query plan {sql}", values).fetchall() for sql, values in con.asked if "select j.*" in sql]
    steps = [row[3] for row in plan]
    sorts = [n for n, step in enumerate(steps) if SORTED in step]
    [reads] = [n for n, step in enumerate(steps) if "SEARCH j USING INTEGER PRIMARY KEY" in step]
    assert sorts
    assert max(sorts) < reads


def test_few_and_many_are_found_alike(con: Recorder, monkeypatch: pytest.MonkeyPatch):
    snapshot = Snapshot(con, 1, SQL)  # type: ignore[arg-type]  # as above

    def found() -> list[list[str]]:
        return [[job.id for job in snapshot.find(filter, None, 100).jobs] for filter in FILTERS]

    few = found()
    assert any(few)
    monkeypatch.setattr(search, "SORTED_UP_TO", -1)
    assert found() == few


def test_a_filter_whose_lanes_hold_nothing_looks_at_nothing(con: Recorder):
    snapshot = Snapshot(con, 1, SQL)  # type: ignore[arg-type]  # as above
    for filter in (Filter(queue="none"), Filter(task="none", state=State.DONE), Filter(queue="q1", task="none", tag="x")):
        page = snapshot.find(filter, None, 10)
        assert (page.jobs, page.next, page.searched) == ([], None, 0)


def test_a_rare_tag_is_found_without_a_look_at_the_others(con: Recorder, monkeypatch: pytest.MonkeyPatch):
    """Also when its jobs are behind more than one look reaches."""
    monkeypatch.setattr(search, "SORTED_UP_TO", -1)
    monkeypatch.setattr(queries, "SCAN", 3)
    snapshot = Snapshot(con, 1, SQL)  # type: ignore[arg-type]  # as above
    page = snapshot.find(Filter(tag="none"), None, 10)
    assert (page.jobs, page.next, page.searched) == ([], None, 0)
    tagged = [id for (id,) in con.con.execute("select id from hawser_job where tags like '%\"x\"%' order by id desc")]
    found, after = [], None
    while True:
        page = snapshot.find(Filter(tag="x"), after, 10)
        found += [job.id for job in page.jobs]
        after = page.next
        if after is None:
            break
    assert found == tagged


def test_the_tags_of_a_job_go_with_it(con: Recorder):
    [(tags,)] = con.con.execute("select count(*) from hawser_tag").fetchall()
    [(tagged,)] = con.con.execute("select count(*) from hawser_job where tags is not null").fetchall()
    assert tags == tagged > 0
    con.con.execute("delete from hawser_job")
    assert con.con.execute("select count(*) from hawser_tag").fetchall() == [(0,)]


def test_the_tags_of_jobs_of_an_older_version_are_found(con: Recorder):
    kept = con.con.execute("select * from hawser_tag order by tag, id").fetchall()
    for statement in ("drop table hawser_tag", "drop trigger hawser_job_tagged", "drop trigger hawser_job_untagged"):
        con.con.execute(statement)
    [step] = [step for step in migrations_in("hawser.stores.sqlite") if "create table hawser_tag" in step.script]
    con.con.executescript(step.script)
    assert con.con.execute("select * from hawser_tag order by tag, id").fetchall() == kept != []
