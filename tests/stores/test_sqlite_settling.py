"""A job that is settled in a transaction of its handler's own, on a sqlite3 connection to the store's file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any
from unittest import mock

import pytest

from hawser import ConfigError, Context, Fixed, Hawser, LeaseLost, State
from hawser.handler.run_control import InlineRun
from hawser.limit import Limit
from hawser.store import Actor, Share, Target
from hawser.stores.sqlite.tx import Tx
from tests.worker.conftest import ended, working

SOON = Fixed(every=0.01, jitter="none")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "shop.db"


@pytest.fixture
async def app(path):
    app = Hawser(f"sqlite:///{path}")
    await app.aopen()
    with closing(sqlite3.connect(path)) as con:
        con.execute("create table orders (said text)")
    yield app
    await app.aclose()


def rows(path) -> list[str]:
    with closing(sqlite3.connect(path)) as con:
        return [row[0] for row in con.execute("select said from orders order by said")]


@pytest.mark.parametrize("apart", [False, True])
async def test_rows_and_done_stand_together(app: Hawser, path, apart: bool):
    @app.task
    def after(n: int) -> None: ...

    @app.task(backoff=SOON, max_attempts=3)
    def pay(ctx: Context) -> None:
        with closing(sqlite3.connect(path)) as own:
            settling = ctx.transaction(own)
            with settling as con:
                con.execute("insert into orders values (?)", (f"lease {ctx.lease}",))
                if ctx.attempt == 1:
                    raise OSError("rolls back")
                settling.result = {"paid": 1}
                ctx.enqueue(after.job(1))
            if apart:
                raise OSError("the line was cut: nothing was heard of the commit")

    async with working(app):
        job = await ended(app, (await pay.aenqueue()).id)
    assert (job.state, job.result, job.attempt, rows(path)) == (State.DONE, {"paid": 1}, 2, ["lease 2"])
    [child] = (await app.afind(task="after")).jobs
    assert child.parent_id == job.id
    stats = await app.astats("default")
    assert (stats.running, stats.dead) == (0, 0)


async def test_a_run_whose_lease_is_gone_writes_nothing_of_its_own_either(app: Hawser, path):
    @app.task
    def pay(ctx: Context) -> None: ...

    id = (await pay.aenqueue()).id
    store = await app.store()
    [old] = await store.claim([Share("default")], 1, "w1", 0)
    assert [lost.id for lost in await store.reclaim(10)] == [id]
    with (
        closing(sqlite3.connect(path)) as own,
        pytest.raises(LeaseLost, match="nothing of it is written"),
        pay.new_context(old, InlineRun()).transaction(own) as con,
    ):
        con.execute("insert into orders values ('stale')")
    assert (rows(path), (await app.aget(id)).state) == ([], State.READY)


async def test_what_cannot_be_is_named_and_nothing_is_lost(app: Hawser, path, tmp_path):
    @app.task
    def pay(ctx: Context) -> None: ...

    id = (await pay.aenqueue()).id
    [job] = await (await app.store()).claim([Share("default")], 1, "w1", 30)

    def tried(con: object) -> str:
        with pytest.raises(ConfigError) as caught, pay.new_context(job, InlineRun()).transaction(con):
            pass
        return str(caught.value)

    with closing(sqlite3.connect(path)) as con:
        con.execute("begin")
        assert "a transaction is open on this sqlite3.Connection already" in tried(con)
    with closing(sqlite3.connect(tmp_path / "other.db")) as con:
        assert "the jobs are in" in tried(con)
    assert "object is not known here" in tried(object())
    assert (await app.aget(id)).state is State.RUNNING


async def test_a_second_transaction_in_one_run_is_refused(app: Hawser, path):
    @app.task(max_attempts=1)
    def pay(ctx: Context) -> None:
        with closing(sqlite3.connect(path)) as own:
            with ctx.transaction(own) as con:
                con.execute("insert into orders values ('one')")
            with pytest.raises(ConfigError, match="this run has settled its job in one already"):
                ctx.transaction(own)

    async with working(app):
        job = await ended(app, (await pay.aenqueue()).id)
    assert (job.state, rows(path)) == (State.DONE, ["one"])


async def room_after_a_settlement_inside(app: Hawser, path) -> int:
    """Jobs that a limit of one lets run once the one before has been settled in its handler's transaction."""
    store = await app.store()
    await store.set_limit(Target("task", "pay"), Limit(running=1), Actor("test"))

    @app.task
    def pay(ctx: Context) -> None: ...

    await app.aenqueue_many([pay.job(), pay.job(), pay.job()])
    [one] = await store.claim([Share("default")], 3, "w1", 30)
    assert await store.claim([Share("default")], 3, "w1", 30) == []
    with closing(sqlite3.connect(path)) as own, pay.new_context(one, InlineRun()).transaction(own) as con:
        con.execute("insert into orders values ('one')")
    return len(await store.claim([Share("default")], 3, "w1", 30))


async def test_a_settlement_inside_frees_the_place_of_its_limit(app: Hawser, path):
    assert await room_after_a_settlement_inside(app, path) == 1
    [use] = await app.alimits()
    assert use.running == 1


async def test_a_place_that_a_settlement_inside_forgets_is_noticed(app: Hawser, path):
    right = Tx.move

    def keeping_runs(tx: Tx, queue: str, task: str, priority: int, place: Any, by: int) -> None:
        if not (place == State.RUNNING and by < 0):
            right(tx, queue, task, priority, place, by)

    with mock.patch.object(Tx, "move", keeping_runs):
        assert await room_after_a_settlement_inside(app, path) == 0
