"""Enqueueing in a transaction of the user's own, on a sqlite3 connection to the store's file."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from hawser import ConfigError, Hawser, QueueFull
from hawser.errors import StoreError, StoreUnavailable
from hawser.handle import Handle
from hawser.store import Share

ROOT = Path(__file__).parents[2]


class GoBack(Exception):
    """Ends a transaction without a commit."""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "shop.db"


@pytest.fixture
def app(path):
    app = Hawser(f"sqlite:///{path}")

    @app.task
    def mail(to: str) -> None: ...

    app.open()
    yield app
    app.close()


@pytest.fixture
def con(app, path):
    with closing(sqlite3.connect(path)) as con:
        con.execute("create table orders (id integer primary key, said text)")
        yield con


def claimed(app: Hawser) -> list[str]:
    async def take() -> list[str]:
        return [job.id for job in await (await app.store()).claim([Share("default")], 100, "w", 60)]

    return asyncio.run(take())


def orders(path: Path) -> int:
    with closing(sqlite3.connect(path)) as con:
        return int(con.execute("select count(*) from orders").fetchone()[0])


@pytest.mark.parametrize("order_first", [True, False])
def test_a_job_is_there_from_the_commit_on(app, con, path, order_first):
    mail = app.tasks["mail"]
    if order_first:
        con.execute("insert into orders (said) values ('one')")
    one = mail.inside(con).enqueue(to="a@example.com")
    many = app.inside(con).enqueue_many([mail.job(to="b@example.com"), mail.job(to="c")])
    named = app.inside(con).enqueue("mail", {"to": "d"}, priority=1)
    if not order_first:
        con.execute("insert into orders (said) values ('one')")
    assert app.find().jobs == []
    con.commit()
    assert (orders(path), app.stats().ready) == (1, 4)
    assert set(claimed(app)) == {one.id, named.id, *(each.id for each in many)}


def test_a_rolled_back_job_never_was(app, con, path):
    with suppress(GoBack), con:
        con.execute("insert into orders (said) values ('one')")
        app.tasks["mail"].using(key="k").inside(con).enqueue(to="a@example.com")
        raise GoBack
    assert (orders(path), app.stats().ready, app.stats().keys) == (0, 0, 0)
    assert claimed(app) == []
    assert app.tasks["mail"].using(key="k").enqueue(to="a@example.com").created


def test_a_process_that_dies_before_its_commit_leaves_no_job(app, con, path):
    program = f"""
import os, signal, sqlite3
from hawser import Hawser
app = Hawser("sqlite:///{path}")
@app.task
def mail(to: str) -> None: ...
con = sqlite3.connect({str(path)!r})
con.execute("insert into orders (said) values ('one')")
mail.inside(con).enqueue(to="a@example.com")
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=os.environ | {"PYTHONPATH": "src"}, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert (orders(path), app.stats().ready) == (0, 0)
    assert app.tasks["mail"].enqueue(to="the file is free").created


async def test_a_waiting_worker_hears_of_the_commit(app, con):
    store = await app.store()
    waiting = asyncio.create_task(store.wait(["default"], 30))
    await asyncio.sleep(0.05)  # It waits by now, as nothing was due when it looked.
    app.tasks["mail"].inside(con).enqueue(to="a@example.com")
    con.commit()
    async with asyncio.timeout(5):
        await waiting
        while not await store.claim([Share("default")], 1, "w", 60):
            await store.wait(["default"], 30)


def test_a_key_waits_for_the_winner_to_commit_or_go_back(app, con):
    """Exactly one job, never none and never two, whatever becomes of the first."""
    mail = app.tasks["mail"]
    for commits in (True, False):
        keyed = mail.using(key=f"k{commits}")
        first = keyed.inside(con).enqueue(to="first")
        assert keyed.inside(con).enqueue(to="again").id == first.id
        answers: list[Handle[Any]] = []
        second = threading.Thread(target=lambda keyed=keyed, answers=answers: answers.append(keyed.enqueue(to="second")))
        second.start()
        second.join(0.1)
        assert answers == []
        (con.commit if commits else con.rollback)()
        second.join(30)
        assert (answers[0].created, answers[0].id == first.id) == (not commits, commits)
        assert len(claimed(app)) == 1


def test_a_full_queue_refuses_the_jobs_and_leaves_the_rest(app, con, path):
    app.set_limit(queue="default", max_depth=1)
    mail = app.tasks["mail"]
    con.execute("insert into orders (said) values ('one')")
    with pytest.raises(QueueFull):
        app.inside(con).enqueue_many([mail.job(to="a"), mail.job(to="b")])
    mail.inside(con).enqueue(to="a")
    with pytest.raises(QueueFull):
        mail.inside(con).enqueue(to="b")
    con.commit()
    assert (orders(path), app.stats().ready) == (1, 1)


def test_what_fails_half_way_leaves_nothing_of_its_own(app, con, path):
    con.execute("create trigger broken before insert on hawser_tally begin select raise(fail, 'on purpose'); end")
    con.execute("insert into orders (said) values ('one')")
    with pytest.raises(StoreError, match="on purpose"):
        app.tasks["mail"].inside(con).enqueue(to="a")
    con.commit()
    assert (orders(path), app.find().jobs) == (1, [])


def test_a_refusal_ends_the_transaction_that_it_began(app, con):
    app.set_limit(queue="default", max_depth=0)
    with pytest.raises(QueueFull):
        app.tasks["mail"].inside(con).enqueue(to="a")
    assert not con.in_transaction


def test_rows_come_as_the_owner_likes_them(app, con):
    con.row_factory, con.text_factory = sqlite3.Row, bytes
    keyed = app.tasks["mail"].using(key="k")
    first = keyed.inside(con).enqueue(to="a")
    assert keyed.inside(con).enqueue(to="a").id == first.id
    con.commit()
    [row] = con.execute("select queue from hawser_job").fetchall()
    assert row["queue"] == b"default"


def test_a_connection_that_commits_each_statement_wants_a_transaction(app, con, path):
    mail = app.tasks["mail"]
    with closing(sqlite3.connect(path, isolation_level=None)) as by_hand:
        with pytest.raises(ConfigError, match="begin one first"):
            mail.inside(by_hand).enqueue(to="a")
        by_hand.execute("begin")
        mail.inside(by_hand).enqueue(to="a")
        assert app.stats().ready == 0
        by_hand.execute("commit")
    assert app.stats().ready == 1


def test_a_transaction_that_others_have_overtaken_is_told_to_begin_again(app, con):
    con.execute("begin")
    con.execute("select * from orders").fetchall()
    app.tasks["mail"].enqueue(to="other")
    with pytest.raises(StoreUnavailable, match="begin it again with 'begin immediate'"):
        app.tasks["mail"].inside(con).enqueue(to="a")
    con.rollback()
    assert app.stats().ready == 1


def test_a_transaction_waits_for_its_turn(app, con, path):
    """Not for longer than its own connection says."""
    with closing(sqlite3.connect(path, timeout=0.1)) as hasty:
        con.execute("begin immediate")
        with pytest.raises(StoreUnavailable, match="held by another connection"):
            app.tasks["mail"].inside(hasty).enqueue(to="a")
        assert not hasty.in_transaction
        con.rollback()
        app.tasks["mail"].inside(hasty).enqueue(to="a")
        hasty.commit()
    assert app.stats().ready == 1


def test_a_transaction_that_has_not_written_yet_waits_for_its_turn_too(app, con, path):
    """SQLite refuses at once, without a wait, what reads before it writes while another writes."""

    def write():
        with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as patient:
            patient.execute("begin")
            app.tasks["mail"].inside(patient).enqueue(to="a")
            patient.execute("commit")

    con.execute("begin immediate")
    writing = threading.Thread(target=write)
    writing.start()
    writing.join(0.2)
    con.execute("insert into orders (said) values ('one')")
    con.commit()
    writing.join(30)
    assert app.stats().ready == 1


def test_a_plain_enqueue_during_a_write_of_ones_own_says_how_to_take_part_in_it(path):
    app = Hawser(f"sqlite:///{path}?enqueue_timeout=0.1")
    mail = app.task(name="mail")(lambda: None)
    app.open()
    with closing(sqlite3.connect(path)) as con:
        con.execute("create table orders (id integer primary key)")
        con.execute("insert into orders default values")
        with pytest.raises(
            StoreUnavailable, match=r"if it is a transaction of yours, enqueue in it, with \.inside\(connection\)"
        ):
            mail.enqueue()
        mail.inside(con).enqueue()
        con.commit()
    assert app.stats().ready == 1
    app.close()


def test_a_transaction_that_begins_before_the_store_is_made_is_told_to_open_it_first(path):
    app = Hawser(f"sqlite:///{path}?timeout=0.2")
    mail = app.task(name="mail")(lambda: None)
    with closing(sqlite3.connect(path)) as con:
        con.execute("begin immediate")
        with pytest.raises(StoreUnavailable, match=r"are not in '.*' yet, .* call app\.open\(\) before it begins"):
            mail.inside(con).enqueue()
        con.rollback()
        app.open()
        con.execute("begin immediate")
        mail.inside(con).enqueue()
        con.commit()
    assert app.stats().ready == 1
    app.close()


def test_a_connection_of_the_wrong_kind_is_named(app, con, tmp_path):
    mail = app.tasks["mail"]
    with pytest.raises(ConfigError, match=r"inside: builtins\.str is not a connection"):
        mail.inside("sqlite:///").enqueue(to="a")
    for elsewhere in (":memory:", tmp_path / "other.db"):
        with closing(sqlite3.connect(elsewhere)) as other:
            with pytest.raises(ConfigError, match="connect to the store's own file"):
                mail.inside(other).enqueue(to="a")
            assert not other.in_transaction
    with pytest.raises(ConfigError, match="closed database"):
        mail.inside(other).enqueue(to="a")
    assert app.stats().ready == 0


async def test_a_connection_of_sqlite3_is_synchronous(app, con):
    with pytest.raises(ConfigError, match=r"sqlite3\.Connection is synchronous; use enqueue"):
        await app.tasks["mail"].inside(con).aenqueue(to="a")


def test_a_connection_of_another_thread_is_refused(app, con):
    caught: list[str] = []

    def use():
        try:
            app.tasks["mail"].inside(con).enqueue(to="a")
        except ConfigError as error:
            caught.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join(30)
    assert "thread" in caught[0]
