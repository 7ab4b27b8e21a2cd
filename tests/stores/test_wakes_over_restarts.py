"""A server that goes away while jobs are woken, and again while another process goes on with that: nobody is forgotten."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import pytest

from hawser.errors import StoreError
from hawser.lab.cluster import Cluster
from hawser.outcome import Done, Held
from hawser.store import Arrival, Settled, Settlement, Share, Store
from hawser.stores import make_store
from hawser.testing.contract.making import a_job
from tests.redis_servers import RunningServer, installed
from tests.until import until

WAITERS = 6_000
"""Several times as many as one transaction or script wakes."""

ROUNDS = 6

ALL = [Share("default")]
LEASE = 600.0


class Place(NamedTuple):
    """A server of the test's own."""

    url: str
    crash: Callable[[], None]
    start: Callable[[], object]


@pytest.fixture(params=["postgres", *installed()])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "postgres":
        with Cluster() as cluster:
            yield Place(cluster.url, cluster.crash, cluster.start)
        return
    server = RunningServer(request.param).start()
    yield Place(server.url, server.kill, server.start)
    server.stop()


@pytest.fixture
async def opened(place: Place) -> AsyncIterator[Callable[[], Awaitable[Store]]]:
    """Opens stores, each as another process would, that are closed with the test."""
    stores: list[Store] = []

    async def opened() -> Store:
        store = make_store(place.url)
        stores.append(store)
        await store.open()
        return store

    yield opened
    for store in stores:
        await store.close()


async def emit(store: Store, event: str) -> None:
    await store.emit(event, b'{"parcels":2}', 86_400.0)


async def go_on(store: Store, _: str) -> None:
    """As every worker does, again and again: what a reclaim sees first is that jobs wait here."""
    while True:
        await store.reclaim(10)
        await store.go_on()
        await asyncio.sleep(0)


@pytest.mark.timeout(600)
async def test_a_server_that_restarts_while_jobs_are_woken_forgets_nobody(place: Place, opened: Callable[[], Awaitable[Store]]):
    """Whether a crash comes in the middle is not ours to say, so there are several; each of them must lose nothing."""
    for round in range(ROUNDS):
        if await both_crashes_came_in_the_middle(place, opened, f"packed-{round}"):
            return
    raise AssertionError(f"in {ROUNDS} rounds the server never went in the middle both times")


async def both_crashes_came_in_the_middle(place: Place, opened: Callable[[], Awaitable[Store]], event: str) -> bool:
    watcher = await opened()
    held: set[str] = set()
    for _ in range(WAITERS // 1_000):
        await watcher.enqueue([a_job() for _ in range(1_000)])
        runs = await watcher.claim(ALL, 1_000, "w1", LEASE)
        await watcher.settle([Settlement(run.id, run.lease, Held("packed", event=event)) for run in runs])
        held |= {run.id for run in runs}
    left, in_the_middle = (await watcher.stats()).held, 0
    assert left == len(held) == WAITERS

    async def fewer() -> bool:
        return (await watcher.stats()).held < left

    for work in (emit, go_on):
        waking = asyncio.create_task(work(await opened(), event))
        await until(fewer)
        place.crash()
        waking.cancel()
        with suppress(StoreError, asyncio.CancelledError):
            await waking
        await asyncio.to_thread(place.start)
        watcher, before = await opened(), left
        left = (await watcher.stats()).held
        in_the_middle += 0 < left < before
        if not left:
            break

    async def all_woken() -> bool:
        await watcher.reclaim(10)
        await watcher.go_on()
        return (await watcher.stats()).held == 0

    await until(all_woken)
    given: Counter[str] = Counter()
    while runs := await watcher.claim(ALL, 1_000, "w2", LEASE):
        given.update(run.id for run in runs)
        for run in runs[:20]:
            step = await watcher.arrive(Arrival(id=run.id, lease=run.lease, name="packed", event=event))
            assert step is not None
            assert (step.kind, step.value) == ("event", {"parcels": 2})
        answers = await watcher.settle([Settlement(run.id, run.lease, Done()) for run in runs])
        assert {answer.said for answer in answers} == {Settled.SETTLED}
    assert given == Counter(held), "each is given out, once"
    return in_the_middle == 2
