"""Faults on a PostgreSQL server of our own: it always comes back, and what it accepted is there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from hawser.errors import OutcomeUnknown, StoreUnavailable
from hawser.job import NewJob
from hawser.lab import process_tree
from hawser.lab.chaos import server
from hawser.lab.chaos.plan import Plan
from hawser.lab.cluster import Cluster
from tests.postgres import postgres
from tests.worker.processes import eventually


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


async def test_what_was_accepted_survives_a_plan_of_every_fault(cluster):
    store = postgres(cluster.url)
    await store.open()
    back: list[float] = []
    plan = Plan(
        {
            "backend": (1, server.kill_backend(cluster)),
            "postmaster": (1, server.kill_server(cluster, back=back.append)),
            "restart": (1, server.restart(cluster, back=back.append)),
        },
        seed=5,
        every=(0.2, 0.4),
    )
    faults = asyncio.create_task(asyncio.to_thread(plan.run, times=6))
    accepted, unsure = [], 0
    while not faults.done():
        job = NewJob(task="work", body=b"{}")
        try:
            await store.enqueue([job])
            accepted.append(job.id)
        except (OutcomeUnknown, StoreUnavailable):
            unsure += 1
            await asyncio.sleep(0.02)
    made = await faults
    assert set(made) == {"backend", "postmaster", "restart"}
    assert len(back) == made["postmaster"] + made["restart"]
    assert unsure
    cluster.await_ready()
    async with asyncio.timeout(20):
        for id in accepted:
            while True:
                try:
                    assert await store.get(id) is not None
                    break
                except StoreUnavailable:
                    await asyncio.sleep(0.05)
    await store.close()


def test_a_kill_returns_when_no_process_of_the_server_is_left(cluster):
    processes = [cluster.pid, *cluster.children()]
    assert len(processes) > 4
    cluster.kill()
    assert not any(map(process_tree.lives, processes))
    cluster.start()


def test_a_crash_takes_all_processes_and_leaves_what_a_start_recovers(cluster):
    cluster.ask("create table kept (n int)", "insert into kept values (1)")
    processes = [cluster.pid, *cluster.children()]
    cluster.crash()
    assert not any(map(process_tree.lives, processes))
    cluster.start()
    assert cluster.ask("select n from kept") == "1"


def test_a_frozen_server_answers_nobody_until_it_is_thawed(cluster):
    cluster.freeze()
    eventually(lambda: all(map(process_tree.is_stopped, [cluster.pid, *cluster.children()])))
    cluster.thaw()
    assert cluster.ask("select 1") == "1"


def test_a_server_that_was_killed_leaves_nothing_behind():
    with Cluster() as cluster:
        cluster.kill()
        files = cluster._remains._files
        assert files
        assert all(file.exists() for file in files)
    assert not any(file.exists() for file in files)
    assert not cluster.folder.exists()
