"""Bytes that jobs take in a store: while they wait, when they are done, and what was written for them on the way; and by how much
the memory of the process grows that enqueues and settles them, which for the memory store is where they are.

    python benchmarks/disk.py sqlite:////tmp/disk.db --jobs 100000
    python benchmarks/disk.py postgresql://app@localhost/jobs
    python benchmarks/disk.py redis://localhost/0
    python benchmarks/disk.py 'memory://?journal=/tmp/disk-journal'
    python benchmarks/disk.py memory://

Short jobs, as in `benchmarks/seam.py`, with batches of 100. Prints bytes a job, which are
megabytes a million jobs, as one JSON object.
"""

import argparse
import asyncio
import ctypes
import gc
import json
import resource
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from hawser.job import NewJob
from hawser.outcome import Done
from hawser.store import Settlement, Share, Store
from hawser.stores import make_store

BATCH = 100


def resident() -> int:
    """Bytes of memory that this process has, without what was freed."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


class Meter:
    """What a store has on disk or in its memory, and how much its process and its log have written."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.kind = "journal" if "journal=" in url else urlsplit(url).scheme

    async def held(self) -> int:
        match self.kind:
            case "journal":
                [folder] = parse_qs(urlsplit(self.url).query)["journal"]
                return sum(file.stat().st_size for file in Path(folder).iterdir())
            case "sqlite":
                path = Path(urlsplit(self.url).path.removeprefix("/"))
                return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
            case "memory":
                return resident()
            case "postgresql":
                return await self._ask(
                    "select sum(pg_total_relation_size(oid)) from pg_class"
                    " where relkind = 'r' and relnamespace = 'hawser'::regnamespace"
                )
            case _:
                return int((await self._info("memory"))["used_memory"])

    async def written(self) -> int:
        match self.kind:
            case "postgresql":
                return await self._ask("select pg_current_wal_insert_lsn() - '0/0'")
            case "redis":
                return int((await self._info("persistence")).get("aof_current_size", 0))
            case _:
                lines = Path("/proc/self/io").read_text().splitlines()
                return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))

    async def _ask(self, sql: str) -> int:
        import asyncpg

        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute("checkpoint")
            return int(await connection.fetchval(sql))
        finally:
            await connection.close()

    async def _info(self, section: str) -> dict[str, str]:
        from redis.asyncio import Redis

        async with Redis.from_url(self.url) as client:
            found: dict[str, str] = await client.info(section)
            return found


async def produce(store: Store, jobs: int) -> None:
    for i in range(0, jobs, BATCH):
        await store.enqueue([NewJob(task="noop", body=b'{"seq": %d, "to": "user@example.com"}' % n) for n in range(i, i + BATCH)])


async def consume(store: Store) -> None:
    while runs := await store.claim([Share("default")], BATCH, "w1", 30):
        await store.settle([Settlement(run.id, run.lease, Done(), hint=run.hint) for run in runs])


async def measure(url: str, jobs: int) -> dict[str, object]:
    meter, store = Meter(url), make_store(url)
    await store.open()
    empty, log, memory = await meter.held(), await meter.written(), resident()
    await produce(store, jobs)
    waiting, memory_waiting = await meter.held(), resident()
    await consume(store)
    written, memory_done = await meter.written(), resident()
    await store.close()
    done = await meter.held()
    return {
        "store": meter.kind,
        "jobs": jobs,
        "waiting": round((waiting - empty) / jobs),
        "done": round((done - empty) / jobs),
        "written": round((written - log) / jobs),
        "memory_waiting": round((memory_waiting - memory) / jobs),
        "memory_done": round((memory_done - memory) / jobs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--jobs", type=int, default=100_000)
    args = parser.parse_args()
    print(json.dumps(asyncio.run(measure(args.url, args.jobs))))


if __name__ == "__main__":
    main()
