"""The Redis store at depth: what one call holds up the server, whether a long drain slows down, what is left behind in memory.

    python benchmarks/redis_bars.py [--jobs 1000000] [--lanes lists] [--parts calls,drain,reclaim] [--seconds 200]

On a new server that syncs before it answers. One JSON object a line; a drain that is not through after so many seconds says how
far it came:

- `fill`: memory and log of a job that waits, and microseconds of the server's thread for it
- `restart`: seconds from a kill -9 until the server has read its log and answers
- `rewrite`: milliseconds of a claim and settlement of 100 jobs while the server rewrites its log, and of the fork
- `calls`: milliseconds of the server for one call of each kind with 1,000 jobs, while all the others wait: by the clock within
  scripts, and of its thread on a core, which other programs on the machine change less
- `drain`: the rate of the last tenth of a drain as a share of the first tenth's, and the server's thread by job in each tenth
- `memory`: what the server uses before the jobs came and after all were done and pruned
- `singles`: enqueues a second of 64 tasks in one process, one job each
- `reclaim`: milliseconds of the server for one look while so many jobs run, and for one that takes 500 back
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from hawser.job import Claimed, NewJob
from hawser.lab.redis_server import RedisServer
from hawser.outcome import Done
from hawser.store import Actor, Filter, LeaseRef, Retention, Settlement, Share, Store
from hawser.stores import make_store
from hawser.value.ids import new_id

BODY = b'{"seq": %d, "to": "user@example.com"}'
ALL = [Share("default")]
BATCH, AT_ONCE = 400, 1_000


def new_jobs(count: int) -> list[NewJob]:
    return [NewJob(id=new_id(), task="noop", body=BODY % seq) for seq in range(count)]


def settled(claimed: list[Claimed]) -> list[Settlement]:
    return [Settlement(job.id, job.lease, Done(), hint=job.hint) for job in claimed]


class Depth:
    """A store with many jobs, and its server seen from outside."""

    def __init__(self, store: Store, server: RedisServer, jobs: int, seconds: float) -> None:
        self._store = store
        self._server = server
        self._client = server.client()
        self._jobs = jobs
        self._seconds = seconds

    def busy(self) -> float:
        """Milliseconds of the server within scripts."""
        stats: Any = self._client.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {"usec": 0})["usec"] for name in ("evalsha", "eval")) / 1e3

    def memory(self) -> int:
        """Without the texts of scripts, which come with the first call of each kind."""
        info: Any = self._client.info("memory")
        return int(info["used_memory"]) - int(info["used_memory_scripts_eval"])

    def ran(self) -> float:
        """Microseconds that the server's main thread was on a core."""
        pid = self._server.pid
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e3

    async def cost(self, call: Callable[[], Awaitable[Any]]) -> tuple[tuple[float, float], Any]:
        """Milliseconds by the clock within scripts, and of the server's thread on a core, its log and its sync included."""
        busy, ran = self.busy(), self.ran()
        answer = await call()
        return (round(self.busy() - busy, 2), round((self.ran() - ran) / 1e3, 2)), answer

    async def fill(self) -> dict[str, Any]:
        memory, ran, log, began = self.memory(), self.ran(), self.log(), time.perf_counter()
        for start in range(0, self._jobs, AT_ONCE):
            await self._store.enqueue(new_jobs(min(AT_ONCE, self._jobs - start)))
        return {
            "took_s": round(time.perf_counter() - began, 1),
            "memory_bytes": round((self.memory() - memory) / self._jobs),
            "log_bytes": round((self.log() - log) / self._jobs),
            "server_us": round((self.ran() - ran) / self._jobs, 2),
        }

    def log(self) -> int:
        info: Any = self._client.info("persistence")
        return int(info["aof_current_size"])

    async def restart(self) -> float:
        """Seconds until it answers. It is killed, so nothing is written for its end."""
        self._server.kill()
        began = time.perf_counter()
        self._server.start()
        took = round(time.perf_counter() - began, 2)
        self._client.close()
        self._client = self._server.client()
        # The store hears of the end only when its loop has a turn; only then may its calls be made again.
        await asyncio.sleep(0.5)
        return took

    async def rewrite(self) -> dict[str, Any]:
        """A worker goes on while the log is rewritten."""
        times, began = [], time.perf_counter()
        self._client.bgrewriteaof()
        while time.perf_counter() - began < self._seconds:
            at = time.perf_counter()
            await self._store.settle(settled(await self._store.claim(ALL, 100, "w1", 60)))
            times.append((time.perf_counter() - at) * 1e3)
            info: Any = self._client.info("persistence")
            if not info["aof_rewrite_in_progress"]:
                break
        took = time.perf_counter() - began
        times.sort()
        stats: Any = self._client.info("stats")
        return {
            "took_s": round(took, 1),
            "p50_ms": round(times[len(times) // 2], 1),
            "p99_ms": round(times[len(times) * 99 // 100], 1),
            "max_ms": round(times[-1], 1),
            "calls": len(times),
            "fork_ms": stats["latest_fork_usec"] / 1e3,
        }

    async def calls(self) -> dict[str, tuple[float, float]]:
        store, actor = self._store, Actor("bench")
        found: dict[str, tuple[float, float]] = {}
        found["enqueue"], added = await self.cost(lambda: store.enqueue(new_jobs(AT_ONCE)))
        found["claim"], claimed = await self.cost(lambda: store.claim(ALL, AT_ONCE, "w1", 600))
        leases = [LeaseRef(job.id, job.lease) for job in claimed]
        found["extend"], _ = await self.cost(lambda: store.extend("w1", leases, 900))
        found["settle"], _ = await self.cost(lambda: store.settle(settled(claimed)))
        found["cancel"], _ = await self.cost(lambda: store.cancel([each.id for each in added], actor))
        found["prune"], _ = await self.cost(lambda: store.prune(Retention(done=0, cancelled=0), {}, AT_ONCE))
        found["stats"], _ = await self.cost(store.stats)
        found["find"], _ = await self.cost(lambda: store.find(Filter(task="noop"), None, 100))
        found["reclaim"], _ = await self.cost(lambda: store.reclaim(500))
        return found

    async def drain(self) -> dict[str, Any]:
        stats: Any = await self._store.stats()
        jobs = stats.ready
        marks, done = [(time.perf_counter(), self.ran())], 0
        end = marks[0][0] + self._seconds
        while time.perf_counter() < end and (claimed := await self._store.claim(ALL, BATCH, "w1", 60)):
            await self._store.settle(settled(claimed))
            done += len(claimed)
            if done * 10 // jobs >= len(marks):
                marks.append((time.perf_counter(), self.ran()))
        tenths = [after[0] - before[0] for before, after in pairwise(marks)]
        server = [round((after[1] - before[1]) / jobs * 10, 2) for before, after in pairwise(marks)]
        return {
            "jobs": jobs,
            "drained": done,
            "per_s": round(done / (marks[-1][0] - marks[0][0])),
            "last_tenth": round(tenths[0] / tenths[-1], 2),
            "server_us_by_tenth": server,
        }

    async def emptied(self) -> int:
        while await self._store.prune(Retention(done=0, dead=0, cancelled=0), {}, AT_ONCE):
            pass
        return self.memory()

    async def singles(self, count: int = 20_000, tasks: int = 64) -> float:
        jobs = iter(new_jobs(count))

        async def produce() -> None:
            for job in jobs:
                await self._store.enqueue([job])

        began = time.perf_counter()
        await asyncio.gather(*(produce() for _ in range(tasks)))
        return round(count / (time.perf_counter() - began))

    async def reclaim(self) -> dict[str, Any]:
        while await self._store.claim(ALL, BATCH, "w1", 3_600):
            pass
        quiet, _ = await self.cost(lambda: self._store.reclaim(500))
        await self._store.enqueue(new_jobs(500))
        await self._store.claim(ALL, 500, "w2", 0.1)
        await asyncio.sleep(0.2)
        taking, taken = await self.cost(lambda: self._store.reclaim(500))
        return {"nothing_to_take": quiet, "taking_back": taking, "taken": len(taken)}


async def measure(jobs: int, lanes: str, parts: list[str], seconds: float) -> None:
    with RedisServer(settings={"auto-aof-rewrite-percentage": "0"}) as server:
        store = make_store(f"redis://127.0.0.1:{server.port}/0?lanes={lanes}&done_most=1000000000&timeout=60")
        await store.open()
        depth = Depth(store, server, jobs, seconds)
        # It also warms the server: what that keeps for itself is no memory of jobs.
        singles = await depth.singles()
        if "singles" in parts:
            say(singles=singles)
        while claimed := await store.claim(ALL, BATCH, "w1", 60):
            await store.settle(settled(claimed))
        before = await depth.emptied()
        say(lanes=lanes, jobs=jobs, fill=await depth.fill())
        if "restart" in parts:
            say(restart_s=await depth.restart())
        if "rewrite" in parts:
            say(rewrite=await depth.rewrite())
            say(restart_after_rewrite_s=await depth.restart())
        if "calls" in parts:
            say(calls=await depth.calls())
        if "drain" in parts:
            say(drain=await depth.drain())
            say(memory=[before, await depth.emptied()])
        if "reclaim" in parts:
            if "drain" in parts:
                await depth.fill()
            say(reclaim=await depth.reclaim())
        await store.close()


def say(**figures: object) -> None:
    print(json.dumps(figures), flush=True)


PARTS = "singles,calls,drain,reclaim"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--lanes", default="lists", choices=("lists", "streams"))
    parser.add_argument("--parts", default=PARTS, help=f"of these and restart,rewrite; {PARTS} unless given")
    parser.add_argument("--seconds", type=float, default=200, help="for a drain, and for a rewrite")
    asked = parser.parse_args()
    asyncio.run(measure(asked.jobs, asked.lanes, asked.parts.split(","), asked.seconds))


if __name__ == "__main__":
    main()
