"""The smallest rights that docs/stores.md names: they are enough, and without one of them nothing is written.

The whole contract runs with them, too (`tests/contract/test_redis.py`).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hawser import ConfigError
from hawser.errors import StoreError
from hawser.lab.redis_server import MASTER, RedisServer, SentinelProcess
from hawser.store import Settled, Share
from hawser.stores import make_store
from hawser.testing.contract.making import a_job, done
from tests.redis_servers import LANES, SMALLEST_RIGHTS, RunningServer, installed

ALL = [Share("default")]
SENTINEL_RIGHTS = ("-@all", "+sentinel|get-master-addr-by-name")


@pytest.fixture(params=installed())
def server(request):
    running = RunningServer(request.param).start()
    yield running
    running.stop()


@pytest.fixture
async def opened():
    stores = []

    async def opened(url):
        store = make_store(url)
        stores.append(store)
        await store.open()
        return store

    yield opened
    for store in stores:
        await store.close()


def let_in(server: RunningServer | RedisServer, *rights: str) -> None:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "app", "reset", "on", ">let-me-in", *rights)


def keys(server: RunningServer) -> list[bytes]:
    with server.client() as client:
        return list(client.keys("*"))


def test_the_documents_have_these_rights():
    text = (Path(__file__).parents[2] / "docs" / "stores.md").read_text(encoding="utf-8")
    assert f"ACL SETUSER app on >PASSWORD {' '.join(SMALLEST_RIGHTS)}\n" in text
    assert f"ACL SETUSER app on >PASSWORD {' '.join(SENTINEL_RIGHTS)}\n" in text


@pytest.mark.parametrize("lanes", LANES)
async def test_they_are_enough_and_a_wait_hears_of_a_job(server, opened, lanes):
    let_in(server, *SMALLEST_RIGHTS)
    store = await opened(f"unix://app:let-me-in@{server.socket}?lanes={lanes}")
    assert store.durability == "durable"
    waiting = asyncio.create_task(store.wait(["default"], 30))
    while not store._wake.listens():
        await asyncio.sleep(0.01)
    await store.enqueue([a_job()])
    await waiting
    [run] = await store.claim(ALL, 1, "w1", 60)
    assert [answer.said for answer in await store.settle([done(run)])] == [Settled.SETTLED]


@pytest.mark.parametrize("right", [right for right in SMALLEST_RIGHTS if right[0] != "-"])
async def test_without_one_of_them_the_store_is_refused_and_nothing_is_written(server, opened, right):
    let_in(server, *(each for each in SMALLEST_RIGHTS if each != right))
    with pytest.raises((StoreError, ConfigError), match=r"docs/stores\.md|trust=always") as refused:
        await opened(f"unix://app:let-me-in@{server.socket}")
    assert "let-me-in" not in str(refused.value)
    assert keys(server) == []


async def test_another_namespace_is_not_theirs(server, opened):
    let_in(server, *SMALLEST_RIGHTS)
    with pytest.raises(StoreError, match=r"docs/stores\.md"):
        await opened(f"unix://app:let-me-in@{server.socket}?namespace=other")
    assert keys(server) == []


async def test_they_are_enough_to_wait_for_a_replica_that_a_sentinel_may_promote(opened):
    """The sentinel's user may ask for the primary and nothing else."""
    with RedisServer() as primary, RedisServer() as replica:
        replica.follow(primary)
        let_in(primary, *SMALLEST_RIGHTS)
        with SentinelProcess(primary, password="own") as sentinel:
            sentinel.ask("ACL", "SETUSER", "app", "reset", "on", ">hush", *SENTINEL_RIGHTS)
            about = f"master={MASTER}&sentinel_user=app&sentinel_password=hush&replicas=1"
            store = await opened(f"redis://app:let-me-in@127.0.0.1:{sentinel.port}/0?{about}")
            [added] = await store.enqueue([a_job()])
            assert added.created
            [run] = await store.claim(ALL, 1, "w1", 60)
            assert [answer.said for answer in await store.settle([done(run)])] == [Settled.SETTLED]
