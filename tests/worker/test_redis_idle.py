"""What a worker without work costs a Redis server: hosted ones bill commands, and each write costs a sync."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from hawser.clock import SystemClock
from hawser.errors import StoreError
from hawser.job import State
from hawser.lab.sent_commands import SentCommands
from hawser.store import Share
from hawser.stores.redis import from_url
from hawser.testing.contract.making import a_job
from hawser.testing.contract.scheduling import created
from hawser.testing.contract.workers import a_beat
from tests.redis_servers import RunningServer, running
from tests.until import until as waited

APP = """
from hawser import Hawser

app = Hawser()

@app.task
def work() -> None: ...
"""

SETTLING, WATCHED = 12.0, 60.0
PER_MINUTE = 60
BYTES_PER_MINUTE = 3_000


def until(true: Callable[[], bool], within: float) -> None:
    deadline = time.monotonic() + within
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def worker(server: RunningServer, folder) -> Iterator[None]:
    (folder / "idle_app.py").write_text(APP)
    process = subprocess.Popen(
        [sys.executable, "-m", "hawser.cli", "worker", "idle_app:app", "--processes", "1"],
        cwd=folder,
        env={**os.environ, "HAWSER_STORE": server.url},
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def scripts(server: RunningServer) -> int:
    """How many were called."""
    with server.client() as client:
        stats = client.info("commandstats")
        return sum(each["calls"] for name, each in stats.items() if name in ("cmdstat_evalsha", "cmdstat_eval"))


def log_size(server: RunningServer) -> int:
    with server.client() as client:
        return int(client.info("persistence")["aof_current_size"])


def test_an_idle_worker_sends_few_commands_and_hardly_writes(tmp_path):
    with running() as server, worker(server, tmp_path):
        until(lambda: scripts(server) > 10, within=90)
        time.sleep(SETTLING)  # there is no event for "nothing happens": the pauses between looks grow to their longest
        with server.client() as client:
            size, sent = log_size(server), SentCommands(client).start()
            time.sleep(WATCHED)  # what is measured: how often it asks while there is nothing to do
            commands, written = sent.stop(), log_size(server) - size
    assert commands["info"] >= 1, "each command counts, also those that look at the server's settings"
    assert sum(commands.values()) * 60 / WATCHED <= PER_MINUTE, commands
    assert written * 60 / WATCHED <= BYTES_PER_MINUTE


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running() as server:
        yield server


@pytest.fixture
async def two(server):
    """Two processes' stores on one server; upkeep runs in the first, which knows that there is nothing to do."""
    stores = [from_url(server.url, SystemClock()) for _ in range(2)]
    for store in stores:
        await store.open()
    first, second = stores
    await waited(lambda: asyncio.sleep(0, first._wake.listens()))
    assert await first.reclaim(10) == []
    before = scripts(server)
    for _ in range(5):
        assert await first.reclaim(10) == []
        assert await first.expire(10) == 0
        assert (await first.due_schedules(10)).schedules == []
    assert scripts(server) == before, "it rests"
    yield first, second
    for store in stores:
        await store.close()


async def test_a_sign_of_life_is_a_look_for_upkeep_too(server, two):
    resting, _ = two
    resting._outlook._looked = -math.inf
    await resting.beat([])
    before = scripts(server)
    assert await resting.reclaim(10) == []
    assert scripts(server) == before


async def test_a_wait_after_a_claim_that_found_empty_queues_asks_nothing_until_a_job_comes(server, two):
    idle, other = two
    assert await idle.claim([Share("default")], 1, "w1", 30.0) == []
    idle._wake._pause = 0.2
    before = scripts(server)
    await idle.wait(["default"], 0.2)
    assert scripts(server) == before
    heard = idle._wake.changes
    await other.enqueue([a_job(delay=0.3)])
    await waited(lambda: asyncio.sleep(0, idle._wake.changes > heard))
    idle._wake._pause = 30.0
    await idle.wait(["default"], 30.0)
    assert await idle.claim([Share("default")], 1, "w1", 30.0), "it asked when the job is due, and waited so long"


async def test_a_wait_for_a_queue_that_was_not_claimed_from_asks(server, two):
    idle, _ = two
    assert await idle.claim([Share("default")], 1, "w1", 30.0) == []
    idle._wake._pause = 0.2
    before = scripts(server)
    await idle.wait(["another"], 0.2)
    assert scripts(server) > before


async def test_hashes_that_are_asked_for_at_once_are_read_by_one_script(server, two):
    reading, other = two
    await other.beat([a_beat()])
    assert await reading.pauses() == [], "the server knows the script"
    before = scripts(server)
    policies, workers = await asyncio.gather(reading.policies(), reading.workers())
    assert (policies, [seen.beat.worker for seen in workers]) == ({}, ["w1"])
    assert scripts(server) == before + 1


async def test_upkeep_that_rests_hears_of_the_first_run_and_takes_it_back_in_time(two):
    resting, other = two
    heard = resting._wake.changes
    await other.enqueue([a_job()])
    await waited(lambda: asyncio.sleep(0, resting._wake.changes > heard))
    resting._outlook._looked = -math.inf
    assert await resting._outlook.rest("runs"), "it looked again after the job came, and before it was claimed"
    [claimed] = await other.claim([Share("default")], 1, "w1", 0.2)

    async def reclaims() -> bool:
        return [run.id for run in await resting.reclaim(10)] == [claimed.id]

    await waited(reclaims, 4)


async def test_upkeep_that_rests_hears_of_a_new_schedule(two):
    resting, other = two
    await created(other)

    async def knows() -> bool:
        found = await resting.due_schedules(10)
        return bool(found.schedules) or found.next_in is not None

    await waited(knows, 4)


async def test_upkeep_that_rests_hears_of_a_job_that_expires(two):
    resting, other = two
    [job] = await other.enqueue([a_job(expires=0.2)])

    async def expires() -> bool:
        await resting.expire(10)
        found = await other.get(job.id)
        return found is not None and found.state is State.CANCELLED

    await waited(expires, 4)


async def test_upkeep_does_not_rest_on_what_it_knew_before_the_store_went_away():
    with running() as server:
        store = from_url(f"{server.url}?timeout=0.5", SystemClock())
        await store.open()
        await waited(lambda: asyncio.sleep(0, store._wake.listens()))
        assert await store._outlook.rest("runs")
        os.kill(server.pid, signal.SIGSTOP)
        try:
            store._outlook._looked = -math.inf
            for _ in range(2):
                with pytest.raises(StoreError):
                    await store.reclaim(10)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        await store.close()
