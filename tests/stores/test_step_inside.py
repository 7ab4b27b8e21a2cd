"""A step that is recorded in a transaction of its handler's own: rows and record in one commit, with every driver."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hawser import ConfigError, Context, Fixed, Hawser, LeaseLost, State
from hawser.handler.run_control import InlineRun
from hawser.store import Share
from tests.stores.test_postgres_settling import ASYNC, INSERT, SYNC, aexecute, app, execute, ran, rows, url
from tests.worker.conftest import ended, working

__all__ = ["app", "url"]  # fixtures

SOON = Fixed(every=0.01, jitter="none")


@pytest.mark.parametrize("driver", ASYNC)
async def test_rows_and_record_stand_together_in_async_handlers(app: Hawser, url: str, driver: str):
    @app.task(backoff=SOON, max_attempts=3)
    async def pay(ctx: Context) -> Any:
        async def debit(con: Any) -> dict[str, int]:
            await aexecute(con, INSERT.format(f"lease {ctx.lease}"))
            if ctx.lease == 1:
                raise OSError("rolls back")
            return {"lease": ctx.lease}

        async with ASYNC[driver](url) as target:
            paid = await ctx.step("debit", debit, inside=target)
            if ctx.lease == 2:
                raise OSError("after the commit")
            return paid

    job = await ran(app, pay, (await pay.aenqueue()).id)
    assert (job.state, job.result, await rows(url)) == (State.DONE, {"lease": 2}, ["lease 2"])
    [step] = await app.asteps(job.id)
    assert (step.name, step.value, step.lease) == ("debit", {"lease": 2}, 2)


@pytest.mark.parametrize("driver", SYNC)
async def test_rows_and_record_stand_together_in_plain_handlers(app: Hawser, url: str, driver: str):
    @app.task(backoff=SOON, max_attempts=3)
    def pay(ctx: Context) -> int:
        def debit(con: Any) -> int:
            execute(con, INSERT.format(f"lease {ctx.lease}"))
            if ctx.lease == 1:
                raise OSError("rolls back")
            return ctx.lease

        with SYNC[driver](url) as target:
            paid = ctx.step("debit", debit, inside=target)
            if ctx.lease == 2:
                raise OSError("after the commit")
            return paid

    job = await ran(app, pay, (await pay.aenqueue()).id)
    assert (job.state, job.result, await rows(url)) == (State.DONE, 2, ["lease 2"])


async def test_a_run_whose_lease_is_gone_records_nothing_and_writes_no_rows(app: Hawser, url: str):
    @app.task
    def pay(ctx: Context) -> None: ...

    id = (await pay.aenqueue()).id
    store = await app.store()
    [old] = await store.claim([Share("default")], 1, "w1", 0)
    while not await store.reclaim(10):
        pass
    assert await store.claim([Share("default")], 1, "w2", 60), "another run has the job"
    ctx = pay.new_context(old, InlineRun())
    with SYNC["psycopg"](url) as target, pytest.raises(LeaseLost, match="nothing of it is written"):
        ctx.step("debit", lambda con: execute(con, INSERT.format("stale")), inside=target)
    assert (await rows(url), await app.asteps(id)) == ([], [])


@pytest.fixture
async def shop(tmp_path: Path):
    path = tmp_path / "shop.db"
    app = Hawser(f"sqlite:///{path}")
    await app.aopen()
    with closing(sqlite3.connect(path)) as con:
        con.execute("create table orders (said text)")
    yield app, path
    await app.aclose()


def orders(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as con:
        return [row[0] for row in con.execute("select said from orders order by said")]


async def test_on_sqlite_rows_and_record_stand_together_and_a_transaction_ends_the_job(shop: tuple[Hawser, Path]):
    app, path = shop

    @app.task(backoff=SOON, max_attempts=3)
    def pay(ctx: Context) -> None:
        def debit(con: sqlite3.Connection) -> str:
            con.execute("insert into orders values (?)", (f"debit {ctx.lease}",))
            if ctx.lease == 1:
                raise OSError("rolls back")
            return "debited"

        with closing(sqlite3.connect(path)) as own:
            ctx.write("before")
            assert ctx.step("debit", debit, inside=own) == "debited"
            if ctx.lease == 2:
                raise OSError("after the commit")
            settling = ctx.transaction(own)
            with settling as con:
                con.execute("insert into orders values (?)", (f"credit {ctx.lease}",))
                ctx.write("inside")
                settling.result = "paid"
            with pytest.raises(ConfigError, match="before its block ends"):
                ctx.write("too late")

    async with working(app):
        job = await ended(app, (await pay.aenqueue()).id, 30)
    assert (job.state, job.result, orders(path)) == (State.DONE, "paid", ["credit 3", "debit 2"])
    assert job.attempt == 2, "attempts are counted from the record on"
    assert [(chunk.value, chunk.lease) for chunk in await app.aoutput(job.id)] == [
        ("before", 1),
        ("before", 2),
        ("before", 3),
        ("inside", 3),
    ]


async def test_a_stale_run_leaves_nothing_in_the_file(shop: tuple[Hawser, Path]):
    app, path = shop

    @app.task
    def pay(ctx: Context) -> None: ...

    await pay.aenqueue()
    store = await app.store()
    [old] = await store.claim([Share("default")], 1, "w1", 0)
    assert await store.reclaim(10)
    assert await store.claim([Share("default")], 1, "w2", 60), "another run has the job"
    ctx = pay.new_context(old, InlineRun())
    with closing(sqlite3.connect(path)) as own, pytest.raises(LeaseLost):
        ctx.step("debit", lambda con: con.execute("insert into orders values ('stale')").rowcount, inside=own)
    assert orders(path) == []


async def test_a_store_without_such_transactions_refuses_before_anything_is_written():
    app = Hawser("memory://")
    called: list[Any] = []

    @app.task(max_attempts=3)
    def pay(ctx: Context) -> None:
        with closing(sqlite3.connect(":memory:")) as own:
            ctx.step("debit", called.append, inside=own)

    async with working(app):
        job = await ended(app, (await pay.aenqueue()).id)
    assert (job.state, called) == (State.DEAD, [])
    assert "only sqlite:/// and postgresql:// stores can record a step" in (job.errors[-1].error or "")


def test_called_like_a_function_the_call_has_its_transaction(tmp_path: Path):
    app = Hawser("memory://")

    @app.task
    def pay(ctx: Context) -> str:
        with closing(sqlite3.connect(tmp_path / "own.db")) as own:
            own.execute("create table orders (said text)")
            return ctx.step("debit", lambda con: str(con.execute("insert into orders values ('x')").rowcount), inside=own)

    assert pay() == "1"
    with closing(sqlite3.connect(tmp_path / "own.db")) as con:
        assert con.execute("select count(*) from orders").fetchone() == (1,)
