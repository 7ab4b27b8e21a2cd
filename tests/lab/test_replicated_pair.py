"""A primary and its synchronous standby: what was accepted survives every promotion, and a zombie accepts nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest

from hawser.errors import OutcomeUnknown, StoreUnavailable
from hawser.job import NewJob
from hawser.lab.replicated_pair import Pair
from hawser.outcome import Done
from hawser.store import Filter, LeaseRef, Settlement, Share
from hawser.stores.postgres import PostgresStore
from tests.postgres import postgres
from tests.until import until

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


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_repeated_job_is_not_answered_before_the_standby_has_the_first(pair, key):
    """An administrator ended a commit that waited for its standby: the job can be seen, and may yet be lost."""
    job = NewJob(task="work", body=b"{}", key=key)
    async with opened(f"{pair.url}&timeout=1") as store:
        await accepted(store)
        pair.part()
        with pytest.raises(OutcomeUnknown):
            await store.enqueue([job])
        await asyncio.to_thread(
            pair.primary.ask, "select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'"
        )

        async def seen() -> bool:
            return await store.get(job.id) is not None

        await until(seen, within=5)
        with pytest.raises(OutcomeUnknown):
            await store.enqueue([job])
    pair.rebuild()


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


SESSIONS = "select count(*) from pg_stat_activity where application_name = 'hawser'"


async def at_work(store: PostgresStore) -> None:
    """Have connections for several kinds of work, as a worker has."""
    await accepted(store)
    await store.reclaim(10)
    await store.find(Filter(), None, 1)
    await store.due_schedules(10)
    [run] = await store.claim([Share("default")], 1, "w", 60)
    await store.extend("w", [LeaseRef(run.id, run.lease)], 60)
    await store.settle([Settlement(run.id, run.lease, Done(), hint=run.hint)])
    await store.wait(["default"], 0.1)


async def test_no_connection_stays_with_a_zombie_that_is_thawed(pair):
    """Each kind of work has a connection of its own: one that was not used meanwhile must leave as well."""
    async with opened(f"{pair.url}&timeout=2&connect_timeout=1") as store:
        await at_work(store)
        pair.primary.freeze()
        old = pair.promote()
        id = await accepted(store)
        old.thaw()

        async def gone() -> bool:
            return str(await asyncio.to_thread(old.ask, SESSIONS)) == "0"

        await until(gone, within=12)
        assert await store.get(id) is not None
        assert id in {run.id for run in await store.claim([Share("default")], 100, "w", 60)}
        await at_work(store)
        await until(gone, within=5)  # the look at whether it is still an old primary is a session for a moment
    old.crash()
    pair.rebuild()


async def test_a_promotion_is_noticed_by_who_only_reads_from_an_old_primary_that_answers(pair):
    async with opened(f"{pair.url}&timeout=2&connect_timeout=1") as reader:
        await at_work(reader)
        pair.part()
        old = pair.promote()
        async with opened(f"{pair.primary.tcp_url}?timeout=2") as producer:
            id = await accepted(producer)

        async def seen() -> bool:
            with suppress(OutcomeUnknown, StoreUnavailable):
                return await reader.get(id) is not None
            return False

        await until(seen, within=6)
    old.crash()
    pair.rebuild()


async def test_a_process_that_begins_between_two_primaries_takes_the_newer(pair):
    for _ in range(2):  # the newer one is once the first of the URL, and once the second
        pair.part()
        old = pair.promote()
        async with opened(f"{pair.url}&timeout=2&connect_timeout=0.5") as store:
            id = await accepted(store)
        assert pair.primary.ask(f"select count(*) from hawser.job where id = '{id}'") == "1"
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
