"""Sentinels name the primary, real ones: what was accepted survives every promotion, and a zombie accepts nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from hawser.errors import OutcomeUnknown, StoreUnavailable
from hawser.job import NewJob
from hawser.lab.redis_server import MASTER, RedisServer, SentinelProcess
from hawser.lab.redis_trio import RedisTrio
from hawser.store import Settled, Share, Store
from hawser.stores import make_store
from hawser.testing.contract.making import a_job, done

ALL = [Share("default")]


@pytest.fixture(scope="module")
def trio() -> Iterator[RedisTrio]:
    with RedisTrio(fsync=False) as trio:
        yield trio


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = make_store(f"{url}&durability=relaxed")
    try:
        async with asyncio.timeout(20):
            await store.open()
        yield store
    finally:
        await store.close()


async def accepted(store: Store, *, within: float = 15.0) -> str:
    """Enqueue one job, again and again with the same id, until it is known to be there."""
    job = a_job()
    async with asyncio.timeout(within):
        while True:
            try:
                await store.enqueue([job])
                return job.id
            except (OutcomeUnknown, StoreUnavailable):
                await asyncio.sleep(0.02)


async def test_what_was_accepted_survives_promotions_and_each_is_announced(trio):
    async with opened(f"{trio.url}&timeout=2&connect_timeout=1") as store:
        ids = []
        for number in range(1, 3):
            ids += [await accepted(store) for _ in range(20)]
            await store.claim(ALL, 1, "w1", 60)
            await asyncio.to_thread(trio.primary.kill)
            await asyncio.to_thread(trio.promote)
            ids.append(await accepted(store))
            assert await store.claim(ALL, 1, "w1", 60)
            assert len(await store.audit(action="failover")) == number
            await asyncio.to_thread(trio.rebuild)
        for id in ids:
            assert await store.get(id) is not None


async def test_a_zombie_accepts_nothing_and_no_store_stays_with_it(trio):
    """A frozen primary is replaced, and then goes on: for those who know of it alone it looks as before."""
    async with opened(f"{trio.url}&timeout=2&connect_timeout=0.5") as store:
        await accepted(store)
        direct = make_store(trio.direct(trio.primary, trio.url))
        await direct.open()
        try:
            [claimed] = await store.claim(ALL, 1, "w1", 60)
            assert await store.get(claimed.id) is not None
            trio.primary.freeze()
            zombie = await asyncio.to_thread(trio.promote)
            began = time.monotonic()
            id = await accepted(store)
            assert time.monotonic() - began < 8
            zombie.thaw()
            assert await store.get(id) is not None, "a connection that was not used meanwhile leaves, too"
            for _ in range(2):
                with pytest.raises(OutcomeUnknown):
                    await direct.enqueue([a_job()])
            assert [answer.said for answer in await store.settle([done(claimed)])] == [Settled.SETTLED], "it was confirmed"
        finally:
            await direct.close()
        await asyncio.to_thread(zombie.kill)
    await asyncio.to_thread(trio.rebuild)


async def test_a_write_that_the_replicas_do_not_hear_of_is_not_accepted(trio):
    async with opened(f"{trio.url}&timeout=1") as store:
        await accepted(store)
        await asyncio.to_thread(trio.part)
        with pytest.raises(OutcomeUnknown, match="0 of 1 replicas"):
            await store.enqueue([NewJob(task="work", body=b"{}")])
        await asyncio.to_thread(trio.rebuild)
        await accepted(store)


# What sentinels may answer.


@pytest.fixture(scope="module")
def watched() -> Iterator[tuple[RedisServer, SentinelProcess]]:
    with RedisServer() as primary, SentinelProcess(primary) as sentinel:
        yield primary, sentinel


async def test_the_next_sentinel_is_asked_when_one_does_not_answer(watched):
    primary, sentinel = watched
    with SentinelProcess(primary) as silent:
        silent.freeze()
        hosts = f"127.0.0.1:1,127.0.0.1:{silent.port},127.0.0.1:{sentinel.port}"
        async with opened(f"redis://{hosts}/0?master={MASTER}&connect_timeout=0.3") as store:
            assert (await store.enqueue([a_job()]))[0].created
        silent.thaw()


async def test_a_primary_that_no_sentinel_knows_is_said_by_name(watched):
    _, sentinel = watched
    with pytest.raises(StoreUnavailable, match=r"does not know it.*master=other"):
        async with opened(f"redis://127.0.0.1:{sentinel.port}/0?master=other"):
            pass


async def test_sentinels_that_are_not_there_are_said_by_name():
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1 did not answer"):
        async with opened("redis://127.0.0.1:1/0?master=other"):
            pass


async def test_sentinels_have_a_password_of_their_own(watched):
    primary, _ = watched
    with SentinelProcess(primary, password="of-the-sentinel") as sentinel:
        url = f"redis://127.0.0.1:{sentinel.port}/0?master={MASTER}"
        with pytest.raises(StoreUnavailable, match="did not answer"):
            async with opened(url):
                pass
        async with opened(f"{url}&sentinel_password=of-the-sentinel&namespace=p") as store:
            assert (await store.enqueue([a_job()]))[0].created
