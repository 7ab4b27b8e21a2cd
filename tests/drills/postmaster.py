"""The PostgreSQL server is killed with -9 under load, again and again: is anything lost that was accepted, and when is work back?

    python -m tests.drills.postmaster [--times 10] [--seconds-away 1]

A server of its own, durable, with producers and a supervised worker of two processes on it. After the last kill all is
drained, and every accepted job is looked at: it must be done. Exits with 1 when one is lost or a worker did not come back.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from hawser.errors import OutcomeUnknown, StoreUnavailable
from hawser.job import NewJob, State
from hawser.lab.cluster import Cluster
from hawser.lab.load import workers
from hawser.stores.postgres import PostgresStore
from hawser.stores.postgres.address import parse

BACK_WITHIN = 5.0


class Producers:
    """Enqueue without a pause, and remember what was accepted."""

    def __init__(self, url: str) -> None:
        self._store = PostgresStore(parse(url))
        self._stopped = asyncio.Event()
        self.accepted: list[str] = []
        self.unknown = 0
        self.refused = 0

    async def run(self) -> None:
        await self._store.open()
        await asyncio.gather(*(self._produce() for _ in range(8)))
        await self._store.close()

    async def _produce(self) -> None:
        while not self._stopped.is_set():
            jobs = [NewJob(task="noop", body=b'{"seq": 1, "to": "a"}') for _ in range(20)]
            while True:
                try:
                    await self._store.enqueue(jobs)
                    self.accepted += [job.id for job in jobs]
                    break
                except OutcomeUnknown:
                    # Repeated with the same ids until it is known.
                    self.unknown += 1
                except StoreUnavailable:
                    self.refused += 1
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.02)

    def stop(self) -> None:
        self._stopped.set()


async def drill(times: int, away: float) -> int:
    rng = random.Random(1)
    with Cluster(settings={"max_connections": 200}) as cluster, tempfile.TemporaryDirectory() as folder:
        store = PostgresStore(parse(cluster.url))
        await store.open()
        producers = Producers(cluster.url)
        producing = asyncio.create_task(producers.run())
        back: list[float] = []
        with workers(cluster.url, Path(folder), processes=2, slots=100, claim_batch=100) as worker:
            await progress(store, 0)
            for _ in range(times):
                await asyncio.sleep(rng.uniform(1, 2))
                await asyncio.to_thread(cluster.kill)
                await asyncio.sleep(away)
                await asyncio.to_thread(cluster.start)
                ready = time.monotonic()
                done = await done_now(store)
                await progress(store, done)
                back.append(time.monotonic() - ready)
                assert worker.lives, "the worker died"
            producers.stop()
            await producing
            await settled(store, len(producers.accepted))
        lost = [id for id in producers.accepted if not await is_done(store, id)]
        await store.close()
    said = {
        "kills": times,
        "accepted": len(producers.accepted),
        "lost": len(lost),
        "enqueues refused": producers.refused,
        "enqueues unknown, repeated": producers.unknown,
        "back_s_median": round(sorted(back)[len(back) // 2], 2),
        "back_s_max": round(max(back), 2),
    }
    print(json.dumps(said, indent=2))
    return 1 if lost or max(back) > BACK_WITHIN else 0


async def done_now(store: PostgresStore) -> int:
    while True:
        try:
            return (await store.stats("default")).done
        except (StoreUnavailable, OutcomeUnknown):
            await asyncio.sleep(0.02)


async def progress(store: PostgresStore, done: int) -> None:
    """Until more jobs are done than there were."""
    while await done_now(store) <= done:
        await asyncio.sleep(0.02)


async def settled(store: PostgresStore, count: int) -> None:
    """Until nothing waits and nothing runs."""
    async with asyncio.timeout(120):
        while True:
            stats = await store.stats("default")
            if stats.done >= count and not stats.ready and not stats.running and not stats.retrying:
                return
            await asyncio.sleep(0.2)


async def is_done(store: PostgresStore, id: str) -> bool:
    job = await store.get(id)
    return job is not None and job.state is State.DONE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--seconds-away", type=float, default=1.0)
    asked = parser.parse_args()
    return asyncio.run(drill(asked.times, asked.seconds_away))


if __name__ == "__main__":
    sys.exit(main())
