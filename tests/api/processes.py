"""Servers for tests: in a thread of this process, or as `hawser serve`; started, reached, and always ended."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from hawser.api.server import Api
from tests.worker.processes import program

ROOT = Path(__file__).parents[2]
APP = "tests.api.shop:app"


@contextmanager
def threaded(api: Api) -> Iterator[str]:
    """Serve in a thread; gives the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(api, log_config=None, lifespan="on", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)


class Served:
    """`hawser serve`, on a SQLite file unless told otherwise, at one port that stays the same from start to start."""

    def __init__(self, folder: Path, *options: str, store: str | None = None, first: str = "") -> None:
        """`first` is Python that the process runs before all else, for one with other constants."""
        self.folder = folder
        self.program = program(first)
        self.options = options
        self.store = store or f"sqlite:///{folder}/jobs.db?timeout=10"
        self.log = folder / "serve.log"
        self.out: int | None = None
        """Where it writes its log instead."""
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, *, ready: bool = True) -> None:
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.program, "serve", APP, "--port", str(self.port), *self.options],
                cwd=ROOT,
                env={**os.environ, "HAWSER_STORE": self.store},
                stdout=log if self.out is None else self.out,
                stderr=log if self.out is None else self.out,
                start_new_session=True,
            )
        if not ready:
            return
        end = time.monotonic() + 30
        while "Application startup complete" not in (told := self.told()[before:]):
            assert self.process.poll() is None, told
            assert time.monotonic() < end, told
            time.sleep(0.02)
        port = re.search(r"serving .* on https?://[^:]+:(\d+)", told)
        assert port is not None, told
        self.port = int(port[1])

    def wait_for(self, words: str, times: int = 1) -> None:
        """Until its log has these words so often."""
        end = time.monotonic() + 30
        while self.told().count(words) < times:
            assert self.process is not None
            assert self.process.poll() is None, self.told()
            assert time.monotonic() < end, self.told()
            time.sleep(0.02)

    def told(self) -> str:
        return self.log.read_text()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)


@contextmanager
def served(folder: Path, *options: str, first: str = "") -> Iterator[Served]:
    server = Served(folder, *options, first=first)
    try:
        server.start()
        yield server
    finally:
        server.end()
