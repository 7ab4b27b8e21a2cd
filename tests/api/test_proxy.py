"""nginx in front of a server: the example of the guide, and a bare `proxy_pass` on a server without keys."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.api.processes import ROOT, Served, served
from tests.api.test_processes import certificate, hawser

NGINX = shutil.which("nginx") or "/usr/sbin/nginx"
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


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def nginx(folder: Path, server: str, port: int, user: str = "") -> Iterator[None]:
    assert Path(NGINX).exists(), "nginx is missing; install it with: apt-get install nginx-light"
    config = folder / "nginx.conf"
    config.write_text(FRAME.format(user=user, folder=folder, server=server))
    process = subprocess.Popen(
        [NGINX, "-p", str(folder), "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                log = folder / "error.log"
                assert process.poll() is None, log.read_text() if log.exists() else "nginx ended"
                assert time.monotonic() < end
                time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait(10)


@pytest.mark.parametrize("user", [AS_ANOTHER, "user root;" if os.geteuid() == 0 else ""])
def test_behind_a_bare_proxy_nobody_is_admin(tmp_path: Path, user: str):
    """With nothing but proxy_pass nginx sends our own address as Host and no header of its own."""
    with served(tmp_path) as server:
        port = free_port()
        with nginx(tmp_path, BARE.format(port=port, to=server.port), port, user):
            assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
            assert httpx.get(f"http://127.0.0.1:{port}/stats").status_code == 401
            assert httpx.post(f"http://127.0.0.1:{port}/jobs", json={"task": "charge"}).status_code == 401
        assert httpx.get(f"{server.url}/stats").json()["ready"] == 0


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


def test_the_example_of_the_guide_works(tmp_path: Path):
    certificate(tmp_path, "server")
    server = Served(tmp_path, "--require-key", "--proxy", "127.0.0.1")
    try:
        server.start()
        key = hawser(server, "keys", "create", "ops", "--role", "admin").stdout.strip()
        port = free_port()
        with nginx(tmp_path, of_the_guide(tmp_path, port, server.port), port, AS_ANOTHER):
            base = f"https://127.0.0.1:{port}"
            with httpx.Client(verify=False, base_url=base) as client:  # its certificate is of this test
                assert client.get("/healthz").status_code == 200
                assert client.get("/stats", headers={"x-forwarded-for": "127.0.0.1"}).status_code == 401
                client.headers["authorization"] = f"Bearer {key}"
                assert client.post("/jobs", json={"task": "charge"}).status_code == 201
                assert client.post("/claims", json={"queues": ["default"]}).json()["jobs"]
                with client.stream("GET", "/events") as stream:
                    assert next(stream.iter_raw()).startswith(b"retry:")
    finally:
        server.end()
