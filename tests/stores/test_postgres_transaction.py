"""Enqueueing in a transaction of the user's own, with every driver that Hawser can enqueue on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import psycopg
import psycopg2
import pytest
import sqlalchemy
import sqlalchemy.orm
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from hawser import ConfigError, Hawser, InvalidJob, QueueFull
from hawser.limit import Limit
from hawser.outcome import Done
from hawser.store import Actor, Retention, Settlement, Share, Target
from tests.postgres import emptied, own_schema, server, until_it_blocks, versions, with_schema


class GoBack(Exception):
    """Ends a transaction without a commit."""


@pytest.fixture(params=versions())
async def url(request):
    url = with_schema(server(request.param), f"{own_schema()}_inside")
    await emptied(url)
    return url


@pytest.fixture
async def app(url):
    app = Hawser(url)

    @app.task
    async def mail(to: str) -> None: ...

    await app.aopen()
    yield app
    await app.aclose()
    await asyncio.to_thread(app.close)


def dsn(url: str) -> str:
    """The server without our own settings."""
    return url.partition("&schema")[0]


def of(url: str, driver: str) -> Any:
    """The server as SQLAlchemy names it."""
    parts = urlsplit(dsn(url))
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    return sqlalchemy.URL.create(f"postgresql+{driver}", username=parts.username, database="postgres", query=query)


@contextmanager
def by_psycopg(url):
    with psycopg.connect(dsn(url)) as con:
        yield con


@contextmanager
def by_psycopg2(url):
    con = psycopg2.connect(dsn(url))
    try:
        with con:
            yield con
    finally:
        con.close()


@contextmanager
def by_sqlalchemy(url, driver="psycopg"):
    engine = sqlalchemy.create_engine(of(url, driver))
    try:
        with engine.begin() as con:
            yield con
    finally:
        engine.dispose()


@contextmanager
def by_session(url):
    engine = sqlalchemy.create_engine(of(url, "psycopg"))
    try:
        with sqlalchemy.orm.Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


@contextmanager
def by_django(url):
    import django
    from django.conf import settings

    parts = {name: values[0] for name, values in parse_qs(urlsplit(dsn(url)).query).items()}
    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()
    from django.db import ConnectionHandler

    database = {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "USER": "postgres", "HOST": parts["host"]}
    handler = ConnectionHandler({"default": {**database, "PORT": parts["port"]}})
    con = handler["default"]
    try:
        con.set_autocommit(False)
        try:
            yield con
        except BaseException:
            con.rollback()
            raise
        con.commit()
    finally:
        con.close()


SYNC = {
    "psycopg": by_psycopg,
    "psycopg2": by_psycopg2,
    "sqlalchemy": by_sqlalchemy,
    "sqlalchemy-psycopg2": lambda url: by_sqlalchemy(url, "psycopg2"),
    "session": by_session,
    "django": by_django,
}


@asynccontextmanager
async def by_asyncpg(url) -> AsyncIterator[Any]:
    con = await asyncpg.connect(dsn(url))
    try:
        async with con.transaction():
            yield con
    finally:
        await con.close()


@asynccontextmanager
async def by_pool(url) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(dsn(url), min_size=1) as pool, pool.acquire() as con, con.transaction():
        yield con


@asynccontextmanager
async def by_async_psycopg(url) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(dsn(url)) as con:
        yield con


@asynccontextmanager
async def by_async_sqlalchemy(url, driver="asyncpg") -> AsyncIterator[Any]:
    engine = create_async_engine(of(url, driver))
    try:
        async with engine.begin() as con:
            yield con
    finally:
        await engine.dispose()


@asynccontextmanager
async def by_async_session(url) -> AsyncIterator[Any]:
    engine = create_async_engine(of(url, "asyncpg"))
    try:
        async with AsyncSession(engine) as session, session.begin():
            yield session
    finally:
        await engine.dispose()


ASYNC = {
    "asyncpg": by_asyncpg,
    "asyncpg-pool": by_pool,
    "psycopg-async": by_async_psycopg,
    "sqlalchemy-async": by_async_sqlalchemy,
    "sqlalchemy-async-psycopg": lambda url: by_async_sqlalchemy(url, "psycopg"),
    "session-async": by_async_session,
}


async def claimed(app: Hawser) -> list[str]:
    return [job.id for job in await (await app.store()).claim([Share("default")], 100, "w", 60)]


@pytest.mark.parametrize("driver", SYNC)
async def test_a_job_is_there_from_the_commit_on(app, url, driver):
    def write():
        with SYNC[driver](url) as con:
            handle = app.tasks["mail"].inside(con).enqueue(to="a@example.com")
            many = app.inside(con).enqueue_many([app.tasks["mail"].job(to="b@example.com"), app.tasks["mail"].job(to="c")])
            named = app.inside(con).enqueue("mail", {"to": "d"}, priority=1)
            before.extend(app.find().jobs)
            return {handle.id, named.id, *(each.id for each in many)}

    before: list[Any] = []
    ids = await asyncio.to_thread(write)
    assert before == []
    assert set(await claimed(app)) == ids


@pytest.mark.parametrize("driver", SYNC)
async def test_a_rolled_back_job_never_was(app, url, driver):
    def write():
        with suppress(GoBack), SYNC[driver](url) as con:
            app.tasks["mail"].inside(con).enqueue(to="a@example.com")
            raise GoBack

    await asyncio.to_thread(write)
    assert await claimed(app) == []
    assert (await app.astats()).ready == 0


@pytest.mark.parametrize("driver", ASYNC)
async def test_a_job_is_there_from_the_commit_on_of_an_asynchronous_connection(app, url, driver):
    async with ASYNC[driver](url) as con:
        one = await app.tasks["mail"].inside(con).aenqueue(to="a@example.com")
        [other] = await app.inside(con).aenqueue_many([app.tasks["mail"].job(to="b")])
        named = await app.inside(con).aenqueue("mail", {"to": "d"})
        assert await claimed(app) == []
    assert set(await claimed(app)) == {one.id, other.id, named.id}


@pytest.mark.parametrize("driver", ASYNC)
async def test_a_job_of_an_asynchronous_connection_that_is_rolled_back_never_was(app, url, driver):
    with suppress(GoBack):
        async with ASYNC[driver](url) as con:
            await app.tasks["mail"].inside(con).aenqueue(to="a@example.com")
            raise GoBack
    assert await claimed(app) == []


async def test_a_job_of_a_long_transaction_is_found_at_once(app, url):
    """Claims have long gone past its place in the order when it is committed."""
    async with by_asyncpg(url) as con:
        late = await app.tasks["mail"].inside(con).aenqueue(to="late")
        for _ in range(20):
            other = await app.tasks["mail"].aenqueue(to="other")
            assert await claimed(app) == [other.id]
            await asyncio.sleep(0.02)  # in all, longer than claims go back for what is committed late (`LAG`)
    assert await claimed(app) == [late.id]


async def test_a_key_waits_for_the_winner_to_commit_or_go_back(app, url):
    """Exactly one job, never none and never two, whatever becomes of the first."""
    mail = app.tasks["mail"]
    for commits in (True, False):
        key = f"k{commits}"
        con = await asyncpg.connect(dsn(url))
        transaction = con.transaction()
        await transaction.start()
        first = await mail.using(key=key).inside(con).aenqueue(to="first")
        second = asyncio.create_task(mail.using(key=key).aenqueue(to="second"))
        await until_it_blocks(con)
        assert not second.done()
        await (transaction.commit() if commits else transaction.rollback())
        await con.close()
        answer = await second
        assert answer.created is not commits
        assert (answer.id == first.id) is commits
        assert len(await claimed(app)) == 1


async def test_a_full_queue_is_said_in_our_words(app, url):
    await (await app.store()).set_limit(Target("queue", "default"), Limit(max_depth=1), Actor())
    mail = app.tasks["mail"]
    with pytest.raises(QueueFull):
        async with by_asyncpg(url) as con:
            await app.inside(con).aenqueue_many([mail.job(to="a"), mail.job(to="b")])

    def write():
        for driver in ("psycopg", "sqlalchemy", "psycopg2"):
            with pytest.raises(QueueFull), SYNC[driver](url) as con:
                app.inside(con).enqueue_many([mail.job(to="a"), mail.job(to="b")])

    await asyncio.to_thread(write)
    assert await claimed(app) == []


async def test_a_member_that_waits_for_what_its_batch_releases_is_refused_inside(app, url):
    mail = app.tasks["mail"]
    then = mail.job(to="all")
    async with app.batch("import", then=then) as batch:
        con = await asyncpg.connect(dsn(url))
        with pytest.raises(InvalidJob, match="neither would ever start"):
            async with con.transaction():  # as after any refusal of the database, it can only be rolled back
                await mail.using(batch=batch.id, after=[then.id]).inside(con).aenqueue(to="a")
        async with con.transaction():
            await mail.using(batch=batch.id).inside(con).aenqueue(to="b")
        await con.close()
    assert (await app.aget_batch(batch.id)).total == 1


async def test_a_group_in_an_open_transaction_holds_up_no_other(app, url):
    """One that is known, one that is new, and jobs of the same and of other groups by others meanwhile."""

    @app.task(group="customer", limit=Limit(running=2, rate="100/s", per_group=True))
    def sync(customer: str) -> None: ...

    store = await app.store()
    await store.declare_limits({"sync": sync.options.limit})
    await app.aenqueue_many([sync.job(customer="a"), sync.job(customer="b")])
    con = await asyncpg.connect(dsn(url))
    transaction = con.transaction()
    await transaction.start()
    await app.inside(con).aenqueue_many([sync.job(customer="a"), sync.job(customer="new")])
    async with asyncio.timeout(5):
        await app.aenqueue_many([sync.job(customer=each) for each in ("a", "z", "new")])
        runs = await store.claim([Share("default")], 10, "w1", 60)
        assert sorted(str(run.group) for run in runs) == ["a", "a", "b", "new", "z"]
        await store.settle([Settlement(run.id, run.lease, Done(), hint=run.hint) for run in runs])
        assert await store.claim([Share("default")], 10, "w1", 60) == []
        await store.prune(Retention(), {}, 100)
    await transaction.commit()
    await con.close()
    async with asyncio.timeout(5):
        runs = await store.claim([Share("default")], 10, "w1", 60)
    assert sorted(str(run.group) for run in runs) == ["a", "new"]


async def test_a_repeated_enqueue_is_not_refused_by_the_queue_that_its_first_call_has_filled(app, url):
    """The first call holds the queue's lock until its commit, and the repeat waits for it."""
    store = await app.store()
    await store.set_limit(Target("queue", "default"), Limit(max_depth=1), Actor())
    job = app.tasks["mail"].job(to="a")
    con = await asyncpg.connect(dsn(url))
    transaction = con.transaction()
    await transaction.start()
    await con.execute("select pg_advisory_xact_lock(hashtext('hawser.depth'), hashtext('default'))")
    await app.inside(con).aenqueue_many([job])
    again = asyncio.create_task(store.enqueue([job]))
    await until_it_blocks(con)
    assert not again.done()
    await transaction.commit()
    await con.close()
    assert [(answer.id, answer.created) for answer in await again] == [(job.id, False)]


def commits_at_once(url: str) -> dict[str, Any]:
    """Connections on which no transaction is open, and none begins by itself."""
    from django.db import ConnectionHandler

    with by_django(url) as con:
        settings = dict(con.settings_dict)
    by_psycopg2 = psycopg2.connect(dsn(url))
    by_psycopg2.autocommit = True
    return {
        "psycopg": psycopg.connect(dsn(url), autocommit=True),
        "psycopg2": by_psycopg2,
        "sqlalchemy": sqlalchemy.create_engine(
            of(url, "psycopg"), isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool
        ).connect(),
        "django": ConnectionHandler({"default": settings})["default"],
    }


async def test_a_connection_without_a_transaction_is_refused(app, url):
    """The job would be there though what the caller writes beside it is rolled back."""
    mail = app.tasks["mail"]

    def write():
        for driver, con in commits_at_once(url).items():
            with pytest.raises(ConfigError, match=r"inside: no transaction is open on this .*begin one first"):
                mail.inside(con).enqueue(to=driver)
            con.close()
        with psycopg.connect(dsn(url), autocommit=True) as con, con.transaction():
            return mail.inside(con).enqueue(to="a").id

    accepted = await asyncio.to_thread(write)
    plain = await asyncpg.connect(dsn(url))
    engine = create_async_engine(of(url, "asyncpg"), isolation_level="AUTOCOMMIT")
    async with engine.connect() as con:
        other = await psycopg.AsyncConnection.connect(dsn(url), autocommit=True)
        for each in (plain, con, other):
            with pytest.raises(ConfigError, match="inside: no transaction is open"):
                await mail.inside(each).aenqueue(to="a")
        await other.close()
    await engine.dispose()
    await plain.close()
    assert await claimed(app) == [accepted]


async def test_what_runs_statements_elsewhere_than_in_the_transaction_is_refused(app, url):
    mail = app.tasks["mail"]
    engine, sync = create_async_engine(of(url, "asyncpg")), sqlalchemy.create_engine(of(url, "psycopg"))
    async with asyncpg.create_pool(dsn(url), min_size=1) as pool:
        for each in (pool, engine):
            with pytest.raises(ConfigError, match=r"is not a connection; give the one on which your transaction is open"):
                await mail.inside(each).aenqueue(to="a")
    await engine.dispose()

    def write():
        with psycopg.connect(dsn(url)) as con:
            for each in (sync, con.cursor()):
                with pytest.raises(ConfigError, match=r"is not a connection; give the one"):
                    mail.inside(each).enqueue(to="a")

    await asyncio.to_thread(write)
    assert await claimed(app) == []


async def test_a_connection_to_another_database_is_named(app, url):
    con = await asyncpg.connect(dsn(url), database="template1")
    async with con.transaction():
        with pytest.raises(ConfigError, match=r"inside: the jobs are in PostgreSQL at .*another database\?"):
            await app.tasks["mail"].inside(con).aenqueue(to="a")
    await con.close()


async def test_a_connection_of_the_wrong_kind_is_named(app, url):
    mail = app.tasks["mail"]
    with pytest.raises(ConfigError, match=r"inside: builtins\.str is not a connection"):
        await mail.inside("postgresql://").aenqueue(to="a")
    async with by_asyncpg(url) as con:
        with pytest.raises(ConfigError, match="asynchronous; use aenqueue"):
            await asyncio.to_thread(mail.inside(con).enqueue, to="a")

    def psycopg_connection():
        return psycopg.connect(dsn(url))

    con = await asyncio.to_thread(psycopg_connection)
    with pytest.raises(ConfigError, match="synchronous; use enqueue"):
        await mail.inside(con).aenqueue(to="a")
    con.close()
    other = Hawser("memory://")
    task = other.task(name="mail")(lambda to: None)
    with pytest.raises(ConfigError, match="only sqlite:/// and postgresql:// stores"):
        task.inside(con).enqueue(to="a")


async def test_a_transaction_older_than_the_task_is_asked_to_begin_again(app, url):
    """It cannot see what was made for the task since, and must not be told that the database was set back."""
    con = await asyncpg.connect(dsn(url))
    try:
        for accepted in (False, True):
            transaction = con.transaction(isolation="repeatable_read")
            await transaction.start()
            await con.fetchval("select count(*) from pg_class")
            if accepted:
                await app.inside(con).aenqueue("mail", {"to": "a"}, priority=1)
                await transaction.commit()
            else:
                with pytest.raises(asyncpg.SerializationError, match="repeat it"):
                    await app.inside(con).aenqueue("mail", {"to": "a"}, priority=1)
                await transaction.rollback()
    finally:
        await con.close()


async def test_a_transaction_that_enqueues_many_times_has_no_subtransactions(app, url):
    """With more than 64 of them the server looks every one up, for everybody, until the transaction ends."""
    con = await asyncpg.connect(dsn(url))
    try:
        async with con.transaction():
            for _ in range(3):
                await app.inside(con).aenqueue("mail", {"to": "a"})
            own = await con.fetchval("select pg_current_xact_id()::xid::text")
            rows = await con.fetch(f"select xmin::text from {parse_qs(urlsplit(url).query)['schema'][0]}.job")
    finally:
        await con.close()
    assert [row[0] for row in rows] == [own] * 3
