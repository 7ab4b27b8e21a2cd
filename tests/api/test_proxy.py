"""nginx and Caddy in front of a server: the examples of the guide, and a bare proxy on a server without keys."""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.api.processes import ROOT, Served, served
from tests.api.test_processes import certificate, hawser

NGINX = shutil.which("nginx") or "/usr/sbin/nginx"
CADDY = shutil.which("caddy") or str(Path(sys.executable).with_name("caddy"))
AS_ANOTHER = "user www-data;" if os.geteuid() == 0 else ""
"""Of a package nginx runs as another user; only root can start it so."""

FRAME = """
{user}
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {server}
}}
"""
BARE = "server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{to}; }} }}"
BARE_OF_TODAY = BARE.replace("; }} }}", '; proxy_http_version 1.1; proxy_set_header Connection ""; }} }}')
"""As nginx speaks unless told otherwise since 1.29.7."""


ANSWERED_WITHIN = 60.0
"""Seconds: on a machine that is busy with other tests nothing is said of how long an answer takes."""


def free_port() -> int:
    """Below those that the kernel gives to whoever asks for any: nobody takes it before the proxy does."""
    while True:
        port = random.randrange(20_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@contextmanager
def nginx(folder: Path, server: str, port: int, user: str = "") -> Iterator[None]:
    assert Path(NGINX).exists(), "nginx is missing; install it with: apt-get install nginx-light"
    config = folder / "nginx.conf"
    config.write_text(FRAME.format(user=user, folder=folder, server=server))
    with running([NGINX, "-p", str(folder), "-c", str(config)], port, folder / "error.log"):
        yield


@contextmanager
def caddy(folder: Path, site: str, port: int) -> Iterator[None]:
    """As our own user, without certificates: the site is one of plain HTTP."""
    assert Path(CADDY).exists(), "caddy is missing; script/setup fetches it, or install it with: apt-get install caddy"
    config = folder / "Caddyfile"
    config.write_text(f"{{\n    admin off\n    grace_period 1s\n}}\n{site}")
    with running([CADDY, "run", "--config", str(config), "--adapter", "caddyfile"], port, folder / "caddy.log"):
        yield


@contextmanager
def running(command: list[str], port: int, log: Path) -> Iterator[None]:
    """The program, once it listens at the port."""
    with log.open("ab") as told:
        process = subprocess.Popen(command, stdout=told, stderr=told, env={**os.environ, "HOME": str(log.parent)})
    try:
        end = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.parametrize("bare", [BARE, BARE_OF_TODAY])
@pytest.mark.parametrize("user", [AS_ANOTHER, "user root;" if os.geteuid() == 0 else ""])
def test_behind_a_bare_proxy_nobody_is_admin(tmp_path: Path, user: str, bare: str):
    """With nothing but proxy_pass nginx sends our own address as Host and no header of its own."""
    with served(tmp_path) as server:
        port = free_port()
        with nginx(tmp_path, bare.format(port=port, to=server.port), port, user):
            assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
            assert httpx.get(f"http://127.0.0.1:{port}/stats").status_code == 401
            assert httpx.post(f"http://127.0.0.1:{port}/jobs", json={"task": "charge"}).status_code == 401
        assert httpx.get(f"{server.url}/stats").json()["ready"] == 0


def test_behind_a_bare_caddy_nobody_is_admin(tmp_path: Path):
    """It names its callers by itself; here it is told not to."""
    with served(tmp_path) as server:
        port = free_port()
        hidden = "".join(f"header_up -{name}\n" for name in ("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host"))
        for inside in ("", f"{{\n{hidden}}}"):
            with caddy(tmp_path, f"http://127.0.0.1:{port} {{\nreverse_proxy 127.0.0.1:{server.port} {inside}\n}}\n", port):
                assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
                assert httpx.get(f"http://127.0.0.1:{port}/stats").status_code == 401
                assert httpx.post(f"http://127.0.0.1:{port}/jobs", json={"task": "charge"}).status_code == 401


def of_the_guide(folder: Path, port: int, to: int) -> str:
    """The example, with its addresses and certificates replaced by those of this test."""
    text = (ROOT / "docs" / "guides" / "proxy.md").read_text()
    example = re.findall(r"```nginx\n(.*?)```", text, re.DOTALL)[0]
    for old, new in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("127.0.0.1:8080", f"127.0.0.1:{to}"),
        ("/etc/ssl/hawser.example.pem", str(folder / "server.pem")),
        ("/etc/ssl/private/hawser.example.key", str(folder / "server.key")),
    ):
        assert old in example
        example = example.replace(old, new)
    return str(example)


def caddy_of_the_guide(port: int, to: int) -> str:
    """The example, on plain HTTP: certificates are Caddy's own affair, with an authority that is not here."""
    text = (ROOT / "docs" / "guides" / "proxy.md").read_text()
    [example] = re.findall(r"```caddyfile\n(.*?)```", text, re.DOTALL)
    for old, new in (("hawser.example {", f"http://127.0.0.1:{port} {{"), ("127.0.0.1:8080", f"127.0.0.1:{to}")):
        assert old in example
        example = example.replace(old, new)
    return str(example)


@pytest.mark.parametrize("proxy", ["nginx", "caddy"])
def test_the_examples_of_the_guide_work(tmp_path: Path, proxy: str):
    certificate(tmp_path, "server")
    server = Served(tmp_path, "--require-key", "--proxy", "127.0.0.1")
    try:
        server.start()
        key = hawser(server, "keys", "create", "ops", "--role", "admin").stdout.strip()
        port = free_port()
        if proxy == "nginx":
            before, scheme = nginx(tmp_path, of_the_guide(tmp_path, port, server.port), port, AS_ANOTHER), "https"
        else:
            before, scheme = caddy(tmp_path, caddy_of_the_guide(port, server.port), port), "http"
        base = f"{scheme}://127.0.0.1:{port}"
        trusting = httpx.Client(verify=False, base_url=base, timeout=ANSWERED_WITHIN)  # its certificate is of this test
        with before, trusting as client:
            assert client.get("/healthz").status_code == 200
            assert client.get("/stats", headers={"x-forwarded-for": "127.0.0.1"}).status_code == 401
            client.headers["authorization"] = f"Bearer {key}"
            assert client.post("/jobs", json={"task": "charge"}).status_code == 201
            assert client.post("/claims", json={"queues": ["default"]}).json()["jobs"]
            large = client.post("/jobs", json={"task": "charge", "payload": {"text": "x" * 9_000_000}})
            assert large.status_code == 413
            with client.stream("GET", "/events") as stream:
                assert next(stream.iter_raw()).startswith(b"retry:")
    finally:
        server.end()
