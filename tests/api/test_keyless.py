"""Callers without a key: our own user on this machine, the token, a mounted API, and everybody else."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from hawser import Hawser
from hawser.api import Identity
from hawser.api.keyless import OwnUser, is_loopback, is_own_process
from hawser.api.peer import PeerSocket, _asked, _looked_up, socket_of
from hawser.api.peer_process import _listed, _listening, speaks_for_itself
from hawser.api.routes import ROUTES
from hawser.api.server import Api
from hawser.errors import ConfigError
from hawser.store import Store
from hawser.store.api_key import Role
from tests.api.conftest import bearer, client_of
from tests.api.processes import ROOT, Served, served

STRANGER = 65_534


def own(*_: object) -> bool:
    return True


def of_another(*_: object) -> bool:
    return False


@pytest.fixture(params=["memory"])
async def guarded(app: Hawser) -> AsyncIterator[Api]:
    """As `hawser serve` makes it, with a kernel that says that every socket is ours."""
    api = Api(app, OwnUser(own), upkeep=False)
    yield api
    await api.stop()


@pytest.fixture
async def local(guarded: Api) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(guarded) as client:
        yield client


pytestmark = pytest.mark.parametrize("app", ["memory"], indirect=True)


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1"])
async def test_our_own_user_needs_no_key(guarded: Api, peer: str):
    async with client_of(guarded, peer=peer) as client:
        assert (await client.get("/stats")).status_code == 200


async def test_from_another_machine_one_is_needed(guarded: Api):
    async with client_of(guarded, peer="192.168.1.7") as client:
        assert (await client.get("/stats")).status_code == 401
        assert (await client.get("/healthz")).status_code == 200


async def test_another_user_on_this_machine_needs_a_key_or_the_token(app: Hawser):
    keyless = OwnUser(of_another)
    async with client_of(Api(app, keyless, upkeep=False)) as client:
        refused = await client.get("/stats")
        assert refused.status_code == 401
        assert "token" in refused.json()["detail"]
        assert keyless.token not in refused.text
        assert (await client.get("/stats", headers={"authorization": f"Bearer {keyless.token}"})).status_code == 200
        assert (await client.get(f"/stats?queue=mail&token={keyless.token}")).status_code == 200
        assert (await client.get(f"/healthz?token={keyless.token}")).status_code == 200
        for wrong in ("", "x", keyless.token[:-1], f"{keyless.token}x"):
            assert (await client.get("/stats", headers={"authorization": f"Bearer {wrong}"})).status_code == 401
            assert (await client.get(f"/stats?token={wrong}")).status_code == 401


async def test_a_key_is_taken_beside_the_token(app: Hawser):
    store = await app.store()
    async with client_of(Api(app, OwnUser(of_another), upkeep=False), peer="10.0.0.9") as client:
        header = await bearer(store, Role.VIEWER)
        assert (await client.get("/stats", headers=header)).status_code == 200
        assert (await client.post("/jobs", json={"task": "charge"}, headers=header)).status_code == 403


@pytest.mark.parametrize("header", ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded", "via", "x-real-ip"])
async def test_a_proxy_on_this_machine_makes_nobody_local(local: httpx.AsyncClient, header: str):
    assert (await local.get("/stats", headers={header: "10.0.0.9"})).status_code == 401


async def test_what_speaks_like_nginx_is_not_local(guarded: Api):
    """HTTP/1.0 and nothing else: what `proxy_pass` alone sent before nginx 1.29.7."""

    async def old(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        await guarded({**scope, "http_version": "1.0"}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(old), base_url="http://localhost") as client:
        assert (await client.get("/stats")).status_code == 401


async def test_a_unix_socket_has_no_address_and_is_not_local(guarded: Api):
    async def nameless(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        await guarded({**scope, "client": None}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(nameless), base_url="http://localhost") as client:
        assert (await client.get("/stats")).status_code == 401


async def test_a_name_that_was_made_to_lead_here_is_refused(local: httpx.AsyncClient):
    """DNS rebinding: the page's own name, resolved to 127.0.0.1."""
    assert (await local.get("/stats", headers={"host": "evil.example:8080"})).status_code == 403
    assert (await local.get("/stats", headers={"host": "127.0.0.1:8080"})).status_code == 200
    assert (await local.get("/stats", headers={"host": "[::1]:8080"})).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost"}, 201),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "same-origin", "origin": "http://localhost"}, 201),
    ],
)
async def test_a_page_of_another_origin_may_not_act(app: Hawser, store: Store, headers: dict[str, str], status: int):
    mounted = app.asgi(upkeep=False, identify=lambda _: Identity("ann", ["admin"]))
    for count, api in enumerate((Api(app, OwnUser(own), upkeep=False), app.asgi(upkeep=False, open=True), mounted), 1):
        async with client_of(api) as client:
            response = await client.post("/jobs", json={"task": "charge"}, headers=headers)
        assert response.status_code == status
        assert (await store.stats()).ready == (count if status == 201 else 0)


# Mounted in another application.


@pytest.mark.parametrize("name", [route.name for route in ROUTES if route.roles])
async def test_a_mounted_api_is_closed_unless_told_otherwise(app: Hawser, store: Store, name: str):
    method, path = name.split(" ")
    async with client_of(app.asgi(upkeep=False)) as client:
        assert (await client.request(method, re.sub(r"{\w+}", "none", path))).status_code == 401
        header = await bearer(store, Role.ADMIN)
        assert (await client.get("/stats", headers=header)).status_code == 200


async def test_a_mounted_api_may_be_open(app: Hawser):
    async with client_of(app.asgi(upkeep=False, open=True), peer="203.0.113.7") as client:
        answer = await client.post(
            "/jobs", json={"task": "charge"}, headers={"host": "shop.example", "x-forwarded-for": "1.2.3.4"}
        )
        assert answer.status_code == 201


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_the_application_says_who_asks(app: Hawser, store: Store, asynchronous: bool):
    def who(scope: Mapping[str, Any]) -> Identity | None:
        name = dict(scope["headers"]).get(b"x-user")
        return None if name is None else Identity(name.decode(), ["operator"] if name == b"ann" else ["viewer"])

    async def later(scope: Mapping[str, Any]) -> Identity | None:
        return who(scope)

    api = app.asgi(upkeep=False, identify=later if asynchronous else who)
    async with client_of(api, peer="203.0.113.7") as client:
        assert (await client.get("/stats")).status_code == 401
        assert (await client.get("/stats", headers={"x-user": "bob"})).status_code == 200
        assert (await client.post("/admin/queues/mail/pause", headers={"x-user": "bob"})).status_code == 403
        assert (await client.post("/admin/queues/mail/pause", headers={"x-user": "ann"})).status_code == 200
        assert (await client.get("/stats", headers=await bearer(store, Role.VIEWER))).status_code == 200
    assert [record.by for record in await store.audit() if record.action == "pause"] == ["ann"]


@pytest.mark.parametrize(
    "settings",
    [{"identify": 3}, {"identify": print, "open": True}, {"open": True, "require_key": True}, {"open": 1}],
)
async def test_settings_that_contradict_each_other_are_refused(app: Hawser, settings: dict[str, Any]):
    with pytest.raises(ConfigError):
        app.asgi(**settings)


@pytest.mark.parametrize("name", [route.name for route in ROUTES if route.roles and route.path != "/events"])
async def test_read_only_changes_nothing(app: Hawser, name: str):
    method, path = name.split(" ")
    async with client_of(app.asgi(upkeep=False, open=True, read_only=True)) as client:
        response = await client.request(method, re.sub(r"{\w+}", "none", path))
    assert (response.status_code == 403) is not (method == "GET" or path in ("/ticks", "/session"))


# What the kernel says.


def test_which_hosts_are_this_machine(app: Hawser):
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost", "::ffff:127.0.0.1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.com", "")))


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def as_stranger(*lines: str) -> list[str]:
    """A command that does this as another user of this machine."""
    return [sys.executable, "-c", "\n".join(("import encodings.idna, os, socket, sys", f"os.setuid({STRANGER})", *lines))]


@needs_root
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("look", [socket_of, _asked, _looked_up])
def test_the_kernel_tells_whose_socket_it_is(app: Hawser, look: Any, host: str):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        server = listener.getsockname()[:2]
        with socket.create_connection(server) as ours:
            assert look(ours.getsockname()[:2], server) == (os.geteuid(), os.fstat(ours.fileno()).st_ino)
        with subprocess.Popen(
            as_stranger(f"s = socket.create_connection({server!r})", "print(s.getsockname()[1], flush=True)", "sys.stdin.read()"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other:
            assert other.stdout is not None
            port = int(other.stdout.readline())
            assert look((host, port), server).user == STRANGER
            assert other.stdin is not None
            other.stdin.close()
            other.wait(30)
        # The kernel says user 0 of what its process has closed: nobody may become root by that.
        assert _safely(look, (host, port), server) is None


def _safely(look: Any, peer: tuple[str, int], server: tuple[str, int]) -> PeerSocket | None:
    try:
        found: PeerSocket | None = look(peer, server)
    except OSError:
        return None
    return found


LISTENS = {
    "tcp": "l = socket.create_server(('127.0.0.1', 0))",
    "tcp6": "l = socket.create_server(('::1', 0), family=socket.AF_INET6)",
    "nothing": "",
}


@contextmanager
def connected(server: tuple[str, int], first: str) -> Iterator[tuple[str, int]]:
    """A process that does this, then connects to the server; gives its end of the connection."""
    lines = ("import socket, sys", first, f"s = socket.create_connection({server!r})", "print(s.getsockname()[1], flush=True)")
    with subprocess.Popen(
        [sys.executable, "-c", "\n".join((*lines, "sys.stdin.read()"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield "127.0.0.1", int(process.stdout.readline())
        assert process.stdin is not None
        process.stdin.close()


async def test_a_process_of_our_own_user_that_listens_may_speak_for_others(app: Hawser):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for kind, first in LISTENS.items():
            with connected(listener.getsockname(), first) as peer:
                assert is_own_process(peer, listener.getsockname()) is (kind == "nothing"), kind


def test_a_socket_that_no_process_here_holds_is_not_ours(app: Hawser):
    """As of a proxy in another container of the same network: it may well run as the same user."""
    assert not speaks_for_itself(0)


def test_which_sockets_listen_is_told_by_the_kernel_and_by_its_tables(app: Hawser):
    with socket.create_server(("127.0.0.1", 0)) as four, socket.create_server(("::1", 0), family=socket.AF_INET6) as six:
        ours = {os.fstat(each.fileno()).st_ino for each in (four, six)}
        assert ours <= _listening()
        assert ours <= set(_listed())


def test_a_v4_peer_of_a_v6_socket_is_found(app: Hawser):
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_INET6) as ours:
        ours.connect(("::ffff:127.0.0.1", listener.getsockname()[1]))
        for look in (_asked, _looked_up):
            found = look(("127.0.0.1", ours.getsockname()[1]), listener.getsockname())
            assert found is not None
            assert found.user == os.geteuid()


# As processes.


def request(port: int) -> list[str]:
    """The status that another user of this machine gets."""
    return [
        f"s = socket.create_connection(('127.0.0.1', {port}))",
        "s.sendall(b'GET /stats HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')",
        "print(s.recv(99).split()[1].decode())",
    ]


@needs_root
def test_another_user_of_this_machine_is_refused_by_the_server(app: Hawser, tmp_path: Path):
    with served(tmp_path) as server:
        assert httpx.get(f"{server.url}/stats").status_code == 200
        stranger = subprocess.run(as_stranger(*request(server.port)), capture_output=True, text=True, check=True, timeout=20)
        assert stranger.stdout.strip() == "401"
        told = server.told()
        line = next(line for line in told.splitlines() if "without a key" in line)
        assert f"user of this process ({os.geteuid()}) may do everything" in line
        token = re.findall(r"Bearer (\S+);", line)[0]
        assert httpx.get(f"{server.url}/stats", headers={"authorization": f"Bearer {token}", "via": "x"}).status_code == 200


def test_the_server_says_that_all_need_keys(app: Hawser, tmp_path: Path):
    with served(tmp_path, "--require-key", "--read-only") as server:
        assert "every caller needs a key, and may do what its roles say, reading only; the store has 0 live keys" in server.told()
        assert "Bearer" not in server.told()
        assert httpx.get(f"{server.url}/stats").status_code == 401


@pytest.mark.parametrize(
    ("options", "env"),
    [
        (("--uds", "hawser.sock"), {}),
        (("--proxy", "127.0.0.1"), {}),
        (("--root-path", "/hawser"), {}),
        (("--public-url", "https://jobs.example.com"), {}),
        ((), {"FORWARDED_ALLOW_IPS": "*"}),
    ],
    ids=str,
)
def test_a_proxy_without_keys_is_refused_at_the_start(app: Hawser, tmp_path: Path, options: tuple[str, ...], env: dict[str, str]):
    words = [sys.executable, "-m", "hawser.cli", "serve", "tests.api.shop:app", "--port", "0", *options]
    given = {**os.environ, "HAWSER_STORE": f"sqlite:///{tmp_path}/jobs.db", **env}
    ended = subprocess.run(words, cwd=ROOT, env=given, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2
    assert "add --require-key" in ended.stderr


def test_the_server_tells_where_browsers_find_it(app: Hawser, tmp_path: Path):
    with served(tmp_path, "--require-key", "--public-url", "https://jobs.example.com/hawser/") as server:
        assert (
            "the dashboard is at https://jobs.example.com/hawser/ui/" in server.told() or "there is no dashboard" in server.told()
        )


def test_a_unix_socket_with_keys(app: Hawser, tmp_path: Path):
    path = tmp_path / "hawser.sock"
    server = Served(tmp_path, "--uds", str(path), "--require-key")
    try:
        server.start(ready=False)
        server.wait_for("Application startup complete")
        assert path.stat().st_mode & 0o777 == 0o660
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost") as client:
            assert client.get("/healthz").status_code == 200
            assert client.get("/stats").status_code == 401
        second = Served(tmp_path, "--uds", str(path), "--require-key")
        second.start(ready=False)
        assert second.process is not None
        assert second.process.wait(20) == 2
        server.kill()
        server.start(ready=False)
        server.wait_for("Application startup complete", times=2)
    finally:
        server.end()
