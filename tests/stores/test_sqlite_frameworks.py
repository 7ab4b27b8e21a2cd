"""SQLAlchemy and Django on the store's own SQLite file: their transactions settle jobs, record steps and enqueue."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import sqlalchemy
import sqlalchemy.orm
from sqlalchemy.ext.asyncio import AsyncSession

from hawser import ConfigError, Context, Fixed, Hawser, LeaseLost, State
from hawser.handler import open_time
from hawser.handler.run_control import InlineRun
from hawser.store import Share
from tests.stores.test_postgres_settling import execute
from tests.stores.test_sqlite_settling import app, path, rows
from tests.worker.conftest import ended, working

__all__ = ["app", "path"]

SOON = Fixed(every=0.01, jitter="none")
INSERT = "insert into orders values ('{}')"


@contextmanager
def by_engine(path: Path) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def by_session(path: Path) -> Iterator[Any]:
    with by_engine(path) as engine, sqlalchemy.orm.Session(engine) as session:
        yield session


@contextmanager
def by_connection(path: Path) -> Iterator[Any]:
    with by_engine(path) as engine, engine.connect() as con:
        yield con


@contextmanager
def by_django(path: Path) -> Iterator[Any]:
    import django
    from django.conf import settings

    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()
    from django.db import ConnectionHandler

    con = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}})["default"]
    with closing(con):
        yield con


@contextmanager
def by_sqlite3(path: Path) -> Iterator[Any]:
    with closing(sqlite3.connect(path)) as con:
        yield con


KINDS: dict[str, Callable[[Path], Any]] = {
    "engine": by_engine,
    "session": by_session,
    "connection": by_connection,
    "django": by_django,
}


@pytest.mark.parametrize("kind", KINDS)
async def test_rows_step_and_done_stand_together(app: Hawser, path: Path, kind: str):
    @app.task
    def after(n: int) -> None: ...

    @app.task(backoff=SOON, max_attempts=3)
    def pay(ctx: Context) -> None:
        with KINDS[kind](path) as own:
            ctx.step("debit", lambda con: execute(con, INSERT.format("step")), inside=own)
        with KINDS[kind](path) as own, ctx.transaction(own) as con:
            execute(con, INSERT.format(f"lease {ctx.lease}"))
            if ctx.lease == 1:
                raise OSError("rolls back")
            ctx.enqueue(after.job(1))

    async with working(app):
        job = await ended(app, (await pay.aenqueue()).id)
    assert (job.state, rows(path)) == (State.DONE, ["lease 2", "step"])
    assert (await app.astats()).done + (await app.astats()).ready >= 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_whose_lease_is_gone_writes_nothing_of_its_own_either(app: Hawser, path: Path, kind: str):
    @app.task
    def pay(ctx: Context) -> None: ...

    await pay.aenqueue()
    store = await app.store()
    [old] = await store.claim([Share("default")], 1, "w1", 0)
    assert await store.reclaim(10)

    def run() -> None:
        with KINDS[kind](path) as own, pay.new_context(old, InlineRun()).transaction(own) as con:
            execute(con, INSERT.format("stale"))

    with pytest.raises(LeaseLost):
        await asyncio.to_thread(run)
    assert rows(path) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_another_file_is_refused_before_the_handler_has_written(app: Hawser, tmp_path: Path, kind: str):
    @app.task
    def pay(ctx: Context) -> None: ...

    await pay.aenqueue()
    [job] = await (await app.store()).claim([Share("default")], 1, "w1", 30)

    def run() -> None:
        with KINDS[kind](tmp_path / "other.db") as own:
            pay.new_context(job, InlineRun()).transaction(own).__enter__()

    with pytest.raises(ConfigError, match="the jobs are in"):
        await asyncio.to_thread(run)


async def test_an_asynchronous_session_is_refused_before_the_handler_has_written(app: Hawser):
    @app.task
    async def pay(ctx: Context) -> None: ...

    await pay.aenqueue()
    [job] = await (await app.store()).claim([Share("default")], 1, "w1", 30)
    settling = pay.new_context(job, InlineRun()).transaction(AsyncSession())
    with pytest.raises(ConfigError, match="a synchronous one of SQLAlchemy or Django to that file, in a plain `def` handler"):
        await settling.__aenter__()


@pytest.mark.parametrize("kind", [*KINDS, "sqlite3"])
@pytest.mark.parametrize("way", ["transaction", "rolled back", "step"])
@pytest.mark.parametrize(("lease", "lasts", "allowed"), [(30, 4.9, None), (30, 5.1, "5 s"), (6, 1.9, None), (6, 2.1, "2 s")])
async def test_a_transaction_that_keeps_others_from_writing_for_long_is_named_in_the_log(
    app: Hawser,
    path: Path,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    way: str,
    lease: float,
    lasts: float,
    allowed: str | None,
):
    @app.task
    def pay(ctx: Context) -> None: ...

    await pay.aenqueue()
    [job] = await (await app.store()).claim([Share("default")], 1, "w1", lease)
    now = 1_000.0

    def slow(_: Any) -> None:
        nonlocal now
        now += lasts
        if way == "rolled back":
            raise OSError("rolls back")

    def run() -> None:
        ctx = pay.new_context(job, InlineRun())
        with (by_sqlite3 if kind == "sqlite3" else KINDS[kind])(path) as own:
            if way == "step":
                ctx.step("debit", slow, inside=own)
            else:
                with suppress(OSError), ctx.transaction(own) as con:
                    slow(con)

    with mock.patch.object(open_time, "monotonic", side_effect=lambda: now):
        await asyncio.to_thread(run)
    said = [record for record in caplog.records if "this handler's transaction was open" in record.getMessage()]
    assert len(said) == (allowed is not None)
    for record in said:
        what = "step 'debit'" if way == "step" else "transaction"
        assert record.getMessage() == (
            f"{what}: this handler's transaction was open for {lasts} s. Meanwhile nobody else could write to the SQLite file, "
            f"leases included; more than {allowed} is too long. Do slow work before the transaction, or use PostgreSQL"
        )
        assert (vars(record)["job_id"], vars(record)["task"]) == (job.id, "pay")


@pytest.mark.parametrize("kind", ["session", "connection"])
async def test_jobs_are_enqueued_with_the_rows(app: Hawser, path: Path, kind: str):
    @app.task
    def pay(n: int) -> None: ...

    with KINDS[kind](path) as own:
        with own.begin():
            execute(own, INSERT.format("kept"))
            kept = app.inside(own).enqueue("pay", {"n": 1})
        transaction = own.begin()
        execute(own, INSERT.format("gone"))
        app.inside(own).enqueue("pay", {"n": 2})
        transaction.rollback()
    assert rows(path) == ["kept"]
    assert [job.id for job in (await app.afind()).jobs] == [kept.id]
