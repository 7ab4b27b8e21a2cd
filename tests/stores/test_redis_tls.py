"""`rediss://`: the server's certificate is checked, and one of ours is shown. The Valkey of the tests has no TLS."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hawser.clock import SystemClock
from hawser.errors import StoreUnavailable
from hawser.store import Settled, Share
from hawser.stores.redis import RedisStore, from_url
from hawser.testing.contract.making import a_job, done
from tests.api.test_processes import certificate
from tests.redis_servers import RunningServer
from tests.until import until

needs = [name for name in ("redis-server", "openssl") if shutil.which(name) is None]
pytestmark = pytest.mark.skipif(bool(needs), reason=f"not installed: {', '.join(needs)}")


def made(url: str) -> RedisStore:
    return from_url(url, SystemClock())


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def files(tmp_path: Path) -> Path:
    certificate(tmp_path, "ca")
    certificate(tmp_path, "server", "-CA", "ca.pem", "-CAkey", "ca.key")
    certificate(tmp_path, "client", "-CA", "ca.pem", "-CAkey", "ca.key")
    certificate(tmp_path, "other")
    return tmp_path


@pytest.fixture
def start(files: Path) -> Iterator[Callable[[str], int]]:
    """Starts a server that speaks TLS only, and says on which port."""
    started: list[RunningServer] = []

    def start(clients: str) -> int:
        port = free_port()
        settings = {
            "tls_port": str(port),
            "tls_cert_file": str(files / "server.pem"),
            "tls_key_file": str(files / "server.key"),
            "tls_ca_cert_file": str(files / "ca.pem"),
            "tls_auth_clients": clients,
        }
        started.append(RunningServer("redis", None, **settings).start())
        return port

    yield start
    for server in started:
        server.stop()


async def test_jobs_go_over_tls_and_hints_too(start, files):
    port = start("no")
    store = made(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={files / 'ca.pem'}")
    await store.open()
    try:
        waiting = asyncio.create_task(store.wait(["default"], 30))
        await until(lambda: asyncio.sleep(0, store._wake.listens()))
        await store.enqueue([a_job()])
        await asyncio.wait_for(waiting, 5)
        [claimed] = await store.claim([Share("default")], 1, "w1", 60)
        assert [answer.said for answer in await store.settle([done(claimed)])] == [Settled.SETTLED]
    finally:
        await store.close()


async def test_a_server_with_a_certificate_of_another_is_refused(start, files):
    port = start("no")
    store = made(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={files / 'other.pem'}")
    with pytest.raises(StoreUnavailable, match=r"(?i)certificate"):
        await store.open()
    await store.close()


async def test_a_server_may_ask_for_our_certificate(start, files):
    port = start("yes")
    url = f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={files / 'ca.pem'}"
    without = made(url)
    with pytest.raises(StoreUnavailable):
        await without.open()
    await without.close()
    store = made(f"{url}&ssl_certfile={files / 'client.pem'}&ssl_keyfile={files / 'client.key'}")
    await store.open()
    assert (await store.enqueue([a_job()]))[0].created
    await store.close()


async def test_plain_redis_to_a_server_with_tls_is_an_error_of_ours(start):
    port = start("no")
    store = made(f"redis://127.0.0.1:{port}/0?connect_timeout=2")
    with pytest.raises(StoreUnavailable):
        await store.open()
    await store.close()
