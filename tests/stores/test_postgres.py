"""What is particular to the PostgreSQL store: days, deadlines, wake-ups, frontiers, durability, its schema."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from hawser.clock import to_us
from hawser.errors import ConfigError, OutcomeUnknown, SchemaTooNew, StoreUnavailable
from hawser.job import FOREVER, Claimed, NewJob
from hawser.lab.cluster import Cluster
from hawser.outcome import Done
from hawser.store import Filter, QueueStats, Retention, Settled, Settlement, Share, Store
from hawser.stores import make_store
from hawser.stores.postgres import PostgresStore, frontier, migrate, wake
from hawser.stores.postgres.address import parse
from hawser.stores.postgres.history import History
from hawser.stores.schema import Migration
from hawser.testing import ManualClock
from hawser.testing.contract.making import said
from hawser.value.ids import new_id
from tests.postgres import emptied, new_schema, own_schema, postgres, server, versions, with_schema
from tests.until import until

DAY = 86_400.0
KEEP = Retention(done=7 * DAY)


@pytest.fixture(scope="module", params=versions())
def database(request):
    return server(request.param)


@pytest.fixture
async def url(database):
    url = with_schema(database, f"{own_schema()}_own")
    await emptied(url)
    return url


@pytest.fixture
def clock():
    return ManualClock()


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[PostgresStore]:
    store = postgres(url, **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def store(url, clock):
    async with opened(url, clock=clock) as store:
        yield store


def job(**fields: Any) -> NewJob:
    return NewJob(**({"task": "work", "body": b"{}"} | fields))


async def take(store: Store, limit: int = 100) -> list[Claimed]:
    return await store.claim([Share("default")], limit, "w", 60)


async def finish(store: Store, *jobs: NewJob) -> None:
    await store.enqueue(jobs)
    await store.settle([Settlement(each.id, each.lease, Done(), hint=each.hint) for each in await take(store)])


async def rows(store: PostgresStore, sql: str, *arguments: Any) -> Any:
    return await store.server.connection("read").rows(
        sql.replace("hawser.", f"{store.address.schema}."), *arguments, writing=False
    )


async def test_a_large_day_goes_as_a_whole_when_its_last_job_may(store, clock):
    history = History(store.server, store.catalog, small=0)
    old = [job(), job(key="k", key_ttl=FOREVER)]
    await finish(store, *old)
    clock.advance(7 * DAY)
    assert await history.prune(KEEP, {}, 1) == 0, "some of that day may still be wanted"
    assert await store.get(old[0].id) is not None
    fresh = job()
    await finish(store, fresh)
    clock.advance(DAY)
    assert await history.prune(KEEP, {}, 1) == 2, "a whole day goes at once, whatever the limit"
    assert (await store.find(Filter())).jobs == [await store.get(fresh.id)]
    stats = await store.stats()
    assert (stats.done, stats.keys) == (1, 0)
    assert (await store.enqueue([job(key="k")]))[0].created
    days = [
        name for (name,) in await rows(store, "select relname from pg_class where relname like 'done\\_2%' and relkind = 'r'")
    ]
    assert f"done_{to_us(0)}" not in days


async def test_jobs_of_a_task_with_a_short_retention_leave_a_large_day_early(store, clock):
    history = History(store.server, store.catalog, small=0)
    brief, usual = [job(task="brief") for _ in range(5)], job()
    await finish(store, *brief, usual)
    clock.advance(DAY)
    by_task = {"brief": Retention(done=3600)}
    assert [await history.prune(KEEP, by_task, 3) for _ in range(3)] == [3, 2, 0]
    assert [found.id for found in (await store.find(Filter())).jobs] == [usual.id]
    assert (await store.stats()).done == 1


async def test_a_day_whose_detaching_was_interrupted_is_taken_away_by_the_next_prune(store, clock):
    old = job()
    await finish(store, old)
    day = clock.now() // to_us(DAY)
    schema = store.address.schema
    await store.server.connection("operate").rows(f"alter table {schema}.done detach partition {schema}.done_{day}")
    clock.advance(8 * DAY)
    await store.prune(KEEP, {}, 100)
    assert await rows(store, f"select to_regclass('hawser.done_{day}') is null") == [(True,)]
    assert (await store.stats()).done == 0


async def test_a_day_that_nobody_made_is_made_when_a_job_is_done(store, clock):
    clock.advance(400 * DAY)
    one = job()
    await finish(store, one)
    assert (await store.get(one.id)).state == "done"


@pytest.mark.parametrize("then", [(), (NewJob(task="next", body=b"{}"),)], ids=["alone", "with a job that follows"])
async def test_a_day_is_made_when_the_clock_was_set_back_to_one_without_a_table(store, clock, then):
    one = job()
    await store.enqueue([one])
    [run] = await take(store)
    clock.advance(-3 * DAY)
    assert said(await store.settle([Settlement(run.id, run.lease, Done(), then, hint=run.hint)])) == [Settled.SETTLED]
    found = await store.get(one.id)
    assert (found.state, found.attempt) == ("done", 1)


async def test_an_outcome_waits_when_its_day_cannot_be_made_yet(store, clock):
    """The table of a day that is being removed is still there under its name: it must not be taken for a fault of the job."""
    await store.enqueue([job()])
    [run] = await take(store)
    day, schema = clock.now() // to_us(DAY), store.address.schema
    await store.server.connection("operate").rows(f"alter table {schema}.done detach partition {schema}.done_{day}")
    with pytest.raises(StoreUnavailable, match="is being removed"):
        await store.settle([Settlement(run.id, run.lease, Done())])
    await store.prune(KEEP, {}, 100)
    assert said(await store.settle([Settlement(run.id, run.lease, Done())])) == [Settled.SETTLED]


async def test_a_job_that_failed_before_it_was_done_takes_its_attempts_along(store):
    from hawser.outcome import Failed, Failure

    one = job()
    await store.enqueue([one])
    [claimed] = await take(store)
    await store.settle([Settlement(claimed.id, claimed.lease, Failed(Failure("ValueError: no", "Traceback …")))])
    [claimed] = await take(store)
    await store.settle([Settlement(claimed.id, claimed.lease, Done())])
    assert [str(each) for each in (await store.get(one.id)).attempts] == ["ValueError: no", "done"]
    assert await rows(store, "select count(*) from hawser.attempt") == [(0,)]


async def test_counts_are_the_same_before_and_after_they_are_added_up(store):
    await finish(store, *(job() for _ in range(10)))
    await store.enqueue([job(), job(delay=60)])
    before = await store.stats()
    assert (await rows(store, "select count(*) from hawser.counted"))[0][0] > 0
    await store.reclaim(10)
    assert await rows(store, "select count(*) from hawser.counted") == [(0,)]
    assert await store.stats() == before


async def test_counts_are_added_up_where_no_worker_runs(store):
    for _ in range(510):
        await store.enqueue([job()])

    async def added_up() -> bool:
        return bool((await rows(store, "select count(*) from hawser.counted"))[0][0] < 200)

    await until(added_up)
    assert (await store.stats()).ready == 510


async def test_many_jobs_of_one_call_are_copied_and_repeated_without_a_second_one(store):
    jobs = [job(delay=1 if n % 2 else 0, tags=("x",)) for n in range(5_000)]
    assert all(answer.created for answer in await store.enqueue(jobs))
    await store.settle([Settlement(each.id, each.lease, Done()) for each in await take(store, 10)])
    more = [*jobs, *(job() for _ in range(10))]
    answers = await store.enqueue(more)
    assert [answer.created for answer in answers] == [False] * 5_000 + [True] * 10
    stats = await store.stats()
    assert (stats.ready, stats.scheduled, stats.done) == (2_500 - 10 + 10, 2_500, 10)


async def test_very_many_jobs_with_keys_and_limits_are_all_or_none(store):
    from hawser.errors import QueueFull
    from hawser.limit import Limit
    from hawser.store import Actor, Target

    await store.set_limit(Target("queue", "default"), Limit(max_depth=3_000), Actor())
    with pytest.raises(QueueFull):
        await store.enqueue([job() for _ in range(4_000)])
    assert (await store.stats()).ready == 0
    answers = await store.enqueue([job(key=f"k{n % 2_500}") for n in range(3_500)])
    assert sum(answer.created for answer in answers) == 2_500


async def test_what_becomes_visible_behind_a_claim_that_was_full_is_found_by_the_next(store, clock):
    await store.enqueue([job() for _ in range(3 * frontier.FULL)])
    clock.advance(0.01)
    assert len(await take(store, frontier.FULL)) == frontier.FULL
    assert len(await take(store, frontier.FULL)) == frontier.FULL
    assert len(await take(store, frontier.FULL)) == frontier.FULL
    late = await behind(store, clock.now() - to_us(0.02))
    assert [each.id for each in await take(store, frontier.FULL)] == [late]


async def behind(store: PostgresStore, run_at: int) -> str:
    """A job that becomes visible long after its place in the order."""
    id, schema = new_id(), store.address.schema
    await store.server.connection("operate").rows(
        f"insert into {schema}.job (id, lane, body, run_at, enqueued_at, max_attempts, timeout, kind) "
        f"select $1, id, '{{}}', $2, $2, 5, 300, 0 from {schema}.lane",
        *(id, run_at),
    )
    return id


async def test_a_claim_reads_from_the_frontier_and_a_sweep_finds_what_is_behind(store, clock):
    """As when a commit became visible long after its place in the order was passed."""
    for _ in range(20):
        await finish(store, job())
        clock.advance(1)  # more than it takes: else the clock would seem to be set back
    late = await behind(store, clock.now() - to_us(3))
    assert await take(store) == [], "it stands behind the frontier"
    clock.advance(2)
    found: list[Claimed] = []
    async with asyncio.timeout(10):
        while not found:
            found = await take(store)
            await asyncio.sleep(0.01)
    assert [each.id for each in found] == [late]


async def test_a_released_job_wakes_a_worker_of_another_process(url, monkeypatch):
    monkeypatch.setattr(wake, "POSTGRES_LOOK_AT_LAST_S", 60.0)
    async with opened(url) as waiting, opened(url) as other:
        first = job()
        await other.enqueue([first, job(queue="later").after(first.id)])
        [run] = await take(other)
        heard = await listens(waiting, "later")
        await other.settle([Settlement(run.id, run.lease, Done(), hint=run.hint)])
        await asyncio.wait_for(heard, 5)


async def listens(store, queue: str) -> asyncio.Task[None]:
    """A worker that looks by itself in half a minute only."""
    while store._wake.next_look() < 30:
        with store._wake.listening() as heard:
            await asyncio.wait((heard,), timeout=0.001)
        await asyncio.sleep(0.01)
    waiter = asyncio.create_task(store.wait([queue], 60))
    await asyncio.sleep(0.1)  # nothing may wake it, and nothing tells of that
    assert not waiter.done()
    return waiter


async def test_what_is_told_while_a_worker_asks_when_the_next_job_is_due_is_heard(url, monkeypatch):
    async with opened(url) as store:

        async def due_in(*_: object) -> None:
            store._wake.tell({"default"})

        monkeypatch.setattr(store._wake, "next_look", lambda: 30.0)
        await asyncio.wait_for(store.wait(["default"], 60), 20)  # it hears from now on
        monkeypatch.setattr(store._claims, "due_in", due_in)
        await asyncio.wait_for(store.wait(["default"], 60), 5)


async def test_a_notification_wakes_a_worker_of_another_process(url, monkeypatch):
    monkeypatch.setattr(wake, "POSTGRES_LOOK_AT_LAST_S", 60.0)
    async with opened(url) as waiting, opened(url) as other:
        waiter = await listens(waiting, "default")
        began = time.monotonic()
        await other.enqueue([job()])
        async with asyncio.timeout(10):
            await waiter
        assert time.monotonic() - began < 5


async def test_without_notifications_a_worker_looks_by_itself(url):
    async with opened(f"{url}&wake=poll") as waiting, opened(f"{url}&wake=poll") as other:
        for _ in range(20):
            waiting._wake.next_look()
        await other.enqueue([job()])
        async with asyncio.timeout(5):
            while not await take(waiting):
                await waiting.wait(["default"], 60)


async def test_a_call_that_is_not_answered_in_time_has_an_unknown_outcome(url):
    one = job()
    async with opened(f"{url}&timeout=0.5") as store, opened(url) as other:
        await store.enqueue([job()])
        con = await asyncpg.connect(store.address.dsn)
        async with con.transaction():
            await con.execute(f"lock table {store.address.schema}.job in access exclusive mode")
            began = time.monotonic()
            with pytest.raises(OutcomeUnknown):
                await store.enqueue([one])
            assert time.monotonic() - began < 3
            with pytest.raises(StoreUnavailable):
                await store.get(one.id)
        await con.close()
        # The statement was not cancelled: it may well have been written.
        await other.enqueue([one])
        assert [found.id for found in (await other.find(Filter())).jobs].count(one.id) == 1


async def test_a_connection_that_broke_is_made_again(store):
    await store.enqueue([job()])
    pid = await store.server.connection("enqueue").value("select pg_backend_pid()")
    await store.server.connection("operate").rows("select pg_terminate_backend($1)", pid)

    async def accepted() -> bool:
        try:
            await store.enqueue([job()])
        except (OutcomeUnknown, StoreUnavailable):
            return False
        return True

    await until(accepted)
    assert (await store.stats()).ready >= 2


async def test_what_the_server_asks_to_repeat_is_repeated(store):
    tries = 0

    async def work(con):
        nonlocal tries
        tries += 1
        if tries < 4:
            await con.execute("do $$ begin raise exception 'deadlock' using errcode = '40P01'; end $$")
        return tries

    assert await store.server.connection("operate").together(work) == 4


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("duraility=relaxed", "store: unknown setting 'duraility' in the URL; did you mean 'durability'?"),
        ("colour=red", "store: unknown setting 'colour' in the URL; ours are schema, durability, timeout"),
    ],
)
async def test_a_setting_that_nobody_knows_is_named(database: str, setting: str, said: str):
    store = postgres(f"{with_schema(database, own_schema())}&{setting}")
    with pytest.raises(ConfigError) as caught:
        await store.open()
    assert said in str(caught.value)
    await store.close()


async def test_settings_of_the_driver_and_of_the_server_pass(url: str):
    async with opened(f"{url}&lock_timeout=5s&sslmode=prefer&target_session_attrs=any&my.own=1") as store:
        assert (await store.stats()).ready == 0


async def test_a_server_that_is_not_there_is_named_at_once():
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"cannot connect to PostgreSQL at 127\.0\.0\.1:1/nowhere"):
        await make_store("postgresql://nobody:secret@127.0.0.1:1/nowhere").open()
    assert time.monotonic() - began < 4


async def test_a_first_host_that_says_nothing_does_not_keep_short_calls_from_the_second():
    """Dialling goes on from call to call: each of them is shorter than what the first host is given."""
    with socket.create_server(("127.0.0.1", 0)) as silent, Cluster() as cluster:
        made = PostgresStore(parse(cluster.url))
        await made.open()
        await made.close()
        hosts = f"127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{cluster.port}"
        store = PostgresStore(parse(f"postgresql://postgres@{hosts}/postgres?connect_timeout=2&timeout=0.7"))
        asked = 0
        while await _read(store) is None and asked < 30:
            asked += 1
        assert 0 < asked < 30
        await store.close()


async def _read(store: PostgresStore) -> QueueStats | None:
    with suppress(StoreUnavailable, OutcomeUnknown):
        return await store.stats("default")
    return None


async def test_the_host_that_takes_writes_is_used(database):
    with Cluster() as cluster:
        url = f"postgresql://postgres@127.0.0.1:1,127.0.0.1:{cluster.port}/postgres?connect_timeout=2"
        async with opened(url) as store:
            await store.enqueue([job()])
            assert (await store.stats()).ready == 1


async def test_a_server_that_may_lose_what_it_answered_is_refused(database):
    if "://" in versions()[0]:
        pytest.skip("the settings of a server that was named are its owner's")
    with pytest.raises(ConfigError, match=r"store: fsync is off .*\?durability=relaxed"):
        await make_store(database + f"&schema={new_schema()}").open()


async def test_a_commit_that_no_standby_has_is_unknown():
    """Somebody cancels our statement while it waits for the standby: the server then says success, with a warning."""
    with Cluster() as cluster:
        async with opened(cluster.url) as store:
            await store.enqueue([job()])
            con = await asyncpg.connect(cluster.url)
            await con.execute("alter system set synchronous_standby_names = 'nobody'")
            await con.execute("select pg_reload_conf()")
            async with asyncio.timeout(10):
                while await store.server.connection("enqueue").value("show synchronous_standby_names") != "nobody":
                    await asyncio.sleep(0.01)
            cancelled = False
            async with asyncio.timeout(30):
                while not cancelled:  # a session waits as soon as the checkpointer, too, has read the setting
                    lost = asyncio.create_task(store.enqueue([job()]))
                    while not lost.done():
                        waiting = "select bool_or(pg_cancel_backend(pid)) from pg_stat_activity where wait_event = 'SyncRep'"
                        cancelled = await con.fetchval(waiting) or cancelled
                        await asyncio.sleep(0.05)
            with pytest.raises(OutcomeUnknown, match="standby"):
                lost.result()
            await con.execute("alter system reset synchronous_standby_names")
            await con.execute("select pg_reload_conf()")
            await con.close()


async def test_what_was_accepted_is_there_after_the_server_was_killed():
    with Cluster() as cluster:
        store = make_store(cluster.url)
        await store.open()
        accepted: list[str] = []
        stopped = asyncio.Event()

        async def produce() -> None:
            while not stopped.is_set():
                one = job()
                try:
                    await store.enqueue([one])
                    accepted.append(one.id)
                except (OutcomeUnknown, StoreUnavailable):
                    await asyncio.sleep(0.02)

        producers = [asyncio.create_task(produce()) for _ in range(8)]

        async def some_more() -> None:
            wanted = len(accepted) + 20
            async with asyncio.timeout(30):
                while len(accepted) < wanted:
                    await asyncio.sleep(0.01)

        for _ in range(3):
            await some_more()
            await asyncio.to_thread(cluster.kill)
            await asyncio.to_thread(cluster.start)
        await some_more()
        stopped.set()
        await asyncio.gather(*producers)
        there = set()
        while found := await take(store, 1_000):
            there |= {each.id for each in found}
        await store.close()
        assert len(accepted) > 100
        assert set(accepted) <= there


async def test_a_newer_schema_is_refused(url):
    async with opened(url) as store:
        await store.server.connection("operate").rows(f"update {store.address.schema}.meta set value = '99'")
        try:
            with pytest.raises(SchemaTooNew, match="the schema has version 99"):
                await make_store(url).open()
        finally:
            newest = migrate.migrations()[-1].version
            await store.server.connection("operate").rows(f"update {store.address.schema}.meta set value = '{newest}'")


async def test_many_that_open_a_new_store_at_once_make_it_once(database):
    url = with_schema(database, new_schema())
    stores = [postgres(url) for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    await stores[0].enqueue([job()])
    assert (await stores[1].stats()).ready == 1
    await stores[0].server.connection("operate").rows(f"drop schema {stores[0].address.schema} cascade")
    for store in stores:
        await store.close()


async def test_a_live_migration_runs_beside_those_who_write(url):
    """An index is built concurrently, which no transaction may do."""
    async with opened(url) as store:
        schema = store.address.schema
        step = Migration(99, "create index concurrently if not exists job_live on hawser.job (worker);\n", live=True)
        con = await asyncpg.connect(store.address.dsn)
        try:
            await migrate.migrate(con, schema, [*migrate.migrations(), step])
            assert await migrate.version_of(con, schema) == 99
            assert await con.fetchval("select to_regclass($1) is not null", f"{schema}.job_live")
        finally:
            newest = migrate.migrations()[-1].version
            await con.execute(f"drop index if exists {schema}.job_live; update {schema}.meta set value = '{newest}'")
            await con.close()


async def test_no_schema_is_made_through_a_pooler(database):
    url = with_schema(database, new_schema())
    with pytest.raises(ConfigError, match="does not go through the pooler"):
        await make_store(f"{url}&pooled=yes").open()


async def test_a_store_works_with_nothing_kept_in_the_session(url):
    async with opened(f"{url}&pooled=yes&wake=poll") as store:
        await finish(store, *(job(key=f"k{n}") for n in range(20)))
        assert (await store.stats()).done == 20


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("schema=Bad", "schema='Bad' is not a name"),
        ("schema=a;drop", "is not a name"),
        ("durability=maybe", "durability='maybe' is not known; use durable or relaxed"),
        ("timeout=soon", "timeout='soon' is not a time"),
        ("wake=never", "wake='never' is not known; use listen or poll"),
        ("pooled=maybe", "pooled='maybe' is not known; use no or yes"),
    ],
)
def test_a_wrong_setting_in_the_url_is_named(setting, said):
    with pytest.raises(ConfigError, match=said):
        parse(f"postgresql://localhost/db?{setting}")


def test_several_hosts_are_asked_for_the_one_that_takes_writes():
    assert "target_session_attrs=read-write" in parse("postgresql://a,b/db").dsn
    assert "password" not in parse("postgresql://me:password@a/db").where
    assert timedelta(seconds=parse("postgresql://a/db").timeout) == timedelta(seconds=30)
