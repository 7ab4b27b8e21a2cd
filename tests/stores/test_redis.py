"""The Redis store: what it accepts is kept, or it says so. Restarts, crashes, full memory, failover, rights, and bad input."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import httpx
import pytest

from hawser import ConfigError, Hawser
from hawser.clock import SystemClock
from hawser.errors import (
    NotAStore,
    OutcomeUnknown,
    SchemaTooNew,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from hawser.job import State
from hawser.store import Actor, Filter, LeaseRef, LeaseStatus, Retention, Settled, Settlement, Share, Store
from hawser.stores import make_store
from hawser.stores.redis import from_url
from hawser.stores.redis import operations as operations_module
from hawser.stores.redis import safety as safety_module
from hawser.stores.url import without_password
from hawser.testing.contract.making import a_job, done
from hawser.upkeep.pruner import Pruner
from tests.redis_servers import LANES, RunningServer, installed, own_store, shared
from tests.until import until

ALL = [Share("default")]
KINDS = installed()


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def start(kind):
    """Starts servers that end with the test."""
    started: list[RunningServer] = []

    def start(**settings):
        server = RunningServer(kind, **settings).start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


@pytest.fixture
async def opened():
    """Opens stores that are closed with the test."""
    stores = []

    async def opened(url):
        store = make_store(url)
        stores.append(store)
        await store.open()
        return store

    yield opened
    for store in stores:
        await store.close()


def keys_of(server: RunningServer) -> list[bytes]:
    with server.client() as client:
        return list(client.keys("*"))


def configure(server: RunningServer, *settings: str) -> None:
    with server.client() as client:
        client.config_set(*settings)


# Durable or refused.


async def test_a_server_that_syncs_before_it_answers_is_durable(start, opened):
    store = await opened(start().url)
    assert store.durability == "durable"


@pytest.mark.parametrize(
    ("setting", "value"),
    [("appendonly", "no"), ("appendfsync", "everysec"), ("appendfsync", "no"), ("no-appendfsync-on-rewrite", "yes")],
)
async def test_a_server_that_may_lose_what_it_accepts_is_refused(start, opened, setting, value):
    server = start()
    configure(server, setting, value)
    with pytest.raises(ConfigError, match=setting):
        await opened(server.url)
    assert keys_of(server) == []
    assert (await opened(f"{server.url}?durability=relaxed")).durability == "relaxed"


@pytest.mark.parametrize("tier", ["durable", "relaxed"])
async def test_a_server_that_evicts_is_refused_in_both_tiers(start, opened, tier):
    server = start(maxmemory_policy="allkeys-lru")
    with pytest.raises(ConfigError, match="noeviction"):
        await opened(f"{server.url}?durability={tier}")
    assert keys_of(server) == []


async def test_a_server_that_becomes_unsafe_takes_no_new_jobs_and_drains(start, opened, monkeypatch):
    server = start()
    store = await opened(server.url)
    await store.enqueue([a_job()])
    monkeypatch.setattr(safety_module, "CHECK_EVERY", 0.0)
    configure(server, "appendfsync", "everysec")
    await store.reclaim(10)
    with pytest.raises(StoreUnavailable, match="appendfsync"):
        await store.enqueue([a_job()])
    [claimed] = await store.claim(ALL, 10, "w1", 60)
    assert [answer.said for answer in await store.settle([done(claimed)])] == [Settled.SETTLED]
    configure(server, "appendfsync", "always")
    await store.reclaim(10)
    assert (await store.enqueue([a_job()]))[0].created


async def test_a_server_that_hides_its_settings_must_be_trusted_in_words(start, opened):
    server = start()
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "managed", "on", ">pw", "~*", "&*", "+@all", "-config")
    url = f"unix://managed:pw@{server.socket}"
    with pytest.raises(ConfigError, match="trust=always"):
        await opened(url)
    assert keys_of(server) == []
    assert (await opened(f"{url}?trust=always")).durability == "durable"


@pytest.mark.parametrize("lanes", LANES)
async def test_a_full_memory_refuses_enqueues_and_lets_all_drain(start, opened, lanes):
    server = start()
    store = await opened(f"{server.url}?lanes={lanes}")
    ids = [each.id for each in await store.enqueue([a_job() for _ in range(20)])]
    configure(server, "maxmemory", "1000000")
    job = a_job()
    with pytest.raises(StoreFull):
        await store.enqueue([job])
    assert await store.get(job.id) is None
    claimed = await store.claim(ALL, 20, "w1", 60)
    assert sorted(each.id for each in claimed) == sorted(ids)
    assert await store.extend("w1", [LeaseRef(claimed[0].id, claimed[0].lease)], 60) == [LeaseStatus.HELD]
    answers = await store.settle([Settlement(each.id, each.lease, done(each).outcome, keep=False) for each in claimed])
    assert {answer.said for answer in answers} == {Settled.SETTLED}
    configure(server, "maxmemory", "0")
    assert (await store.enqueue([job]))[0].created


# Restarts and crashes.


@pytest.mark.parametrize("lanes", LANES)
async def test_what_was_accepted_survives_a_kill_of_the_server(start, opened, lanes):
    server = start()
    store = await opened(f"{server.url}?lanes={lanes}")
    [enqueued] = await store.enqueue([a_job()])
    [claimed] = await store.claim(ALL, 1, "w1", 60)
    accepted: list[str] = []
    refused: list[str] = []

    async def produce() -> None:
        while True:
            job = a_job()
            try:
                await store.enqueue([job])
                accepted.append(job.id)
            except StoreError:
                refused.append(job.id)
                return

    producers = [asyncio.create_task(produce()) for _ in range(8)]
    await until(lambda: asyncio.sleep(0, len(accepted) > 50))
    server.kill()
    await asyncio.gather(*producers)
    server.start()
    kept = [(await store.get(id)) is not None for id in accepted]
    assert all(kept)
    assert [answer.said for answer in await store.settle([done(claimed)])] == [Settled.SETTLED]
    job = await store.get(enqueued.id)
    assert job is not None
    assert job.state is State.DONE


async def test_a_call_that_broke_off_says_that_its_outcome_is_unknown(start, opened):
    server = start()
    store = await opened(server.url)
    await store.enqueue([a_job()])
    os.kill(server.pid, signal.SIGSTOP)
    call = asyncio.create_task(store.enqueue([a_job()]))
    await asyncio.sleep(0.05)  # it is sent, and the frozen server says nothing
    server.kill()
    with pytest.raises(OutcomeUnknown):
        await call
    with pytest.raises(StoreUnavailable):
        await store.enqueue([a_job()])


async def test_a_server_that_says_nothing_is_given_up_and_its_late_answer_is_nobodys(start, opened):
    server = start()
    store = await opened(f"{server.url}?timeout=0.3")
    [first] = await store.enqueue([a_job()])
    os.kill(server.pid, signal.SIGSTOP)
    late = a_job()
    try:
        with pytest.raises(OutcomeUnknown):
            await store.enqueue([late])
        with pytest.raises(StoreUnavailable):
            await store.get(first.id)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    await until(lambda: _answers(store))
    assert (await store.enqueue([late]))[0].id == late.id
    assert [job.id for job in (await store.find(Filter())).jobs] == [late.id, first.id]


async def test_the_driver_sets_no_deadline_of_its_own(start, opened):
    """Calls have ours, and a subscription waits for as long as there is nothing to hear."""
    store = await opened(start().url)
    con = await store.server.dialer.dial()
    try:
        assert con.socket_timeout is None
    finally:
        await con.disconnect()


async def _answers(store: Store) -> bool:
    try:
        await store.stats()
    except StoreError:
        return False
    return True


async def test_scripts_that_the_server_lost_are_sent_again(start, opened):
    server = start()
    store = await opened(server.url)
    await store.enqueue([a_job()])
    with server.client() as client:
        client.script_flush()
    await store.enqueue([a_job()])
    assert len(await store.claim(ALL, 10, "w1", 60)) == 2


async def test_lease_numbers_jump_after_a_restart(start, opened):
    """A server that is not the one that claimed last cannot know which numbers were given out last."""
    server = start()
    store = await opened(server.url)
    await store.enqueue([a_job(), a_job()])
    [before] = await store.claim(ALL, 1, "w1", 60)
    server.kill()
    server.start()
    await until(lambda: _answers(store))
    [after] = await store.claim(ALL, 1, "w1", 60)
    assert (before.lease, after.lease > 60_000) == (1, True)
    assert await store.audit(action="failover") == []
    assert await store.failovers() == 0


async def test_done_jobs_are_kept_for_an_hour_unless_the_app_says_otherwise(start, opened):
    """All of them are in memory."""
    store = await opened(f"{start().url}?done_most=7")
    assert (store.retention, store.done_most) == (Retention(done=3600, dead=30 * 86_400, cancelled=86_400), 7)
    asked: list[Retention] = []

    class Asked(type(store)):  # type: ignore[misc]
        async def prune(self, retention, by_task, limit):
            asked.append(retention)
            return await super().prune(retention, by_task, limit)

    store.__class__ = Asked
    await Pruner(store, None, {}).turn()
    await Pruner(store, Retention(done=5), {}).turn()
    assert [retention.done for retention in asked] == [3600, 5]


async def test_done_jobs_beyond_what_fits_go_before_their_time(start, opened):
    store = await opened(f"{start().url}?done_most=3")
    for task in ("a", "b", "a", "b", "a"):
        await store.enqueue([a_job(task=task)])
        [claimed] = await store.claim(ALL, 1, "w1", 60)
        await store.settle([done(claimed)])
    newest = [job.id for job in (await store.find(Filter())).jobs][:3]
    assert await store.prune(Retention(), {}, 1) == 1
    assert await store.prune(Retention(), {}, 100) == 1
    assert [job.id for job in (await store.find(Filter())).jobs] == newest
    assert await store.prune(Retention(), {}, 100) == 0
    assert (await store.stats()).done == 3


@pytest.mark.parametrize("lanes", LANES)
async def test_an_idle_store_is_not_written_to(start, opened, lanes):
    """With appendfsync always each write would cost a sync, and each command may be billed."""
    server = start()
    store = await opened(f"{server.url}?lanes={lanes}")
    await store.enqueue([a_job(delay=1000)])
    with server.client() as client:
        before = client.info("replication")["master_repl_offset"], client.info("persistence")["aof_current_size"]
        for _ in range(5):
            assert await store.claim(ALL, 10, "w1", 60) == []
            assert await store.reclaim(10) == []
        await store.wait(["default"], 0.2)
        after = client.info("replication")["master_repl_offset"], client.info("persistence")["aof_current_size"]
    assert after == before


# Lanes: lists, or streams with a consumer group.


@pytest.mark.parametrize(("made", "opened_with"), [("lists", "streams"), ("streams", "lists")])
async def test_a_namespace_keeps_the_kind_of_lanes_that_it_was_made_with(start, opened, made, opened_with):
    server = start()
    await opened(f"{server.url}?lanes={made}")
    before = sorted(keys_of(server))
    with pytest.raises(ConfigError, match=f"made with lanes={made}"):
        await opened(f"{server.url}?lanes={opened_with}")
    assert sorted(keys_of(server)) == before
    await opened(f"{server.url}?lanes={opened_with}&namespace=other")


async def test_a_stream_shows_who_holds_what_and_forgets_runs_that_ended(start, opened):
    server = start()
    store = await opened(f"{server.url}?lanes=streams")
    await store.enqueue([a_job(max_attempts=9) for _ in range(5)])
    [first] = await store.claim(ALL, 1, "w1", 0.001)
    [second, third] = await store.claim(ALL, 2, "w2", 60)
    with server.client() as client:
        [key] = client.keys("{hawser}:l:*:0")
        held = {each["name"]: each["pending"] for each in client.xinfo_consumers(key, "workers")}
        assert (held, client.xlen(key)) == ({b"w1": 1, b"w2": 2}, 5)
        await store.settle([done(second)])
        await until(lambda: _reclaims(store, first.id))
        assert (client.xpending(key, "workers")["pending"], client.xlen(key)) == (1, 3)
        assert [answer.said for answer in await store.settle([done(first)])] == [Settled.LOST]
        await store.settle([done(third)])
        assert (client.xpending(key, "workers")["pending"], client.xlen(key)) == (0, 2)


async def _reclaims(store: Store, id: str) -> bool:
    return [run.id for run in await store.reclaim(10)] == [id]


async def test_a_claim_delivers_no_more_than_it_takes(start, opened):
    """What was delivered and not given out would wait for the end of a lease that no worker holds."""
    server = start()
    store = await opened(f"{server.url}?lanes=streams")
    await store.enqueue([a_job(priority=priority) for priority in (1, 1, 9, 9)])
    claimed = await store.claim(ALL, 3, "w1", 60)
    assert [job.priority for job in claimed] == [9, 9, 1]
    with server.client() as client:
        assert sum(client.xpending(key, "workers")["pending"] for key in client.keys("{hawser}:l:*:0")) == 3


async def test_cancelled_jobs_in_a_stream_go_while_others_run(start, opened):
    server = start()
    store = await opened(f"{server.url}?lanes=streams")
    ids = [each.id for each in await store.enqueue([a_job() for _ in range(4)])]
    [running] = await store.claim(ALL, 1, "w1", 60)
    await store.cancel(ids[1:], Actor("test"))
    with server.client() as client:
        [key] = client.keys("{hawser}:l:*:0")
        assert (client.xlen(key), client.xpending(key, "workers")["pending"]) == (0, 1)
    [late] = await store.enqueue([a_job()])
    assert [job.id for job in await store.claim(ALL, 9, "w1", 60)] == [late.id]
    assert [answer.said for answer in await store.settle([done(running)])] == [Settled.SETTLED]


@pytest.mark.parametrize("lanes", LANES)
async def test_nothing_grows_with_jobs_that_are_over(start, opened, lanes, monkeypatch):
    server = start()
    store = await opened(f"{server.url}?lanes={lanes}")
    monkeypatch.setattr(operations_module, "_KEPT", (0, 0, 0))
    sizes = []
    for number in range(3):
        for _ in range(5):
            await store.enqueue([a_job() for _ in range(100)])
            claimed = await store.claim(ALL, 100, f"w{number}", 60)
            await store.settle([Settlement(each.id, each.lease, done(each).outcome, keep=False) for each in claimed])
        await store.prune(Retention(), {}, 1000)
        with server.client() as client:
            client.delete(*client.keys("{hawser}:t:*"))
            sizes.append({key: client.memory_usage(key) for key in client.keys("*")})
    assert sizes[1].keys() == sizes[2].keys()
    assert sum(sizes[2].values()) <= sum(sizes[1].values()) + 64
    assert not any(b":l:" in key for key in sizes[2]), "a lane without jobs is gone"


async def test_a_consumer_that_holds_nothing_is_forgotten_in_time(start, opened, monkeypatch):
    server = start()
    store = await opened(f"{server.url}?lanes=streams")
    await store.enqueue([a_job() for _ in range(3)])
    [over] = await store.claim(ALL, 1, "gone", 60)
    await store.claim(ALL, 1, "here", 60)
    await store.settle([done(over)])
    await store.prune(Retention(), {}, 10)
    with server.client() as client:
        [key] = client.keys("{hawser}:l:*:0")
        assert {each["name"] for each in client.xinfo_consumers(key, "workers")} == {b"gone", b"here"}
        monkeypatch.setattr(operations_module, "_KEPT", (0, 0, 0))
        await store.prune(Retention(), {}, 10)
        assert {each["name"] for each in client.xinfo_consumers(key, "workers")} == {b"here"}


# Failover.


async def replicated(start: Callable[..., RunningServer], count: int = 1) -> list[RunningServer]:
    """A primary and its replicas, in step."""
    primary = start(port="0")
    replicas = [start(port="0", repl_diskless_sync_delay="0") for _ in range(count)]
    port = await asyncio.to_thread(_free_port)
    with primary.client() as client:
        client.config_set("port", port)
    for replica in replicas:
        with replica.client() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", port)

    async def in_step() -> bool:
        states = []
        for replica in replicas:
            with replica.client() as client:
                states.append(client.info("replication")["master_link_status"])
        return states == ["up"] * count

    await until(in_step, 30)
    return [primary, *replicas]


def _free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def promote(replica: RunningServer) -> None:
    with replica.client() as client:
        client.execute_command("REPLICAOF", "NO", "ONE")


@pytest.mark.parametrize("lanes", LANES)
async def test_a_run_of_the_old_primary_can_write_nothing_after_a_failover(start, opened, lanes):
    """The old primary goes on to give out leases that the promoted replica never heard of."""
    primary, replica = await replicated(start)
    old = await opened(f"{primary.url}?replicas=1&lanes={lanes}")
    [enqueued] = await old.enqueue([a_job(max_attempts=9)])
    promote(replica)
    old = await opened(f"{primary.url}?lanes={lanes}")
    [stale] = await old.claim(ALL, 1, "w1", 60)
    primary.kill()
    new = await opened(f"{replica.url}?lanes={lanes}")
    [current] = await new.claim(ALL, 1, "w2", 60)
    assert (stale.id, current.id) == (enqueued.id, enqueued.id)
    assert [answer.said for answer in await new.settle([done(stale)])] == [Settled.LOST]
    assert await new.extend("w1", [LeaseRef(stale.id, stale.lease)], 60) == [LeaseStatus.LOST]
    assert [answer.said for answer in await new.settle([done(current)])] == [Settled.SETTLED]


async def metrics_of(store: Store) -> list[str]:
    """The lines that a server with this store shows."""
    api = Hawser(store).asgi(upkeep=False, open=True)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://localhost") as client:
        shown = await client.get("/metrics")
    await api.stop()
    return shown.text.splitlines()


async def test_a_failover_is_announced(start, opened):
    primary, replica = await replicated(start)
    store = await opened(f"{primary.url}?replicas=1")
    await store.enqueue([a_job(), a_job()])
    await store.claim(ALL, 1, "w1", 60)
    assert "hawser_store_failovers 0.0" in await metrics_of(store)
    primary.kill()
    promote(replica)
    new = await opened(replica.url)
    await new.claim(ALL, 1, "w2", 60)
    [record] = await new.audit(action="failover")
    assert (record.by, record.target) == ("store", "store")
    assert "lost" in (record.reason or "")
    assert await new.failovers() == 1
    assert "hawser_store_failovers 1.0" in await metrics_of(new)


async def test_a_write_that_no_replica_confirmed_is_not_called_done(start, opened):
    primary, replica = await replicated(start)
    store = await opened(f"{primary.url}?replicas=1&timeout=1")
    assert (await store.enqueue([a_job()]))[0].created
    os.kill(replica.pid, signal.SIGSTOP)
    job = a_job()
    try:
        with pytest.raises(OutcomeUnknown, match="0 of 1 replicas"):
            await store.enqueue([job])
    finally:
        os.kill(replica.pid, signal.SIGCONT)
    assert not (await store.enqueue([job]))[0].created, "it was written, and a repeat says so"


@pytest.mark.parametrize("promoted", [0, 1])
async def test_with_as_many_confirmations_as_replicas_any_of_them_may_be_promoted(start, opened, promoted):
    primary, *replicas = await replicated(start, count=2)
    store = await opened(f"{primary.url}?replicas=2&timeout=1")
    [accepted] = await store.enqueue([a_job()])
    hung = replicas[promoted]
    os.kill(hung.pid, signal.SIGSTOP)
    with pytest.raises(OutcomeUnknown, match="1 of 2 replicas"):
        await store.enqueue([a_job()])
    os.kill(replicas[1 - promoted].pid, signal.SIGSTOP)
    primary.kill()
    os.kill(hung.pid, signal.SIGCONT)
    promote(hung)
    new = await opened(hung.url)
    assert await new.get(accepted.id) is not None
    os.kill(replicas[1 - promoted].pid, signal.SIGCONT)


async def test_a_replica_takes_no_writes(start, opened):
    _, replica = await replicated(start)
    with pytest.raises(StoreReadOnly, match="replica"):
        await opened(replica.url)


# Bad input.


async def test_a_wrong_password_is_named_and_not_shown(start, opened):
    server = start(requirepass="secret")
    with pytest.raises(StoreUnavailable, match="password") as refused:
        await opened(f"unix://:wrong-one@{server.socket}")
    with pytest.raises(StoreUnavailable, match="password"):
        await opened(server.url)
    assert "wrong-one" not in str(refused.value)
    await opened(f"unix://:secret@{server.socket}")


async def test_a_cluster_is_refused(start, opened):
    server = start(cluster_enabled="yes", port=str(_free_port() % 20_000 + 20_000))
    with pytest.raises(ConfigError, match=r"cluster.*several stores to scale out"):
        await opened(f"{server.url}?durability=relaxed")
    assert keys_of(server) == []


async def test_a_server_that_is_too_old_is_refused(start, opened, monkeypatch):
    server = start()
    monkeypatch.setattr(safety_module, "OLDEST_SERVERS", {"redis": (99, 0), "valkey": (99, 0)})
    with pytest.raises(ConfigError, match=r"needs .* 99\.0 or newer"):
        await opened(server.url)
    assert keys_of(server) == []


@pytest.mark.parametrize(("version", "error"), [("2", SchemaTooNew), ("mine", NotAStore)])
async def test_a_namespace_of_another_schema_is_refused(start, opened, version, error):
    server = start()
    with server.client() as client:
        client.set("{hawser}:schema", version)
    with pytest.raises(error):
        await opened(server.url)
    assert keys_of(server) == [b"{hawser}:schema"]


@pytest.mark.parametrize("key", ["{hawser}:leases", "{hawser}:l:1:0", "{hawser}:anything"])
async def test_a_namespace_with_keys_of_another_program_is_refused(start, opened, key):
    server = start()
    with server.client() as client:
        client.set(key, "mine")
        client.mset({f"other:{number}": "x" for number in range(3000)})
    with pytest.raises(NotAStore, match=key.replace("{", r"\{")):
        await opened(server.url)
    assert [each for each in keys_of(server) if not each.startswith(b"other:")] == [key.encode()]
    await opened(f"{server.url}?namespace=free")


async def test_two_that_make_the_same_store_at_once_both_have_it(start, opened):
    server = start()
    await asyncio.gather(*(opened(server.url) for _ in range(8)))


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://localhost/0?namspace=x", "did you mean 'namespace'"),
        ("redis://localhost/0?namespace={x}", "namespace"),
        ("redis://localhost/0?lanes=sets", "lists or streams"),
        ("redis://localhost/zero", "db='zero'"),
        ("redis://localhost:99999/0", "port"),
        ("redis://localhost/0?durability=best", "durability"),
        ("redis://localhost/0?replicas=-1", "replicas"),
        ("redis://localhost/0?timeout=0", "timeout"),
        ("redis://a,b/0", "several hosts"),
        ("redis://a,b/0?master=", "master= is empty"),
        ("redis://a,b:99999/0?master=m", "port"),
        ("redis://a/0?sentinel_password=x", "sentinel_password is given"),
        ("redis://a/0?password=x", "unknown setting 'password' in the URL; write user and password in front of the host"),
        ("unix:///run/s?master=m", "sentinels are not reached by a socket"),
        ("unix://", "socket"),
    ],
)
def test_what_is_wrong_with_a_url_is_said_by_name(url, told):
    with pytest.raises(ConfigError, match=told):
        make_store(url)


def test_a_url_may_name_sentinels_and_hides_their_password():
    url = "redis://app:pw@a,[::1]:5000,c:26380/2?master=shop&sentinel_user=s&sentinel_password=hush"
    sentinels = from_url(url, SystemClock()).address.sentinels
    assert sentinels is not None
    assert (sentinels.master, sentinels.hosts) == ("shop", (("a", 26379), ("::1", 5000), ("c", 26380)))
    assert (sentinels.user, sentinels.password) == ("s", "hush")
    assert "hush" not in from_url(url, SystemClock()).address.where + without_password(url)


def test_a_url_may_name_a_user_a_port_and_a_database():
    address = from_url("redis://app:p%40ss@[::1]:7000/3?namespace=shop&replicas=2", SystemClock()).address
    assert (address.user, address.password, address.host, address.port, address.db) == ("app", "p@ss", "::1", 7000, 3)
    assert (address.prefix, address.replicas) == ("{shop}:", 2)
    assert "p@ss" not in address.where


async def test_an_enqueue_in_a_transaction_of_another_database_is_refused(tmp_path):
    import sqlite3

    from hawser import Hawser

    app = Hawser(own_store(shared(KINDS[0])))

    @app.task
    def work() -> None: ...

    with sqlite3.connect(tmp_path / "x.db") as con, pytest.raises(ConfigError, match="transaction"):
        work.inside(con).enqueue()
    con.close()
    app.close()
