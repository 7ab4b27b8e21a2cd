"""What a worker costs that has nothing to do: CPU, wake-ups and memory of a supervisor and its process.

python benchmarks/idle.py [SECONDS] [URL]
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

APP = "hawser.demo:app"


def threads(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def cpu(pid: int) -> float:
    """Seconds on a core, of all threads, to the nanosecond: a clock tick is too coarse for this."""
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads(pid)) / 1e9


def wake_ups(pid: int) -> int:
    lines = (line for thread in threads(pid) for line in (thread / "status").read_text().splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def memory(pid: int, kind: str) -> float:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in rollup if line.startswith(f"{kind}:")) / 1024


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    with tempfile.TemporaryDirectory() as folder:
        url = sys.argv[2] if len(sys.argv) > 2 else f"sqlite:///{folder}/jobs.db"
        worker = subprocess.Popen(
            [sys.executable, "-m", "hawser.cli", "worker", APP, "--log-level", "error"], env={**os.environ, "HAWSER_STORE": url}
        )
        try:
            time.sleep(5)
            children = subprocess.run(["pgrep", "-P", str(worker.pid)], capture_output=True, text=True, check=True).stdout
            pids = [worker.pid, *map(int, children.split())]
            before, began = {pid: (cpu(pid), wake_ups(pid)) for pid in pids}, time.monotonic()
            time.sleep(seconds)
            passed = time.monotonic() - began
            spent = {pid: (cpu(pid) - before[pid][0], wake_ups(pid) - before[pid][1]) for pid in pids}
            for pid, name in zip(pids, ("supervisor", "process"), strict=True):
                share, woken = spent[pid][0] / passed, spent[pid][1] / passed
                sizes = f"{memory(pid, 'Rss'):.1f} MB resident, {memory(pid, 'Pss'):.1f} MB with what is shared counted once"
                print(f"{name}: {share:.2%} CPU, {woken:.1f} wake-ups a second, {sizes}")
            both, resident = sum(cost for cost, _ in spent.values()) / passed, sum(memory(pid, "Rss") for pid in pids)
            print(f"together: {both:.2%} CPU, {resident:.1f} MB resident")
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)


if __name__ == "__main__":
    main()
