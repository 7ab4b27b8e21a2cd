"""HTTP enqueue on one server process, by wrk: python benchmarks/server.py sqlite:////tmp/http.db --seconds 10

Requests a second, latency and the server's CPU per request, of `POST /jobs` with 64 connections and of `POST /jobs/batch` with
100 jobs; then of `GET /stats` with what was enqueued, after `--backlog` more. Needs `wrk` (Debian: apt install wrk). Prints one
JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from hawser import Hawser
from hawser.job import new_job

APP = """
from hawser import Hawser

app = Hawser()

@app.task(queue="mail")
async def send_email(to: str, template: str = "welcome") -> None: ...
"""
JOB = {"task": "send_email", "payload": {"to": "ann@example.com"}}
UNITS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used, all its threads together."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def wrk(pid: int, url: str, seconds: int, connections: int, body: object = None) -> dict[str, float]:
    lua = 'wrk.headers["Content-Type"] = "application/json"\n'
    if body is not None:
        lua += f"wrk.method = 'POST'\nwrk.body = [[{json.dumps(body)}]]\n"
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(lua)
        script.flush()
        words = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}", "--latency", "-s", script.name, url]
        before = cpu_of(pid)
        out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        used = cpu_of(pid) - before
    figures = {"requests_per_s": round(float(re.findall(r"Requests/sec:\s+([\d.]+)", out)[0]))}
    figures["server_cpu_us_per_request"] = round(used / int(re.findall(r"(\d+) requests in", out)[0]) * 1e6)
    for share in ("50", "99"):
        value, unit = re.findall(rf"{share}%\s+([\d.]+)(us|ms|s)", out)[0]
        figures[f"p{share}_ms"] = round(float(value) * UNITS[unit], 2)
    figures["not_2xx"] = int((re.findall(r"Non-2xx or 3xx responses: (\d+)", out) or ["0"])[0])
    return figures


def add_backlog(url: str, count: int) -> None:
    with Hawser(url) as app:
        for _ in range(0, count, 1000):
            app._connection.put([new_job(task="send_email", queue="mail", body=b'{"to":"x"}') for _ in range(1000)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--backlog", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "bench_shop.py").write_text(APP)
        server = subprocess.Popen(
            [sys.executable, "-m", "hawser.cli", "serve", "bench_shop:app", "--port", "18099", "--log-level", "warning"],
            cwd=folder,
            env={**os.environ, "HAWSER_STORE": args.store, "PYTHONPATH": folder},
        )
        url = "http://127.0.0.1:18099"
        try:
            for _ in range(100):
                try:
                    urllib.request.urlopen(f"{url}/readyz", timeout=1).read()
                    break
                except OSError:
                    time.sleep(0.1)
            report: dict[str, object] = {"store": args.store.partition(":")[0], "connections": args.connections}
            report["enqueue"] = wrk(server.pid, f"{url}/jobs", args.seconds, args.connections, JOB)
            report["batch_of_100"] = wrk(server.pid, f"{url}/jobs/batch", args.seconds, 1, {"jobs": [JOB] * 100})
            if args.backlog:
                add_backlog(args.store, args.backlog)
            with urllib.request.urlopen(f"{url}/stats") as answer:
                report["ready"] = json.load(answer)["ready"]
            report["stats"] = wrk(server.pid, f"{url}/stats", 3, 1)
            print(json.dumps(report, indent=2))
        finally:
            server.terminate()
            server.wait(20)


if __name__ == "__main__":
    main()
