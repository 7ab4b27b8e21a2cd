"""A primary and its synchronous standby: what was accepted survives every promotion, and a zombie accepts nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from hawser.errors import OutcomeUnknown, StoreUnavailable
from hawser.job import NewJob
from hawser.lab.pair import Pair
from hawser.stores.postgres import PostgresStore
from tests.postgres import postgres

QUICK = {"fsync": "off"}
"""Processes die here, not machines: what they wrote is with the kernel."""


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with Pair(settings=QUICK) as pair:
        yield pair


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = postgres(f"{url}{'&' if '?' in url else '?'}durability=relaxed")
    async with asyncio.timeout(20):
        await store.open()
    try:
        yield store
    finally:
        await store.close()


async def accepted(store: PostgresStore, *, within: float = 10.0) -> str:
    """Enqueue one job, again and again with the same id, until it is known to be there."""
    job = NewJob(task="work", body=b"{}")
    async with asyncio.timeout(within):
        while True:
            try:
                await store.enqueue([job])
                return job.id
            except (OutcomeUnknown, StoreUnavailable):
                await asyncio.sleep(0.02)


async def test_what_was_accepted_survives_promotions_there_and_back(pair):
    async with opened(f"{pair.url}&timeout=2&connect_timeout=1") as store:
        ids = []
        for _ in range(2):
            ids += [await accepted(store) for _ in range(20)]
            pair.primary.crash()
            pair.promote()
            ids.append(await accepted(store))
            pair.rebuild()
        for id in ids:
            assert await store.get(id) is not None


async def test_no_commit_is_answered_that_the_standby_has_not(pair):
    async with opened(f"{pair.url}&timeout=1") as store:
        await accepted(store)
        pair.part()
        with pytest.raises(OutcomeUnknown):
            await store.enqueue([NewJob(task="work", body=b"{}")])
        pair.rebuild()
        await accepted(store)


async def test_a_frozen_primary_is_left_for_the_one_that_was_promoted(pair):
    """A frozen server still seems to take connections: a store must not wait for it for ever."""
    async with opened(f"{pair.url}&timeout=2&connect_timeout=0.5") as store:
        for _ in range(2):  # the one that freezes is once the first of the URL, and once the second
            await accepted(store)
            pair.primary.freeze()
            old = pair.promote()
            began = time.monotonic()
            id = await accepted(store)
            assert time.monotonic() - began < 5
            assert pair.primary.ask(f"select count(*) from hawser.job where id = '{id}'") == "1"
            old.crash()
            pair.rebuild()


async def test_a_zombie_primary_accepts_nothing(pair):
    async with opened(f"{pair.primary.tcp_url}?timeout=1") as store:
        await accepted(store)
        pair.primary.freeze()
        old = pair.promote()
        old.thaw()
        for _ in range(2):
            with pytest.raises((OutcomeUnknown, StoreUnavailable)):
                await store.enqueue([NewJob(task="work", body=b"{}")])
        old.crash()
    pair.rebuild()


async def test_without_a_synchronous_standby_a_promotion_loses_what_was_accepted():
    """The protection off: so the tests above would notice."""
    with Pair(settings=QUICK, synchronous=False) as pair:
        async with opened(f"{pair.primary.tcp_url}?timeout=1") as store:
            await accepted(store)
            pair.part()
            id = await accepted(store)
            pair.primary.crash()
        pair.promote()
        async with opened(pair.primary.tcp_url) as store:
            assert await store.get(id) is None
    assert not pair.folder.exists()
