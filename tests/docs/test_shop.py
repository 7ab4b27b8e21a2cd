"""The shop of the guide, as a reader would build it: the files written, the commands run, on a real PostgreSQL server."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hawser import Hawser, Job
from hawser.lab.cluster import Cluster
from tests.docs.documents import ROOT, commands, snippets
from tests.docs.test_documents import environ

GUIDE = ROOT / "docs" / "guides" / "shop.md"


class Shop:
    """The reader's folder and terminals."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder = folder
        self.app = Hawser(store)
        self.environ = {**environ(), "HAWSER_STORE": store}
        self.environ.pop("PYTHONWARNINGS")  # those of FastAPI and SQLAlchemy are not ours
        self.started: list[subprocess.Popen[bytes]] = []
        self.told = {text for _, text in commands(GUIDE)}
        for snippet in snippets(GUIDE, "python"):
            (folder / str(snippet.file)).write_text(snippet.text, encoding="utf-8")

    def start(self, text: str, changes: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Run a command of the guide in a terminal of its own; its output goes to the file `log`."""
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(
                self._words(text, changes or {}),
                cwd=self.folder,
                env=self.environ,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def run(self, text: str, changes: dict[str, str] | None = None) -> str:
        """Run a command of the guide to its end."""
        done = subprocess.run(
            self._words(text, changes or {}),
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def jobs_of(self, task: str) -> list[Job]:
        """Asked of the store itself: a command for each look would take half a second."""
        return self.app.find(task=task).jobs

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < end, self.log()
            time.sleep(0.05)

    def close(self) -> None:
        self.app.close()
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)

    def _words(self, text: str, changes: dict[str, str]) -> list[str]:
        assert text in self.told, f"the guide does not tell this any more: {text}"
        program, *words = [changes.get(word, word) for word in shlex.split(text)]
        module = {"hawser": "hawser.cli"}.get(program, program)
        return [sys.executable, "-m", module, *words]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with Cluster() as cluster:
        shop = Shop(tmp_path, cluster.tcp_url)
        yield shop
        shop.close()


def _free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


def _post(url: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except urllib.error.URLError:
        return 0  # it does not listen yet


WORKER = 'hawser worker tasks:jobs --queues "*" --lease 5'
SOONER = {"5": "2"}
"""Seconds until the jobs of a worker that was killed are taken back."""


def test_the_shop_of_the_guide_works(shop: Shop):
    port = _free_port()
    shop.start("uvicorn main:api --port 8000", {"8000": port})
    orders = f"http://127.0.0.1:{port}/orders"
    shop.until(lambda: _post(f"{orders}?address=ann@example.com&cents=4200") == 201)
    assert _post(f"{orders}?address=bob@example.com&cents=0") == 500
    tasks = [shop.jobs_of(task) for task in ("send_receipt", "charge", "tell_partner")]
    assert [len(jobs) for jobs in tasks] == [1, 1, 1], "an order that was rolled back has no jobs"

    (shop.folder / "bank-is-closed").touch()
    worker = shop.start(WORKER, SOONER)
    shop.until(lambda: shop.jobs_of("charge")[0].state == "dead")
    dead = shop.jobs_of("charge")[0].id
    assert dead in shop.run("hawser dlq")
    assert "the bank is closed" in shop.run("hawser dlq groups")
    (shop.folder / "bank-is-closed").unlink()
    shop.run('hawser dlq replay --task charge --reason "the bank is open again" --yes')
    shop.until(lambda: shop.jobs_of("charge")[0].state == "done")
    assert shop.jobs_of("charge")[0].id == dead
    shop.until(lambda: "receipt of order 1 to ann@example.com" in shop.log())

    assert "At 02:30 every day" in shop.run("hawser schedules")
    shop.run("hawser schedules run nightly_report")
    assert "tell_partner" in shop.run("hawser limits")

    # A reader needs ten seconds to kill the worker, a test does not.
    pack, quick = ('{"order_id": 1, "seconds": 10}', '{"order_id": 1, "seconds": 2}')
    shop.run(f"hawser enqueue tasks:jobs pack --json '{pack}'", {pack: quick})
    shop.until(lambda: shop.jobs_of("pack")[0].state == "running")
    os.kill(worker.pid, signal.SIGKILL)
    shop.start(WORKER, SOONER)
    shop.until(lambda: shop.jobs_of("pack")[0].state == "done")
    assert shop.jobs_of("pack")[0].attempt == 2
    assert "reclaimed 1 runs whose leases ran out" in shop.log()
    assert [job.state for job in shop.jobs_of("nightly_report")] == ["done"]

    port = _free_port()
    shop.start("hawser serve tasks:jobs --port 8080", {"8080": port})
    shop.until(lambda: f"the dashboard is at http://127.0.0.1:{port}/ui/" in shop.log())
    shop.until(lambda: _get(f"http://127.0.0.1:{port}/ui/") == 200)
    assert "3 passed" in shop.run("pytest -q test_shop.py")


def _get(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.URLError:
        return 0
