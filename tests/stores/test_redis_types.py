"""A key of another type under the prefix of a Redis store: `open` refuses it, or the call that meets it, which writes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from hawser.errors import NotAStore
from hawser.job import NewJob
from hawser.outcome import Done, Failed, Failure
from hawser.store import Actor, Settlement, Share, Store
from hawser.stores import make_store
from hawser.stores.redis import server as server_module
from hawser.stores.redis.key_types import FAMILIES, KEYS
from hawser.testing.contract.making import a_job, done
from tests.redis_servers import LANES, RunningServer, installed

ALL = [Share("default")]
KINDS = installed()


@pytest.fixture(scope="module", params=KINDS)
def server(request):
    running = RunningServer(request.param).start()
    yield running
    running.stop()


@pytest.fixture(params=LANES)
async def url(server, request):
    with server.client() as client:
        client.flushall()
    return f"{server.url}?lanes={request.param}"


@pytest.fixture
async def store(url):
    opened = make_store(url)
    await opened.open()
    yield opened
    await opened.close()


def plant(server: RunningServer, name: str, kind: str) -> None:
    """A key of another type."""
    with server.client() as client:
        client.delete("{hawser}:" + name)
        if kind == "string":
            client.rpush("{hawser}:" + name, "mine")
        else:
            client.set("{hawser}:" + name, "mine")


def everything(server: RunningServer) -> dict[bytes, bytes]:
    """All keys with what they hold; the clock moves with every look at it."""
    with server.client() as client:
        return {key: client.dump(key) for key in client.keys("*") if key != b"{hawser}:clock"}


async def nothing_is_written(server: RunningServer, call: Callable[[], Awaitable[object]]) -> None:
    before = everything(server)
    with pytest.raises(NotAStore):
        await call()
    assert everything(server) == before


@pytest.mark.parametrize("name", sorted(KEYS))
async def test_a_store_with_a_key_of_another_type_is_not_opened(server, url, store, name):
    plant(server, name, KEYS[name])
    other = make_store(url)
    await nothing_is_written(server, other.open)
    await other.close()


@pytest.mark.parametrize("name", [*sorted(FAMILIES), "l:7:0", "l:7:p", "l:7:1", "l:7:2", "l:7:g:tenant"])
async def test_nor_one_with_such_a_key_among_those_that_it_has_many_of(server, url, store, name):
    await store.enqueue([a_job()])
    plant(server, name + "x" if name.endswith(":") else name, FAMILIES.get(name, "zset"))
    other = make_store(url)
    await nothing_is_written(server, other.open)
    await other.close()


async def test_a_store_of_many_keys_is_opened_after_a_few_looks(server, url, store, monkeypatch):
    monkeypatch.setattr(server_module, "SCANNED", 10)
    with server.client() as client:
        client.mset({f"other:{number}": "x" for number in range(3000)})
        before = client.info("commandstats")["cmdstat_evalsha"]["calls"]
        other = make_store(url)
        await other.open()
        after = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert after - before <= server_module.LOOKS + 5
    await other.close()


async def test_what_this_release_does_not_know_is_left_alone(server, url, store):
    with server.client() as client:
        client.set("{hawser}:later_release", "x")
        client.set("{hawser}:zz:1", "x")
    other = make_store(url)
    await other.open()
    await other.close()


def minute(server: RunningServer) -> str:
    with server.client() as client:
        return f"t:{client.time()[0] // 60}"


JOBS: dict[str, tuple[Callable[[], NewJob], list[tuple[str, str]]]] = {
    "plain": (a_job, [("n:default", "hash"), ("l:1:0", "list")]),
    "delayed": (lambda: a_job(delay=9), [("n:default", "hash"), ("l:1:1", "zset"), ("l:1:p", "zset")]),
    "keyed": (lambda: a_job(key="k"), [("k:default|work", "hash"), ("x:k:k", "zset")]),
    "grouped": (
        lambda: a_job(group="g"),
        [(name, kind) for name, kind in (("grouplanes:work", "set"), ("turn:1", "zset"), ("later:1", "zset"), ("kept:1", "hash"))]
        + [("l:1:g", "zset"), ("l:1:g:g", "zset"), ("x:g:g", "zset")],
    ),
}


@pytest.mark.parametrize("first", [False, True], ids=["new lane", "lane that stands"])
@pytest.mark.parametrize(("kind", "name", "type_"), [(kind, *each) for kind, (_, keys) in JOBS.items() for each in keys])
async def test_an_enqueue_that_meets_such_a_key_writes_nothing(server, store, kind, name, type_, first):
    if first:
        await store.enqueue([a_job()])
    plant(server, name, type_)
    await nothing_is_written(server, lambda: store.enqueue([a_job(), JOBS[kind][0]()]))


async def test_an_enqueue_that_meets_such_a_key_in_this_minute_writes_nothing(server, store):
    plant(server, minute(server), "hash")
    await nothing_is_written(server, lambda: store.enqueue([a_job()]))


async def claimed(store: Store, count: int = 1):
    await store.enqueue([a_job(max_attempts=5) for _ in range(count)])
    return await store.claim(ALL, count, "w1", 60)


async def test_a_claim_that_meets_such_a_key_takes_nothing(server, store):
    await store.enqueue([a_job()])
    plant(server, "c:1", "hash")
    await nothing_is_written(server, lambda: store.claim(ALL, 1, "w1", 60))


@pytest.mark.parametrize("name", ["f:work|done", "f:work|dead", "l:1:2"])
async def test_a_settlement_that_meets_such_a_key_writes_none_of_its_batch(server, store, name):
    first, second = await claimed(store, 2)
    plant(server, name, "list")
    outcomes = [done(first), Settlement(second.id, second.lease, Failed(Failure("E"), after=1.0))]
    await nothing_is_written(server, lambda: store.settle(outcomes))


async def test_a_settlement_whose_job_to_follow_meets_such_a_key_writes_nothing(server, store):
    [run] = await claimed(store)
    plant(server, "n:other", "hash")
    await nothing_is_written(server, lambda: store.settle([Settlement(run.id, run.lease, Done(), then=(a_job(queue="other"),))]))
    assert await store.cancel([run.id], Actor("test"))
