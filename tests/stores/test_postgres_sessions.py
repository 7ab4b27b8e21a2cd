"""How many sessions Hawser has at the server. Each costs the server memory, and there may be many workers."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import psycopg
import pytest

from hawser.job import NewJob
from hawser.lab.cluster import Cluster
from hawser.store import Share
from hawser.stores.postgres import server as server_module
from tests.postgres import postgres
from tests.worker import tasks
from tests.worker.processes import eventually, fleet, settled
from tests.worker.soon_idle import SOON_IDLE


@pytest.fixture(scope="module")
def cluster():
    """A server that no other test uses: its sessions are counted."""
    with Cluster() as found:
        yield found


def sessions(cluster: Cluster) -> int:
    with psycopg.connect(cluster.url) as con:
        [(count,)] = con.execute("select count(*) from pg_stat_activity where application_name = 'hawser'").fetchall()
    return int(count)


def kept(here: Any) -> set[str]:
    """The kinds of work whose connections are open."""
    return {purpose for purpose, line in here._connections.items() if line.is_open}


async def test_idle_connections_are_closed_but_for_those_that_the_next_job_waits_for(cluster, monkeypatch):
    store = postgres(f"{cluster.url}&schema=idle")
    await store.open()
    try:
        await store.enqueue([NewJob(task="work", body=b"{}")])
        await store.claim([Share("default")], 1, "w", 5)
        await store.reclaim(10)
        await store.stats(None)
        here = store.server._here()
        assert len(here._open) > 2
        here.close_idle()
        assert not here._closing, "a connection that was just used is not idle"
        monkeypatch.setattr(server_module, "IDLE_FOR", -1.0)
        async with asyncio.timeout(20):  # a sweep that the claim began may still connect, and the end of a session is told later
            while (kept(here), len(here._open)) != ({"claim", "enqueue"}, 2):
                here.close_idle()
                for closing in list(here._closing):
                    await closing
                await asyncio.sleep(0.01)
        monkeypatch.undo()
        assert (await store.stats(None)).running == 1, "the next call connects again"
    finally:
        await store.close()


async def test_a_connection_in_use_is_not_idle(cluster):
    store = postgres(f"{cluster.url}&schema=busy")
    await store.open()
    try:
        line = store.server.connection("read")

        async def work(con) -> bool:
            await con.fetchval("select true")
            return line.is_idle(inf)

        assert not await line.do(work)
        assert line.is_idle(inf)
    finally:
        await store.close()


@pytest.mark.parametrize(("processes", "most"), [(1, 7), (4, 19)])
def test_a_worker_at_rest_has_few_sessions(cluster, tmp_path, processes, most):
    """At most four of each process and three of the supervisor."""
    url = f"{cluster.url}&schema=rest_{processes}"
    with fleet(tmp_path) as workers:
        workers.environ["HAWSER_STORE"] = url
        workers.start("--processes", str(processes), "--slots", "10", app="tests.worker.soon_idle:app", first=SOON_IDLE)
        tasks.app.use_store(url)
        try:
            tasks.app.enqueue_many([tasks.nap.job(0) for _ in range(50)])
            eventually(lambda: settled(tasks.app), 30)
        finally:
            tasks.app.close()
        eventually(lambda: sessions(cluster) <= most, 60, lambda: f"{sessions(cluster)} sessions")
        assert sessions(cluster) >= processes, "the workers are there"
