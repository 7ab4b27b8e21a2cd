"""SQLite's files taken away from running processes, and its write lock held by another program."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from hawser import Hawser
from tests.drills.case import Case, Seen
from tests.worker.processes import ROOT, held

TOLD_WITHIN = 12.0
"""Seconds until a worker, which writes a sign of life every five, says that it cannot write."""

MOMENT = 0.25
"""Seconds. The file is looked at ten times a second, and what was about to be accepted is."""

PRODUCER = """
import sys, time
from hawser import Hawser, HawserError
app = Hawser(sys.argv[1])
@app.task
def work() -> None: ...
app.open()
while True:
    try:
        print("accepted", work.using(delay=3600).enqueue().id, time.time(), flush=True)
    except HawserError as error:
        print("refused", "restart this process" in str(error), time.time(), flush=True)
    time.sleep(0.02)
"""


class Page(NamedTuple):
    status: int
    text: str


def page(port: int, path: str) -> Page:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return Page(answer.status, answer.read().decode())
    except urllib.error.HTTPError as error:
        return Page(error.code, error.read().decode())


def first(wanted: Callable[[], bool], within: float) -> float | None:
    """Seconds until it is so."""
    began = time.monotonic()
    while time.monotonic() < began + within:
        if wanted():
            return time.monotonic() - began
        time.sleep(0.1)
    return None


@contextmanager
def running(folder: Path, name: str, *command: str, url: str) -> Iterator[Path]:
    """`hawser COMMAND`, with its log."""
    log = folder / f"{name}.log"
    environ = {**os.environ, "HAWSER_STORE": url, "HAWSER_TEST_JOURNAL": str(folder / "journal")}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "hawser.cli", *command], cwd=ROOT, env=environ, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield log
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def is_ready(port: int) -> bool:
    try:
        return page(port, "/readyz").status == 200
    except OSError:
        return False


def is_unready(port: int) -> bool:
    return page(port, "/readyz").status == 503


def is_up(port: int) -> bool:
    return "hawser_store_up 1.0" in page(port, "/metrics").text


def is_well(port: int) -> bool:
    return is_ready(port) and is_up(port)


def taken_away(folder: Path, name: str, take: Callable[[Path], None]) -> Seen:
    url, port = f"sqlite:///{folder}/jobs.db", free_port()
    worker = ("worker", "tests.worker.tasks:app", "--metrics-port", str(port))
    with running(folder, "worker", *worker, url=url) as log:
        assert first(partial(is_ready, port), 30) is not None, log.read_text()
        producer = subprocess.Popen([sys.executable, "-c", PRODUCER, url], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert producer.stdout is not None
        assert all(producer.stdout.readline().startswith("accepted") for _ in range(20))
        take(folder / name)
        taken = time.time()
        logged = first(lambda: "was removed or replaced" in log.read_text(), TOLD_WITHIN)
        unready = first(partial(is_unready, port), TOLD_WITHIN)
        producer.kill()
        said = [line.split() for line in producer.stdout.read().splitlines()]
        producer.wait(30)
        producer.stdout.close()
    after = [word for word, _, when in said if float(when) > taken + MOMENT]
    accepted, refused = after.count("accepted"), after.count("refused")
    return Seen(
        accepted == 0 and refused > 0 and logged is not None and unready is not None,
        f"{accepted} of {accepted + refused} jobs accepted afterwards; the worker logged it after {seconds(logged)}, "
        f"and was not ready {seconds(unready)} later",
    )


def seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"


def replace(path: Path) -> None:
    shutil.copy(path, f"{path}.copy")
    Path(f"{path}.copy").replace(path)


def write_lock_held(folder: Path) -> Seen:
    url = f"sqlite:///{folder}/jobs.db"
    ports = {"server": free_port(), "worker": free_port()}
    server = ("serve", "tests.api.shop:app", "--port", str(ports["server"]))
    worker = ("worker", "tests.worker.tasks:app", "--metrics-port", str(ports["worker"]))
    Hawser(url).open()
    told: dict[str, float | None] = {}
    back: dict[str, float | None] = {}
    with running(folder, "server", *server, url=url), running(folder, "worker", *worker, url=url):
        for port in ports.values():
            assert first(partial(is_ready, port), 30) is not None
        with held(folder / "jobs.db"):
            for name, port in ports.items():
                told[name] = first(partial(is_unready, port), 14)
            down = {name: not is_up(port) for name, port in ports.items()}
        for name, port in ports.items():
            back[name] = first(partial(is_well, port), 20)
    return Seen(
        None not in (*told.values(), *back.values()) and all(down.values()),
        "; ".join(
            f"{name}: not ready after {seconds(told[name])}, hawser_store_up 0: {'yes' if down[name] else 'no'}, "
            f"ready again after {seconds(back[name])}"
            for name in ports
        ),
    )


WANTED = "no job is accepted, the worker says so in its log and on /readyz"

CASES = [
    Case(
        "sqlite-file-removed",
        "sqlite",
        "the file is removed under a worker and a producer",
        WANTED,
        lambda folder: taken_away(folder, "jobs.db", Path.unlink),
    ),
    Case(
        "sqlite-file-replaced",
        "sqlite",
        "a copy is moved over the file",
        WANTED,
        lambda folder: taken_away(folder, "jobs.db", replace),
    ),
    Case(
        "sqlite-log-removed",
        "sqlite",
        "the -wal file is removed",
        WANTED,
        lambda folder: taken_away(folder, "jobs.db-wal", Path.unlink),
    ),
    Case(
        "sqlite-write-lock-held",
        "sqlite",
        "another program holds SQLite's write lock while a server and a worker run",
        "/readyz and hawser_store_up of both say so, and say when it is over",
        write_lock_held,
    ),
]
