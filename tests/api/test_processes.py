"""`hawser serve` as a process: signals, kills, keys, TLS, and a worker in another language."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from hawser.outcome import Done
from hawser.store import NewOutput, Settlement, Share
from tests.api.processes import ROOT, Served, served
from tests.cli.given import Given
from tests.drills.cases.streams import full_pipe
from tests.drills.server import keyed_posts
from tests.worker.processes import eventually


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as server:
        yield server


def hawser(server: Served, *words: str) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-m", "hawser.cli", *words, "--store", server.store]
    return subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_every_201_survives_kills_and_every_key_makes_one_job(tmp_path: Path):
    report = keyed_posts(tmp_path, jobs=150, kills=2, seed=1)
    assert report["wrong"] == []
    assert report["kills"] == 2


def test_sigterm_lets_requests_finish_and_ends_those_that_wait(server: Served):
    answers: list[httpx.Response] = []
    claim = threading.Thread(
        target=lambda: answers.append(httpx.post(f"{server.url}/claims", json={"wait": 50}, timeout=60)), daemon=True
    )
    chunks: list[bytes] = []

    def listen() -> None:
        with httpx.stream("GET", f"{server.url}/events", timeout=60) as stream:
            chunks.extend(stream.iter_raw())
            chunks.append(b"the end")

    listener = threading.Thread(target=listen, daemon=True)
    claim.start()
    listener.start()
    while not chunks:
        time.sleep(0.01)
    time.sleep(0.5)  # until the claim waits, too: nothing tells of that
    began = time.monotonic()
    assert server.stop() == 0
    claim.join(5)
    listener.join(5)
    assert time.monotonic() - began < 8
    assert [answer.json() for answer in answers] == [{"jobs": []}]
    assert chunks[-1] == b"the end"


def test_a_hangup_ends_the_server_as_sigterm_does(server: Served):
    assert server.process is not None
    server.process.send_signal(signal.SIGHUP)
    assert server.process.wait(20) == 0


def test_under_nohup_a_server_outlives_its_terminal(tmp_path: Path):
    """A terminal that closes sends SIGHUP. The answers come from later steps of the same loop: it would have heard it before."""
    server = Served(tmp_path, first="import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    try:
        server.start()
        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)
        for _ in range(3):
            assert httpx.get(f"{server.url}/healthz").status_code == 200
        assert "Shutting down" not in server.told()
        assert server.stop() == 0
    finally:
        server.end()


def test_a_full_pipe_holds_up_neither_answers_nor_the_end(tmp_path: Path):
    """Each refused caller is a line of the log, which is read by no one."""
    server = Served(tmp_path, "--require-key", "--access-log")
    reads, server.out = full_pipe()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.port = listener.getsockname()[1]
    try:
        server.start(ready=False)
        assert server.process is not None
        eventually(lambda: is_open(server.port), 30)
        for _ in range(100):
            assert httpx.get(f"{server.url}/stats", timeout=10).status_code == 401
        assert server.stop() == 0
    finally:
        server.end()
        os.close(reads)
        os.close(server.out)


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_a_public_address_is_refused_without_keys_and_closed_with_them(tmp_path: Path):
    server = Served(tmp_path, "--host", "0.0.0.0")
    try:
        server.start(ready=False)
        assert server.process is not None
        assert server.process.wait(20) == 2
        assert "has no live API key" in server.told()
        made = hawser(server, "keys", "create", "ops", "--role", "viewer")
        key = made.stdout.strip()
        server.start()
        assert httpx.get(f"{server.url}/stats").status_code == 401, "on this machine, too"
        assert httpx.get(f"{server.url}/stats", headers={"authorization": f"Bearer {key}"}).status_code == 200
        [listed] = json.loads(hawser(server, "keys", "ls", "--json").stdout)["keys"]
        assert (listed["name"], listed["roles"], listed["state"]) == ("ops", ["viewer"], "live")
        assert key not in server.told()
        assert not any(key.split("_")[2].encode() in file.read_bytes() for file in tmp_path.glob("jobs.db*"))
        assert hawser(server, "keys", "revoke", listed["id"]).returncode == 0
        end = time.monotonic() + 1.0  # what the promise says: within a second
        while httpx.get(f"{server.url}/stats", headers={"authorization": f"Bearer {key}"}).status_code != 401:
            assert time.monotonic() < end, "it is still let in"
            time.sleep(0.02)
        assert hawser(server, "keys", "revoke", listed["id"]).returncode == 1
    finally:
        server.end()


def test_a_taken_port_is_told(server: Served, tmp_path: Path):
    (tmp_path / "second").mkdir()
    second = Served(tmp_path / "second")
    second.port = server.port
    second.start(ready=False)
    assert second.process is not None
    assert second.process.wait(20) == 2
    assert f"cannot listen on 127.0.0.1:{server.port}" in second.told()


@pytest.mark.skipif(shutil.which("node") is None, reason="the example is in JavaScript")
def test_the_worker_in_javascript_works(server: Served):
    made = [httpx.post(f"{server.url}/jobs", json={"task": "add", "payload": {"a": n, "b": 1}}).json()["id"] for n in range(5)]
    worker = subprocess.Popen(["node", "examples/worker.mjs", server.url, "js"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 30
        while httpx.get(f"{server.url}/stats?queue=js").json()["done"] < 5:
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        worker.terminate()
        out, _ = worker.communicate(timeout=20)
    assert worker.returncode == 0
    assert out.count("done, settled") == 5
    assert [httpx.get(f"{server.url}/jobs/{id}").json()["result"] for id in made] == [1, 2, 3, 4, 5]


def certificate(folder: Path, name: str, *signed_by: str) -> None:
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", *subject]
    subprocess.run(
        [*words, *signed_by, "-keyout", f"{name}.key", "-out", f"{name}.pem"], cwd=folder, check=True, capture_output=True
    )


@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")
def test_tls_and_client_certificates(tmp_path: Path):
    certificate(tmp_path, "ca")
    certificate(tmp_path, "server", "-CA", "ca.pem", "-CAkey", "ca.key")
    certificate(tmp_path, "client", "-CA", "ca.pem", "-CAkey", "ca.key")
    files = {
        option: str(tmp_path / file) for option, file in (("cert", "server.pem"), ("key", "server.key"), ("client-ca", "ca.pem"))
    }
    options = [word for option, file in files.items() for word in (f"--tls-{option}", file)]
    with served(tmp_path, *options) as server:
        url = server.url.replace("http", "https")
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        with pytest.raises((httpx.ReadError, httpx.ConnectError, httpx.RemoteProtocolError)):
            httpx.get(f"{url}/stats", verify=context)
        context.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key")
        assert httpx.get(f"{url}/stats", verify=context).status_code == 200


def test_a_frozen_caller_holds_nobody_up(server: Served, tmp_path: Path):
    """Slow loris: connections that say half a request and fall silent."""
    import socket

    half = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
    for connection in half:
        connection.sendall(b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    assert httpx.post(f"{server.url}/jobs", json={"task": "charge"}, timeout=5).status_code == 201
    for connection in half:
        connection.close()


def test_jobs_of_http_and_of_python_are_the_same(server: Served, tmp_path: Path):
    id = httpx.post(f"{server.url}/jobs", json={"task": "charge", "payload": {"order": 5}}).json()["id"]
    given = Given(tmp_path / "jobs.db")
    [claimed] = given._portal.call(given.store.claim((Share("default"),), 1, "w", 60.0))
    given.close()
    assert (claimed.id, claimed.payload) == (id, {"order": 5})


def test_a_stream_of_output_goes_on_where_its_reader_was_cut_off(server: Served, tmp_path: Path):
    """Over a socket, as a browser's `EventSource` does it; the chunks come from another process."""
    given = Given(tmp_path / "jobs.db")
    id = given.running("charge")

    def write(*chunks: bytes, first: int) -> None:
        given.ask(given.store.write_output([NewOutput(id=id, lease=1, attempt=1, first=first, chunks=chunks)]))

    def events(lines: Iterator[str], most: int) -> list[str]:
        found: list[str] = []
        for line in lines:
            if line.startswith(("id: ", "event: end")):
                found.append(line.split(": ")[1])
                if len(found) == most:
                    break
        return found

    write(b"1", b"2", b"3", first=0)
    url = f"{server.url}/jobs/{id}/stream"
    with httpx.stream("GET", f"{url}?from=2", timeout=60) as cut_off:
        assert cut_off.headers["content-type"].startswith("text/event-stream")
        assert events(cut_off.iter_lines(), 2) == ["2", "3"]
    write(b"4", first=3)
    with httpx.stream("GET", f"{url}?from=2", headers={"last-event-id": "3"}, timeout=60) as stream:
        lines = stream.iter_lines()
        assert events(lines, 1) == ["4"], "where it was goes before where it began"
        write(b"5", first=4)
        given.ask(given.store.settle([Settlement(id, 1, Done(None))]))
        assert events(lines, 10) == ["5", "end"], "the server ends it"
    given.close()
