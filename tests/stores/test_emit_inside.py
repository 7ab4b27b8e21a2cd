"""An event that is emitted in a transaction of the user's own: jobs hear of it exactly if that commits, with every driver."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hawser import ConfigError, Hawser
from hawser.job import Claimed, NewJob, State
from hawser.outcome import Done, Held
from hawser.store import Arrival, NewStep, RecordedStep, Retention, Settlement, Share
from tests.postgres import until_it_blocks
from tests.redis_servers import kinds, own_store, shared
from tests.stores.test_postgres_settling import app, url
from tests.stores.test_postgres_transaction import ASYNC, SYNC, GoBack, by_asyncpg, dsn
from tests.stores.test_step_inside import orders, shop

__all__ = ["app", "shop", "url"]  # fixtures


async def running(app: Hawser) -> Claimed:
    """A run of a job of its own."""
    store = await app.store()
    job = NewJob(task="ship", body=b"{}")
    await store.enqueue([job])
    [run] = await store.claim([Share("default")], 1, "w1", 60)
    assert run.id == job.id
    return run


async def hold(app: Hawser, run: Claimed, event: str = "paid", timeout: float | None = None) -> None:
    store = await app.store()
    await store.settle([Settlement(run.id, run.lease, Held(event, event=event, timeout=timeout))])


async def held(app: Hawser, event: str = "paid", timeout: float | None = None) -> str:
    """A job that waits for an event."""
    run = await running(app)
    await hold(app, run, event, timeout)
    assert await waits(app, run.id)
    return run.id


async def waits(app: Hawser, id: str) -> bool:
    job = await app.aget(id)
    return job.state is State.READY and job.held


async def arrive(app: Hawser, run: Claimed, event: str = "paid") -> RecordedStep:
    step = await (await app.store()).arrive(Arrival(id=run.id, lease=run.lease, name=event, event=event))
    assert step is not None
    return step


async def woken(app: Hawser, *, reclaims: bool = True) -> dict[str, tuple[str, Any]]:
    """What each job that may go on now comes to: the kind and the value of its step. Another process looks, if asked for."""
    store = await app.store()
    if reclaims:
        await store.reclaim(10)
    runs = await store.claim([Share("default")], 100, "w2", 60)
    steps = [await arrive(app, run) for run in runs]
    await store.settle([Settlement(run.id, run.lease, Done(), hint=run.hint) for run in runs])
    return {run.id: (step.kind, step.value) for run, step in zip(runs, steps, strict=True)}


@asynccontextmanager
async def open_emit(app: Hawser, url: str, *, commits: bool = True):
    """A transaction that has emitted and is open meanwhile."""
    con = await asyncpg.connect(dsn(url))
    try:
        transaction = con.transaction()
        await transaction.start()
        emitted = await app.inside(con).aemit("paid", {"cents": 5})
        assert emitted.created
        assert emitted.same
        yield con
        await (transaction.commit() if commits else transaction.rollback())
    finally:
        await con.close()


# PostgreSQL, with every driver.


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("driver", SYNC)
async def test_a_commit_wakes_and_a_rollback_leaves_nothing(app: Hawser, url: str, driver: str, commits: bool):
    def write() -> None:
        with suppress(GoBack), SYNC[driver](url) as con:
            emitted = app.inside(con).emit("paid", {"cents": 5})
            assert emitted.created
            between.append((app.event("paid"), app.get(id).held))
            if not commits:
                raise GoBack

    between: list[Any] = []
    id = await held(app)
    await asyncio.to_thread(write)
    assert between == [(None, True)]
    await _as_committed(app, id, commits=commits)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("driver", ASYNC)
async def test_a_commit_wakes_and_a_rollback_leaves_nothing_on_asynchronous_connections(
    app: Hawser, url: str, driver: str, commits: bool
):
    id = await held(app)
    with suppress(GoBack):
        async with ASYNC[driver](url) as con:
            emitted = await app.inside(con).aemit("paid", {"cents": 5})
            assert emitted.created
            assert (await app.aevent("paid"), await woken(app)) == (None, {})
            if not commits:
                raise GoBack
    await _as_committed(app, id, commits=commits)


async def _as_committed(app: Hawser, id: str, *, commits: bool) -> None:
    if not commits:
        assert (await app.aevent("paid"), await woken(app), await waits(app, id)) == (None, {}, True)
        assert (await app.aemit("paid", {"cents": 7})).created, "the name is free"
    assert await woken(app) == {id: ("event", {"cents": 5 if commits else 7})}
    repeated = await app.aemit("paid", {"cents": 5})
    assert (repeated.created, repeated.same) == (False, commits)


async def test_a_wait_from_before_during_or_after_the_transaction_is_woken(app: Hawser, url: str):
    """Before its commit other processes look, and find nothing: what they took away comes with the commit once more."""
    before = await held(app)
    async with open_emit(app, url):
        during = await running(app)
        assert (await arrive(app, during)).open
        await hold(app, during)
        for _ in range(3):
            assert await woken(app) == {}
        late = await running(app)
        assert (await arrive(app, late)).open
    came = "event", {"cents": 5}
    assert await woken(app) == {before: came, during.id: came}
    # This one has looked before the commit, and is held behind it: its settlement finds the event.
    await hold(app, late)
    assert await woken(app, reclaims=False) == {late.id: came}


async def test_what_waits_is_woken_though_the_process_that_emitted_has_died(app: Hawser, url: str):
    """Its connection is cut behind the commit: another process, which never heard of the event, goes on with the job."""
    id = await held(app)
    async with open_emit(app, url) as con:
        pass
    assert con.is_closed()
    other = Hawser(url)
    await other.aopen()
    try:
        await (await other.store()).reclaim(10)
    finally:
        await other.aclose()
    assert await woken(app, reclaims=False) == {id: ("event", {"cents": 5})}


@pytest.mark.parametrize("commits", [True, False])
async def test_a_second_emitter_waits_for_the_end_of_the_first(app: Hawser, url: str, commits: bool):
    """One event, never none and never two, whatever becomes of the first."""
    id = await held(app)
    async with open_emit(app, url, commits=commits) as con:
        second = asyncio.create_task(app.aemit("paid", {"cents": 7}))
        await until_it_blocks(con)
        assert not second.done()
    emitted = await second
    assert (emitted.created, emitted.same) == (not commits, not commits)
    assert await woken(app) == {id: ("event", {"cents": 5 if commits else 7})}


@pytest.mark.parametrize("commits", [True, False])
async def test_a_second_transaction_waits_for_the_end_of_the_first(app: Hawser, url: str, commits: bool):
    async def emit_second() -> bool:
        async with by_asyncpg(url) as con:
            return (await app.inside(con).aemit("paid", {"cents": 7})).created

    id = await held(app)
    async with open_emit(app, url, commits=commits) as con:
        second = asyncio.create_task(emit_second())
        await until_it_blocks(con)
    assert await second is not commits
    assert await woken(app) == {id: ("event", {"cents": 5 if commits else 7})}


async def test_a_long_transaction_keeps_no_other_from_going_on(app: Hawser, url: str):
    """Waits for its event and for others, their ends, steps, prunes: all go on while it is open."""
    store = await app.store()
    first = await held(app)
    async with open_emit(app, url), asyncio.timeout(20):
        other = await held(app, "packed")
        assert (await app.aemit("packed", 1)).created
        [again] = await store.claim([Share("default")], 10, "w1", 60)
        assert (again.id, (await arrive(app, again, "packed")).value) == (other, 1)
        run = await running(app)
        assert (await arrive(app, run)).open
        await store.record_steps([NewStep(id=run.id, lease=run.lease, name="charge", value=b"1")])
        await hold(app, run, timeout=0.0)
        assert await woken(app) == {run.id: ("timeout", None)}
        await store.prune(Retention(), {}, 100)
        assert (await app.aevent("paid"), await waits(app, first)) == (None, True)
    assert await woken(app) == {first: ("event", {"cents": 5})}


async def test_a_connection_elsewhere_is_named(app: Hawser, url: str):
    con = await asyncpg.connect(dsn(url), database="template1")
    try:
        async with con.transaction():
            with pytest.raises(ConfigError, match=r"inside: the events are in PostgreSQL at .*another database\?"):
                await app.inside(con).aemit("paid")
    finally:
        await con.close()


# SQLite.


@pytest.fixture
def con(shop: tuple[Hawser, Path]):
    with closing(sqlite3.connect(shop[1])) as con:
        yield con


@pytest.mark.parametrize("commits", [True, False])
async def test_on_sqlite_the_commit_wakes_and_a_rollback_leaves_nothing(
    shop: tuple[Hawser, Path], con: sqlite3.Connection, commits: bool
):
    """The jobs are ready with the commit itself: no other process has to look."""
    app, path = shop
    id = await held(app)
    con.execute("begin immediate")
    con.execute("insert into orders values ('paid')")
    emitted = app.inside(con).emit("paid", {"cents": 5})
    assert (emitted.created, emitted.same) == (True, True)
    assert (await app.aevent("paid"), await waits(app, id)) == (None, True)
    if commits:
        con.commit()
        assert await woken(app, reclaims=False) == {id: ("event", {"cents": 5})}
    else:
        con.rollback()
        await _as_committed(app, id, commits=False)
    assert orders(path) == ["paid"] * commits


async def test_on_sqlite_a_wait_and_a_second_emitter_come_behind_the_transaction(
    shop: tuple[Hawser, Path], con: sqlite3.Connection
):
    """There is one writer: both wait for the commit, and find what it has written."""
    app, _ = shop
    run = await running(app)
    con.execute("begin immediate")
    assert app.inside(con).emit("paid", {"cents": 5}).created
    waiting = asyncio.create_task(hold(app, run))
    second = asyncio.create_task(app.aemit("paid", {"cents": 7}))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert not second.done()
    con.commit()
    await waiting
    emitted = await second
    assert (emitted.created, emitted.same) == (False, False)
    assert await woken(app, reclaims=False) == {run.id: ("event", {"cents": 5})}


async def test_on_sqlite_the_first_of_two_events_in_one_transaction_stays(shop: tuple[Hawser, Path], con: sqlite3.Connection):
    app, _ = shop
    con.execute("begin immediate")
    first, second = app.inside(con).emit("paid", 1), app.inside(con).emit("paid", 2)
    con.commit()
    assert (first.created, second.created, second.same) == (True, False, False)
    found = await app.aevent("paid")
    assert found is not None
    assert found.value == 1


async def test_on_sqlite_an_asynchronous_call_is_refused(shop: tuple[Hawser, Path], con: sqlite3.Connection):
    app, _ = shop
    con.execute("begin immediate")
    with pytest.raises(ConfigError, match="is synchronous; use emit"):
        await app.inside(con).aemit("paid")
    con.rollback()


# The others.


@pytest.mark.parametrize("store", ["memory", *kinds()])
async def test_a_store_without_such_transactions_refuses(store: str):
    app = Hawser("memory://" if store == "memory" else own_store(shared(store)))
    await app.aopen()
    try:
        with closing(sqlite3.connect(":memory:")) as con, pytest.raises(ConfigError, match="emit after your commit instead"):
            await app.inside(con).aemit("paid")
        assert await app.aevent("paid") is None
    finally:
        await app.aclose()
