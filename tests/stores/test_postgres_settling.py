"""A job that is settled in a transaction of its handler's own: rows, fence and "done" in one commit, with every driver."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any
from unittest import mock

import asyncpg
import psycopg
import psycopg2
import pytest
import sqlalchemy
import sqlalchemy.orm
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from hawser import ConfigError, Context, Fixed, Hawser, LeaseLost, State
from hawser.handler.run_control import InlineRun
from hawser.limit import Limit
from hawser.outcome import Done, decide
from hawser.store import Actor, LeaseRef, LeaseStatus, Settled, Settlement, Share, Target
from tests.postgres import emptied, own_schema, server, versions, with_schema
from tests.stores.test_postgres_transaction import dsn, of

SOON = Fixed(every=0.01, jitter="none")

ORDERS = f"settled_orders_{os.getpid()}"
"""The handlers' own table. It stands outside of the store's schema, so each test process has one."""


@pytest.fixture
async def url():
    """On one server only: what differs is the driver."""
    url = with_schema(server(versions()[-1]), f"{own_schema()}_settling")
    await emptied(url)
    con = await asyncpg.connect(dsn(url))
    await con.execute(f"drop table if exists {ORDERS}; create table {ORDERS} (said text)")
    await con.close()
    return url


@pytest.fixture
async def app(url):
    app = Hawser(url)
    await app.aopen()
    yield app
    await app.aclose()
    await asyncio.to_thread(app.close)


async def ran(app: Hawser, task: Any, id: str) -> Any:
    """The job, once a worker has run it to its end."""
    store = await app.store()
    while not (job := await app.aget(id)).state.finished:
        for claimed in await store.claim([Share("default")], 1, "w1", 30):
            if claimed.task != task.name:
                await store.settle([Settlement(claimed.id, claimed.lease, Done())])
                continue
            ctx = task.new_context(claimed, InlineRun())
            try:
                value = await (task.begin(ctx, {}) if task.is_async else asyncio.to_thread(task.begin, ctx, {}))
                failed = False
            except Exception as error:  # as a worker takes it
                value, failed = error, True
            value, failed = ctx.ended(value, failed=failed)
            outcome = decide(value, attempt=claimed.attempt, backoff=SOON, failed=failed)
            await store.settle([Settlement(claimed.id, claimed.lease, outcome, hint=claimed.hint, doubtful=ctx.doubtful)])
        await asyncio.sleep(0.01)
    return job


async def rows(url: str) -> list[str]:
    con = await asyncpg.connect(dsn(url))
    try:
        return [row[0] for row in await con.fetch(f"select said from {ORDERS} order by said")]
    finally:
        await con.close()


INSERT = f"insert into {ORDERS} values ('{{}}')"


@asynccontextmanager
async def by_pool(url):
    async with asyncpg.create_pool(dsn(url), min_size=1) as pool:
        yield pool


@asynccontextmanager
async def by_asyncpg(url):
    con = await asyncpg.connect(dsn(url))
    try:
        yield con
    finally:
        await con.close()


@asynccontextmanager
async def by_async_psycopg(url):
    async with await psycopg.AsyncConnection.connect(dsn(url), autocommit=True) as con:
        yield con


@asynccontextmanager
async def by_async_engine(url):
    engine = create_async_engine(of(url, "asyncpg"))
    try:
        yield engine
    finally:
        await engine.dispose()


@asynccontextmanager
async def by_async_session(url):
    async with by_async_engine(url) as engine, AsyncSession(engine) as session:
        yield session


@asynccontextmanager
async def by_async_sessionmaker(url):
    async with by_async_engine(url) as engine:
        yield async_sessionmaker(engine)


ASYNC = {
    "pool": by_pool,
    "asyncpg": by_asyncpg,
    "psycopg": by_async_psycopg,
    "engine": by_async_engine,
    "session": by_async_session,
    "sessionmaker": by_async_sessionmaker,
}


@contextmanager
def by_psycopg(url):
    with psycopg.connect(dsn(url)) as con:
        yield con


@contextmanager
def by_psycopg2(url):
    con = psycopg2.connect(dsn(url))
    try:
        yield con
    finally:
        con.close()


@contextmanager
def by_engine(url):
    engine = sqlalchemy.create_engine(of(url, "psycopg"))
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def by_session(url):
    with by_engine(url) as engine, sqlalchemy.orm.Session(engine) as session:
        yield session


@contextmanager
def by_django(url):
    from urllib.parse import parse_qs, urlsplit

    import django
    from django.conf import settings

    parts = {name: values[0] for name, values in parse_qs(urlsplit(dsn(url)).query).items()}
    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()
    from django.db import ConnectionHandler

    database = {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "USER": "postgres", "HOST": parts["host"]}
    con = ConnectionHandler({"default": {**database, "PORT": parts["port"]}})["default"]
    try:
        yield con
    finally:
        con.close()


SYNC = {"psycopg": by_psycopg, "psycopg2": by_psycopg2, "engine": by_engine, "session": by_session, "django": by_django}


async def aexecute(con: Any, text: str) -> None:
    if hasattr(con, "cursor") and not hasattr(con, "fetch"):
        await con.execute(text)
    else:
        await con.execute(sqlalchemy.text(text) if "sqlalchemy" in type(con).__module__ else text)


def execute(con: Any, text: str) -> None:
    if "sqlalchemy" in type(con).__module__:
        con.execute(sqlalchemy.text(text))
    else:
        with con.cursor() as cursor:
            cursor.execute(text)


@pytest.mark.parametrize("driver", ASYNC)
async def test_rows_and_done_stand_together_in_async_handlers(app: Hawser, url: str, driver: str):
    @app.task
    async def after(n: int) -> None: ...

    @app.task(backoff=SOON, max_attempts=3)
    async def pay(ctx: Context) -> None:
        async with ASYNC[driver](url) as target:
            settling = ctx.transaction(target)
            async with settling as con:
                await aexecute(con, INSERT.format(f"lease {ctx.lease}"))
                if ctx.attempt == 1:
                    raise OSError("rolls back")
                settling.result = {"paid": ctx.attempt}
                ctx.enqueue(after.job(1))

    job = await ran(app, pay, (await pay.aenqueue()).id)
    assert (job.state, job.result, job.attempt) == (State.DONE, {"paid": 2}, 2)
    [child] = (await app.afind(task="after")).jobs
    assert child.parent_id == job.id
    assert await rows(url) == ["lease 2"]
    stats = await app.astats("default")
    assert (stats.ready, stats.running, stats.done, stats.dead) == (1, 0, 1, 0)


@pytest.mark.parametrize("driver", SYNC)
async def test_rows_and_done_stand_together_in_plain_handlers(app: Hawser, url: str, driver: str):
    @app.task(backoff=SOON, max_attempts=3)
    def pay(ctx: Context) -> None:
        with SYNC[driver](url) as target, ctx.transaction(target) as con:
            execute(con, INSERT.format(f"lease {ctx.lease}"))
            if ctx.attempt == 1:
                raise OSError("rolls back")

    job = await ran(app, pay, (await pay.aenqueue()).id)
    assert (job.state, job.attempt, await rows(url)) == (State.DONE, 2, ["lease 2"])


async def test_a_run_whose_lease_is_gone_writes_nothing_of_its_own_either(app: Hawser, url: str):
    store = await app.store()

    @app.task
    async def pay(ctx: Context) -> None: ...

    id = (await pay.aenqueue()).id
    [old] = await store.claim([Share("default")], 1, "w1", 0.01)
    async with asyncio.timeout(10):
        while not (taken_back := await store.reclaim(10)):
            await asyncio.sleep(0.005)
    assert [lost.id for lost in taken_back] == [id]
    ctx = pay.new_context(old, InlineRun())
    async with by_pool(url) as pool:
        with pytest.raises(LeaseLost, match="the lease of this run is gone, so nothing of it is written"):
            async with ctx.transaction(pool) as con:
                await con.execute(INSERT.format("stale"))
    assert await rows(url) == []
    assert (await app.aget(id)).state is State.READY


async def test_a_commit_whose_answer_is_lost_is_asked_for(app: Hawser, url: str):
    """The store says whether it was committed: no guess, no second payment."""

    @app.task(backoff=SOON, max_attempts=3)
    async def pay(ctx: Context) -> None:
        async with by_pool(url) as pool:
            async with ctx.transaction(pool) as con:
                await con.execute(INSERT.format(f"lease {ctx.lease}"))
            raise OSError("the line was cut: nothing was heard of the commit")

    job = await ran(app, pay, (await pay.aenqueue()).id)
    assert (job.state, job.errors, await rows(url)) == (State.DONE, (), ["lease 1"])


async def test_a_transaction_that_was_not_committed_is_a_failure_though_the_handler_returns(app: Hawser, url: str):
    class Cut(asyncpg.Connection):
        """A connection that breaks at COMMIT, before the server hears of it."""

        async def execute(self, query: str, *rest: Any, **options: Any) -> Any:
            if query.startswith("COMMIT"):
                self.terminate()
                raise OSError("cut")
            return await super().execute(query, *rest, **options)

    @app.task(backoff=SOON, max_attempts=2)
    async def pay(ctx: Context) -> str:
        con = await asyncpg.connect(dsn(url), connection_class=Cut if ctx.attempt == 1 else asyncpg.Connection)
        with suppress(OSError):
            async with ctx.transaction(con):
                await con.execute(INSERT.format(f"lease {ctx.lease}"))
        await con.close()
        return "fine"

    job = await ran(app, pay, (await pay.aenqueue()).id)
    assert (job.state, await rows(url)) == (State.DONE, ["lease 2"])
    assert [str(error).partition(":")[0] for error in job.errors] == ["NotCommitted"]


async def test_leases_of_others_are_kept_while_such_a_transaction_is_open(app: Hawser, url: str):
    store = await app.store()

    @app.task
    async def pay(ctx: Context) -> None: ...

    await app.aenqueue_many([pay.job(), pay.job()])
    one, two = await store.claim([Share("default")], 2, "w1", 30)
    prepared = await store.prepare_end(_done(one))  # type: ignore[attr-defined]
    async with by_asyncpg(url) as con:
        transaction = con.transaction()
        await transaction.start()
        await prepared.arun(con)
        async with asyncio.timeout(2):
            refs = [LeaseRef(one.id, one.lease), LeaseRef(two.id, two.lease)]
            assert await store.extend("w1", refs, 60) == [LeaseStatus.HELD, LeaseStatus.HELD]
            assert [answer.said for answer in await store.settle([_done(two)])] == [Settled.SETTLED]
        await transaction.commit()
    assert [answer.said for answer in await store.settle([_done(one)])] == [Settled.REPEATED]
    assert await store.extend("w1", [LeaseRef(one.id, one.lease)], 60) == [LeaseStatus.LOST]


async def room_after_a_settlement_inside(app: Hawser, url: str) -> int:
    """Jobs that a limit of one lets run once the one before has been settled in its handler's transaction."""
    store = await app.store()
    await store.set_limit(Target("task", "pay"), Limit(running=1), Actor("test"))

    @app.task
    async def pay(ctx: Context) -> None: ...

    await app.aenqueue_many([pay.job(), pay.job(), pay.job()])
    [one] = await store.claim([Share("default")], 3, "w1", 30)
    async with by_asyncpg(url) as con:
        transaction = con.transaction()
        await transaction.start()
        await (await store.prepare_end(_done(one))).arun(con)  # type: ignore[attr-defined]
        assert await store.claim([Share("default")], 3, "w1", 30) == [], "it runs until the commit"
        await transaction.commit()
    return len(await store.claim([Share("default")], 3, "w1", 30))


async def test_a_settlement_inside_frees_the_place_of_its_limit(app: Hawser, url: str):
    assert await room_after_a_settlement_inside(app, url) == 1
    [use] = await app.alimits()
    assert use.running == 1


async def test_a_place_that_a_settlement_inside_forgets_is_noticed(app: Hawser, url: str):
    async with by_asyncpg(url) as con:
        job = f"{own_schema()}_settling.job"
        await con.execute(f"alter table {job} disable trigger job_removed")
        try:
            assert await room_after_a_settlement_inside(app, url) == 0
        finally:
            await con.execute(f"alter table {job} enable trigger job_removed")


def _done(job: Any) -> Any:
    return Settlement(job.id, job.lease, Done(), hint=job.hint)


async def test_what_cannot_be_is_named_and_nothing_is_lost(app: Hawser, url: str, tmp_path):
    store = await app.store()

    @app.task
    async def pay(ctx: Context) -> None: ...

    id = (await pay.aenqueue()).id
    [job] = await store.claim([Share("default")], 1, "w1", 30)

    async def entered(target: Any) -> None:
        async with pay.new_context(job, InlineRun()).transaction(target):
            pass

    async def tried(target: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            await entered(target)
        return str(caught.value)

    async with by_asyncpg(url) as con:
        async with con.transaction():
            assert "a transaction is open on this asyncpg.connection.Connection already" in await tried(con)
        await con.execute("set default_transaction_isolation = 'repeatable read'")
        assert "it runs under repeatable read" in await tried(con)
    assert "is not known here; give a pool or connection of asyncpg" in await tried(object())
    with by_psycopg(url) as con:
        assert "is synchronous; use `with`" in await tried(con)
    async with by_asyncpg(url) as con:
        with pytest.raises(ConfigError, match="is asynchronous; use `async with`"):
            pay.new_context(job, InlineRun()).transaction(con).__enter__()
    elsewhere = Hawser("memory://")

    @elsewhere.task(name="pay")
    async def pay_elsewhere(ctx: Context) -> None: ...

    with pytest.raises(ConfigError, match="only sqlite:/// and postgresql:// stores can settle"):
        await pay_elsewhere.new_context(job, InlineRun()).transaction(object()).__aenter__()
    assert (await app.aget(id)).state is State.RUNNING
    assert await rows(url) == []


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg", "sqlalchemy"])
async def test_a_transaction_inside_of_another_is_refused_by_every_driver(app: Hawser, url: str, driver: str):
    """It would be a savepoint: its end is not the end of what settles the job."""

    @app.task
    async def pay(ctx: Context) -> None: ...

    id = (await pay.aenqueue()).id
    [job] = await (await app.store()).claim([Share("default")], 1, "w1", 30)

    async def refused(target: Any) -> None:
        with pytest.raises(ConfigError, match=r"a transaction is open on this .* already, so its end would not settle the job"):
            async with pay.new_context(job, InlineRun()).transaction(target):
                pass

    if driver == "asyncpg":
        async with by_asyncpg(url) as con, con.transaction(), con.transaction():
            await refused(con)
    elif driver == "psycopg":
        async with by_async_psycopg(url) as con, con.transaction(), con.transaction():
            await refused(con)
    else:
        async with by_async_engine(url) as engine, AsyncSession(engine) as session, session.begin(), session.begin_nested():
            await refused(session)
    assert (await app.aget(id)).state is State.RUNNING


@contextmanager
def in_a_savepoint(driver: str, target: Any) -> Iterator[Any]:
    """A connection or session on which a row is written, and then a savepoint is open in its transaction."""
    match driver:
        case "psycopg":
            with target.transaction():
                execute(target, INSERT.format("before"))
                with target.transaction():
                    yield target
        case "psycopg2":
            with target:
                execute(target, INSERT.format("before"))
                execute(target, "savepoint own")
                yield target
        case "engine":
            with target.connect() as con, con.begin():
                execute(con, INSERT.format("before"))
                with con.begin_nested():
                    yield con
        case "session":
            with target.begin():
                execute(target, INSERT.format("before"))
                with target.begin_nested():
                    yield target
        case "django":
            from django.db.transaction import atomic

            with mock.patch("django.db.transaction.get_connection", return_value=target), atomic():
                execute(target, INSERT.format("before"))
                with atomic():
                    yield target


@pytest.mark.parametrize("step", [False, True], ids=["transaction", "step"])
@pytest.mark.parametrize("driver", SYNC)
async def test_a_transaction_inside_of_another_is_refused_by_every_synchronous_driver(
    app: Hawser, url: str, driver: str, step: bool
):
    """What the handler has written before, and its own savepoint, are not touched."""

    @app.task
    def pay(ctx: Context) -> None: ...

    id = (await pay.aenqueue()).id
    [job] = await (await app.store()).claim([Share("default")], 1, "w1", 30)
    ctx = pay.new_context(job, InlineRun())

    def tried(own: Any) -> None:
        if step:
            ctx.step("charge", lambda con: execute(con, INSERT.format("charged")), inside=own)
        else:
            ctx.transaction(own).__enter__()

    def refused() -> None:
        with SYNC[driver](url) as target, in_a_savepoint(driver, target) as own:
            with pytest.raises(
                ConfigError, match="already, so its end would not settle the job; give one without, or commit first"
            ):
                tried(own)
            execute(own, INSERT.format("behind"))

    await asyncio.to_thread(refused)
    assert (await app.aget(id)).state is State.RUNNING
    assert await rows(url) == ["before", "behind"]


@pytest.mark.parametrize("step", [False, True], ids=["transaction", "step"])
async def test_a_connection_to_another_database_is_named(app: Hawser, url: str, step: bool):
    @app.task
    async def pay(ctx: Context) -> None: ...

    id = (await pay.aenqueue()).id
    [job] = await (await app.store()).claim([Share("default")], 1, "w1", 30)
    ctx = pay.new_context(job, InlineRun())

    async def used(con: Any) -> None:
        if step:
            await ctx.step("charge", lambda _: asyncio.sleep(0, 1), inside=con)
        else:
            async with ctx.transaction(con):
                pass

    con = await asyncpg.connect(dsn(url), database="template1")
    with pytest.raises(ConfigError, match=r"transaction: the jobs are in PostgreSQL at .*another database\? Nothing was written"):
        await used(con)
    await con.close()
    assert (await app.aget(id)).state is State.RUNNING
    assert await app.asteps(id) == []


async def test_a_follower_may_have_the_key_of_the_job_that_ends(app: Hawser, url: str):
    @app.task
    async def follower() -> None: ...

    @app.task
    async def chain(ctx: Context) -> None:
        ctx.enqueue(app.tasks["chain"].using(key="k", delay=3600).job())
        async with by_asyncpg(url) as con, ctx.transaction(con) as own:
            await own.execute(INSERT.format("chained"))
        with pytest.raises(ConfigError, match="before its block ends"):
            ctx.enqueue(follower.job())

    first = await chain.using(key="k").aenqueue()
    assert (await ran(app, chain, first.id)).state is State.DONE
    [next_one] = (await app.afind(parent_id=first.id)).jobs
    assert (next_one.key, next_one.state) == ("k", State.READY)


async def test_followers_that_wait_for_each_other_are_released_though_none_waited_here_before(app: Hawser, url: str):
    @app.task
    async def leaf() -> None: ...

    @app.task
    async def root(ctx: Context) -> None:
        first = leaf.job()
        ctx.enqueue(first, leaf.job().after(first))
        async with by_asyncpg(url) as con, ctx.transaction(con) as own:
            await own.execute(INSERT.format("root"))

    handle = await root.aenqueue()
    await ran(app, root, handle.id)
    store = await app.store()
    async with asyncio.timeout(20):
        while any(not job.state.finished for job in (await app.afind(task="leaf")).jobs):
            for claimed in await store.claim([Share("default")], 5, "w1", 30):
                await store.settle([Settlement(claimed.id, claimed.lease, Done(), hint=claimed.hint)])
            await store.reclaim(10)
            await asyncio.sleep(0.01)


async def test_a_transaction_that_is_left_open_behind_its_settlement_is_cut_off(app: Hawser, url: str):
    """Reclaimers wait for the row of the job. A frozen process must not stop them."""

    @app.task
    async def frozen() -> None: ...

    await frozen.aenqueue()
    store: Any = await app.store()
    [run] = await store.claim([Share("default")], 1, "w1", 30)
    prepared = await store.prepare_end(Settlement(run.id, run.lease, Done()))
    async with by_asyncpg(url) as con, con.transaction():
        await prepared.arun(con)
        assert await con.fetchval("select current_setting('idle_in_transaction_session_timeout')") == "10s"
