"""SQLite and forks: children that outlive a killed parent, and forks in the middle of writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from hawser import Hawser, HawserError
from tests.drills.case import Case, Seen
from tests.worker.processes import ROOT

BLOCKED_AFTER = 3.0
"""Seconds that any single write may take. The machine may be busy."""

LOADED = """
import sys, threading, time
from hawser import Hawser
app = Hawser(sys.argv[1])
@app.task
def work() -> None: ...
app.open()
slowest = 0.0
accepted = []
stop = threading.Event()
def load():
    global slowest
    while not stop.is_set():
        began = time.monotonic()
        accepted.append(work.enqueue().id)
        slowest = max(slowest, time.monotonic() - began)
threads = [threading.Thread(target=load, daemon=True) for _ in range(4)]
for thread in threads:
    thread.start()
"""

ORPHANS = (
    LOADED
    + """
from concurrent.futures import ProcessPoolExecutor
import multiprocessing
pool = ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("fork"))
list(pool.map(time.sleep, [0.05] * 3))
print("children", *pool._processes, flush=True)
time.sleep(60)
"""
)

PRELOADED = """
import os, sys, time
from hawser import Hawser
app = Hawser(sys.argv[1])
@app.task
def work() -> None: ...
app.open()
work.enqueue()
for _ in range(4):
    if os.fork() == 0:
        while not os.path.exists(sys.argv[2]):
            time.sleep(0.01)
        began = time.monotonic()
        for _ in range(20):
            work.enqueue()
        print("wrote", round(time.monotonic() - began, 3), flush=True)
        os._exit(0)
print("ready", flush=True)
while True:
    work.enqueue()
"""

FORKS = (
    LOADED
    + """
import json, os, signal
answers, children = [], 12
for _ in range(children):
    time.sleep(0.03)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        began = time.monotonic()
        try:
            ids = [work.enqueue().id for _ in range(5)]
            os.write(write, json.dumps({"ids": ids, "seconds": time.monotonic() - began}).encode())
        finally:
            os._exit(0)
    os.close(write)
    answers.append((pid, read))
wrote = []
for pid, read in answers:
    said = b"".join(iter(lambda: os.read(read, 65536), b""))
    os.waitpid(pid, 0)
    if said:
        wrote.append(json.loads(said))
stop.set()
for thread in threads:
    thread.join(30)
ids = accepted + [id for child in wrote for id in child["ids"]]
print(json.dumps({"children": children, "wrote": len(wrote), "slowest_child": max([w["seconds"] for w in wrote], default=0),
                  "slowest_parent": slowest, "ids": ids}), flush=True)
"""
)

HANDLER = """
import multiprocessing
from hawser import Hawser
app = Hawser()
@app.task
def follow() -> None: ...
def child() -> None:
    for _ in range(3):
        follow.enqueue()
@app.task(max_attempts=1)
def start() -> None:
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(30)
    if process.exitcode != 0:
        raise RuntimeError(f"the child ended with {process.exitcode}")
"""


def enqueue_takes(url: str) -> float:
    """Seconds for one enqueue of another process; infinite when it is refused."""
    app = Hawser(url)
    app.task(name="work")(_nothing)
    began = time.monotonic()
    try:
        app.enqueue("work")
        return time.monotonic() - began
    except HawserError:
        return float("inf")
    finally:
        app.close()


def _nothing() -> None: ...


def orphans(folder: Path) -> Seen:
    took = []
    for number in range(5):
        url = f"sqlite:///{folder}/jobs{number}.db"
        with subprocess.Popen([sys.executable, "-c", ORPHANS, url], stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
            assert parent.stdout is not None
            children = next(line for line in parent.stdout if line.startswith("children")).split()[1:]
            parent.kill()
            parent.wait(30)
            took.append(enqueue_takes(url))
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)
    blocked = sum(seconds > BLOCKED_AFTER for seconds in took)
    return Seen(not blocked, f"{blocked} of {len(took)} rounds blocked; slowest enqueue of another process {max(took):.2f} s")


def preloaded(folder: Path) -> Seen:
    wrote = missing = 0
    slowest = 0.0
    for number in range(3):
        url, go = f"sqlite:///{folder}/jobs{number}.db", folder / f"go{number}"
        args = [sys.executable, "-c", PRELOADED, url, str(go)]
        parent = subprocess.Popen(args, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        time.sleep(0.2)
        parent.kill()
        parent.wait(30)
        go.touch()
        said = [line.split() for line in parent.stdout.read().splitlines()]
        parent.stdout.close()
        times = [float(seconds) for word, seconds in said if word == "wrote"]
        wrote += len(times)
        slowest = max([slowest, *times])
        app = Hawser(url)
        missing += app.stats().ready < 20 * len(times)
        app.close()
    held = wrote == 12 and slowest < BLOCKED_AFTER and not missing
    return Seen(held, f"{wrote} of 12 children wrote after their parent was killed, 20 jobs each in at most {slowest:.2f} s")


def fork_during_a_write(folder: Path) -> Seen:
    url = f"sqlite:///{folder}/jobs.db"
    shown = subprocess.run([sys.executable, "-c", FORKS, url], capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    if shown.returncode:
        return Seen(held=False, text=f"the parent failed: {(shown.stderr.strip().splitlines() or ['?'])[-1]}")
    told = json.loads(shown.stdout.splitlines()[-1])
    app = Hawser(url)
    lost = sum(app.get(id) is None for id in told["ids"])
    app.close()
    slow = max(told["slowest_child"], told["slowest_parent"])
    return Seen(
        told["wrote"] == told["children"] and not lost and slow < BLOCKED_AFTER,
        f"{told['wrote']} of {told['children']} children wrote, slowest in {told['slowest_child']:.2f} s; slowest enqueue of the "
        f"parent {told['slowest_parent']:.2f} s; {len(told['ids'])} accepted, {lost} lost",
    )


def process_in_a_handler(folder: Path) -> Seen:
    (folder / "shop.py").write_text(HANDLER)
    url = f"sqlite:///{folder}/jobs.db"
    environ = {**os.environ, "HAWSER_STORE": url, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"}
    app = Hawser(url)
    app.task(name="start")(_nothing)
    jobs = 20
    for _ in range(jobs):
        app.enqueue("start")
    command = [sys.executable, "-m", "hawser.cli", "worker", "shop:app", "--slots", "4"]
    with (folder / "log").open("wb") as log:
        worker = subprocess.Popen(command, env=environ, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    began = time.monotonic()
    try:
        while (stats := app.stats()).done + stats.dead < 4 * jobs and time.monotonic() < began + 40:
            time.sleep(0.05)
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(30)
        app.close()
    took = time.monotonic() - began
    return Seen(
        stats.done == 4 * jobs and took < 20,
        f"{stats.done} of {4 * jobs} jobs done, {stats.dead} dead, in {took:.1f} s: {jobs} handlers with a process each",
    )


CASES = [
    Case(
        "orphans-of-a-killed-writer",
        "sqlite",
        "kill -9 of a process that writes; the children of its process pool live on",
        "every other process writes at once",
        orphans,
    ),
    Case(
        "preloaded-children",
        "sqlite",
        "app.open(), four forks, kill -9 of the parent in the middle of writes",
        "every child opens the file anew and writes",
        preloaded,
    ),
    Case(
        "fork-during-a-write",
        "sqlite",
        "12 forks while four threads write; each child enqueues",
        "every child writes, the parent goes on, nothing is lost",
        fork_during_a_write,
    ),
    Case(
        "process-in-a-handler",
        "sqlite",
        "20 handlers start a multiprocessing.Process (fork) that enqueues",
        "all jobs are done, nothing waits",
        process_in_a_handler,
    ),
]
