"""Standard streams that nobody reads, and signals: work and shutdown go on."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hawser import Hawser
from tests.drills.case import Case, Seen
from tests.worker.processes import ROOT, group_of

APP = """
import asyncio
from hawser import Hawser

app = Hawser()


@app.task(max_attempts=1)
async def fail(number: int) -> None:
    raise ValueError(f"job {number} fails, which is a line in the log " + "x" * 200)


@app.task
async def nap(seconds: float) -> None:
    await asyncio.sleep(seconds)
"""

JOBS = 300


def full_pipe() -> tuple[int, int]:
    """A pipe without room for one byte: who writes to it waits for ever."""
    reads, writes = os.pipe()
    flags = fcntl.fcntl(writes, fcntl.F_GETFL)
    fcntl.fcntl(writes, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    try:
        while True:
            os.write(writes, b"x")
    except BlockingIOError:
        pass
    fcntl.fcntl(writes, fcntl.F_SETFL, flags)
    return reads, writes


@contextmanager
def worker(folder: Path, out: int, **how: object) -> Iterator[tuple[subprocess.Popen[bytes], Hawser]]:
    """A worker of two processes with these standard streams, and the app to enqueue with."""
    (folder / "rolling.py").write_text(APP)
    url = f"sqlite:///{folder}/jobs.db"
    command = [sys.executable, "-m", "hawser.cli", "worker", f"{folder}/rolling.py:app", "--processes", "2"]
    environ = {**os.environ, "HAWSER_STORE": url}
    process = subprocess.Popen(
        [*command, "--drain-timeout", "5"], cwd=ROOT, env=environ, stdin=out, stdout=out, stderr=out, **how
    )  # type: ignore[call-overload]  # as Popen takes them
    scope: dict[str, Hawser] = {}
    exec(APP, scope)  # the same tasks here
    app = scope["app"]
    app.use_store(url)
    try:
        yield process, app
    finally:
        app.close()
        if process.poll() is None:
            for pid in {process.pid, *group_of(process.pid)}:
                os.kill(pid, signal.SIGKILL)
            process.wait(30)


def within(seconds: float, wanted: Callable[[], object]) -> float | None:
    """Seconds until it is so; None when it is not by then."""
    began = time.monotonic()
    while not wanted():
        if time.monotonic() - began > seconds:
            return None
        time.sleep(0.02)
    return time.monotonic() - began


def a_full_pipe(folder: Path) -> Seen:
    reads, writes = full_pipe()
    with worker(folder, writes, start_new_session=True) as (process, app):
        app.enqueue_many([app.tasks["fail"].job(number) for number in range(JOBS)])
        worked = within(20, lambda: app.stats().dead == JOBS)
        process.send_signal(signal.SIGTERM)
        ended = within(10, lambda: process.poll() is not None)
    os.close(reads)
    os.close(writes)
    held = worked is not None and ended is not None and process.returncode == 0
    text = f"{JOBS} failing jobs dead after {_s(worked)}, SIGTERM ended it after {_s(ended)} with code {process.returncode}"
    return Seen(held, text)


def a_hangup(folder: Path) -> Seen:
    return _drained(folder, lambda process, _: process.send_signal(signal.SIGHUP))


def a_closed_terminal(folder: Path) -> Seen:
    return _drained(folder, lambda _, terminal: os.close(terminal))


def _drained(folder: Path, end: Callable[[subprocess.Popen[bytes], int], None]) -> Seen:
    """A worker on a terminal of its own, with a job under way that takes a second."""
    terminal, line = pty.openpty()
    with worker(folder, line, preexec_fn=_take_terminal, start_new_session=True) as (process, app):
        os.close(line)
        handle = app.enqueue("nap", {"seconds": 1.5})
        began = within(20, lambda: app.stats().running == 1)
        end(process, terminal)
        ended = within(10, lambda: process.poll() is not None)
        job = app.get(handle.id)
    held = began is not None and ended is not None and process.returncode == 0 and job.state == "done" and job.attempt == 1
    return Seen(held, f"it ended after {_s(ended)} with code {process.returncode}; the job is {job.state}, attempt {job.attempt}")


def _take_terminal() -> None:
    """Make standard input the controlling terminal of this session, as a login does."""
    import termios  # in the child only

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.tcsetpgrp(0, os.getpid())


def a_wish_for_stacks(folder: Path) -> Seen:
    log = folder / "log"
    with log.open("wb") as out, worker(folder, out.fileno(), start_new_session=True) as (process, app):
        handle = app.enqueue("nap", {"seconds": 1.5})
        within(20, lambda: app.stats().running == 1)
        process.send_signal(signal.SIGUSR1)
        told = within(5, lambda: log.read_text().count("most recent call first") >= 3)
        done = within(10, lambda: app.get(handle.id).state == "done")
        process.send_signal(signal.SIGQUIT)
        ended = within(15, lambda: process.poll() is not None and not group_of(process.pid))
    held = told is not None and done is not None and ended is not None and process.returncode == -signal.SIGQUIT
    text = f"stacks of all processes after {_s(told)}, job done: {done is not None}, SIGQUIT ended all after {_s(ended)}"
    return Seen(held, text)


def _s(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f} s"


CASES = [
    Case("full-pipe", "any", "stdout and stderr are a pipe that nobody reads", "work and SIGTERM go on", a_full_pipe),
    Case("sighup", "any", "SIGHUP to the supervisor", "drains as after SIGTERM", a_hangup),
    Case("closed-terminal", "any", "the terminal of a worker is closed", "drains as after SIGTERM", a_closed_terminal),
    Case("stacks", "any", "SIGUSR1, then SIGQUIT", "all stacks are told, work goes on; then it ends at once", a_wish_for_stacks),
]
