"""Files for TLS that cannot be used: the option is named with the next step, and the exit code is that of misuse."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from hawser.api.serve import HANDSHAKE
from tests.api.processes import Served, served
from tests.api.test_processes import certificate

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("server", "other"):
        certificate(tmp_path, name)
    (tmp_path / "words.txt").write_text("no certificate and no key\n")
    (tmp_path / "empty.pem").write_bytes(b"")
    lock = ["openssl", "pkey", "-in", "server.key", "-aes256", "-passout", "pass:secret", "-out", "locked.key"]
    subprocess.run(lock, cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"cert": "server.pem", "key": "other.key"}, "tls_key: '{}/other.key' does not belong to the first certificate"),
        ({"cert": "words.txt", "key": "server.key"}, "tls_cert: '{}/words.txt' has no certificate in PEM; give the file"),
        ({"cert": "empty.pem", "key": "server.key"}, "tls_cert: '{}/empty.pem' has no certificate in PEM; give the file"),
        ({"cert": "server.key", "key": "server.pem"}, "tls_cert: '{}/server.key' has no certificate in PEM; give the file"),
        ({"cert": "server.pem", "key": "words.txt"}, "tls_key: '{}/words.txt' has no private key in PEM; give the file"),
        ({"cert": "server.pem", "key": "server.pem"}, "tls_key: '{}/server.pem' has no private key in PEM; give the file"),
        ({"cert": "server.pem", "key": "locked.key"}, "tls_key: '{}/locked.key' is locked with a pass phrase; unlock it with"),
        ({"cert": "server.pem", "key": "server.key", "client-ca": "words.txt"}, "tls_client_ca: '{}/words.txt' has no certif"),
        ({"cert": "server.pem"}, "tls_cert, tls_key: give both or none"),
        ({"client-ca": "server.pem"}, "tls_client_ca: clients show certificates only over TLS; add tls_cert and tls_key"),
        ({"cert": "nowhere.pem", "key": "server.key"}, "nowhere.pem' does not exist"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_next_step(folder: Path, files: dict[str, str], told: str):
    server = Served(folder, *(word for option, file in files.items() for word in (f"--tls-{option}", str(folder / file))))
    try:
        server.start(ready=False)
        assert server.process is not None
        assert server.process.wait(20) == 2, server.told()
        assert told.format(folder) in server.told()
        assert "fault of Hawser" not in server.told()
    finally:
        server.end()


def test_from_python_a_file_that_is_not_there_is_named(folder: Path):
    from hawser.api.tls import tls_of
    from hawser.errors import ConfigError

    with pytest.raises(ConfigError, match=r"^tls_cert: cannot read '.*nowhere.pem': No such file or directory; name a PEM file"):
        tls_of(str(folder / "nowhere.pem"), str(folder / "server.key"), None)
    with pytest.raises(ConfigError, match=r"^tls_key: cannot read '.*': Is a directory; name a PEM file"):
        tls_of(str(folder / "server.pem"), str(folder), None)


def a_client_hello() -> bytes:
    """The first words of a client, as it would send them."""
    context = ssl.create_default_context()
    sent = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


def test_a_handshake_that_is_not_finished_is_cut_off(folder: Path):
    hello = a_client_hello()
    with served(folder, "--tls-cert", str(folder / "server.pem"), "--tls-key", str(folder / "server.key")) as server:
        began = time.monotonic()
        callers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
        callers[1].sendall(hello[: len(hello) // 2])
        for caller in callers:
            caller.settimeout(HANDSHAKE + 20)
            with caller, suppress(ConnectionResetError):
                assert caller.recv(100) == b""
        took = time.monotonic() - began
        assert HANDSHAKE - 1 < took < HANDSHAKE + 15
