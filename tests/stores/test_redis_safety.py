"""The Redis store looks again whether its server keeps what it accepts: every minute, and on each new connection."""

from __future__ import annotations

import pytest

from hawser import ConfigError
from hawser.errors import StoreUnavailable
from hawser.store import Settled, Share
from hawser.stores import make_store
from hawser.stores.redis import safety as safety_module
from hawser.testing.contract.making import a_job, done
from tests.redis_servers import RunningServer, installed

ALL = [Share("default")]
KINDS = installed()


@pytest.fixture(params=KINDS)
def server(request):
    running = RunningServer(request.param).start()
    yield running
    running.stop()


@pytest.fixture
async def store(server):
    opened = make_store(server.url)
    await opened.open()
    yield opened
    await opened.close()


def configure(server: RunningServer, *settings: str) -> None:
    with server.client() as client:
        client.config_set(*settings)


def looks(server: RunningServer) -> int:
    """How often the settings were read."""
    with server.client() as client:
        return int(client.info("commandstats").get("cmdstat_config|get", {"calls": 0})["calls"])


async def test_a_producer_that_never_reclaims_notices_that_the_server_became_unsafe(server, store, monkeypatch):
    await store.enqueue([a_job()])
    monkeypatch.setattr(safety_module, "CHECK_EVERY", 0.0)
    configure(server, "appendfsync", "everysec")
    with pytest.raises(StoreUnavailable, match=r"appendfsync.*nothing was written"):
        await store.enqueue([a_job()])
    configure(server, "appendfsync", "always")
    assert (await store.enqueue([a_job()]))[0].created


async def test_a_worker_that_only_settles_notices_it_too_and_settles(server, store, monkeypatch):
    await store.enqueue([a_job()])
    [claimed] = await store.claim(ALL, 1, "w1", 60)
    configure(server, "appendfsync", "everysec")
    monkeypatch.setattr(safety_module, "CHECK_EVERY", 0.0)
    assert [answer.said for answer in await store.settle([done(claimed)])] == [Settled.SETTLED]
    monkeypatch.setattr(safety_module, "CHECK_EVERY", 60.0)
    with pytest.raises(StoreUnavailable, match="appendfsync"):
        await store.enqueue([a_job()])


async def test_a_server_that_comes_back_with_other_settings_gets_no_job(server, store):
    await store.enqueue([a_job()])
    server.kill()
    server.settings["appendfsync"] = "everysec"
    server.start()
    job = a_job()
    with pytest.raises(StoreUnavailable, match="appendfsync"):
        await store.enqueue([job])
    assert await store.get(job.id) is None
    [claimed] = await store.claim(ALL, 1, "w1", 60)
    assert [answer.said for answer in await store.settle([done(claimed)])] == [Settled.SETTLED]


async def test_an_unsafe_server_gets_no_jobs_of_schedules_either(server, store, monkeypatch):
    monkeypatch.setattr(safety_module, "CHECK_EVERY", 0.0)
    configure(server, "appendfsync", "everysec")
    with pytest.raises(StoreUnavailable, match="appendfsync"):
        await store.server.run("fire", b"")


async def test_within_a_minute_writes_on_a_connection_that_stands_read_no_settings(server, store):
    await store.enqueue([a_job()])
    before = looks(server)
    for _ in range(20):
        await store.enqueue([a_job()])
    assert looks(server) == before


async def test_trust_does_not_overrule_settings_that_the_server_shows(server, store):
    """It is for servers that hide them: what can be seen is believed."""
    trusting = make_store(f"{server.url}?trust=always")
    await trusting.open()
    assert trusting.durability == "durable"
    configure(server, "appendfsync", "everysec")
    again = make_store(f"{server.url}?trust=always")
    with pytest.raises(ConfigError, match="appendfsync"):
        await again.open()
    for each in (trusting, again):
        await each.close()
