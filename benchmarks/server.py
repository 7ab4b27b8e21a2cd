"""The HTTP API of one server process, by wrk: python benchmarks/server.py postgres --seconds 20 --ready 5000000

The store is a URL, or `postgres` for a server of our own that lasts as long as the run. One after the other:

- `POST /jobs` with 64 connections: requests a second, latency, the server's CPU per request; bar 5,000/s, all durable
- `POST /jobs/batch` with 100 jobs on one connection; bar p99 under 50 ms
- `GET /stats` once so many jobs are ready (`--ready`; jobs are added 50,000 at a time); bar p99 under 50 ms

Needs `wrk` (Debian: apt install wrk). Prints one JSON object; exit code 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hawser.job import NewJob
from hawser.lab.cluster import Cluster
from hawser.stores import make_store

APP = """
from hawser import Hawser

app = Hawser()

@app.task(queue="mail")
async def send_email(to: str, template: str = "welcome") -> None: ...
"""
JOB = {"task": "send_email", "payload": {"to": "ann@example.com"}}
UNITS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
URL = "http://127.0.0.1:18099"


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used, all its threads together."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def wrk(pid: int, path: str, seconds: int, connections: int, body: object = None) -> dict[str, float]:
    lua = 'wrk.headers["Content-Type"] = "application/json"\n'
    if body is not None:
        lua += f"wrk.method = 'POST'\nwrk.body = [[{json.dumps(body)}]]\n"
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(lua)
        script.flush()
        words = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}", "--latency", "-s", script.name, URL + path]
        before = cpu_of(pid)
        out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        used = cpu_of(pid) - before
    figures = {"connections": connections, "requests_per_s": round(float(re.findall(r"Requests/sec:\s+([\d.]+)", out)[0]))}
    figures["server_cpu_us_per_request"] = round(used / int(re.findall(r"(\d+) requests in", out)[0]) * 1e6)
    for share in ("50", "99"):
        value, unit = re.findall(rf"{share}%\s+([\d.]+)(us|ms|s)", out)[0]
        figures[f"p{share}_ms"] = round(float(value) * UNITS[unit], 2)
    figures["not_2xx"] = int((re.findall(r"Non-2xx or 3xx responses: (\d+)", out) or ["0"])[0])
    return figures


async def fill(url: str, count: int) -> None:
    store = make_store(url)
    await store.open()
    for begin in range(0, count, 50_000):
        jobs = [NewJob(task="send_email", queue="mail", body=b'{"to":"x"}') for _ in range(min(50_000, count - begin))]
        await store.enqueue(jobs)
        print(f"  {begin + len(jobs):,} of {count:,}", file=sys.stderr, end="\r", flush=True)
    await store.close()


def counted() -> dict[str, Any]:
    with urllib.request.urlopen(f"{URL}/stats") as answer:
        figures = json.load(answer)
    return {name: figures[name] for name in ("ready", "durability")}


def started(url: str, folder: str) -> subprocess.Popen[bytes]:
    (Path(folder) / "bench_shop.py").write_text(APP)
    server = subprocess.Popen(
        [sys.executable, "-m", "hawser.cli", "serve", "bench_shop:app", "--port", "18099", "--log-level", "warning"],
        cwd=folder,
        env={**os.environ, "HAWSER_STORE": url, "PYTHONPATH": folder},
    )
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{URL}/readyz", timeout=1).read()
            break
        except OSError:
            time.sleep(0.1)
    return server


def _own_server(stack: ExitStack) -> str:
    """One that has run for a while: it does not make files of its log while it is measured."""
    cluster = stack.enter_context(Cluster(settings={"max_connections": 200, "min_wal_size": "1GB", "max_wal_size": "4GB"}))
    cluster.warm(1024)
    return cluster.url


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--ready", type=int, default=0, help="jobs that are ready when /stats is asked")
    args = parser.parse_args()
    with ExitStack() as stack:
        url = _own_server(stack) if args.store == "postgres" else args.store
        server = started(url, stack.enter_context(tempfile.TemporaryDirectory()))
        stack.callback(server.wait, 20)
        stack.callback(server.terminate)
        wrk(server.pid, "/jobs", 2, args.connections, JOB)  # what is made at the first use is made
        enqueue = wrk(server.pid, "/jobs", args.seconds, args.connections, JOB)
        batch = wrk(server.pid, "/jobs/batch", args.seconds, 1, {"jobs": [JOB] * 100})
        asyncio.run(fill(url, max(0, args.ready - counted()["ready"])))
        stats = counted() | wrk(server.pid, "/stats", 5, 1)
    met = {
        "enqueue_5000_per_s": enqueue["requests_per_s"] >= 5_000 and not enqueue["not_2xx"],
        "batch_p99_under_50_ms": batch["p99_ms"] < 50 and not batch["not_2xx"],
        "stats_p99_under_50_ms": stats["p99_ms"] < 50 and stats["ready"] >= args.ready,
    }
    print(
        json.dumps(
            {"store": args.store.partition(":")[0], "enqueue": enqueue, "batch_of_100": batch, "stats": stats, "met": met},
            indent=2,
        )
    )
    sys.exit(not all(met.values()))


if __name__ == "__main__":
    main()
