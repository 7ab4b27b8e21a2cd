"""What a worker costs that has nothing to do: CPU, wake-ups and memory of a supervisor and its process.

With the URL of a Redis server that nothing else uses also every command that it sends and what the server writes for it.

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

from hawser.lab.sent_commands import SentCommands

APP = "hawser.lab.app:app"


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


class RedisCost:
    """What the server of a `redis://` or `unix://` URL is asked, and what it writes; nothing for other stores."""

    def __init__(self, url: str) -> None:
        self._client = None
        if url.startswith(("redis", "unix")):
            import redis  # for this kind of store only

            self._client = redis.Redis.from_url(url.partition("?")[0])
            self._log = self._size()
            self._sent = SentCommands(self._client).start()

    def _size(self) -> int:
        assert self._client is not None
        return int(self._client.info("persistence")["aof_current_size"])

    def tell(self, passed: float) -> None:
        if self._client is not None:
            sent = self._sent.stop()
            each = ", ".join(f"{count} {name}" for name, count in sent.most_common())
            print(f"server: {sum(sent.values()) * 60 / passed:.0f} commands a minute (in {passed:.0f} s {each})")
            print(f"server: {(self._size() - self._log) * 60 / passed:.0f} bytes of log a minute")


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    with tempfile.TemporaryDirectory() as folder:
        url = sys.argv[2] if len(sys.argv) > 2 else f"sqlite:///{folder}/jobs.db"
        worker = subprocess.Popen(
            [sys.executable, "-m", "hawser.cli", "worker", APP, "--log-level", "error"], env={**os.environ, "HAWSER_STORE": url}
        )
        try:
            time.sleep(15)
            children = subprocess.run(["pgrep", "-P", str(worker.pid)], capture_output=True, text=True, check=True).stdout
            pids = [worker.pid, *map(int, children.split())]
            redis_cost = RedisCost(url)
            before, began = {pid: (cpu(pid), wake_ups(pid)) for pid in pids}, time.monotonic()
            time.sleep(seconds)
            passed = time.monotonic() - began
            spent = {pid: (cpu(pid) - before[pid][0], wake_ups(pid) - before[pid][1]) for pid in pids}
            for pid, name in zip(pids, ("supervisor", "process"), strict=True):
                share, woken = spent[pid][0] / passed, spent[pid][1] / passed
                sizes = f"{memory(pid, 'Rss'):.1f} MB resident, {memory(pid, 'Pss'):.1f} MB with what is shared counted once"
                print(f"{name}: {share:.2%} CPU, {woken:.1f} wake-ups a second, {sizes}")
            both, resident = sum(cost for cost, _ in spent.values()) / passed, sum(memory(pid, "Rss") for pid in pids)
            redis_cost.tell(passed)
            print(f"together: {both:.2%} CPU, {resident:.1f} MB resident")
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)


if __name__ == "__main__":
    main()
