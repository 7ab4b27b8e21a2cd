"""The stores side by side: `hawser bench` on a new file, or on a new server for each, one after the other, and a peer on Redis.

    python benchmarks/stores.py [--jobs 200000] [--processes 2] [--only redis,postgres] [--taskiq 20000]

Redis is what `HAWSER_REDIS_BIN` names, else the Valkey of the tests; it syncs before it answers. One JSON object a line, for
Redis with what a waiting and a done job take of the server's memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hawser.job import NewJob
from hawser.lab.cluster import Cluster
from hawser.lab.redis_server import RedisServer
from hawser.lab.store_under_test import SERVER_SETTINGS, WARM
from hawser.outcome import Done
from hawser.store import Settlement, Share
from hawser.stores import make_store
from hawser.value.ids import new_id

BODY = b'{"seq": %d, "to": "user@example.com"}'
SAMPLE = 20_000


@contextmanager
def sqlite() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield f"sqlite:///{folder}/jobs.db"


@contextmanager
def postgres() -> Iterator[str]:
    with Cluster(settings=SERVER_SETTINGS) as cluster:
        cluster.warm(WARM)
        yield cluster.url


@contextmanager
def on_redis(lanes: str = "lists") -> Iterator[str]:
    with RedisServer() as server:
        yield f"redis://127.0.0.1:{server.port}/0?lanes={lanes}&done_most=1000000000"


STORES = {"sqlite": sqlite, "postgres": postgres, "redis": on_redis, "streams": lambda: on_redis("streams")}


def bench(url: str, jobs: int, processes: int, nice: int) -> dict[str, Any]:
    words = ["bench", "--store", url, "--jobs", str(jobs), "--processes", str(processes), "--json"]
    command = ["nice", "-n", str(nice), sys.executable, "-m", "hawser.cli", *words]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(said.stdout)
    except ValueError:
        return {"error": said.stderr[-500:]}
    return found


async def memory(lanes: str) -> dict[str, int]:
    """Bytes of the server for a job that waits and for one that is done and kept; and of its log for the whole way."""
    with RedisServer() as server:
        store = make_store(f"redis://127.0.0.1:{server.port}/0?lanes={lanes}")
        await store.open()
        sizes, logs = [server.info("memory")["used_memory"]], [server.info("persistence")["aof_current_size"]]
        for start in range(0, SAMPLE, 400):
            await store.enqueue([NewJob(id=new_id(), task="noop", body=BODY % n) for n in range(start, start + 400)])
        sizes.append(server.info("memory")["used_memory"])
        while claimed := await store.claim([Share("default")], 400, "w1", 60):
            await store.settle([Settlement(job.id, job.lease, Done()) for job in claimed])
        sizes.append(server.info("memory")["used_memory"])
        logs.append(server.info("persistence")["aof_current_size"])
        await store.close()
    return {
        "waiting_bytes": (sizes[1] - sizes[0]) // SAMPLE,
        "done_bytes": (sizes[2] - sizes[0]) // SAMPLE,
        "log_bytes": (logs[1] - logs[0]) // SAMPLE,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--nice", type=int, default=0, help="niceness of workers and producer: the server gets a core before them"
    )
    parser.add_argument("--only", default=",".join(STORES))
    parser.add_argument("--taskiq", type=int, default=0, help="jobs for taskiq on the same kind of server; 0 leaves it out")
    asked = parser.parse_args()
    for name in asked.only.split(","):
        with STORES[name]() as url:
            print(json.dumps({**bench(url, asked.jobs, asked.processes, asked.nice), "store": name}), flush=True)
        if name in ("redis", "streams"):
            print(json.dumps({"store": name, **asyncio.run(memory("lists" if name == "redis" else name))}), flush=True)
    if asked.taskiq:
        with RedisServer() as server:
            url = f"redis://127.0.0.1:{server.port}/0"
            peers = str(Path(__file__).with_name("peers.py"))
            subprocess.run([sys.executable, peers, "taskiq", url, "--jobs", str(asked.taskiq)], check=False)


if __name__ == "__main__":
    main()
